package gateway

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"flashgate/internal/sale"
)

// scene is a request and the world in which it gets one particular answer.
type scene struct {
	name    string
	status  int
	code    string
	prepare func(w *world)
	ask     func(tb testing.TB, w *world) ask
	flag    bool // the item's flag is set before the request comes
}

// sceneOrder is the order that some scenes are about.
var sceneOrder = sale.NewOrderID(theItem)

// scenes are at least one for every kind of answer that the handler gives, and for every route.
func scenes() []scene {
	buy := func(headers ...string) func(testing.TB, *world) ask {
		return func(tb testing.TB, w *world) ask { return purchaseOf(w.token(tb, "u"), headers...) }
	}
	get := func(method, path string, headers ...string) func(testing.TB, *world) ask {
		return func(tb testing.TB, w *world) ask {
			return ask{method: method, path: path, token: w.token(tb, "u"), headers: headers}
		}
	}
	pay := func(status string) func(testing.TB, *world) ask {
		return func(testing.TB, *world) ask { return payment(paymentBody(sceneOrder, status)) }
	}
	item := func(change func(*sale.Item)) func(*world) { return func(w *world) { change(&w.items[0]) } }
	ends := func(r sale.Result) func(*world) {
		return func(w *world) { w.reserve = func(context.Context, *sale.Item, sale.Request) sale.Result { return r } }
	}
	row := func(status sale.OrderStatus) func(*world) {
		return func(w *world) {
			o := pendingRow(sceneOrder, "u")
			o.Status = status
			w.rows[o.ID] = o
		}
	}
	paid := func(how PayOutcome) func(*world) {
		return func(w *world) {
			w.pay = func(context.Context, sale.Payment) (sale.PaymentResult, PayOutcome, error) {
				return sale.PaymentResult{}, how, nil
			}
		}
	}
	order, itemPath := orderPath(sceneOrder), itemsPath+"/1001"
	return []scene{
		{"accepted", 202, "", nil, buy(), false},
		{"bad key", 400, "BAD_REQUEST", nil, buy("Idempotency-Key:"), false},
		{"no token", 401, "UNAUTHORIZED", nil, func(testing.TB, *world) ask { return purchaseOf("") }, false},
		{"bad token", 401, "UNAUTHORIZED", nil, func(tb testing.TB, w *world) ask { return purchaseOf(w.forged(tb, "u")) }, false},
		{"not started", 403, "NOT_STARTED", item(func(it *sale.Item) { it.StartsAt = it.EndsAt.Add(-time.Minute) }), buy(), false},
		{"paused", 403, "SALE_PAUSED", item(func(it *sale.Item) { it.Paused = true }), buy(), false},
		{"no item", 404, "NOT_FOUND", nil, get("POST", itemsPath+"/2/purchase"), false},
		{"bought before", 409, "ALREADY_PURCHASED", ends(sale.Result{Outcome: sale.Already, OrderID: sceneOrder}), buy(), false},
		{"too few left", 409, "INSUFFICIENT_STOCK", ends(sale.Result{Outcome: sale.Insufficient, Available: 1}), buy(), false},
		{"sold out", 410, "SOLD_OUT", ends(sale.Result{Outcome: sale.NoStock}), buy(), false},
		{"sold out, flag", 410, "SOLD_OUT", nil, buy(), true},
		{"sold out, flag, forged", 410, "SOLD_OUT", nil, func(tb testing.TB, w *world) ask { return purchaseOf(w.forged(tb, "u")) }, true},
		{"ended", 410, "SALE_ENDED", item(func(it *sale.Item) { it.EndsAt = it.StartsAt.Add(time.Minute) }), buy(), false},
		{"key reused", 422, "KEY_REUSED", ends(sale.Result{Outcome: sale.KeyReused, OrderID: sceneOrder}), buy(), false},
		{"address limited", 429, "RATE_LIMITED", func(w *world) { w.limited["addr"] = time.Second }, buy(), false},
		{"user limited", 429, "RATE_LIMITED", func(w *world) { w.limited["user"] = 61 * time.Second }, buy(), false},
		{"warming up", 503, "WARMING_UP", ends(sale.Result{Outcome: sale.NotLoaded}), buy(), false},
		{"overloaded", 503, "OVERLOADED", ends(sale.Result{Outcome: sale.QueueFull}), buy(), false},
		{"no Redis", 503, "UNAVAILABLE", ends(sale.Result{Outcome: sale.Failed, Err: errDown}), buy(), false},
		{"outcome unknown", 503, "OUTCOME_UNKNOWN", ends(sale.Result{Outcome: sale.Unknown, OrderID: sceneOrder, Err: errDown}), buy(), false},
		{"panic", 500, "INTERNAL", func(w *world) { w.limit = func() { panic("boom") } }, buy(), false},
		{"wrong method", 405, "METHOD_NOT_ALLOWED", nil, get("PUT", itemPath+"/purchase"), false},
		{"item", 200, "", nil, get("GET", itemPath), false},
		{"item, sold out", 200, "", nil, get("GET", itemPath), true},
		{"head of item", 200, "", nil, get("HEAD", itemPath), false},
		{"item, bad id", 400, "BAD_REQUEST", nil, get("GET", itemsPath+"/0"), false},
		{"order", 200, "", row(sale.Pending), get("GET", order), false},
		{"no order", 404, "NOT_FOUND", nil, get("GET", order), false},
		{"order, limited", 429, "RATE_LIMITED", func(w *world) { w.limited["read"] = time.Second }, get("GET", order), false},
		{"order of item", 200, "", row(sale.Paid), get("GET", ordersPath+"?itemId=1001"), false},
		{"cancelled", 200, "", row(sale.Pending), get("DELETE", order), false},
		{"not cancellable", 409, "NOT_CANCELLABLE", row(sale.Paid), get("DELETE", order), false},
		{"live", 200, "", nil, get("GET", "/livez"), false},
		{"ready", 200, "", nil, get("GET", "/readyz"), false},
		{"not ready", 503, "UNAVAILABLE", func(w *world) { w.unready = true }, get("GET", "/readyz"), false},
		{"nothing", 404, "NOT_FOUND", nil, get("GET", "/nothing"), false},
		{"options", 204, "", nil, get("OPTIONS", order), false},
		{"options of the server", 204, "", nil, get("OPTIONS", "*"), false},
		{"preflight of a purchase", 204, "", nil, get("OPTIONS", itemPath+"/purchase", preflightOf("POST")), false},
		{"preflight of an item", 204, "", nil, get("OPTIONS", itemPath, preflightOf("GET")), false},
		{"preflight of an order", 204, "", nil, get("OPTIONS", order, preflightOf("DELETE")), false},
		{"preflight of nothing", 404, "NOT_FOUND", nil, get("OPTIONS", "/nothing", preflightOf("GET")), false},
		{"paid", 200, "", row(sale.Pending), pay("SUCCEEDED"), false},
		{"payment, unsigned", 401, "UNAUTHORIZED", nil, get("POST", paymentsPath), false},
		{"payment, another amount", 422, "AMOUNT_MISMATCH", paid(PayMismatch), pay("SUCCEEDED"), false},
		{"payment, event reused", 422, "EVENT_REUSED", paid(PayEventReused), pay("FAILED"), false},
		{"payment, no order", 404, "NOT_FOUND", nil, pay("SUCCEEDED"), false},
		{"payment, no database", 503, "UNAVAILABLE", paid(0), pay("SUCCEEDED"), false},
		{"payment, wrong method", 405, "METHOD_NOT_ALLOWED", nil, get("GET", paymentsPath), false},
		{"preflight of a payment", 204, "", nil, get("OPTIONS", paymentsPath, preflightOf("POST")), false},
	}
}

