package keeper

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/ledger"
	"flashgate/internal/pause"
	"flashgate/internal/sale"
	"flashgate/shard"
)

// wish writes down what is wished of an item.
func (l *lab) wish(layout shard.Layout, shards int, quantity int64) ledger.ItemUpdate {
	l.Helper()
	patch := ledger.ItemPatch{}
	if shards != 0 {
		patch.Shards = &shards
	}
	if quantity >= 0 {
		patch.Quantity = &quantity
	}
	got, outcome, err := l.db.UpdateItem(l.ctx, layout.Item, patch)
	if err != nil || outcome != ledger.Patched {
		l.Fatalf("wish for %d shards and %d units: %v, %v", shards, quantity, outcome, err)
	}
	return got
}

// plan carries out what is wished of an item.
func (l *lab) plan(loader *Loader, layout shard.Layout) (Outcome, error) {
	var outcome Outcome
	var err error
	// The order writer may need more than a moment on a machine under load.
	for outcome = Postponed; outcome == Postponed && l.ctx.Err() == nil; {
		outcome, err = loader.Plan(l.ctx, layout.Item)
	}
	return outcome, err
}

func (l *lab) planned(loader *Loader, layout shard.Layout) {
	l.Helper()
	if outcome, err := l.plan(loader, layout); err != nil || outcome != Loaded {
		l.Fatalf("carry out the wish: %v, %v", outcome, err)
	}
}

// noWish waits until a keeper has carried out what is wished.
func (l *lab) noWish(layout shard.Layout) {
	l.Helper()
	devtest.Eventually(l, timeout, func() bool {
		w, err := l.db.Wish(l.ctx, layout.Item)
		l.must(err)
		return !w.Open()
	}, "the wish is carried out")
}

func TestAnotherNumberOfShards(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		l.write()
		was := l.sale(20, 13)
		gateway, k := l.gateway(l.tape), l.keeper()
		answered := []sale.OrderID{l.buy(gateway, was, "9", 2), l.buy(gateway, was, "anna", 1)}
		// In the outbox of a shard that the smaller layout does not have, and from a gateway that died. User 9's home is shard 9.
		answered = append(answered, l.buy(l.gateway(dead{}), was, "22", 3))
		if found, err := l.stock.Outbox(l.ctx, was, 9); err != nil || len(found.Entries) == 0 {
			t.Fatal(found, err)
		}
		cancelled := l.buy(gateway, was, "12", 1)
		answered = append(answered, cancelled)
		l.wish(was, 4, -1)
		l.planned(k.Loader(), was)
		layout := shard.Layout{Item: was.Item, Shards: 4}
		if l.status(answered[2]) != sale.Pending {
			t.Error("what was in an outbox behind the end of the layout is not stored")
		}
		for n := 4; n < 13; n++ {
			if got := l.redis("HLEN", key(was, n, "buyers")) + l.redis("HLEN", key(was, n, "pending")) + l.redis("GET", key(was, n, "stock")); got != "000" {
				t.Errorf("shard %d holds marks, entries and stock: %s", n, got)
			}
		}
		// Gateways that believe in the old layout are told so at every shard; under the new one everybody is where he is looked for.
		for user := range 13 {
			if r := gateway.Reserve(l.ctx, was, l.request(was, fmt.Sprint(user), 1)); r.Outcome != sale.WrongLayout {
				t.Errorf("user %d under the old layout: %s, %v", user, r.Outcome, r.Err)
			}
		}
		if r := gateway.Reserve(l.ctx, layout, l.request(layout, "22", 1)); r.Outcome != sale.Already || r.OrderID != answered[2] {
			t.Errorf("a buyer again: %s, %v", r.Outcome, r.Err)
		}
		// What comes back goes to the home under the new layout.
		if _, _, err := l.db.Cancel(l.ctx, cancelled, "12"); err != nil {
			t.Fatal(err)
		}
		stop := l.runKeeper(k)
		if report := l.atRest(layout, answered...); report.Free != 14 || report.Live != 6 {
			t.Error(report)
		}
		// More shards than ever, by a keeper that sees the wish by itself.
		l.wish(layout, 17, -1)
		l.noWish(layout)
		layout.Shards = 17
		answered = append(answered, l.buyWhenLoaded(gateway, layout, "16"))
		if report := l.atRest(layout, answered...); report.Free != 13 {
			t.Error(report)
		}
		stop()
		// And everything goes when the item is retired, though it has one shard in the end.
		l.wish(layout, 1, -1)
		l.planned(k.Loader(), layout)
		l.exec(`UPDATE flash_sale_order SET status = 'PAID'`)
		l.exec(`UPDATE flash_sale SET starts_at = now() - interval '2 hours', ends_at = now() - interval '1 hour'`)
		l.runKeeper(l.keeper(func(c *Config) { c.RetireAfter = new(time.Duration) }))
		devtest.Eventually(t, timeout, func() bool { return l.keys(layout) == 0 }, "nothing is left of any layout")
	})
}

