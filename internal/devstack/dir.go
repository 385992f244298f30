package devstack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// A temporary directory has a lock file of another name, so that no directory which
// somebody wants to keep can be taken for one, whatever its own name is.
const (
	keptLock      = "lock"
	temporaryLock = "temporary.lock"
)

// temporaryPrefix begins the name of every temporary directory.
const temporaryPrefix = "flashgate-"

// errInUse says that somebody else holds the lock of a directory.
var errInUse = errors.New("another process uses it")

// workDir is the directory of one server: a kept one that the caller named, or a
// temporary one that goes with the server. It is locked, as two servers on the same
// files would destroy them, and not every server notices by itself.
type workDir struct {
	path      string // without symbolic links
	temporary bool
	lock      *os.File
	entrance  *entrance // nil, unless a server needs one for as long as it lives
	once      sync.Once
	err       error
}

// openDir makes and locks dir; an empty dir stands for a temporary one named after what.
func openDir(dir, what string) (*workDir, error) {
	if dir == "" {
		return openTemporary(what)
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("find directory of %s: %w", what, err)
	}
	// 0755: as root, PostgreSQL runs as somebody else who must be able to enter.
	if err := os.MkdirAll(path, 0o755); err != nil { //nolint:gosec // see above; the data below is 0700
		return nil, fmt.Errorf("make directory of %s: %w", what, err)
	}
	// Where it really lies decides who can reach it.
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return nil, fmt.Errorf("find directory of %s: %w", what, err)
	}
	d := &workDir{path: path}
	if d.lock, err = takeLock(d.file(keptLock)); err != nil {
		return nil, fmt.Errorf("lock directory %s: %w", path, err)
	}
	return d, nil
}

// openTemporary makes and locks a temporary directory, and removes those that killed
// processes have left behind.
//
// It may itself be taken for one of these: we make the lock file, another process that
// sweeps finds it and locks it, and only then do we try to. So a directory that is not
// ours at once is left to whoever holds it, who removes it, and we make another one.
func openTemporary(what string) (*workDir, error) {
	sweep(os.TempDir())
	const attempts = 10
	for attempt := 1; ; attempt++ {
		path, err := os.MkdirTemp("", temporaryPrefix+what+"-")
		if err != nil {
			return nil, fmt.Errorf("make a directory for %s: %w", what, err)
		}
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return nil, fmt.Errorf("make a directory for %s: %w", what, err)
		}
		d := &workDir{path: path, temporary: true}
		d.lock, err = takeLock(d.file(temporaryLock))
		if err == nil {
			return d, nil
		}
		if attempt == attempts || !errors.Is(err, errInUse) {
			return nil, errors.Join(fmt.Errorf("lock directory %s: %w", path, err), d.close())
		}
	}
}

// takeLock takes an advisory lock that the kernel releases when this process ends,
// however it ends. It is errInUse when somebody else has it.
func takeLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := holdLock(f, func() (os.FileInfo, error) { return os.Lstat(path) }); err != nil {
		return nil, errors.Join(err, releaseLock(f))
	}
	return f, nil
}

// releaseLock gives a lock back and closes its file. Closing alone is not enough: a child
// that another goroutine starts at this moment has a copy of the descriptor until it runs
// its program, and as long as there is a copy, the lock is held.
func releaseLock(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}

// holdLock locks an open lock file and checks that it is still the one in place: whoever
// held it before may have removed it, and the next one to come makes and locks another.
func holdLock(f *os.File, inPlace func() (os.FileInfo, error)) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errInUse
	}
	if err != nil {
		return err
	}
	mine, err := f.Stat()
	if err != nil {
		return err
	}
	if now, err := inPlace(); err != nil || !os.SameFile(mine, now) {
		return errInUse
	}
	return nil
}

// file is the path of a file in the directory.
func (d *workDir) file(name string) string { return filepath.Join(d.path, name) }

// close removes a temporary directory and gives the lock back. It may be called again.
func (d *workDir) close() error {
	d.once.Do(func() {
		var errs []error
		if d.entrance != nil {
			errs = append(errs, d.entrance.close())
		}
		if d.temporary {
			errs = append(errs, os.RemoveAll(d.path))
		}
		if d.lock != nil {
			errs = append(errs, releaseLock(d.lock))
		}
		d.err = errors.Join(errs...)
	})
	return d.err
}
