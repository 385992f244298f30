// Command flashgate is a purchase gateway for flash sales: every role of it, and the tools around it, one command each.
//
//	flashgate COMMAND --help
//
// lists the settings of a command, with unit and default. Exit codes: 0 done, 1 it failed, 2 the command line or a variable is wrong.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"unicode"

	"github.com/alecthomas/kong"

	"flashgate/internal/config"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// console is where a command reads and writes.
type console struct {
	in       io.Reader
	out, err io.Writer
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks to stop. From then on signals have their usual effect again, so that a second one ends what does not stop.
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], os.Environ(), console{os.Stdin, os.Stdout, os.Stderr})
	stop()
	os.Exit(code)
}

// run parses the command line, runs the command until it is done or ctx ends, and returns the exit code. Errors are one line on console.err.
func run(ctx context.Context, args, environ []string, std console) int {
	parsed, code := parse(args, environ, std)
	if parsed == nil {
		return code
	}
	parsed.BindTo(ctx, (*context.Context)(nil))
	parsed.Bind(&std)
	err := parsed.Run()
	if err == nil {
		return exitOK
	}
	if errors.As(err, new(usageError)) {
		complain(std, err.Error()+"; see flashgate "+strings.TrimSpace(parsed.Selected().Path())+" --help")
		return exitUsage
	}
	complain(std, config.Message(err))
	if errors.As(err, new(*config.Error)) {
		return exitUsage
	}
	return exitFailed
}

// usageError is an error that the command line alone is to blame for, found by the command itself.
type usageError string

// Error implements error.
func (e usageError) Error() string { return string(e) }

// parse returns the chosen command with its settings, or nil and the exit code when there is nothing to run.
func parse(args, environ []string, std console) (*kong.Context, int) {
	helped := false
	options := append(config.Options(config.NewEnv(environ)),
		kong.Name("flashgate"),
		kong.Description("A purchase gateway for flash sales. Every setting is a flag and a variable; NAME_FILE names a file with the value of the variable NAME."),
		kong.Writers(std.out, std.err),
		// kong asks to exit after it has printed the help, and goes on when that returns.
		kong.Exit(func(int) { helped = true }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 120}),
	)
	parser, err := kong.New(&cli{}, options...)
	if err != nil {
		panic("flashgate: the commands contradict each other: " + err.Error()) // a mistake in the program
	}
	parsed, err := parser.Parse(args)
	switch {
	case helped:
		return nil, exitOK
	case err == nil:
		return parsed, exitOK
	case errors.As(err, new(*config.Error)):
		complain(std, config.Message(err))
	default:
		complain(std, misread(err)+"; see flashgate "+chosen(err)+"--help")
	}
	return nil, exitUsage
}

// misread is what kong has to say, but for a number below 0, which it takes for a flag and likens to others. No command has a use for one.
func misread(err error) string {
	flag, ok := strings.CutPrefix(err.Error(), "unknown flag -")
	if !ok || flag == "" || !unicode.IsDigit(rune(flag[0])) {
		return err.Error()
	}
	number, _, _ := strings.Cut(flag, ",")
	return "-" + number + " is no flag, and as a number it must be positive"
}

// chosen returns the command to which a command line got, followed by a blank; "" for none.
func chosen(err error) string {
	var parseErr *kong.ParseError
	if !errors.As(err, &parseErr) || parseErr.Context == nil || parseErr.Context.Selected() == nil {
		return ""
	}
	return strings.TrimSpace(parseErr.Context.Selected().Path()) + " "
}

// complain writes an error as one line. What a server said is part of it, so nothing in it may steer a terminal.
func complain(std console, message string) {
	message = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, message)
	_, _ = fmt.Fprintln(std.err, "flashgate: "+strings.Join(strings.Fields(message), " "))
}
