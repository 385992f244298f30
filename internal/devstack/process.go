package devstack

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// stopGrace is how long a server may take to stop when asked before it is killed. The
// slowest of them, a Kafka broker, needs half a second on an idle machine.
const stopGrace = 20 * time.Second

// command says how to run one child process.
type command struct {
	name string // for messages: "PostgreSQL"
	path string // absolute path of the binary
	args []string
	dir  string // working directory
	log  string // file that stdout and stderr are appended to

	credential *syscall.Credential // nil: as ourselves
	inherits   []*os.File          // its descriptors from firstInherited on
	stop       syscall.Signal      // asks the process to stop
	orphaned   syscall.Signal      // what it gets when we die
}

// firstInherited is the descriptor after standard input, output and error.
const firstInherited = 3

// child is a running process and, once done is closed, how it ended.
type child struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of Wait; read it only after done is closed
}

// startChild starts c and reaps it when it ends.
//
// The kernel sends the parent-death signal when the thread that forked the child ends,
// not when the process does. A goroutine that happens to start a server may run on a
// thread which the runtime retires a moment later, which would take the server along.
// So every child has a goroutine of its own, locked to its thread for as long as the
// child lives.
func startChild(c command) (*child, error) {
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", c.name, err)
	}
	defer log.Close() //nolint:errcheck // the child has its own descriptor

	cmd := exec.Command(c.path, c.args...)
	cmd.Dir = c.dir
	cmd.Env = bareEnvironment()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = c.inherits
	cmd.SysProcAttr = childAttributes(c)

	p := &child{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.reap()
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("run %s: %w", c.path, err)
	}
	return p, nil
}

// reap waits for the end of the process and of what it left in its process group. The
// group is signalled while the leader is still a zombie: its number cannot have been
// given to somebody else by then.
func (p *child) reap() {
	awaitExit(p.cmd.Process.Pid)
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	p.err = p.cmd.Wait()
	close(p.done)
}

// pid is the process id of the child; it stays the same after its end.
func (p *child) pid() int { return p.cmd.Process.Pid }

// ended reports whether the process is gone.
func (p *child) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// signal sends sig; a process that has ended is no error.
func (p *child) signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %v to process %d: %w", sig, p.pid(), err)
	}
	return nil
}

// stop asks the process to end with sig, kills it after the grace time, and waits.
func (p *child) stop(sig syscall.Signal, grace time.Duration) error {
	if err := p.signal(sig); err != nil {
		return err
	}
	// A frozen process acts on no signal but SIGKILL until it is woken.
	if err := p.signal(syscall.SIGCONT); err != nil {
		return err
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		return p.kill()
	}
}

// kill ends the process with SIGKILL and waits for it.
func (p *child) kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

// bareEnvironment is all that a child inherits: where programs are, and one language
// and time zone for everybody.
func bareEnvironment() []string {
	path := os.Getenv("PATH")
	if path == "" {
		path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	return []string{"PATH=" + path, "LC_ALL=C.UTF-8", "TZ=UTC"}
}
