package devstack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// workDir is the directory of one server: a kept one that the caller named, or a
// temporary one that goes with the server. It is locked, as two servers on the same
// files would destroy them, and not every server notices by itself.
type workDir struct {
	path      string
	temporary bool
	lock      *os.File
	once      sync.Once
	err       error
}

// openDir makes and locks dir; an empty dir stands for a temporary one named after what.
func openDir(dir, what string) (*workDir, error) {
	d := &workDir{}
	if dir == "" {
		path, err := os.MkdirTemp("", "flashgate-"+what+"-")
		if err != nil {
			return nil, fmt.Errorf("make a directory for %s: %w", what, err)
		}
		d.path, d.temporary = path, true
	} else {
		path, err := filepath.Abs(dir)
		if err != nil {
			return nil, fmt.Errorf("find directory of %s: %w", what, err)
		}
		// 0755: as root, PostgreSQL runs as somebody else who must be able to enter.
		if err := os.MkdirAll(path, 0o755); err != nil { //nolint:gosec // see above; the data below is 0700
			return nil, fmt.Errorf("make directory of %s: %w", what, err)
		}
		d.path = path
	}
	if err := d.takeLock(); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// takeLock takes an advisory lock that the kernel releases when this process ends,
// however it ends.
func (d *workDir) takeLock() error {
	f, err := os.OpenFile(d.file("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("lock directory: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		d.lock = f
		return nil
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = errors.New("another process uses it")
	}
	return errors.Join(fmt.Errorf("lock directory %s: %w", d.path, err), f.Close())
}

// file is the path of a file in the directory.
func (d *workDir) file(name string) string { return filepath.Join(d.path, name) }

// close removes a temporary directory and gives the lock back. It may be called again.
func (d *workDir) close() error {
	d.once.Do(func() {
		var errs []error
		if d.temporary {
			errs = append(errs, os.RemoveAll(d.path))
		}
		if d.lock != nil {
			errs = append(errs, d.lock.Close())
		}
		d.err = errors.Join(errs...)
	})
	return d.err
}
