package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"flashgate/internal/sale"
)

func TestPurchaseAccepted(t *testing.T) {
	w := newWorld(t)
	g := w.start(t)
	trace := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	r := do(t, g, ask{
		method: "POST", path: "/api/flash-sales/items/1001/purchase", token: w.token(t, "77"), body: `{"quantity":2}`,
		headers: []string{"Idempotency-Key: k-1", "traceparent: " + trace},
	}).want(t, 202, "")
	asked := w.asked()
	if len(asked) != 1 {
		t.Fatalf("asked %d times", len(asked))
	}
	q := asked[0]
	id := q.OrderID.String()
	if want := fmt.Sprintf(`{"orderId":"%s","status":"PENDING"}`, id); r.body != want {
		t.Errorf("body %s, want %s", r.body, want)
	}
	if got := r.header("Location"); got != "/api/flash-sales/orders/"+id {
		t.Errorf("Location %q", got)
	}
	if r.header("Cache-Control") != "no-store" || r.header("Content-Type") != "application/json" || r.header("Retry-After") != "" {
		t.Errorf("headers: %q %q %q", r.header("Cache-Control"), r.header("Content-Type"), r.header("Retry-After"))
	}
	if item, ok := q.OrderID.Item(); !ok || item != theItem {
		t.Errorf("order id %s is of item %d", id, item)
	}
	if q.UserID != "77" || q.Quantity != 2 || q.KeyHash != sale.HashKey("k-1") || q.Price != "1980" || q.Currency != "JPY" || q.Trace != trace {
		t.Errorf("asked for %+v", q)
	}
}

// Every request fails at its own stage and at all later ones; the earliest must answer.
func TestOrderOfChecks(t *testing.T) {
	now := time.Now()
	type stage struct {
		name   string
		spoil  func(w *world, a *ask)
		status int
		code   string
	}
	item := func(change func(*sale.Item)) func(*world, *ask) {
		return func(w *world, _ *ask) { change(&w.items[0]) }
	}
	stages := []stage{
		{"route", func(_ *world, a *ask) { a.path += "x" }, 404, "NOT_FOUND"},
		{"method", func(_ *world, a *ask) { a.method = "PUT" }, 405, "METHOD_NOT_ALLOWED"},
		{"id", func(_ *world, a *ask) { a.path = strings.Replace(a.path, "items/", "items/0", 1) }, 400, "BAD_REQUEST"},
		{"item", func(_ *world, a *ask) { a.path = strings.Replace(a.path, "1001", "1002", 1) }, 404, "NOT_FOUND"},
		{"start", item(func(it *sale.Item) { it.StartsAt = now.Add(time.Minute) }), 403, "NOT_STARTED"},
		{"pause", item(func(it *sale.Item) { it.Paused = true }), 403, "SALE_PAUSED"},
		{"end", item(func(it *sale.Item) { it.EndsAt = now.Add(-time.Minute) }), 410, "SALE_ENDED"},
		{"address", func(w *world, _ *ask) { w.limited["addr"] = 1500 * time.Millisecond }, 429, "RATE_LIMITED"},
		{"token", func(_ *world, a *ask) { a.token = "x" }, 401, "UNAUTHORIZED"},
		{"user", func(w *world, _ *ask) { w.limited["user"] = time.Millisecond }, 429, "RATE_LIMITED"},
		{"key", func(_ *world, a *ask) { a.headers = []string{"Idempotency-Key:"} }, 400, "BAD_REQUEST"},
		{"body", func(_ *world, a *ask) { a.body = `{"quantity":6}` }, 400, "BAD_REQUEST"},
		{"stock", func(w *world, _ *ask) {
			w.reserve = func(context.Context, *sale.Item, sale.Request) sale.Result {
				return sale.Result{Outcome: sale.QueueFull}
			}
		}, 503, "OVERLOADED"},
	}
	for i, s := range stages {
		t.Run(s.name, func(t *testing.T) {
			w := newWorld(t)
			a := purchaseOf(w.token(t, "1"))
			for j := len(stages) - 1; j >= i; j-- {
				stages[j].spoil(w, &a)
			}
			r := do(t, w.start(t), a).want(t, s.status, s.code)
			if asked := w.askedCount(); asked > 0 && s.name != "stock" {
				t.Errorf("asked for stock %d times", asked)
			}
			checkHeaders(t, r)
		})
	}
}

// checkHeaders checks what every error has in common.
func checkHeaders(tb testing.TB, r reply) {
	tb.Helper()
	var body struct{ Error, Message string }
	if err := json.Unmarshal([]byte(r.body), &body); err != nil || body.Error == "" || body.Message == "" {
		tb.Errorf("body %s: %v", r.body, err)
	}
	if r.header("Content-Type") != "application/json" || r.header("Cache-Control") != "no-store" {
		tb.Errorf("%d: Content-Type %q, Cache-Control %q", r.status, r.header("Content-Type"), r.header("Cache-Control"))
	}
	if after := r.header("Retry-After"); (r.status == 429 || r.status == 503) != (after != "") {
		tb.Errorf("%d: Retry-After %q", r.status, after)
	}
	if challenge := r.header("WWW-Authenticate"); (r.status == 401) != (strings.Contains(challenge, ` realm="flashgate"`)) {
		tb.Errorf("%d: WWW-Authenticate %q", r.status, challenge)
	}
}

