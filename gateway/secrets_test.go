package gateway

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/valyala/fasthttp"

	"flashgate/internal/sale"
)

// kept is a log that can be read while it is written.
type kept struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (k *kept) Write(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.out.Write(p)
}

func (k *kept) text() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.out.String()
}

// Everything fails, for a user with recognisable secrets, at the most talkative level: nothing of him gets into the log, and what he asked for does.
func TestLogHoldsNothingPersonal(t *testing.T) {
	const (
		user   = "user-xK9fQ2"
		key    = "key-Zt7Lw4"
		cookie = "cookie-Pq3Vn8"
		query  = "query-Rb6Ym1"
		trace  = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		v4     = "192.0.2.1" // of the connection
	)
	panics := func() { panic("who asked: " + user) }
	for name, how := range map[string]func(){"errors": func() {}, "panics": panics} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				fail := func() error { how(); return errDown }
				w.reserve = func(_ context.Context, _ *sale.Item, q sale.Request) sale.Result {
					return sale.Result{Outcome: sale.Unknown, OrderID: q.OrderID, Shard: 3, Err: fail()}
				}
				w.prove = func(context.Context, *sale.Item) (Proof, error) { return nil, errDown }
				w.fetch = func(context.Context, func(string)) error { return errDown }
				w.mark = func(context.Context, *sale.Item, string) (sale.Mark, bool, error) { return sale.Mark{}, false, fail() }
				w.live = func(context.Context, int64, string) (sale.Order, bool, error) { return sale.Order{}, false, fail() }
				w.row = func(context.Context, sale.OrderID) (sale.Order, bool, error) { return sale.Order{}, false, fail() }
				w.cancel = func(context.Context, sale.OrderID, string) (sale.Order, Cancellation, error) {
					return sale.Order{}, 0, fail()
				}
				w.cancelUnwritten = func(context.Context, sale.Event) (sale.Order, Cancellation, error) { return sale.Order{}, 0, fail() }
				w.pay = func(context.Context, sale.Payment) (sale.PaymentResult, PayOutcome, error) {
					return sale.PaymentResult{}, 0, fail()
				}
				w.unwritten = func(context.Context, int64) (bool, error) { return false, fail() }
				ended := onSale(2002, time.Now())
				ended.EndsAt = time.Now().Add(-time.Minute)
				w.items = append(w.items, ended)
				log := &kept{}
				g := w.start(t, withSecret, func(c *Config) {
					c.Logger = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
				})
				raw := w.token(t, user)
				id := sale.NewOrderID(theItem)
				signed := payment(paymentBody(id, "SUCCEEDED"))
				w.change(func() {
					w.catalogue = func(context.Context) ([]sale.Item, error) { return nil, errDown }
				})
				asks := []ask{
					{method: "POST", path: itemsPath + "/1001/purchase?" + query, body: `{"quantity":1}`},
					{method: "POST", path: itemsPath + "/1001/purchase", body: `{"` + user + `":1}`},
					{method: "POST", path: itemsPath + "/2002/purchase"}, // a possible winner of an ended item
					{method: "POST", path: itemsPath + "/" + user + "/purchase"},
					{method: "GET", path: itemsPath + "/1001"},
					{method: "GET", path: orderPath(id)},
					{method: "GET", path: ordersPath + "?itemId=1001&user=" + query},
					{method: "DELETE", path: orderPath(id)},
					{method: "POST", path: paymentsPath, body: signed.body, headers: signed.headers},
					{method: "POST", path: paymentsPath, body: `{"eventId":"` + user + `"}`},
					{method: "GET", path: "/livez"}, {method: "GET", path: "/readyz"}, {method: "OPTIONS", path: "*"}, {method: "GET", path: "/" + user},
				}
				for round := range 2 {
					for _, a := range asks {
						a.headers = append(append([]string(nil), a.headers...), "Idempotency-Key: "+key, "Cookie: "+cookie, "traceparent: "+trace, "X-Forwarded-For: 203.0.113.77")
						if a.token = raw; round == 1 {
							a.token = w.forged(t, user)
						}
						do(t, g, a)
						sleep(2 * time.Second) // so that no kind of line is left out for coming too often
					}
				}
				w.change(func() {
					w.limit = func() { panic("who asked: " + user) }
				})
				do(t, g, ask{method: "POST", path: itemsPath + "/1001/purchase", token: raw})
				text := log.text()
				signature := strings.TrimPrefix(signed.headers[0], "Flashgate-Signature: ")
				_, sum, _ := strings.Cut(signature, "v1=")
				for _, secret := range []string{
					user, key, sale.HashKey(key), cookie, query, raw, strings.Split(raw, ".")[1], strings.Split(raw, ".")[2], "Bearer", v4, "203.0.113.77",
					sum, string(paymentSecret), string(secret),
				} {
					if strings.Contains(text, secret) {
						t.Errorf("the log holds %q:\n%s", secret, text)
					}
				}
				if name == "panics" {
					if n := strings.Count(text, `"panic":"string"`); n < 4 {
						t.Errorf("%d panics are in the log:\n%s", n, text)
					}
				}
				// What the lines are for: to follow an order through every part.
				of := `"order":"` + id.String() + `","item":1001,"trace":"` + trace + `"`
				for _, want := range []string{
					`"msg":"cancel order",` + of, `"msg":"record payment",` + of + `,"event":"evt-1"`, `"msg":"payment refused: signature","trace":"` + trace + `"`,
					`"msg":"look up mark of order",` + of, `"msg":"look up mark of user","item":1001,"trace":"` + trace + `"`,
					`"msg":"look up order of possible winner","item":2002,"trace":"` + trace + `"`,
				} {
					if !strings.Contains(text, want) {
						t.Errorf("the log lacks %s:\n%s", want, text)
					}
				}
				if name == "errors" && !strings.Contains(text, `,"item":1001,"trace":"`+trace+`","shard":3,"epoch":7,"error":"down"`) {
					t.Errorf("the log does not say what became of a reservation:\n%s", text)
				}
			})
		})
	}
}

