package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// served is a gateway on a port of its own.
type served struct {
	*Gateway
	addr string
	done chan error // the result of Serve
}

func (w *world) serve(tb testing.TB, change ...func(*Config)) *served {
	tb.Helper()
	g := w.start(tb, change...)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(tb, err)
	s := &served{Gateway: g, addr: ln.Addr().String(), done: make(chan error, 1)}
	go func() { s.done <- g.Serve(ln) }()
	return s
}

// conn is a raw connection.
type conn struct {
	net.Conn
	r *bufio.Reader
}

func (s *served) dial(tb testing.TB) *conn {
	tb.Helper()
	c, err := net.Dial("tcp", s.addr)
	must(tb, err)
	tb.Cleanup(func() { _ = c.Close() })
	must(tb, c.SetDeadline(time.Now().Add(30*time.Second)))
	return &conn{c, bufio.NewReader(c)}
}

func (c *conn) send(tb testing.TB, raw string) {
	tb.Helper()
	_, err := io.WriteString(c, raw)
	must(tb, err)
}

// answer reads one answer to a request of the given method.
func (c *conn) answer(tb testing.TB, method string) (*http.Response, string) {
	tb.Helper()
	r, err := http.ReadResponse(c.r, &http.Request{Method: method})
	if err != nil {
		tb.Fatalf("read answer: %v", err)
	}
	body, err := io.ReadAll(r.Body)
	must(tb, err)
	_ = r.Body.Close()
	return r, string(body)
}

// closed fails the test unless the other side closes now.
func (c *conn) closed(tb testing.TB) {
	tb.Helper()
	rest, err := io.ReadAll(c.r)
	if len(rest) > 0 || (err != nil && !errors.Is(err, syscall.ECONNRESET)) {
		tb.Errorf("got %q %v, want a closed connection", rest, err)
	}
}

// One connection, everything a client may do with it.
func TestConnection(t *testing.T) {
	w := newWorld(t)
	s := w.serve(t)
	c := s.dial(t)
	raw := w.token(t, "1")
	post := purchaseOf(raw).raw()
	c.send(t, post+post+"GET /livez HTTP/1.1\r\nHost: h\r\n\r\n") // pipelined
	for range 2 {
		if r, body := c.answer(t, "POST"); r.StatusCode != 202 || r.Header.Get("Server") != "" || r.Header.Get("Date") == "" {
			t.Fatalf("%d %s %v", r.StatusCode, body, r.Header)
		}
	}
	if r, body := c.answer(t, "GET"); r.StatusCode != 200 || body != `{"status":"ok"}` {
		t.Fatalf("%d %s", r.StatusCode, body)
	}
	c.send(t, "HEAD /api/flash-sales/items/1001 HTTP/1.1\r\nHost: h\r\n\r\n"+"HEAD /nothing HTTP/1.1\r\nHost: h\r\n\r\n")
	if r, body := c.answer(t, "HEAD"); r.StatusCode != 200 || body != "" || r.ContentLength <= 0 {
		t.Fatalf("HEAD: %d %q, length %d", r.StatusCode, body, r.ContentLength)
	}
	if r, body := c.answer(t, "HEAD"); r.StatusCode != 404 || body != "" {
		t.Fatalf("HEAD: %d %q", r.StatusCode, body)
	}
	c.send(t, "OPTIONS /livez HTTP/1.1\r\nHost: h\r\n\r\n")
	if r, body := c.answer(t, "OPTIONS"); r.StatusCode != 204 || body != "" || r.Header.Get("Content-Type") != "" {
		t.Fatalf("OPTIONS: %d %q %v", r.StatusCode, body, r.Header)
	}
	c.send(t, "POST http://shop.example/api/flash-sales/items/1001/purchase HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer "+raw+
		"\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"qua\r\nA\r\nntity\": 2}\r\n0\r\n\r\n")
	if r, body := c.answer(t, "POST"); r.StatusCode != 202 {
		t.Fatalf("%d %s", r.StatusCode, body)
	}
	if asked := w.asked(); asked[len(asked)-1].Quantity != 2 {
		t.Errorf("asked %+v", asked[len(asked)-1])
	}
	c.send(t, "GET /livez HTTP/1.0\r\n\r\n")
	if r, _ := c.answer(t, "GET"); r.StatusCode != 200 {
		t.Errorf("HTTP/1.0: %d", r.StatusCode)
	}
	c.closed(t)
}

