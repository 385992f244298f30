package devstack

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// A system that does not show a process its open files gets an error that says what to
// do, before any server runs.
func TestEntranceNeedsOpenFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := openEntrance(dir, filepath.Join(dir, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing shows open files: the error is %v", err)
	}
	if _, err := openEntrance(filepath.Join(dir, "missing"), ownDescriptors); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: the error is %v", err)
	}
	e, err := openEntrance(dir, ownDescriptors)
	if err != nil {
		t.Fatal(err)
	}
	defer e.close() //nolint:errcheck // a test
	e.descriptors = t.TempDir()
	if err := os.Mkdir(filepath.Join(e.descriptors, strconv.Itoa(int(e.dir.Fd()))), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := e.check(); err == nil || !strings.Contains(err.Error(), "leads elsewhere") {
		t.Errorf("something else is shown: the error is %v", err)
	}
}

// What a server can do with the entrance: use its own directory, and nothing that the
// closed one above it keeps from him.
func TestEntranceOpensOneDirectory(t *testing.T) {
	t.Parallel()
	user, err := unprivileged()
	if err != nil {
		t.Fatal(err)
	}
	closed := filepath.Join(OpenTempDir(t), "closed")
	dir := filepath.Join(closed, "dir")
	for _, err := range []error{
		os.MkdirAll(dir, 0o755), os.Chmod(closed, 0o700), user.own(dir),
		os.WriteFile(filepath.Join(closed, "secret"), []byte("secret"), 0o644), // only the closed directory guards it
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	e, err := openEntrance(dir, ownDescriptors)
	if err != nil {
		t.Fatal(err)
	}
	defer e.close() //nolint:errcheck // a test
	try := func(script string) error {
		c := command{
			name: "script", path: "/bin/sh", args: []string{"-c", script}, log: filepath.Join(closed, "log"),
			credential: user.credential(), stop: syscall.SIGTERM, orphaned: syscall.SIGKILL,
		}
		e.admit(&c)
		return run(t.Context(), c)
	}
	if err := try("echo yes > " + e.file("file") + " && cat " + e.file("file")); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(text) != "yes\n" {
		t.Errorf("the file holds %q, %v", text, err)
	}
	if user == nil {
		return // the owner himself: nothing is closed to him
	}
	for _, path := range []string{filepath.Join(closed, "secret"), e.file("") + "/../secret"} {
		var failed *exec.ExitError
		if err := try("cat " + path); !errors.As(err, &failed) || !strings.Contains(err.Error(), "Permission denied") {
			t.Errorf("reading %s: %v", path, err)
		}
	}
}
