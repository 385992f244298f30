package devstack

import (
	"os"
	"testing"
)

// OpenTempDir makes a directory that the user who runs PostgreSQL may enter; those of
// t.TempDir are closed to everybody else.
func OpenTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "flashgate-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
