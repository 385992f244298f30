package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"flashgate/internal/sale"
)

// Shutdown: the request in flight is answered and its connection closed, nobody new comes in, idle connections are closed, readiness turns false.
func TestDrain(t *testing.T) {
	w := newWorld(t)
	entered, goOn := make(chan struct{}), make(chan struct{})
	w.reserve = func(_ context.Context, _ *sale.Item, q sale.Request) sale.Result {
		close(entered)
		<-goOn
		return sale.Result{Outcome: sale.Reserved, OrderID: q.OrderID, Acked: closedChannel()}
	}
	s := w.serve(t)
	idle := s.dial(t)
	idle.send(t, "GET /readyz HTTP/1.1\r\nHost: h\r\n\r\n")
	if r, _ := idle.answer(t, "GET"); r.StatusCode != 200 {
		t.Fatalf("readyz: %d", r.StatusCode)
	}
	busy := s.dial(t)
	busy.send(t, purchaseOf(w.token(t, "1")).raw())
	<-entered
	stopped := make(chan error, 2)
	for range 2 {
		go func() { stopped <- s.Shutdown(context.Background()) }()
	}
	idle.closed(t)
	eventually(t, "nobody listens", func() bool {
		c, err := net.Dial("tcp", s.addr)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	if err := s.Check(t.Context()); err == nil {
		t.Error("ready while draining")
	}
	select {
	case err := <-stopped:
		t.Fatalf("Shutdown did not wait: %v", err)
	default:
	}
	close(goOn)
	if r, body := busy.answer(t, "POST"); r.StatusCode != 202 || !r.Close {
		t.Errorf("%d %s, close %v", r.StatusCode, body, r.Close)
	}
	busy.closed(t)
	for range 2 {
		must(t, <-stopped)
	}
	must(t, <-s.done)
	must(t, s.Shutdown(context.Background()))

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, s.Serve(ln)) // after the end: returns, and closes what it was given
	if _, err := net.Dial("tcp", ln.Addr().String()); err == nil {
		t.Error("somebody listens after Shutdown")
	}
}

// The time for draining is nearly up while a request hangs: it is told to give up, and answered.
func TestDrainGivesUp(t *testing.T) {
	w := newWorld(t)
	entered := make(chan struct{})
	w.reserve = func(ctx context.Context, _ *sale.Item, _ sale.Request) sale.Result {
		close(entered)
		<-ctx.Done()
		return sale.Result{Outcome: sale.Unknown, Err: ctx.Err()}
	}
	s := w.serve(t, func(c *Config) { c.RequestTimeout = time.Hour })
	busy := s.dial(t)
	busy.send(t, purchaseOf(w.token(t, "1")).raw())
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	must(t, s.Shutdown(ctx))
	if r, body := busy.answer(t, "POST"); r.StatusCode != 503 || !strings.Contains(body, "OUTCOME_UNKNOWN") {
		t.Errorf("%d %s", r.StatusCode, body)
	}
	must(t, <-s.done)
	must(t, busy.Close())
	eventually(t, "the connection ends", func() bool { return s.openConns.Load() == 0 })
}

// patient is a gateway that by itself would wait for clients until the test is over.
func patient(c *Config) {
	c.ReadTimeout, c.WriteTimeout, c.IdleTimeout = time.Hour, time.Hour, time.Hour
}

// deaf is a client who sends and never reads: it returns when the gateway has stopped reading as well, because it cannot get rid of its answers.
func (s *served) deaf(tb testing.TB) *conn {
	tb.Helper()
	c := s.dial(tb)
	must(tb, c.Conn.(*net.TCPConn).SetReadBuffer(4<<10))
	many := strings.Repeat("GET /api/flash-sales/items/1001 HTTP/1.1\r\nHost: h\r\n\r\n", 1000)
	for {
		must(tb, c.SetWriteDeadline(time.Now().Add(300*time.Millisecond)))
		if _, err := io.WriteString(c, many); err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				tb.Fatal(err)
			}
			return c
		}
	}
}

