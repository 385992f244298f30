package devstack

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// shell runs a script as a child.
func shell(t *testing.T, script string) *server {
	t.Helper()
	dir := t.TempDir()
	s := &server{
		dir: &workDir{path: dir},
		cmd: command{
			name: "script", path: "/bin/sh", args: []string{"-c", script},
			dir: dir, log: filepath.Join(dir, "log"),
			stop: syscall.SIGTERM, orphaned: syscall.SIGKILL,
		},
		ready: func(_ context.Context, s *server) (bool, error) {
			return strings.Contains(s.output(), "ready"), nil
		},
	}
	return s
}

func TestStubbornChildIsKilled(t *testing.T) {
	t.Parallel()
	s := shell(t, `trap "" TERM; echo ready; while :; do read line < /dev/zero; done`)
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.child.stop(syscall.SIGTERM, 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if status := s.child.cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %v", s.child.cmd.ProcessState)
	}
}

func TestChildTakesItsGroupAlong(t *testing.T) {
	t.Parallel()
	s := shell(t, `sleep 1000 & echo $! ready; wait`)
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.Fields(s.output())[0])
	if err != nil {
		t.Fatal(err)
	}
	// It may be a zombie for as long as init takes to reap it.
	gone := func() bool {
		status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		return err != nil || strings.Contains(string(status), ") Z ")
	}
	for deadline := time.After(time.Minute); !gone(); {
		select {
		case <-deadline:
			t.Fatalf("process %d of the group is still there", pid)
		case <-time.After(time.Millisecond):
		}
	}
}

func TestChildInheritsNothingElse(t *testing.T) {
	t.Setenv("PGDATA", "/nowhere")
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	if err := run(t.Context(), command{name: "env", path: "/usr/bin/env", dir: dir, log: log, orphaned: syscall.SIGKILL}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Fields(string(text))
	slices.Sort(got)
	if want := []string{"LC_ALL=C.UTF-8", "PATH=" + os.Getenv("PATH"), "TZ=UTC"}; !slices.Equal(got, want) {
		t.Errorf("the environment is %q", got)
	}
}

func TestFailedStartLeavesNoProcessAndTellsTheLog(t *testing.T) {
	t.Parallel()
	s := shell(t, `echo no such luck; exec sleep 1000`)
	ctx, cancel := context.WithCancelCause(t.Context())
	tired := errors.New("tired of waiting")
	s.ready = func(_ context.Context, s *server) (bool, error) {
		if strings.Contains(s.output(), "luck") {
			cancel(tired)
		}
		return false, nil
	}
	err := s.start(ctx)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "no such luck") {
		t.Errorf("the error is %v", err)
	}
	if !s.child.ended() {
		t.Error("the process is still there")
	}

	s = shell(t, `echo out of paper; exit 3`)
	err = s.start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "out of paper") {
		t.Errorf("the error is %v", err)
	}
}
