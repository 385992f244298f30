package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"flashgate/gateway"
)

func TestRoomForConnections(t *testing.T) {
	for files, want := range map[uint64]int{
		1 << 30: gateway.DefaultMaxConns, ^uint64(0): gateway.DefaultMaxConns, 33792: gateway.DefaultMaxConns, 33791: gateway.DefaultMaxConns - 1,
		20000: 18976, 4096: 3072, 1024: 768, 512: 256, 256: 128, 3: 2, 1: 1, 0: 1,
	} {
		if got := roomForConns(files); got != want {
			t.Errorf("%d files: %d connections, want %d", files, got, want)
		}
	}
}

// The number that is used fits the process, and one that is below the usual is said.
func TestMaxConns(t *testing.T) {
	var log bytes.Buffer
	n := maxConns(slog.New(slog.NewTextHandler(&log, nil)))
	if n < 1 || n > gateway.DefaultMaxConns {
		t.Errorf("%d connections", n)
	}
	if files, known := openFiles(); known && uint64(n) >= files {
		t.Errorf("%d connections of %d files", n, files)
	}
	if said := strings.Contains(log.String(), "ulimit"); said != (n < gateway.DefaultMaxConns) {
		t.Errorf("%d connections, and the log says %q", n, log.String())
	}
}
