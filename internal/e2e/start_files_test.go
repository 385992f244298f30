package e2e

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"flashgate/internal/devstack/devtest"
)

// startWithFiles starts a gateway that may have only so many files open. The program that is started is the test's own, which lowers the limit.
func startWithFiles(t *testing.T, env []string, files int) *role {
	t.Helper()
	usual := binary
	defer func() { binary = usual }()
	binary = filepath.Join(t.TempDir(), "flashgate")
	script := "#!/bin/sh\nulimit -n " + itoa(int64(files)) + " && exec " + usual + " \"$@\"\n"
	if err := os.WriteFile(binary, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return start(t, env, "gateway")
}

// Connections that do nothing take no more file descriptors than the sale can spare: operators get in, and so do those who were there before.
func TestIdleConnectionsStarveNobody(t *testing.T) {
	s := newShop(t, devtest.Redis(t).URL(), kfake(t)).open(1, 1)
	item := s.offer(5, 1)
	g := startWithFiles(t, s.env, 320)
	s.awaitReady(g)
	s.gateways = []*role{g}
	s.awaitItem(0, item)
	address := strings.TrimPrefix(g.public, "http://")
	for range 400 {
		if c, err := net.Dial("tcp", address); err == nil {
			t.Cleanup(func() { _ = c.Close() })
		}
	}
	devtest.Eventually(t, 30*time.Second, func() bool {
		got := raw(t, g.public, "GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
		return strings.HasPrefix(got, "HTTP/1.1 503 ") && strings.Contains(got, `"OVERLOADED"`)
	}, "everybody is let in")
	s.client.CloseIdleConnections() // of operators: the next one is new
	if a := s.try("GET", g.admin+"/readyz", nil, nil); a.status != 200 {
		t.Errorf("operators: %v", a)
	}
	if !strings.Contains(g.output.String(), "ulimit") {
		t.Error("it is not said that there is little room")
	}
}