// buyWhenLoaded buys as soon as the item can be bought.
func (l *lab) buyWhenLoaded(s *shard.Stock, layout shard.Layout, user string) (id sale.OrderID) {
	l.Helper()
	devtest.Eventually(l, timeout, func() bool {
		r := s.Reserve(l.ctx, layout, l.request(layout, user, 1))
		id = r.OrderID
		return r.Outcome == sale.Reserved
	}, "the item can be bought")
	return id
}

func TestFewerUnits(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		l.write()
		layout := l.sale(20, 3)
		gateway, k := l.gateway(l.tape), l.keeper()
		answered := []sale.OrderID{l.buy(gateway, layout, "1", 5), l.buy(l.gateway(dead{}), layout, "2", 2)}
		devtest.Eventually(t, timeout, func() bool { return l.status(answered[0]) == sale.Pending }, "the order is stored")
		// The two of a dead gateway are in nobody's books yet.
		l.wish(layout, 0, 7)
		l.planned(k.Loader(), layout)
		l.runKeeper(k)
		if report := l.atRest(layout, answered...); report.Quantity != 7 || report.Free != 0 || report.Live != 7 {
			t.Error(report)
		}
		if r := gateway.Reserve(l.ctx, layout, l.request(layout, "3", 1)); r.Outcome != sale.NoStock {
			t.Errorf("one more: %s, %v", r.Outcome, r.Err)
		}
	})
}

func TestFewerUnitsThanAreSoldWhenTheLoadComesToIt(t *testing.T) {
	l := newLab(t, onMini)
	l.write()
	layout := l.sale(20, 3)
	k := l.keeper()
	id := l.buy(l.gateway(dead{}), layout, "2", 5) // in an outbox: nobody knows yet
	wish := l.wish(layout, 2, 4)
	l.planned(k.Loader(), layout)
	layout.Shards = 2
	l.runKeeper(k)
	if report := l.atRest(layout, id); report.Quantity != 20 || report.Free != 15 {
		t.Error(report)
	}
	if w, err := l.db.Wish(l.ctx, layout.Item); err != nil || w.Open() || w.Refused != wish.Wish {
		t.Errorf("the wish is %+v, %v", w, err)
	}
}

// TestAPlannedLoadDoesNotStopASaleDuringAnOutage: the wish waits, and is carried out by a keeper afterwards.
func TestAPlannedLoadDoesNotStopASaleDuringAnOutage(t *testing.T) {
	for _, b := range []string{"no broker", "no order writer"} {
		t.Run(b, func(t *testing.T) {
			l := newLab(t, onMini)
			layout := l.sale(20, 3)
			gateway, k := l.gateway(l.tape), l.keeper()
			impatient := l.keeper(func(c *Config) { c.KeepUp = 100 * time.Millisecond })
			answered := []sale.OrderID{l.buy(gateway, layout, "1", 1)}
			l.tape.set(func(t *tape) { t.down = b == "no broker" })
			l.wish(layout, 5, 15)
			for range 2 {
				if outcome, err := impatient.Loader().Plan(l.ctx, layout.Item); err != nil || outcome != Postponed {
					t.Fatalf("%v, %v", outcome, err)
				}
			}
			if n := l.count(`SELECT claim - epoch FROM flash_sale_item`); n != 0 {
				t.Error("a load was begun")
			}
			answered = append(answered, l.buy(gateway, layout, "2", 1))
			l.tape.set(func(t *tape) { t.down = false })
			l.run(k)
			l.noWish(layout)
			if report := l.atRest(shard.Layout{Item: layout.Item, Shards: 5}, answered...); report.Quantity != 15 || report.Free != 13 {
				t.Error(report)
			}
		})
	}
}

