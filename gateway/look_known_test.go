package gateway

import (
	"context"
	"net/netip"
	"slices"
	"testing"

	"flashgate/internal/sale"
)

// nothingAnswers is a world without Redis and database.
func nothingAnswers(w *world) func() {
	return func() {
		w.mark = func(context.Context, *sale.Item, string) (sale.Mark, bool, error) { return sale.Mark{}, false, errDown }
		w.live = func(context.Context, int64, string) (sale.Order, bool, error) { return sale.Order{}, false, errDown }
		w.row = func(context.Context, sale.OrderID) (sale.Order, bool, error) { return sale.Order{}, false, errDown }
	}
}

// What a stranger sends for somebody is charged to that pair of address and user, and to nothing that shows anywhere else.
func TestLooksAreChargedApart(t *testing.T) {
	closedWorlds(t, func(t *testing.T, w *world, g *Gateway, plain string) {
		charges := func(raw string) (charged []string, looks []looked) {
			t.Helper()
			w.change(func() { w.charged, w.looks = nil, nil })
			if r := do(t, g, purchaseOf(raw)); r.status != 410 || r.body != plain {
				t.Fatalf("%d %s, everybody else gets 410 %s", r.status, r.body, plain)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.charged, w.looks
		}
		want := []looked{{netip.MustParseAddr("192.0.2.1"), sale.HashUser("winner")}}
		for name, raw := range map[string]string{"forged": w.forged(t, "winner"), "expired": w.expired(t, "winner"), "his own, without an order": w.token(t, "winner")} {
			if charged, looks := charges(raw); !slices.Equal(charged, []string{"look"}) || !slices.Equal(looks, want) {
				t.Errorf("%s: charged %v for %v", name, charged, looks)
			}
		}
		for name, raw := range map[string]string{"forged for a loser": w.forged(t, "loser"), "a loser's own": w.token(t, "loser"), "none": ""} {
			if charged, _ := charges(raw); len(charged) > 0 {
				t.Errorf("%s: charged %v", name, charged)
			}
		}
	})
}

// Of a winner whose order cannot be looked up nobody knows that he has none: he is told to come again. Whoever cannot prove who he is is not.
func TestWinnerWhoCannotBeLookedUp(t *testing.T) {
	noMark := func(context.Context, *sale.Item, string) (sale.Mark, bool, error) { return sale.Mark{}, false, errDown }
	noRow := func(context.Context, int64, string) (sale.Order, bool, error) { return sale.Order{}, false, errDown }
	for name, spoil := range map[string]func(w *world){
		"Redis is away and there is no row": func(w *world) { w.mark = noMark },
		"Redis hangs and there is no row": func(w *world) {
			w.mark = func(ctx context.Context, _ *sale.Item, _ string) (sale.Mark, bool, error) {
				<-ctx.Done()
				return sale.Mark{}, false, ctx.Err()
			}
		},
		"no mark, and the database is away": func(w *world) { w.live = noRow },
		"no mark, and the database hangs": func(w *world) {
			w.live = func(ctx context.Context, _ int64, _ string) (sale.Order, bool, error) {
				<-ctx.Done()
				return sale.Order{}, false, ctx.Err()
			}
		},
		"both are away": func(w *world) { w.mark, w.live = noMark, noRow },
	} {
		t.Run(name, func(t *testing.T) {
			closedWorlds(t, func(t *testing.T, w *world, g *Gateway, plain string) {
				w.change(func() { spoil(w) })
				r := do(t, g, purchaseOf(w.token(t, "winner"))).want(t, 503, "UNAVAILABLE")
				checkHeaders(t, r)
				if r.header("Retry-After") != "1" {
					t.Errorf("Retry-After %q", r.header("Retry-After"))
				}
				for who, raw := range map[string]string{"forged": w.forged(t, "winner"), "expired": w.expired(t, "winner"), "loser": w.token(t, "loser")} {
					if r := do(t, g, purchaseOf(raw)); r.status != 410 || r.body != plain {
						t.Errorf("%s: %d %s, everybody else gets 410 %s", who, r.status, r.body, plain)
					}
				}
			})
		})
	}
}

// A mark stands until the keeper has released it. Of an order that has ended by its row nobody is told that he has it.
func TestLookKnowsEndedOrders(t *testing.T) {
	closedWorlds(t, func(t *testing.T, w *world, g *Gateway, plain string) {
		id := sale.NewOrderID(theItem)
		w.change(func() { w.marks["winner"] = sale.Mark{OrderID: id, Quantity: 1} })
		ask := purchaseOf(w.token(t, "winner"))
		do(t, g, ask).want(t, 409, "ALREADY_PURCHASED") // no row yet
		for _, status := range []sale.OrderStatus{sale.Pending, sale.Paid} {
			w.change(func() { w.rows[id] = sale.Order{ID: id, ItemID: theItem, UserID: "winner", Status: status} })
			do(t, g, ask).want(t, 409, "ALREADY_PURCHASED")
		}
		for _, status := range []sale.OrderStatus{sale.Cancelled, sale.Expired, sale.Rejected} {
			w.change(func() { w.rows[id] = sale.Order{ID: id, ItemID: theItem, UserID: "winner", Status: status} })
			if r := do(t, g, ask); r.status != 410 || r.body != plain {
				t.Errorf("%s: %d %s, everybody else gets 410 %s", status, r.status, r.body, plain)
			}
		}
		w.change(func() {
			w.row = func(context.Context, sale.OrderID) (sale.Order, bool, error) { return sale.Order{}, false, errDown }
		})
		do(t, g, ask).want(t, 409, "ALREADY_PURCHASED") // the mark is what is known
	})
}
