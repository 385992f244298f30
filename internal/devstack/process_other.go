//go:build unix && !linux

package devstack

import "syscall"

// childAttributes gives the child a process group of its own. There is no parent-death
// signal here: a flashgate killed with -9 leaves its servers running.
func childAttributes(c command) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: c.credential}
}

// awaitExit returns at once: Wait alone has to do.
func awaitExit(int) {}
