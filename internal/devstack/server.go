package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// startTimeout bounds a start whose context does not. A Kafka broker is there after
	// two seconds on an idle machine; CI machines are not idle.
	startTimeout = 90 * time.Second
	// readyPoll is how often a starting server is asked whether it is ready. The quickest
	// needs 12 ms, and a question costs microseconds.
	readyPoll = 3 * time.Millisecond
	// tailBytes of the log go into the error of a failed start.
	tailBytes = 4 << 10
)

// server is one child process together with what is needed to start it again on the
// same ports and directory.
type server struct {
	dir   *workDir
	cmd   command
	ready func(ctx context.Context, s *server) (bool, error) // asked until true or an error

	mu       sync.Mutex // guards what follows; held during a whole start or stop
	child    *child     // the current process, or the last one
	logStart int64      // where the current process's output begins in the log
	stopped  bool       // by Stop: for good
}

// start runs the command and waits until the server is ready. The child is gone when it
// returns an error.
func (s *server) start(ctx context.Context) error {
	return s.launch(ctx, s.awaitReady)
}

// run runs a command that does its work and ends, and waits for that.
func run(ctx context.Context, c command) error {
	s := &server{cmd: c}
	return s.launch(ctx, func(ctx context.Context) error {
		select {
		case <-s.child.done:
			return s.child.err
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

func (s *server) launch(ctx context.Context, await func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	s.logStart = 0
	if info, err := os.Stat(s.cmd.log); err == nil {
		s.logStart = info.Size()
	}
	c, err := startChild(s.cmd)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.cmd.name, err)
	}
	s.child = c
	if err := await(ctx); err != nil {
		return s.failed(errors.Join(err, c.kill()))
	}
	return nil
}

func (s *server) awaitReady(ctx context.Context) error {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		ok, err := s.ready(ctx, s)
		if ok || err != nil {
			return err
		}
		select {
		case <-s.child.done:
			return fmt.Errorf("it ended before it was ready (%v)", s.child.cmd.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("wait until it is ready: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// failed dresses the error of a start with the end of the log, and marks it where the
// log speaks of a port in use, in the words that the C library and Java share.
func (s *server) failed(err error) error {
	log := s.output()
	if strings.Contains(log, "ddress already in use") {
		err = fmt.Errorf("%w: %w", errPortTaken, err)
	}
	if len(log) > tailBytes {
		log = "…" + log[len(log)-tailBytes:]
	}
	return fmt.Errorf("start %s: %w; end of %s:\n%s", s.cmd.name, err, s.cmd.log, strings.TrimSpace(log))
}

// output is what the current process has written so far, at most its last megabyte.
func (s *server) output() string {
	f, err := os.Open(s.cmd.log)
	if err != nil {
		return ""
	}
	defer f.Close() //nolint:errcheck // only read
	from := s.logStart
	if info, err := f.Stat(); err == nil {
		from = max(from, info.Size()-1<<20)
	}
	text, err := io.ReadAll(io.NewSectionReader(f, from, 1<<20))
	if err != nil {
		return ""
	}
	return string(text)
}

// Stop ends the server in an orderly way, waits for it, and removes a temporary
// directory. It may be called again; a stopped server cannot be restarted.
func (s *server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	return errors.Join(s.child.stop(s.cmd.stop, stopGrace), s.dir.close())
}

// Kill ends the server with SIGKILL, as a crash would, and waits for it. Its directory
// and ports stay reserved for Restart.
func (s *server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.child.kill()
}

// Pause freezes the server: connections stay open and are accepted, nothing is answered.
func (s *server) Pause() error { return s.signal(syscall.SIGSTOP) }

// Resume wakes a frozen server.
func (s *server) Resume() error { return s.signal(syscall.SIGCONT) }

func (s *server) signal(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.child.signal(sig)
}

// Restart stops the server, unless it has ended, and starts it again on the same port
// and directory.
func (s *server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return fmt.Errorf("restart %s: it was stopped for good", s.cmd.name)
	}
	if err := s.child.stop(s.cmd.stop, stopGrace); err != nil {
		return err
	}
	return s.start(ctx)
}

// Done is closed when the current process has ended, whoever ended it.
func (s *server) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.child.done
}