// The header lines come to the resolver whole and in order, with the address of the peer.
func TestClientAddress(t *testing.T) {
	w := newWorld(t)
	p := w.ports()
	clients := &recordingClients{}
	p.Clients = clients
	g, err := open(Config{}, p)
	must(t, err)
	must(t, g.Start(t.Context()))
	defer func() { must(t, g.Shutdown(context.Background())) }()
	do(t, g, purchaseOf(w.token(t, "1"), "X-Forwarded-For: 203.0.113.7", "x-forwarded-for: 198.51.100.1, 192.0.2.9")).want(t, 202, "")
	if got := fmt.Sprint(clients.seen...); got != "192.0.2.1 [203.0.113.7 198.51.100.1, 192.0.2.9]" {
		t.Errorf("got %s", got)
	}
}

func TestConnectionLimit(t *testing.T) {
	w := newWorld(t)
	s := w.serve(t, func(c *Config) { c.MaxConns = 2 })
	live := func(c *conn) int {
		c.send(t, "GET /livez HTTP/1.1\r\nHost: h\r\n\r\n")
		r, _ := c.answer(t, "GET")
		return r.StatusCode
	}
	first, second := s.dial(t), s.dial(t)
	if live(first) != 200 || live(second) != 200 {
		t.Fatal("refused too early")
	}
	for range maxLingering + 10 {
		third := s.dial(t)
		r, err := http.ReadResponse(third.r, nil)
		if err != nil {
			continue // beyond the farewells the connection is just closed
		}
		body, err := io.ReadAll(r.Body)
		must(t, err)
		if r.StatusCode != 503 || !strings.HasPrefix(string(body), `{"error":"OVERLOADED"`) || r.Header.Get("Retry-After") != "1" || !r.Close {
			t.Fatalf("%d %s %v", r.StatusCode, body, r.Header)
		}
		must(t, third.Close())
	}
	if live(first) != 200 {
		t.Error("an open connection was harmed")
	}
	must(t, second.Close())
	eventually(t, "there is room again", func() bool {
		c := s.dial(t)
		defer func() { _ = c.Close() }()
		if _, err := io.WriteString(c, "GET /livez HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
			return false
		}
		r, err := http.ReadResponse(c.r, nil)
		return err == nil && r.StatusCode == 200
	})
	eventually(t, "every connection is counted down", func() bool { return s.openConns.Load() <= 1 })
}

// A process that runs out of file descriptors, and a client who has gone, do not end the accepting.
func TestAcceptGoesOn(t *testing.T) {
	w := newWorld(t)
	g := w.start(t)
	real, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	flaky := &flakyListener{Listener: real, errs: []error{
		&net.OpError{Op: "accept", Err: syscall.EMFILE}, &net.OpError{Op: "accept", Err: syscall.ENFILE}, &net.OpError{Op: "accept", Err: syscall.ECONNABORTED},
	}}
	done := make(chan error, 1)
	go func() { done <- g.Serve(flaky) }()
	c := (&served{addr: real.Addr().String()}).dial(t)
	c.send(t, "GET /livez HTTP/1.1\r\nHost: h\r\n\r\n")
	if r, _ := c.answer(t, "GET"); r.StatusCode != 200 {
		t.Errorf("%d", r.StatusCode)
	}
	must(t, g.Shutdown(t.Context()))
	must(t, <-done)
}

func TestServeFails(t *testing.T) {
	w := newWorld(t)
	g := w.start(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	broken := &flakyListener{Listener: ln, errs: []error{errDown}}
	if err := g.Serve(broken); !errors.Is(err, errDown) {
		t.Errorf("Serve: %v", err)
	}
	must(t, ln.Close())
}

type flakyListener struct {
	net.Listener
	mu   sync.Mutex
	errs []error
}

func (l *flakyListener) Accept() (net.Conn, error) {
	l.mu.Lock()
	if len(l.errs) > 0 {
		err := l.errs[0]
		l.errs = l.errs[1:]
		l.mu.Unlock()
		return nil, err
	}
	l.mu.Unlock()
	return l.Listener.Accept()
}

// recordingClients remembers what it was asked.
type recordingClients struct{ seen []any }

func (*recordingClients) Header() string { return "X-Forwarded-For" }

func (c *recordingClients) Resolve(peer netip.Addr, lines [][]byte) netip.Addr {
	texts := []string{}
	for _, l := range lines {
		texts = append(texts, string(l))
	}
	c.seen = []any{peer, texts}
	return peer
}
