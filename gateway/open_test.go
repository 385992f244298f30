package gateway

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Before it is open, a gateway says to everybody that he should come again, as far as it can in the words of the API; then it sells, on the
// same connection.
func TestBeforeOpen(t *testing.T) {
	w := newWorld(t)
	g, err := New(Config{Registerer: prometheus.NewRegistry(), CORSOrigins: []string{"https://shop.example"}, PaymentSecret: []byte("secret")})
	must(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := &served{Gateway: g, addr: ln.Addr().String(), done: make(chan error, 1)}
	go func() { s.done <- g.Serve(ln) }()
	c := s.dial(t)
	do := func(a ask, status int) string {
		t.Helper()
		c.send(t, a.raw())
		r, body := c.answer(t, a.method)
		if r.StatusCode != status {
			t.Fatalf("%s %s: %d %s, want %d", a.method, a.path, r.StatusCode, body, status)
		}
		if path, _, _ := strings.Cut(a.path, "?"); status == 503 && path != "/readyz" {
			if !strings.HasPrefix(body, `{"error":"UNAVAILABLE","message":"`) || r.Header.Get("Retry-After") != "1" || r.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s %s: %s %v", a.method, a.path, body, r.Header)
			}
			if want := map[bool]string{true: "", false: "https://shop.example"}[path == paymentsPath]; r.Header.Get("Access-Control-Allow-Origin") != want {
				t.Errorf("%s %s: %v", a.method, a.path, r.Header)
			}
		}
		return body
	}
	at := func(method, path string) ask {
		return ask{method: method, path: path, token: w.token(t, "1"), headers: []string{"Origin: https://shop.example"}}
	}
	for _, a := range []ask{
		at("POST", itemsPath+"/1001/purchase"), at("POST", itemsPath+"/1001/purchase"), at("GET", itemsPath+"/1001"), at("GET", orderPath(sceneOrder)), at("DELETE", orderPath(sceneOrder)),
		at("GET", ordersPath+"?itemId=1001"), at("POST", paymentsPath), at("POST", itemsPath+"/x/purchase"), at("GET", "/readyz"),
	} {
		do(a, 503)
	}
	do(at("GET", "/livez"), 200)
	do(at("GET", "/nothing"), 404)
	do(at("OPTIONS", itemsPath+"/1001/purchase"), 204)
	if err := g.Check(t.Context()); err == nil {
		t.Error("ready before it is open")
	}
	if err := g.Start(t.Context()); err == nil {
		t.Error("started before it is open")
	}
	incomplete := w.ports()
	incomplete.Limits = nil
	if err := g.Open(incomplete); err == nil || !strings.Contains(err.Error(), "Limits") {
		t.Errorf("open without limits: %v", err)
	}
	do(at("GET", itemsPath+"/1001"), 503)

	must(t, g.Open(w.ports()))
	if err := g.Open(w.ports()); err == nil {
		t.Error("opened twice")
	}
	if body := do(at("POST", itemsPath+"/1001/purchase"), 503); !strings.Contains(body, "catalogue") {
		t.Errorf("open, and not started: %s", body)
	}
	must(t, g.Start(t.Context()))
	do(at("POST", itemsPath+"/1001/purchase"), 202)
	do(at("GET", "/readyz"), 200)
	must(t, g.Shutdown(context.Background()))
	must(t, <-s.done)
}

// A gateway that is stopped while it is still starting ends like any other.
func TestShutdownBeforeOpen(t *testing.T) {
	g, err := New(Config{})
	must(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := &served{Gateway: g, addr: ln.Addr().String(), done: make(chan error, 1)}
	go func() { s.done <- g.Serve(ln) }()
	c := s.dial(t)
	c.send(t, "GET /livez HTTP/1.1\r\nHost: h\r\n\r\n")
	c.answer(t, "GET")
	must(t, g.Shutdown(context.Background()))
	c.closed(t)
	must(t, <-s.done)
}
