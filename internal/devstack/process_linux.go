package devstack

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// childAttributes gives the child a process group of its own and a signal for the case
// that we die without stopping it.
func childAttributes(c command) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: c.orphaned, Credential: c.credential}
}

// awaitExit blocks until the child with this id has ended, and leaves it unreaped.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
