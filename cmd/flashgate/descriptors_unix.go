//go:build linux || darwin

package main

import "syscall"

// openFiles is how many files the process may have open; false when that is not known. The Go runtime has raised the soft limit to the hard one by now.
func openFiles() (uint64, bool) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, false
	}
	return limit.Cur, true
}
