package gateway

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"flashgate/internal/sale"
)

// Three were bought, then maxPerUser was lowered to one. Whoever has bought is answered as ever; whoever has not is told the limit; nobody reserves.
func TestRetryAfterMaxPerUserWasLowered(t *testing.T) {
	id := sale.NewOrderID(theItem)
	mark := sale.Mark{OrderID: id, Quantity: 3, KeyHash: sale.HashKey("key")}
	row := sale.Order{ID: id, ItemID: theItem, UserID: "u", Quantity: 3, KeyHash: sale.HashKey("key"), Status: sale.Paid}
	marked := func(w *world) { w.marks["u"] = mark }
	written := func(status sale.OrderStatus) func(*world) {
		return func(w *world) {
			o := row
			o.Status = status
			w.rows[id] = o
		}
	}
	noRedis := func(w *world) {
		w.mark = func(context.Context, *sale.Item, string) (sale.Mark, bool, error) { return sale.Mark{}, false, errDown }
	}
	frozenRedis := func(w *world) {
		w.mark = func(ctx context.Context, _ *sale.Item, _ string) (sale.Mark, bool, error) {
			<-ctx.Done()
			return sale.Mark{}, false, ctx.Err()
		}
	}
	noDatabase := func(w *world) {
		w.row = func(context.Context, sale.OrderID) (sale.Order, bool, error) { return sale.Order{}, false, errDown }
		w.live = func(context.Context, int64, string) (sale.Order, bool, error) { return sale.Order{}, false, errDown }
	}
	const limit = `{"error":"BAD_REQUEST","message":"body: quantity: must be 1"}`
	for name, c := range map[string]struct {
		prepare []func(*world)
		live    bool // he has a live order, as far as can be found out
	}{
		"a mark":                         {[]func(*world){marked}, true},
		"a mark and its row":             {[]func(*world){marked, written(sale.Pending)}, true},
		"a row alone":                    {[]func(*world){written(sale.Paid)}, true},
		"a mark, no database":            {[]func(*world){marked, noDatabase}, true},
		"a row, no Redis":                {[]func(*world){noRedis, written(sale.Paid)}, true},
		"a row, and Redis hangs":         {[]func(*world){frozenRedis, written(sale.Paid)}, true},
		"nothing":                        {nil, false},
		"somebody else's":                {[]func(*world){func(w *world) { w.marks["v"] = mark; o := row; o.UserID = "v"; w.rows[id] = o }}, false},
		"an order that has ended":        {[]func(*world){written(sale.Cancelled)}, false},
		"ended, its mark not released":   {[]func(*world){marked, written(sale.Expired)}, false},
		"nothing can be read":            {[]func(*world){marked, noRedis, noDatabase}, false},
		"nothing, and Redis is away":     {[]func(*world){noRedis}, false},
		"nothing, and the database away": {[]func(*world){noDatabase}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.items[0].MaxPerUser = 1
				for _, f := range c.prepare {
					f(w)
				}
				g := w.start(t)
				ask := func(token, body string, headers ...string) reply {
					a := purchaseOf(token, headers...)
					a.body = body
					began := time.Now()
					r := do(t, g, a)
					if took := time.Since(began); took >= g.cfg.RequestTimeout {
						t.Errorf("took %v", took)
					}
					return r
				}
				raw := w.token(t, "u")
				three, key := `{"quantity":3}`, "Idempotency-Key: key"
				if c.live {
					if r := ask(raw, three, key).want(t, 202, ""); r.body != `{"orderId":"`+id.String()+`","status":"PENDING"}` || r.header("Location") != orderPath(id) {
						t.Errorf("%s, Location %s", r.body, r.header("Location"))
					}
					taken := refusal(kindAlreadyPurchased, "you have an order here already", orderIDMember(id))
					for _, headers := range [][]string{nil, {"Idempotency-Key: other"}} {
						if r := ask(raw, three, headers...).want(t, 409, "ALREADY_PURCHASED"); r.body != string(taken.body) {
							t.Errorf("%v: %s", headers, r.body)
						}
					}
					ask(raw, `{"quantity":2}`, key).want(t, 422, "KEY_REUSED")
				} else {
					for _, r := range []reply{ask(raw, three, key), ask(raw, three), ask(raw, `{"quantity":9007199254740991}`, key)} {
						if r.want(t, 400, "BAD_REQUEST"); r.body != limit {
							t.Errorf("%s, want %s", r.body, limit)
						}
					}
				}
				// Others learn nothing, and who is malformed is told that before anybody is looked at.
				if r := ask(w.token(t, "w"), three, key).want(t, 400, "BAD_REQUEST"); r.body != limit {
					t.Errorf("a stranger: %s", r.body)
				}
				ask(w.forged(t, "u"), three, key).want(t, 401, "UNAUTHORIZED")
				ask("", three, key).want(t, 401, "UNAUTHORIZED")
				ask(raw, `{"quantity":0}`, key).want(t, 400, "BAD_REQUEST")
				ask(raw, three, "Idempotency-Key:").want(t, 400, "BAD_REQUEST")
				if n := w.askedCount(); n != 0 {
					t.Errorf("%d reservations", n)
				}
				// The bucket of the user bounds all of it.
				w.change(func() {
					w.limited["user"] = time.Second
					w.mark = func(context.Context, *sale.Item, string) (sale.Mark, bool, error) {
						t.Error("a user who asks too often was looked at")
						return sale.Mark{}, false, nil
					}
				})
				ask(raw, three, key).want(t, 429, "RATE_LIMITED")
			})
		})
	}
}

// A crowd asks for more than it may: so many are looked up as there are places, and the others are told the limit without.
func TestLooksAtTooManyAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.items[0].MaxPerUser = 1
		goOn := make(chan struct{})
		var reads atomic.Int64
		w.mark = func(context.Context, *sale.Item, string) (sale.Mark, bool, error) {
			reads.Add(1)
			<-goOn
			return sale.Mark{OrderID: sale.NewOrderID(theItem), Quantity: 3}, true, nil
		}
		g := w.start(t, func(c *Config) { c.MaxLooks = 1 })
		ask := func(user string) reply {
			a := purchaseOf(w.token(t, user))
			a.body = `{"quantity":3}`
			return do(t, g, a)
		}
		first := make(chan reply)
		go func() { first <- ask("winner") }()
		synctest.Wait()
		for _, user := range []string{"winner", "a", "b"} {
			ask(user).want(t, 400, "BAD_REQUEST")
		}
		if n := reads.Load(); n != 1 {
			t.Errorf("%d marks were read", n)
		}
		close(goOn)
		(<-first).want(t, 409, "ALREADY_PURCHASED")
		ask("winner").want(t, 409, "ALREADY_PURCHASED")
	})
}
