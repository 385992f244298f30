package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"flashgate/internal/devstack/devtest"
)

// What every role is given unless a test says otherwise.
const (
	jwtSecret  = "a-secret-for-end-to-end-tests-0123456789"
	adminToken = "an-admin-token-for-tests"
)

// role is one running process of flashgate.
type role struct {
	tb     testing.TB
	name   string
	cmd    *exec.Cmd
	output *buffer
	done   chan struct{}
	public string // base URL of the public edge, of gateways
	admin  string // base URL of the admin listener
}

// start runs flashgate with the arguments and waits until it says that it listens.
func start(tb testing.TB, env []string, args ...string) *role {
	tb.Helper()
	r := launch(tb, env, args...)
	devtest.Eventually(tb, time.Minute, func() bool {
		select {
		case <-r.done:
			tb.Fatalf("%s ended at once:\n%s", r.name, r.output)
		default:
		}
		return r.findAddresses()
	}, "%s does not say where it listens:\n%s", r.name, r.output)
	return r
}

// launch runs flashgate without waiting for anything. It is killed at the end of the test if it still runs.
func launch(tb testing.TB, env []string, args ...string) *role {
	tb.Helper()
	r := &role{tb: tb, name: "flashgate " + strings.Join(args, " "), output: &buffer{}, done: make(chan struct{})}
	r.cmd = exec.Command(binary, args...)
	r.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir(), "GORACE=halt_on_error=1"}, env...)
	r.cmd.Stdout, r.cmd.Stderr = r.output, r.output
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := r.cmd.Start(); err != nil {
		tb.Fatalf("start %s: %v", r.name, err)
	}
	go func() {
		defer close(r.done)
		_ = r.cmd.Wait()
	}()
	tb.Cleanup(func() {
		r.kill()
		if strings.Contains(r.output.String(), "DATA RACE") {
			tb.Errorf("%s has a data race:\n%s", r.name, r.output)
		}
		if tb.Failed() {
			tb.Logf("output of %s:\n%s", r.name, tail(r.output.String(), 60))
		}
	})
	return r
}

var listening = regexp.MustCompile(`msg="?listening"?.*`)
var address = regexp.MustCompile(`\b(public|admin)=(\S+)`)

func (r *role) findAddresses() bool {
	line := listening.FindString(r.output.String())
	if line == "" {
		return false
	}
	for _, match := range address.FindAllStringSubmatch(line, -1) {
		if match[1] == "public" {
			r.public = "http://" + match[2]
		} else {
			r.admin = "http://" + match[2]
		}
	}
	return true
}

// kill ends the process without a chance to do anything.
func (r *role) kill() {
	_ = r.cmd.Process.Kill()
	<-r.done
}

// stop asks the process to end, and fails the test unless it ends with status 0.
func (r *role) stop() {
	r.tb.Helper()
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	if code := r.wait(30 * time.Second); code != 0 {
		r.tb.Errorf("%s ended with status %d:\n%s", r.name, code, tail(r.output.String(), 40))
	}
}

// wait returns the exit status.
func (r *role) wait(limit time.Duration) int {
	r.tb.Helper()
	select {
	case <-r.done:
		return r.cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		r.tb.Fatalf("%s has not ended after %s:\n%s", r.name, limit, tail(r.output.String(), 40))
		return -1
	}
}

// run runs a command to its end and returns what it printed and its status.
func run(tb testing.TB, env []string, args ...string) (string, int) {
	tb.Helper()
	r := launch(tb, env, args...)
	code := r.wait(2 * time.Minute)
	return r.output.String(), code
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(len(all)-lines, 0):], "\n")
}

// buffer is a bytes.Buffer that a process writes while the test reads.
type buffer struct {
	mutex sync.Mutex
	bytes bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.bytes.Write(p)
}

func (b *buffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.bytes.String()
}
