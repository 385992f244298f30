package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"flashgate/internal/admin"
	"flashgate/internal/config"
	"flashgate/internal/sale"
)

// adminCall is what every command has that asks the admin API.
type adminCall struct {
	Output string `name:"output" short:"o" enum:"table,json" default:"table" placeholder:"FORMAT" help:"table for people, or json as the server gave it"`
	config.AdminClient
}

// page is which part of a list is asked for.
type page struct {
	Limit  int    `name:"limit" default:"20" min:"1" max:"100" type:"count" help:"Entries on one page"`
	Cursor string `name:"cursor" placeholder:"CURSOR" help:"Where the page before ended"`
}

// more says how the next page is asked for, if there is one.
func more(w io.Writer, cursor *string) {
	if cursor != nil {
		row(w, "more with --cursor "+shown(*cursor))
	}
}

// ask makes one call, and writes the answer as JSON or with the given function.
func ask[T any](c *adminCall, std *console, call func(*admin.Client) (admin.Answer[T], error), table func(io.Writer, T)) error {
	client := admin.NewClient(c.AdminURL, c.AdminToken.Reveal())
	defer client.Close()
	answer, err := call(client)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		_, err = std.out.Write(append(bytes.TrimRight(answer.JSON, "\n"), '\n'))
		return err
	}
	w := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	table(w, answer.Value)
	return w.Flush()
}

// id is an argument that is the id of a sale or an item.
type id int64

// UnmarshalText implements encoding.TextUnmarshaler.
func (n *id) UnmarshalText(text []byte) error {
	parsed, err := sale.ParseID(text)
	if err != nil {
		return fmt.Errorf("%q: %w", text, err)
	}
	*n = id(parsed)
	return nil
}

// row writes the cells of one line.
func row(w io.Writer, cells ...any) {
	for i, cell := range cells {
		if i > 0 {
			_, _ = fmt.Fprint(w, "\t")
		}
		_, _ = fmt.Fprint(w, cell)
	}
	_, _ = fmt.Fprintln(w)
}

// shown is a text of the server as it may be written to a terminal: nothing in it steers one, or shifts a column. Breaks of lines and tabs are blanks.
func shown(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsGraphic(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return unicode.ReplacementChar
	}, text)
}

// oneLine makes one line of a text that has several, as the errors of databases are.
func oneLine(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || b.Len() == 0:
		case strings.HasSuffix(b.String(), ":"):
			b.WriteByte(' ')
		default:
			b.WriteString("; ")
		}
		b.WriteString(line)
	}
	return b.String()
}

// number writes what may be unknown.
func number[T any](n *T) string {
	if n == nil {
		return "unknown"
	}
	return fmt.Sprint(*n)
}

func instant(t admin.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// readInput reads a file, or the standard input for "-", up to what the server takes. Whether it makes sense is the server's to say: he names the place.
func readInput(std *console, path string) ([]byte, error) {
	in := std.in
	if path != "-" {
		file, err := os.Open(path) //nolint:gosec // G304: the user names it
		if err != nil {
			return nil, fmt.Errorf("read the sale: %w", err)
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	data, err := io.ReadAll(io.LimitReader(in, admin.MaxBody+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the sale: %w", err)
	case len(data) > admin.MaxBody:
		return nil, fmt.Errorf("read the sale: it is larger than %d bytes", admin.MaxBody)
	case len(bytes.TrimSpace(data)) == 0:
		return nil, fmt.Errorf("read the sale: %s is empty", path)
	}
	return data, nil
}