func TestNotStartedSaysWhen(t *testing.T) {
	w := newWorld(t)
	starts := time.Date(2126, 11, 27, 20, 0, 0, 123456789, time.FixedZone("", 8*3600))
	w.set(func(it *sale.Item) { it.StartsAt, it.EndsAt = starts, starts.Add(time.Hour) })
	r := do(t, w.start(t), purchaseOf("")).want(t, 403, "NOT_STARTED")
	if !strings.Contains(r.body, `,"startsAt":"2126-11-27T12:00:00.123Z"}`) {
		t.Errorf("body %s", r.body)
	}
}

// The start belongs to the sale, the end does not.
func TestWindow(t *testing.T) {
	at := time.Date(2126, 11, 27, 12, 0, 0, 0, time.UTC)
	w := newWorld(t)
	w.set(func(it *sale.Item) { it.StartsAt, it.EndsAt = at, at.Add(time.Hour) })
	var now atomic.Pointer[time.Time]
	now.Store(&at)
	g := w.start(t, func(c *Config) { c.Now = func() time.Time { return *now.Load() } })
	for _, c := range []struct {
		now    time.Time
		status int
		code   string
	}{
		{at.Add(-time.Millisecond), 403, "NOT_STARTED"},
		{at, 401, "UNAUTHORIZED"},
		{at.Add(time.Hour - time.Millisecond), 401, "UNAUTHORIZED"},
		{at.Add(time.Hour), 410, "SALE_ENDED"},
	} {
		now.Store(&c.now)
		do(t, g, purchaseOf("")).want(t, c.status, c.code)
	}
}

func TestOutcomes(t *testing.T) {
	id := sale.NewOrderID(theItem)
	withID := `,"orderId":"` + id.String() + `"}`
	for _, c := range []struct {
		result sale.Result
		status int
		code   string
		tail   string
	}{
		{sale.Result{Outcome: sale.Own, OrderID: id, Acked: closedChannel()}, 202, "", `{"orderId":"` + id.String() + `","status":"PENDING"}`},
		{sale.Result{Outcome: sale.Already, OrderID: id}, 409, "ALREADY_PURCHASED", withID},
		{sale.Result{Outcome: sale.KeyReused, OrderID: id}, 422, "KEY_REUSED", `"}`},
		{sale.Result{Outcome: sale.NoStock}, 410, "SOLD_OUT", `"}`},
		{sale.Result{Outcome: sale.Insufficient, Available: 3}, 409, "INSUFFICIENT_STOCK", `,"available":3}`},
		{sale.Result{Outcome: sale.Unreadable, Err: errDown}, 503, "UNAVAILABLE", `"}`},
		{sale.Result{Outcome: sale.QueueFull}, 503, "OVERLOADED", `"}`},
		{sale.Result{Outcome: sale.OutboxFull}, 503, "OVERLOADED", `"}`},
		{sale.Result{Outcome: sale.Busy}, 503, "UNAVAILABLE", `"}`},
		{sale.Result{Outcome: sale.Failed, Err: errDown}, 503, "UNAVAILABLE", `"}`},
		{sale.Result{Outcome: sale.Unknown, OrderID: id, Err: errDown}, 503, "OUTCOME_UNKNOWN", withID},
		{sale.Result{Outcome: 99}, 503, "UNAVAILABLE", `"}`},
	} {
		t.Run(c.result.Outcome.String(), func(t *testing.T) {
			w := newWorld(t)
			w.reserve = func(context.Context, *sale.Item, sale.Request) sale.Result { return c.result }
			r := do(t, w.start(t), purchaseOf(w.token(t, "1"))).want(t, c.status, c.code)
			if !strings.HasSuffix(r.body, c.tail) {
				t.Errorf("body %s, want …%s", r.body, c.tail)
			}
			if c.code != "" {
				checkHeaders(t, r)
			}
			if n := w.askedCount(); n != 1 {
				t.Errorf("asked %d times", n)
			}
		})
	}
}

// A panic in a neighbour is one request's trouble: it is answered, and nobody knows whether it took a unit.
func TestPanicOfSeller(t *testing.T) {
	w := newWorld(t)
	w.reserve = func(context.Context, *sale.Item, sale.Request) sale.Result { panic("boom") }
	r := do(t, w.start(t), purchaseOf(w.token(t, "1"))).want(t, 503, "OUTCOME_UNKNOWN")
	if !strings.Contains(r.body, w.asked()[0].OrderID.String()) {
		t.Errorf("body %s does not name the order", r.body)
	}
}

func TestPanicOfHandler(t *testing.T) {
	w := newWorld(t)
	w.limit = func() { panic("boom") }
	g := w.start(t)
	do(t, g, purchaseOf(w.token(t, "1"))).want(t, 500, "INTERNAL")
}

func TestRetryAfter(t *testing.T) {
	for after, want := range map[time.Duration]string{
		0: "1", time.Nanosecond: "1", time.Second: "1", time.Second + 1: "2", 61 * time.Second: "61",
	} {
		w := newWorld(t)
		w.limited["user"] = after
		r := do(t, w.start(t), purchaseOf(w.token(t, "1"))).want(t, 429, "RATE_LIMITED")
		if got := r.header("Retry-After"); got != want {
			t.Errorf("%v: Retry-After %q, want %q", after, got, want)
		}
	}
}

// The catalogue that nobody has read yet knows nothing, which is not "no such item".
func TestPurchaseBeforeFirstCatalogue(t *testing.T) {
	w := newWorld(t)
	w.catalogue = func(context.Context) ([]sale.Item, error) { return nil, errDown }
	g := w.start(t)
	do(t, g, purchaseOf(w.token(t, "1"))).want(t, 503, "UNAVAILABLE")
	do(t, g, ask{method: "GET", path: "/api/flash-sales/items/1001"}).want(t, 503, "UNAVAILABLE")
}
