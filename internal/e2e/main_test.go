package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"flashgate/internal/devstack/devtest"
)

// binary is flashgate, built with the race detector.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "flashgate-e2e-")
	if err == nil {
		binary = filepath.Join(dir, "flashgate")
		build := exec.Command("go", "build", "-race", "-buildvcs=false", "-o", binary, "flashgate/cmd/flashgate")
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		err = build.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build flashgate for the tests:", err)
		os.Exit(1)
	}
	devtest.AtEnd(func() { _ = os.RemoveAll(dir) })
	devtest.Main(m)
}
