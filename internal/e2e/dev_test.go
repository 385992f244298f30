package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"flashgate/internal/devstack/devtest"
)

// inUse lists the processes whose command line names the directory.
func inUse(tb testing.TB, dir string) []string {
	tb.Helper()
	entries, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		tb.Fatal(err)
	}
	var found []string
	for _, entry := range entries {
		line, err := os.ReadFile(entry)
		if text := strings.ReplaceAll(string(line), "\x00", " "); err == nil && strings.Contains(text, dir) && !strings.HasPrefix(text, binary) {
			found = append(found, text)
		}
	}
	return found
}

// printed is what `flashgate dev` tells a newcomer to do: the ready purchase.
type printed struct{ url, token string }

var purchaseCommand = regexp.MustCompile(`(?s)curl.*?(http://[^\s'"]+/purchase)`)
var bearer = regexp.MustCompile(`Bearer ([A-Za-z0-9_\-]+\.[A-Za-z0-9_\-]+\.[A-Za-z0-9_\-]+)`)

func instructions(t *testing.T, r *role) printed {
	t.Helper()
	var p printed
	devtest.Eventually(t, 30*time.Second, func() bool {
		text := r.output.String()
		url, token := purchaseCommand.FindStringSubmatch(text), bearer.FindStringSubmatch(text)
		if url == nil || token == nil {
			return false
		}
		p = printed{url[1], token[1]}
		return true
	}, "dev does not print a purchase:\n%s", r.output)
	return p
}

// The first minutes of a newcomer, an interruption, a restart, an accident and another restart.
func TestDev(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	// PostgreSQL runs as a user of its own when the tests run as root; it must be able to enter.
	for dir := filepath.Dir(data); dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
		_ = os.Chmod(dir, 0o755)
	}
	s := &shop{tb: t, client: &http.Client{Timeout: 20 * time.Second}}
	t.Cleanup(s.client.CloseIdleConnections)
	env := []string{"FLASHGATE_LISTEN=127.0.0.1:0", "FLASHGATE_ADMIN_LISTEN=127.0.0.1:0"}
	buy := func(p printed, key string) answer {
		return s.try("POST", p.url, map[string]string{"Authorization": "Bearer " + p.token, "Idempotency-Key": key}, nil)
	}
	numbers := func(r *role) (sold, available any) {
		a := s.try("GET", r.admin+"/admin/items/1001", map[string]string{"Authorization": "Bearer dev-admin"}, nil)
		return a.body["sold"], a.body["available"]
	}

	dev := start(t, env, "dev", "--data", data)
	p := instructions(t, dev)
	s.awaitReady(dev)
	first := buy(p, "first")
	if first.status != 202 {
		t.Fatalf("the printed purchase: %v", first)
	}
	devtest.Eventually(t, 30*time.Second, func() bool { sold, available := numbers(dev); return sold == 1.0 && available == 99.0 }, "the purchase does not reach the database")
	if err := dev.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := dev.wait(30 * time.Second); code != 0 {
		t.Errorf("after Ctrl-C dev ended with status %d", code)
	}
	if left := inUse(t, data); len(left) > 0 {
		t.Errorf("after Ctrl-C these still run: %q", left)
	}

	for _, accident := range []bool{true, false} {
		dev = start(t, env, "dev", "--data", data)
		p = instructions(t, dev)
		s.awaitReady(dev)
		var again answer
		devtest.Eventually(t, 60*time.Second, func() bool { again = buy(p, "first"); return again.status == 202 }, "the sale does not go on after a restart: %v", &again)
		if again.orderID() != first.orderID() {
			t.Errorf("after a restart the same key is answered with %v, want order %s", again, first.orderID())
		}
		devtest.Eventually(t, 30*time.Second, func() bool { sold, available := numbers(dev); return sold == 1.0 && available == 99.0 }, "after a restart the numbers differ")
		if !accident {
			dev.stop()
			break
		}
		dev.kill()
		devtest.Eventually(t, 20*time.Second, func() bool { return len(inUse(t, data)) == 0 }, "after kill -9 something still runs: %v", inUse(t, data))
	}
	if left := inUse(t, data); len(left) > 0 {
		t.Errorf("at the end these still run: %q", left)
	}
}

func TestBenchRush(t *testing.T) {
	output, code := run(t, []string{"TMPDIR=" + os.TempDir()}, "bench", "rush", "--shoppers", "500", "--stock", "50", "--shards", "5", "--concurrency", "32")
	if code != 0 || !strings.Contains(output, "202 PENDING") || !strings.Contains(output, "410 SOLD_OUT") {
		t.Errorf("bench rush ended with status %d:\n%s", code, output)
	}
	if output, code := run(t, nil, "bench", "rush", "--url", "http://127.0.0.1:1", "--shoppers", "10"); code == 0 {
		t.Errorf("a rush against nobody succeeded:\n%s", output)
	}
}

func TestWhatStopsTheStart(t *testing.T) {
	for _, test := range []struct {
		name string
		env  []string
		args []string
		says string
	}{
		{"unknown variable", []string{"FLASHGATE_LISTENN=:1"}, []string{"gateway"}, "FLASHGATE_LISTENN"},
		{"invalid value", []string{"FLASHGATE_RATE_USER=fast", "FLASHGATE_DATABASE_URL=postgres://x"}, []string{"gateway"}, "RATE_USER"},
		{"no database", []string{"FLASHGATE_JWT_SECRET=" + jwtSecret}, []string{"gateway"}, "FLASHGATE_DATABASE_URL"},
		{"no key", []string{"FLASHGATE_DATABASE_URL=postgres://x"}, []string{"gateway"}, "FLASHGATE_JWT_SECRET"},
		{"short secret", []string{"FLASHGATE_DATABASE_URL=postgres://x", "FLASHGATE_JWT_SECRET=short"}, []string{"gateway"}, "32"},
		{"the secret of dev", []string{"FLASHGATE_DATABASE_URL=postgres://x", "FLASHGATE_JWT_SECRET=dev-secret-not-for-production-000000"}, []string{"gateway"}, "FLASHGATE_JWT_SECRET"},
		{"timeouts crosswise", []string{"FLASHGATE_DATABASE_URL=postgres://x", "FLASHGATE_JWT_SECRET=" + jwtSecret, "FLASHGATE_PUBLISH_TIMEOUT=2s", "FLASHGATE_RECORD_DEADLINE=1s"}, []string{"gateway"}, "FLASHGATE_RECORD_DEADLINE"},
	} {
		output, code := run(t, test.env, test.args...)
		if code == 0 || !strings.Contains(output, test.says) || strings.Count(strings.TrimSpace(output), "\n") > 0 {
			t.Errorf("%s: status %d, output %q, want one line that names %s", test.name, code, output, test.says)
		}
	}
	if output, code := run(t, []string{"FLASHGATE_RATE_USER=fast", "FLASHGATE_SERVICE_HOST=x", "FLASHGATE_PORT_80_TCP=y", "FLASHGATE_KAFKA_GROUP="}, "version"); code != 0 {
		t.Errorf("another command's invalid variable stops version: %d %s", code, output)
	}
}