func preflightOf(method string) string { return "Access-Control-Request-Method: " + method }

// play sends the request of a scene, with further header lines, to a gateway of its own and returns the answer as it goes over the wire.
func (s scene) play(t *testing.T, origins []string, headers ...string) (head, body string) {
	t.Helper()
	w := newWorld(t)
	if s.prepare != nil {
		s.prepare(w)
	}
	if s.flag {
		w.noStock()
	}
	g := w.start(t, withSecret, func(c *Config) { c.CORSOrigins, c.WarmupHold = origins, time.Millisecond })
	if s.flag {
		do(t, g, purchaseOf(w.token(t, "loser"))).want(t, 410, "SOLD_OUT")
		eventually(t, "the flag is set", func() bool { return g.SoldOut(theItem) })
	}
	a := s.ask(t, w)
	a.headers = append(append([]string(nil), a.headers...), headers...)
	head, body = onWire(t, g, a.raw())
	if s.code != "" && !strings.HasPrefix(body, `{"error":"`+s.code+`",`) {
		t.Errorf("%s: %s %s, want %s", s.name, head, body, s.code)
	}
	return head, body
}

// onWire serves one connection on which raw comes, and returns all that is sent back.
func onWire(t *testing.T, g *Gateway, raw string) (head, body string) {
	t.Helper()
	c := &tape{in: strings.NewReader(raw)}
	if err := g.server.ServeConn(c); err != nil {
		t.Logf("serve connection: %v", err)
	}
	head, body, ok := strings.Cut(c.out.String(), "\r\n\r\n")
	if !ok {
		t.Fatalf("no answer: %q", c.out.String())
	}
	return head, body
}

// tape is a connection that is read from and written to memory.
type tape struct {
	net.Conn
	in  io.Reader
	out bytes.Buffer
}

func (c *tape) Read(b []byte) (int, error)     { return c.in.Read(b) }
func (c *tape) Write(b []byte) (int, error)    { return c.out.Write(b) }
func (*tape) Close() error                     { return nil }
func (*tape) LocalAddr() net.Addr              { return pipeAddr }
func (*tape) RemoteAddr() net.Addr             { return pipeAddr }
func (*tape) SetDeadline(time.Time) error      { return nil }
func (*tape) SetReadDeadline(time.Time) error  { return nil }
func (*tape) SetWriteDeadline(time.Time) error { return nil }
