package main

import (
	"context"
	"testing"
	"time"

	"flashgate/internal/admin"
	"flashgate/internal/ledger"
	"flashgate/internal/sale"
)

// wisher wishes things of items, of which nobody else loads one.
type wisher struct {
	t    *testing.T
	ctx  context.Context
	p    *parts
	desk deskReloader
	item int64
}

// change changes the item, and returns what that leaves to a load.
func (w *wisher) change(c admin.ItemChange) admin.Wish {
	w.t.Helper()
	it, outcome, err := deskLedger{w.p.ledger}.UpdateItem(w.ctx, w.item, c)
	if err != nil || outcome != admin.Changed {
		w.t.Fatalf("change: %v, %v", outcome, err)
	}
	wish := admin.Wish{Number: it.Wish}
	if c.Quantity != nil {
		wish.Fewer = max(0, it.Quantity-*c.Quantity)
	}
	return wish
}

func (w *wisher) quantity(units int64) admin.Wish {
	w.t.Helper()
	return w.change(admin.ItemChange{Quantity: &units})
}

func (w *wisher) shards(n int) admin.Wish {
	w.t.Helper()
	return w.change(admin.ItemChange{Shards: &n})
}

// sold says how many units are sold, without orders.
func (w *wisher) sold(units int64) {
	w.t.Helper()
	if err := w.p.ledger.InTx(w.ctx, func(ctx context.Context, tx ledger.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE flash_sale_item SET sold = $2 WHERE id = $1`, w.item, units)
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wisher) add(units int64) {
	w.t.Helper()
	if _, err := w.p.ledger.Restock(w.ctx, w.item, units, ""); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wisher) load() {
	w.t.Helper()
	if err := w.desk.CarryOut(w.ctx, w.item); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wisher) ends(name string, wish admin.Wish, outcome admin.WishOutcome, sold, quantity int64) {
	w.t.Helper()
	want := admin.WishEnd{Outcome: outcome, Sold: sold, Quantity: quantity}
	if got, err := w.desk.WishEnd(w.ctx, w.item, wish); err != nil || got != want {
		w.t.Errorf("%s: %+v, want %+v; %v", name, got, want, err)
	}
}

// Whoever asked for fewer units is told that this was done only if units were taken away for him, or would have been, had he been alone: not what
// numbers look like by the time that he looks.
func TestWhatBecameOfAWish(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	p, loader, _, _ := openStore(ctx, t, 10)
	for name, story := range map[string]func(w *wisher){
		"replaced by one that is refused": func(w *wisher) {
			a, b := w.quantity(80), w.quantity(70)
			w.ends("open", a, admin.WishOpen, 0, 0)
			w.sold(75)
			w.load()
			w.ends("a", a, admin.WishReplaced, 75, 100)
			w.ends("b", b, admin.WishBelowSold, 75, 100)
		},
		"less is sold by now": func(w *wisher) {
			a := w.quantity(80)
			w.sold(85)
			w.load()
			w.sold(10)
			w.ends("a", a, admin.WishBelowSold, 85, 100)
		},
		"refused, and somebody miscounts what it was": func(w *wisher) { // units were added before he read the item
			a := w.quantity(80)
			a.Fewer += 7
			w.sold(85)
			w.load()
			w.ends("a", a, admin.WishBelowSold, 85, 100)
		},
		"refused under the number of other shards": func(w *wisher) {
			a, b := w.quantity(80), w.shards(4)
			w.sold(85)
			w.load()
			w.sold(10)
			w.ends("a", a, admin.WishBelowSold, 85, 100)
			w.ends("b", b, admin.WishDone, 0, 0)
		},
		"done before another one is refused": func(w *wisher) {
			a := w.quantity(80)
			w.load()
			b := w.quantity(70)
			w.sold(75)
			w.load()
			w.ends("a", a, admin.WishDone, 0, 0)
			w.ends("b", b, admin.WishBelowSold, 75, 80)
		},
		"done beside units that were added": func(w *wisher) {
			a := w.quantity(80)
			w.add(7)
			w.load()
			w.ends("a", a, admin.WishDone, 0, 0)
		},
		"replaced by one that is done": func(w *wisher) {
			a, b := w.quantity(80), w.quantity(70)
			w.load()
			w.ends("a", a, admin.WishDone, 0, 0)
			w.ends("b", b, admin.WishDone, 0, 0)
		},
		"withdrawn": func(w *wisher) {
			a := w.quantity(80)
			w.quantity(100)
			w.load()
			w.ends("a", a, admin.WishDone, 0, 0)
		},
		"long ago": func(w *wisher) {
			a, b := w.quantity(80), w.quantity(70)
			w.sold(75)
			w.load()
			for i := range wishRows + 20 {
				w.change(admin.ItemChange{Paused: new(i%2 == 0)})
			}
			w.ends("a", a, admin.WishReplaced, 75, 100)
			w.ends("b", b, admin.WishBelowSold, 75, 100)
		},
		"retired": func(w *wisher) {
			a := w.quantity(80)
			if err := p.ledger.InTx(ctx, func(ctx context.Context, tx ledger.Tx) error {
				_, err := tx.Exec(ctx, `UPDATE flash_sale SET ends_at = now() FROM flash_sale_item i WHERE i.id = $1 AND i.sale_id = flash_sale.id`, w.item)
				return err
			}); err != nil {
				w.t.Fatal(err)
			}
			if done, err := p.ledger.Retire(ctx, w.item, 0); err != nil || !done {
				w.t.Fatal(done, err)
			}
			w.load()
			w.ends("a", a, admin.WishRetired, 0, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			made, err := p.ledger.CreateSale(ctx, sale.Sale{
				Name: "x", StartsAt: time.Now().Add(-time.Hour), EndsAt: time.Now().Add(time.Hour), PurchaseLimit: sale.PerItem, PaymentWindow: time.Minute,
				Items: []sale.Item{{Quantity: 100, Price: "19.80", Currency: "EUR", Shards: 3, MaxPerUser: 5, Model: sale.Counter}},
			})
			if err != nil {
				t.Fatal(err)
			}
			w := &wisher{t: t, ctx: ctx, p: p, desk: deskReloader{loader, p.ledger, p.stock}, item: made.Items[0].ID}
			if err := loader.First(ctx, w.item); err != nil {
				t.Fatal(err)
			}
			story(w)
		})
	}
}