// A request that cannot be read is quoted in the errors of the server, and may have a token in the line that is wrong.
func TestLogQuotesNoRequest(t *testing.T) {
	log := &kept{}
	s := newWorld(t).serve(t, func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c.ReadTimeout = 300 * time.Millisecond // some of these look as if more were to come
	})
	const secret = "eyJ0b2tlbi1Hazd"
	for _, line := range []string{
		"Authorization Bearer " + secret, "Authorization : Bearer " + secret, "Auth(orization: Bearer " + secret, "Authorization: Bearer " + secret + "\x00", secret + "\x01: x",
		"Transfer-Encoding: " + secret, "Transfer-Encoding: chunked\r\nTrailer: " + secret, "Content-Length: " + secret,
	} {
		for _, first := range []string{"POST " + itemsPath + "/1001/purchase HTTP/1.1", "POST /x HTTP/" + secret, secret, "POST  " + secret + " x"} {
			c := s.dial(t)
			c.send(t, first+"\r\nHost: h\r\n"+line+"\r\n\r\n")
			if r, _ := c.answer(t, "POST"); r.StatusCode < 400 {
				t.Errorf("%q %q: %d", first, line, r.StatusCode)
			}
			must(t, c.Close())
		}
	}
	eventually(t, "all connections have ended", func() bool { return s.openConns.Load() == 0 })
	eventually(t, "the server has said something", func() bool { return strings.Contains(log.text(), "the request could not be read") })
	must(t, s.Shutdown(t.Context()))
	if text := log.text(); strings.Contains(text, secret) || strings.Contains(text, "127.0.0.1") {
		t.Errorf("the log quotes a request:\n%s", text)
	}
}

func TestHarmless(t *testing.T) {
	addr := &net.TCPAddr{IP: net.IPv4(203, 0, 113, 7), Port: 4711}
	for want, err := range map[string]error{
		"read: odd":                                   &net.OpError{Op: "read", Net: "tcp", Source: addr, Addr: addr, Err: errors.New("odd")},
		"the request could not be read":               errors.New("malformed header: \"Authorization x\""),
		"fasthttp: body size exceeds the given limit": fasthttp.ErrBodyTooLarge,
	} {
		if got := harmless(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
