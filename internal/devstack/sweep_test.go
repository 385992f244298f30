package devstack

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// leftover makes what a killed process leaves of a temporary directory.
func leftover(t *testing.T, parent, name, lock string) string {
	t.Helper()
	dir := filepath.Join(parent, name)
	for _, err := range []error{
		os.MkdirAll(filepath.Join(dir, "data", "deep"), 0o700),
		os.WriteFile(filepath.Join(dir, "data", "deep", "file"), []byte("x"), 0o600),
		os.WriteFile(filepath.Join(dir, lock), nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// exists reports whether the file of a leftover is there.
func exists(t *testing.T, dir string) bool {
	t.Helper()
	_, err := os.Stat(filepath.Join(dir, "data", "deep", "file"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

func TestSweepRemovesOnlyItsOwn(t *testing.T) {
	t.Parallel()
	parent, elsewhere := t.TempDir(), t.TempDir()
	stale := []string{
		leftover(t, parent, "flashgate-postgres-1", temporaryLock),
		leftover(t, parent, "flashgate-redis-2", temporaryLock),
	}
	link := filepath.Join(stale[0], "data", "link")
	if err := os.Symlink(elsewhere, link); err != nil {
		t.Fatal(err)
	}
	if user, err := unprivileged(); err != nil || user.own(stale[0]) != nil {
		t.Fatal(err)
	}

	held := leftover(t, parent, "flashgate-redis-3", temporaryLock)
	lock, err := takeLock(filepath.Join(held, temporaryLock))
	if err != nil {
		t.Fatal(err)
	}
	linkedLock := leftover(t, parent, "flashgate-redis-4", "real")
	if err := os.Symlink("real", filepath.Join(linkedLock, temporaryLock)); err != nil {
		t.Fatal(err)
	}
	kept := map[string]string{
		"in use":                  held,
		"lock is a link":          linkedLock,
		"no lock yet":             leftover(t, parent, "flashgate-redis-5", "other"),
		"kept by its user":        leftover(t, parent, "flashgate-postgres-6", keptLock),
		"another name":            leftover(t, parent, "someone-redis-7", temporaryLock),
		"outside, behind a link":  leftover(t, elsewhere, "flashgate-redis-8", temporaryLock),
		"outside, linked from in": leftover(t, elsewhere, "anything", keptLock),
	}
	for _, target := range []string{kept["outside, behind a link"], linkedLock} {
		if err := os.Symlink(target, filepath.Join(parent, "flashgate-link-"+filepath.Base(target))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(parent, "flashgate-file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		foreign := leftover(t, parent, "flashgate-redis-9", temporaryLock)
		if err := os.Chown(foreign, 54321, 54321); err != nil {
			t.Fatal(err)
		}
		kept["of somebody else"] = foreign
	}

	sweep(parent)

	for _, dir := range stale {
		if _, err := os.Lstat(dir); !os.IsNotExist(err) {
			t.Errorf("%s is still there (%v)", dir, err)
		}
	}
	for why, dir := range kept {
		if !exists(t, dir) {
			t.Errorf("removed %s: %s", dir, why)
		}
	}
	if _, err := os.Stat(filepath.Join(parent, "flashgate-file")); err != nil {
		t.Error(err)
	}

	if err := releaseLock(lock); err != nil {
		t.Fatal(err)
	}
	sweep(parent)
	if exists(t, held) {
		t.Errorf("%s is still there after its owner's end", held)
	}
}

// Each of these sweeps while the others make and remove theirs.
func TestTemporaryDirectoriesSurviveTheSweepsOfOthers(t *testing.T) {
	t.Setenv("TMPDIR", OpenTempDir(t))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 40 {
				d, err := openDir("", "redis")
				if err != nil {
					t.Error(err)
					return
				}
				mine, err := d.lock.Stat()
				if err != nil {
					t.Error(err)
				}
				sweep(filepath.Dir(d.path))
				if now, err := os.Lstat(d.file(temporaryLock)); err != nil || !os.SameFile(mine, now) {
					t.Errorf("the directory %s was taken away: %v", d.path, err)
				}
				if err := d.close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestLockThatWasReplacedIsNotHeld(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	late, err := os.Create(path) // opened by us, then swept by another, then made anew by a third
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close() //nolint:errcheck // a test
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	inPlace := func() (os.FileInfo, error) { return os.Lstat(path) }
	if err := holdLock(late, inPlace); !errors.Is(err, errInUse) {
		t.Errorf("with no lock in place: %v", err)
	}
	third, err := takeLock(path)
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close() //nolint:errcheck // a test
	if err := holdLock(late, inPlace); !errors.Is(err, errInUse) {
		t.Errorf("with another lock in place: %v", err)
	}
	if _, err := takeLock(path); !errors.Is(err, errInUse) {
		t.Errorf("a lock that is held: %v", err)
	}
	if err := os.Symlink(path, path+"2"); err != nil {
		t.Fatal(err)
	}
	if _, err := takeLock(path + "2"); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("a lock behind a link: %v", err)
	}
}

// A child that is being started has a copy of every descriptor for a moment.
func TestReleasedLockIsFreeWhateverCopiesThereAre(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	lock, err := takeLock(path)
	if err != nil {
		t.Fatal(err)
	}
	duplicate, err := syscall.Dup(int(lock.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(duplicate) //nolint:errcheck // a test
	if err := releaseLock(lock); err != nil {
		t.Fatal(err)
	}
	again, err := takeLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := releaseLock(again); err != nil {
		t.Error(err)
	}
}
