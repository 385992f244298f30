package gateway

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestConfig(t *testing.T) {
	c := Config{}.WithDefaults()
	must(t, c.Validate())
	if c.RequestTimeout != 3*time.Second || c.PublishTimeout != time.Second || c.RecordDeadline != 2*time.Second {
		t.Errorf("%+v", c)
	}
	if c := (Config{RequestTimeout: 900 * time.Millisecond}).WithDefaults(); c.PublishTimeout != 300*time.Millisecond {
		t.Errorf("PublishTimeout %v, want a third of RequestTimeout", c.PublishTimeout)
	}
	if reproveEvery+reproveTimeout >= flagAge {
		t.Error("a flag can run out between two proofs in time")
	}
	for name, c := range map[string]Config{
		"RequestTimeout": {RequestTimeout: -1},
		"WarmupHold":     {WarmupHold: -time.Second},
		"PublishTimeout": {RequestTimeout: time.Second, PublishTimeout: time.Second},
		"RecordDeadline": {RequestTimeout: 5 * time.Second, PublishTimeout: 2 * time.Second},
		"MaxHeader":      {MaxHeader: 511},
		"MaxBody":        {MaxBody: -1},
		"MaxConns":       {MaxConns: -1},
		"MaxLooks":       {MaxLooks: -1},
		"CatalogueEvery": {CatalogueEvery: -1},
	} {
		_, err := open(c, newWorld(t).ports())
		if err == nil || !strings.Contains(err.Error(), name) || !strings.HasPrefix(err.Error(), "make gateway: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	p := newWorld(t).ports()
	p.Limits = nil
	if _, err := open(Config{}, p); err == nil || !strings.Contains(err.Error(), "Limits") {
		t.Errorf("missing port: %v", err)
	}
	registry := prometheus.NewRegistry()
	g, err := open(Config{Registerer: registry}, newWorld(t).ports())
	must(t, err)
	must(t, g.Shutdown(t.Context())) // never started
	if _, err := open(Config{Registerer: registry}, newWorld(t).ports()); err == nil {
		t.Error("the same metrics twice")
	}
}

func TestMetrics(t *testing.T) {
	w := newWorld(t)
	registry := prometheus.NewRegistry()
	g := w.start(t, func(c *Config) { c.Registerer = registry })
	do(t, g, purchaseOf(w.token(t, "1"))).want(t, 202, "")
	do(t, g, purchaseOf("")).want(t, 401, "UNAUTHORIZED")
	do(t, g, ask{method: "GET", path: "/x/../livez"}).want(t, 404, "NOT_FOUND")
	want := `
# HELP flashgate_gateway_requests_total Requests answered, by route, HTTP status and error code.
# TYPE flashgate_gateway_requests_total counter
flashgate_gateway_requests_total{error="",route="purchase",status="202"} 1
flashgate_gateway_requests_total{error="NOT_FOUND",route="none",status="404"} 1
flashgate_gateway_requests_total{error="UNAUTHORIZED",route="purchase",status="401"} 1
# HELP flashgate_gateway_accepted_total Purchases answered with 202, by whether the broker had acknowledged by then.
# TYPE flashgate_gateway_accepted_total counter
flashgate_gateway_accepted_total{acked="false"} 0
flashgate_gateway_accepted_total{acked="true"} 1
`
	must(t, testutil.GatherAndCompare(registry, strings.NewReader(want), "flashgate_gateway_requests_total", "flashgate_gateway_accepted_total"))
	problems, err := testutil.GatherAndLint(registry)
	must(t, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestLogIsThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := newThrottledLog(slog.New(slog.NewTextHandler(&out, nil)), time.Now)
		for range 50 {
			l.warn("reserve failed", "item", 7)
		}
		l.warn("another")
		time.Sleep(time.Second)
		l.warn("reserve failed", "item", 8)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 3 || !strings.Contains(lines[2], `item=8 "not logged in between"=49`) {
			t.Errorf("%q", lines)
		}
	})
}

// Neither addresses nor what clients send gets into the log of the server.
func TestServerLog(t *testing.T) {
	var out bytes.Buffer
	l := serverLog{slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	addr := &net.TCPAddr{IP: net.IPv4(203, 0, 113, 7), Port: 4711}
	l.Printf("error when serving connection %q<->%q: %v", addr, addr, &net.OpError{Op: "read", Net: "tcp", Source: addr, Addr: addr, Err: errors.New("odd")})
	if s := out.String(); strings.Contains(s, "203.0.113") || !strings.Contains(s, "read: odd") {
		t.Errorf("%s", s)
	}
}

func TestAppendString(t *testing.T) {
	for in, want := range map[string]string{
		"": `""`, "plain": `"plain"`, `a"b\c`: `"a\"b\\c"`, "a\nb": `"a\nb"`, "é": `"é"`, "\xff": "\"\\ufffd\"", "\x7f": "\"\x7f\"",
	} {
		if got := string(appendString(nil, in)); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}
