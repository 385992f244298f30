package devstack

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// sweep removes the temporary directories below parent that killed processes of ours
// have left behind. Nothing depends on it: what cannot be removed now stays for the next
// sweep.
//
// The server of a killed process may still be about to end. It has lost its owner and
// with it its purpose, and what it writes while we remove its files stays for the next
// sweep, too.
func sweep(parent string) {
	above, err := os.OpenRoot(parent)
	if err != nil {
		return
	}
	defer above.Close() //nolint:errcheck // only read
	entries, err := fs.ReadDir(above.FS(), ".")
	if err != nil {
		return
	}
	for _, entry := range entries {
		if entry.IsDir() && strings.HasPrefix(entry.Name(), temporaryPrefix) {
			_ = sweepDir(above, entry.Name()) // somebody else's, in use, or for the next time
		}
	}
}

// errNotOurs says that a directory must not be removed.
var errNotOurs = errors.New("not a temporary directory of ours")

// sweepDir removes one directory if it is ours and nobody uses it. Everybody may write
// into the parent, and the server's user into the directory, while we may be root: so
// everything is done relative to the open directory, never by a path on which somebody
// may exchange a directory for a link.
func sweepDir(above *os.Root, name string) error {
	dir, err := above.OpenRoot(name)
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // only read
	info, err := dir.Stat(".")
	if err != nil {
		return err
	}
	if !ours(info) {
		return errNotOurs
	}
	lock, err := lockLeftover(dir)
	if err != nil {
		return err
	}
	defer releaseLock(lock) //nolint:errcheck // it is removed
	// The lock file goes last: without it a directory is never swept again.
	entries, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Name() != temporaryLock {
			err = errors.Join(err, dir.RemoveAll(entry.Name()))
		}
	}
	if err != nil {
		return err
	}
	if err := dir.Remove(temporaryLock); err != nil {
		return err
	}
	return above.Remove(name)
}

// lockLeftover locks a directory whose owner is gone. There must be a lock file: without
// one, the directory is none of ours, or its owner is just about to make it.
func lockLeftover(dir *os.Root) (*os.File, error) {
	inPlace := func() (os.FileInfo, error) { return dir.Lstat(temporaryLock) }
	if info, err := inPlace(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(errNotOurs, err)
	}
	lock, err := dir.OpenFile(temporaryLock, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	if err := holdLock(lock, inPlace); err != nil {
		return nil, errors.Join(err, releaseLock(lock))
	}
	return lock, nil
}

// ours reports whether a directory belongs to us or, as PostgreSQL's does when we are
// root, to the server's user.
func ours(info os.FileInfo) bool {
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	if int(owner.Uid) == os.Geteuid() {
		return true
	}
	user, err := unprivileged()
	return err == nil && user != nil && int(owner.Uid) == user.uid
}
