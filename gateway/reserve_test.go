package gateway

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"flashgate/internal/pause"
	"flashgate/internal/sale"
)

// result answers every attempt with the same outcome after d.
func after(d time.Duration, r sale.Result) func(context.Context, *sale.Item, sale.Request) sale.Result {
	return func(ctx context.Context, _ *sale.Item, q sale.Request) sale.Result {
		if !pause.For(ctx, d) {
			return sale.Result{Outcome: sale.Unknown, OrderID: q.OrderID, Err: ctx.Err()}
		}
		r.OrderID = q.OrderID
		return r
	}
}

// buyIn runs one purchase and says how long it took, in virtual time.
func buyIn(t *testing.T, w *world, g *Gateway) (reply, time.Duration) {
	t.Helper()
	began := time.Now()
	r := do(t, g, purchaseOf(w.token(t, "1")))
	return r, time.Since(began)
}

func TestWaitForBroker(t *testing.T) {
	for name, c := range map[string]struct {
		reserve time.Duration // how long the reservation takes
		ack     time.Duration // when, after it, the broker acknowledges; 0: never
		outcome sale.Outcome
		change  func(*Config)
		status  int
		code    string
		took    time.Duration
	}{
		"acknowledged":         {0, 20 * time.Millisecond, sale.Reserved, nil, 202, "", 20 * time.Millisecond},
		"own, acknowledged":    {0, 20 * time.Millisecond, sale.Own, nil, 202, "", 20 * time.Millisecond},
		"broker down":          {0, 0, sale.Reserved, nil, 202, "", time.Second},
		"own, broker down":     {0, 0, sale.Own, nil, 202, "", time.Second},
		"late acknowledgement": {0, 1500 * time.Millisecond, sale.Reserved, nil, 202, "", time.Second},
		// The record deadline counts from the call. After it a load may have gone by without the record.
		"slow Redis and broker down": {1200 * time.Millisecond, 0, sale.Reserved, nil, 503, "OUTCOME_UNKNOWN", 2 * time.Second},
		"slow Redis and slow broker": {1200 * time.Millisecond, 700 * time.Millisecond, sale.Reserved, nil, 202, "", 1900 * time.Millisecond},
		"after the record deadline":  {2100 * time.Millisecond, 10 * time.Millisecond, sale.Reserved, nil, 503, "OUTCOME_UNKNOWN", 2100 * time.Millisecond},
		// The request timeout is shorter than both.
		"little time": {700 * time.Millisecond, 0, sale.Reserved, func(c *Config) {
			c.RequestTimeout, c.PublishTimeout = time.Second, 900*time.Millisecond
		}, 202, "", 900 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				acked := make(chan struct{})
				reserve := after(c.reserve, sale.Result{Outcome: c.outcome, Acked: acked})
				w.reserve = func(ctx context.Context, it *sale.Item, q sale.Request) sale.Result {
					r := reserve(ctx, it, q)
					if c.ack > 0 {
						time.AfterFunc(c.ack, func() { close(acked) })
					}
					return r
				}
				g := w.start(t, func(cfg *Config) {
					if c.change != nil {
						c.change(cfg)
					}
				})
				r, took := buyIn(t, w, g)
				r.want(t, c.status, c.code)
				if took != c.took {
					t.Errorf("took %v, want %v", took, c.took)
				}
				if !strings.Contains(r.body, w.asked()[0].OrderID.String()) {
					t.Errorf("body %s does not name the order", r.body)
				}
			})
		})
	}
}

// The answer comes within the request timeout, whether the call honours its context or not; and names the order that may exist.
func TestHangingReserve(t *testing.T) {
	for name, honours := range map[string]bool{"honours its context": true, "does not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				goOn := make(chan struct{})
				w.reserve = func(ctx context.Context, _ *sale.Item, q sale.Request) sale.Result {
					if honours {
						<-ctx.Done()
						return sale.Result{Outcome: sale.Unknown, Err: ctx.Err()}
					}
					<-goOn
					return sale.Result{Outcome: sale.Reserved, OrderID: q.OrderID}
				}
				r, took := buyIn(t, w, w.start(t))
				r.want(t, 503, "OUTCOME_UNKNOWN")
				if took >= 3*time.Second {
					t.Errorf("took %v", took)
				}
				if id := w.asked()[0].OrderID.String(); !strings.Contains(r.body, `,"orderId":"`+id+`"}`) {
					t.Errorf("body %s, want order %s", r.body, id)
				}
				checkHeaders(t, r)
				close(goOn)
			})
		})
	}
}

func TestWarmingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.reserve = after(0, sale.Result{Outcome: sale.NotLoaded})
		r, took := buyIn(t, w, w.start(t))
		r.want(t, 503, "WARMING_UP")
		if took != 300*time.Millisecond {
			t.Errorf("held for %v", took)
		}
		seen := map[sale.OrderID]bool{}
		for _, q := range w.asked() {
			if seen[q.OrderID] {
				t.Error("an order id was used twice")
			}
			seen[q.OrderID] = true
		}
		if len(seen) != 4 {
			t.Errorf("%d attempts", len(seen))
		}
	})
}

// The stock comes back while the request is held.
func TestWarmedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var n atomic.Int64
		w.reserve = func(_ context.Context, _ *sale.Item, q sale.Request) sale.Result {
			if n.Add(1) < 3 {
				return sale.Result{Outcome: sale.NotLoaded}
			}
			return sale.Result{Outcome: sale.Reserved, OrderID: q.OrderID, Acked: closedChannel()}
		}
		r, _ := buyIn(t, w, w.start(t))
		r.want(t, 202, "")
	})
}

// The sale is paused, or ends, while a request is held.
func TestClosedWhileHeld(t *testing.T) {
	for code, change := range map[string]func(*sale.Item){
		"SALE_PAUSED": func(it *sale.Item) { it.SalePaused = true },
		"SALE_ENDED":  func(it *sale.Item) { it.EndsAt = time.Now() },
		"NOT_STARTED": func(it *sale.Item) { it.StartsAt = time.Now().Add(time.Minute) },
		"NOT_FOUND":   nil,
	} {
		t.Run(code, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				g := w.start(t)
				w.reserve = func(context.Context, *sale.Item, sale.Request) sale.Result {
					if change == nil {
						w.change(func() { w.items = nil })
					} else {
						w.set(change)
					}
					must(t, g.Refresh(t.Context()))
					return sale.Result{Outcome: sale.NotLoaded}
				}
				r, _ := buyIn(t, w, g)
				r.want(t, r.status, code)
				if n := w.askedCount(); n != 1 {
					t.Errorf("%d attempts", n)
				}
			})
		})
	}
}

// Another number of shards: the item is read again and the purchase repeated, under a fresh order id.
func TestWrongLayout(t *testing.T) {
	w := newWorld(t)
	w.reserve = func(_ context.Context, it *sale.Item, q sale.Request) sale.Result {
		if it.Shards != 8 {
			return sale.Result{Outcome: sale.WrongLayout}
		}
		return sale.Result{Outcome: sale.Reserved, OrderID: q.OrderID, Acked: closedChannel()}
	}
	g := w.start(t, func(c *Config) { c.CatalogueEvery = time.Hour })
	w.set(func(it *sale.Item) { it.Shards = 8 })
	do(t, g, purchaseOf(w.token(t, "1"))).want(t, 202, "")
	if asked := w.asked(); len(asked) != 2 || asked[0].OrderID == asked[1].OrderID {
		t.Errorf("asked %v", asked)
	}
}

func TestWrongLayoutForEver(t *testing.T) {
	w := newWorld(t)
	w.reserve = after(0, sale.Result{Outcome: sale.WrongLayout})
	do(t, w.start(t), purchaseOf(w.token(t, "1"))).want(t, 503, "UNAVAILABLE")
	if n := w.askedCount(); n != layoutAttempts {
		t.Errorf("%d attempts", n)
	}
}

func TestWrongLayoutWithoutDatabase(t *testing.T) {
	w := newWorld(t)
	w.reserve = after(0, sale.Result{Outcome: sale.WrongLayout})
	g := w.start(t)
	w.change(func() { w.catalogue = func(context.Context) ([]sale.Item, error) { return nil, errDown } })
	do(t, g, purchaseOf(w.token(t, "1"))).want(t, 503, "UNAVAILABLE")
	if n := w.askedCount(); n != 1 {
		t.Errorf("%d attempts", n)
	}
}

// No time is left when the reservation would begin: nothing is asked, so nothing is unknown.
func TestNoTimeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.limit = func() { time.Sleep(3 * time.Second) }
		r, _ := buyIn(t, w, w.start(t))
		r.want(t, 503, "UNAVAILABLE")
		if n := w.askedCount(); n != 0 {
			t.Errorf("%d attempts", n)
		}
	})
}