// TestAPlannedLoadOfALostStockIsNotPostponed: it is due in any case.
func TestAPlannedLoadOfALostStockIsNotPostponed(t *testing.T) {
	l := newLab(t, onMini)
	layout := l.sale(20, 3)
	id := l.buy(l.gateway(l.tape), layout, "1", 1)
	l.wish(layout, 5, -1)
	l.redis("DEL", key(layout, 1, "stock"))
	done := l.beginAs(l.keeper().Loader(), layout, func(loader *Loader, layout shard.Layout) (Outcome, error) { return loader.Plan(l.ctx, layout.Item) })
	// It stands at the fence until the order writers are there.
	devtest.Eventually(t, timeout, func() bool { return l.redis("EXISTS", key(layout, 0, "stock")) == "0" }, "the load has begun")
	l.write()
	if r := <-done; r.err != nil || r.outcome != Loaded {
		t.Fatal(r)
	}
	if report := l.atRest(shard.Layout{Item: layout.Item, Shards: 5}, id); report.Free != 19 {
		t.Error(report)
	}
}

func TestAWithdrawnWishIsNoReasonToLoad(t *testing.T) {
	l := newLab(t, onMini)
	l.write()
	layout := l.sale(20, 3)
	epoch := l.epoch(layout)
	l.wish(layout, 5, 10)
	l.wish(layout, 3, 20)
	if outcome, err := l.plan(l.keeper().Loader(), layout); err != nil || outcome != NotDue || l.epoch(layout) != epoch {
		t.Errorf("%v, %v", outcome, err)
	}
}

// TestLoaderOfAnotherLayoutStoppedAtEveryStep stops a loader that makes an item smaller, or larger, at each of its steps; another one finishes, is
// perhaps asked for yet another layout; and the first one wakes up.
func TestLoaderOfAnotherLayoutStoppedAtEveryStep(t *testing.T) {
	l := newLab(t, onMini)
	l.write()
	for _, change := range []struct {
		name         string
		shards, then int // then: 0 for the same
	}{{"fewer", 1, 0}, {"more", 5, 0}, {"fewer, then more", 1, 3}, {"more, then fewer", 5, 1}} {
		for _, step := range l.plannedSteps(change.shards) {
			t.Run(change.name+" "+step, func(t *testing.T) {
				c := l.crowd(t)
				l.wish(c.layout, change.shards, 9)
				s := l.stepper()
				done := l.stopsAt(s, step, func() <-chan loadResult { return l.beginAs(l.stepping(s), c.layout, l.plan) })
				c.follow()
				c.sell() // where the stopped one has not fenced yet
				l.leaseRunsOut(c.layout)
				if change.then != 0 {
					l.wish(c.layout, change.then, -1)
				}
				k := l.keeper()
				outcome, err := k.loader.Load(l.ctx, c.layout.Item, "test")
				if err != nil || outcome != Loaded {
					t.Fatalf("the other loader: %v, %v", outcome, err)
				}
				c.follow()
				c.sell()
				close(s.wake)
				if r := <-done; r.err != nil {
					t.Logf("the stopped loader: %v", r.err)
				}
				c.follow()
				c.sell()
				c.quantity = 9
				c.check(k)
				if want := change.then; want != 0 && c.layout.Shards != want || want == 0 && c.layout.Shards != change.shards {
					t.Errorf("%d shards", c.layout.Shards)
				}
			})
		}
	}
}

