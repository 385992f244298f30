package gateway

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"flashgate/internal/pause"
)

// start makes a gateway in this world and lets it run, without a listener. It is stopped at the end of the test.
func (w *world) start(tb testing.TB, change ...func(*Config)) *Gateway {
	tb.Helper()
	cfg := Config{Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.NewTextHandler(testWriter{tb}, nil))}
	for _, f := range change {
		f(&cfg)
	}
	g, err := open(cfg, w.ports())
	must(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := g.Shutdown(ctx); err != nil {
			tb.Error(err)
		}
	})
	if err := g.Start(context.Background()); err != nil {
		tb.Log(err)
	}
	return g
}

// open makes a gateway that is open.
func open(cfg Config, p Ports) (*Gateway, error) {
	g, err := New(cfg)
	if err == nil {
		err = g.Open(p)
	}
	return g, err
}

// testWriter shows the log of a gateway with its test.
type testWriter struct{ tb testing.TB }

func (t testWriter) Write(p []byte) (int, error) {
	t.tb.Log(strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// eventually waits until cond holds.
func eventually(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for !cond() {
		if !pause.For(ctx, 2*time.Millisecond) {
			tb.Fatalf("did not happen: %s", what)
		}
	}
}

var errDown = errors.New("down")
