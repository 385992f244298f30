package devstack_test

import (
	"context"
	"os"
	"testing"
	"time"

	"flashgate/internal/devstack/devtest"
)

// TestMain doubles as the program that some tests run as a child process and kill.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		runRole(role)
		return
	}
	devtest.Main(m)
}

// startContext bounds the start of a server.
func startContext(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	tb.Cleanup(cancel)
	return ctx
}

// must fails the test on an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