// Clients that are in the middle of something get a moment, not the time that they have otherwise: whoever has not sent his request whole
// is told that it was not taken; whoever does not read is cut off; whoever has sent it whole gets his answer.
func TestDrainHurriesSlowClients(t *testing.T) {
	w := newWorld(t)
	entered, goOn := make(chan struct{}), make(chan struct{})
	w.reserve = func(_ context.Context, _ *sale.Item, q sale.Request) sale.Result {
		close(entered)
		<-goOn
		return sale.Result{Outcome: sale.Reserved, OrderID: q.OrderID, Acked: closedChannel()}
	}
	s := w.serve(t, patient)
	slow := map[string]*conn{}
	for name, raw := range map[string]string{
		"half a header":        "POST /api/flash-sales/items/1001/purchase HTTP/1.1\r\nHost: h\r\nAuthor",
		"a body but one byte":  "POST /api/flash-sales/items/1001/purchase HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n{}",
		"half a chunk":         "POST /api/flash-sales/items/1001/purchase HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
		"a body to be sent":    "POST /api/flash-sales/items/1001/purchase HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n",
		"the second, half":     "GET /livez HTTP/1.1\r\nHost: h\r\n\r\nGET /live",
		"not a byte as of yet": "",
	} {
		c := s.dial(t)
		c.send(t, raw)
		switch name {
		case "a body to be sent":
			if r, _ := c.answer(t, "POST"); r.StatusCode != 100 {
				t.Fatalf("%s: %d", name, r.StatusCode)
			}
		case "the second, half":
			if r, _ := c.answer(t, "GET"); r.StatusCode != 200 {
				t.Fatalf("%s: %d", name, r.StatusCode)
			}
		}
		slow[name] = c
	}
	s.deaf(t)
	idle := s.dial(t)
	idle.send(t, "GET /livez HTTP/1.1\r\nHost: h\r\n\r\n")
	idle.answer(t, "GET")
	busy := s.dial(t)
	busy.send(t, purchaseOf(w.token(t, "1")).raw())
	<-entered
	eventually(t, "every client is let in", func() bool { return s.openConns.Load() == int64(len(slow)+3) })
	stopped := make(chan error, 1)
	go func() { stopped <- s.Shutdown(context.Background()) }()
	idle.closed(t)
	for name, c := range slow {
		if r, body := c.answer(t, "POST"); r.StatusCode != 503 || !strings.HasPrefix(body, `{"error":"UNAVAILABLE"`) || r.Header.Get("Retry-After") != "1" || !r.Close {
			t.Errorf("%s: %d %s %v", name, r.StatusCode, body, r.Header)
		}
		c.closed(t)
	}
	eventually(t, "only the request in flight is left", func() bool { return s.openConns.Load() == 1 })
	close(goOn)
	if r, body := busy.answer(t, "POST"); r.StatusCode != 202 {
		t.Errorf("%d %s", r.StatusCode, body)
	}
	must(t, <-stopped)
}

// A client who does not take his answer holds up nobody: when the time is up he is cut off, and nothing has gone wrong.
func TestDrainCutsClients(t *testing.T) {
	w := newWorld(t)
	s := w.serve(t, patient)
	s.deaf(t)
	half := s.dial(t)
	half.send(t, "GET /liv")
	eventually(t, "both are let in", func() bool { return s.openConns.Load() == 2 })
	ctx, cancel := context.WithTimeout(t.Context(), 600*time.Millisecond) // less than they are given otherwise
	defer cancel()
	must(t, s.Shutdown(ctx))
	half.closed(t)
	if s.connections.any() {
		t.Error("somebody is still there")
	}
}

// What does not end although it was told to and cut off is an error.
func TestDrainInVain(t *testing.T) {
	w := newWorld(t)
	entered, goOn := make(chan struct{}), make(chan struct{})
	w.limit = func() {
		close(entered)
		<-goOn
	}
	g, err := open(Config{}, w.ports())
	must(t, err)
	must(t, g.Start(t.Context()))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := &served{Gateway: g, addr: ln.Addr().String(), done: make(chan error, 1)}
	go func() { s.done <- g.Serve(ln) }()
	c := s.dial(t)
	c.send(t, purchaseOf("").raw())
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown: %v", err)
	}
	c.closed(t)
	close(goOn)
	must(t, <-s.done)
	eventually(t, "the connection ends", func() bool { return s.openConns.Load() == 0 })
}

// A connection that comes in at the last moment is hurried as well.
func TestHurryIsForLaterConnectionsToo(t *testing.T) {
	w := newWorld(t)
	s := w.serve(t, patient)
	s.connections.hurry(time.Now().Add(drainHurry))
	c := s.dial(t)
	c.send(t, "GET /livez HTTP/1.1\r\nHost: h\r\n\r\n")
	if r, _ := c.answer(t, "GET"); r.StatusCode != http.StatusOK {
		t.Errorf("%d", r.StatusCode)
	}
	c.closed(t)
}