// plannedSteps are those of a load that only carries out a wish for so many shards.
func (l *lab) plannedSteps(shards int) []string {
	l.Helper()
	layout := l.sale(5, 2)
	l.wish(layout, shards, -1)
	s := l.stepper()
	if outcome, err := l.plan(l.stepping(s), layout); err != nil || outcome != Loaded {
		l.Fatalf("load: %v, %v", outcome, err)
	}
	return slices.DeleteFunc(s.seen, func(step string) bool { return strings.HasPrefix(step, "behind") })
}

// TestRushThroughLayouts changes the shards from 13 to 4 to 7 and takes units away in the middle of a rush, with two gateways that learn of it at
// different times, two keepers, and real producers.
func TestRushThroughLayouts(t *testing.T) {
	l := newLab(t, onReal)
	k := l.kafka(t)
	const quantity, less, shoppers = 300, 60, 500
	layout := l.sale(quantity, 13)
	k.write(t)
	admin := k.Admin(t)
	for range 2 {
		l.runKeeper(l.keeper(k.inEarnest(admin)))
	}
	edges := []*edge{{stock: l.gateway(k.producer()), layout: layout}, {stock: l.gateway(k.producer()), layout: layout}}
	var mu sync.Mutex
	var answered []sale.OrderID
	happened := make(map[int]bool)
	everyone(shoppers, 8, func(u int) {
		id, ok := l.shopAt(edges[rand.IntN(2)], fmt.Sprint(u))
		if !ok {
			return
		}
		mu.Lock()
		answered = append(answered, id)
		for at, what := range map[int]func(){
			30:  func() { l.wish(layout, 4, -1) },
			80:  func() { l.gateway(dead{}).Reserve(l.ctx, edges[0].at(), l.request(layout, "dead", 2)) },
			100: func() { l.wish(layout, 7, quantity-less) },
		} {
			if len(answered) >= at && !happened[at] {
				happened[at] = true
				what()
			}
		}
		mu.Unlock()
	})
	if len(happened) != 3 {
		t.Fatalf("only %d bought", len(answered))
	}
	l.noWish(layout)
	layout.Shards = 7
	report := l.atRest(layout, answered...)
	if report.Quantity != quantity-less {
		t.Error(report)
	}
	for u := shoppers; report.Free > 0; u++ {
		if id, ok := l.shopAt(edges[0], fmt.Sprint(u)); ok {
			answered = append(answered, id)
		}
		report = l.atRest(layout, answered...)
	}
	if report.Live != quantity-less {
		t.Error(report)
	}
	if n := l.count(`SELECT count(*) FROM flash_sale_order WHERE status = 'REJECTED'`); n != 0 {
		t.Errorf("%d were told yes and got nothing", n)
	}
	t.Log(report)
}

// edge is a gateway that learns of another layout when a shard tells it.
type edge struct {
	stock *shard.Stock

	mu     sync.Mutex
	layout shard.Layout
}

func (e *edge) at() shard.Layout {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.layout
}

// shopAt is shop at a gateway that follows the item to other layouts.
func (l *lab) shopAt(e *edge, user string) (sale.OrderID, bool) {
	for {
		layout := e.at()
		r := e.stock.Reserve(l.ctx, layout, l.request(layout, user, 1))
		switch r.Outcome {
		case sale.Reserved, sale.Own:
			select {
			case <-r.Acked:
				return r.OrderID, true
			case <-l.ctx.Done():
				l.Errorf("user %s: no acknowledgement", user)
				return r.OrderID, false
			}
		case sale.Already:
			return r.OrderID, true
		case sale.NoStock:
			return sale.OrderID{}, false
		case sale.WrongLayout:
			it, _, err := l.db.Item(l.ctx, layout.Item)
			if err != nil {
				l.Error(err)
				return sale.OrderID{}, false
			}
			e.mu.Lock()
			e.layout = layoutOf(&it)
			e.mu.Unlock()
		default:
			if !pause.For(l.ctx, 5*time.Millisecond) {
				l.Errorf("user %s: no definite answer, at last %s, %v", user, r.Outcome, r.Err)
				return sale.OrderID{}, false
			}
		}
	}
}
