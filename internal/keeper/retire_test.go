package keeper

import (
	"errors"
	"testing"
	"time"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
	"flashgate/shard"
)

// atOnce retires items as soon as their sale has ended.
func atOnce(c *Config) { c.RetireAfter = new(time.Duration(0)) }

// endSale ends the sale of an item, so long ago.
func (l *lab) endSale(layout shard.Layout, ago time.Duration) {
	l.Helper()
	l.exec(`UPDATE flash_sale SET starts_at = now() - $2::interval - interval '1 hour', ends_at = now() - $2::interval
WHERE id = (SELECT sale_id FROM flash_sale_item WHERE id = $1)`, layout.Item, ago)
}

func (l *lab) retired(layout shard.Layout) bool {
	l.Helper()
	it, _, err := l.db.Item(l.ctx, layout.Item)
	l.must(err)
	return !it.RetiredAt.IsZero()
}

// isGone waits until an item is retired and its keys are removed.
func (l *lab) isGone(layout shard.Layout) {
	l.Helper()
	devtest.Eventually(l, timeout, func() bool { return l.retired(layout) && l.keys(layout) == 0 }, "item %d is retired and gone", layout.Item)
}

// putAway has a keeper do a round of the loop, whoever has the turn.
func (l *lab) putAway(k *Keeper) {
	l.Helper()
	k.retire.turn.failed.Store(true)
	k.retire.round(l.ctx)
}

func TestItemIsRetired(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		layout, other := l.sale(20, 13), l.sale(5, 2)
		gateway := l.gateway(l.tape)
		paid, expired, cancelled := l.buy(gateway, layout, "1", 2), l.buy(gateway, layout, "2", 1), l.buy(gateway, layout, "3", 1)
		l.run(l.keeper(atOnce))
		devtest.Eventually(t, timeout, func() bool { return l.status(cancelled) != "" && l.status(expired) != "" && l.status(paid) != "" }, "stored")
		l.pay(paid, 2)
		l.cancel(cancelled, "3")
		l.endSale(layout, 0)
		l.overdue(expired)
		l.isGone(layout)

		// What is known of the orders stays known.
		for id, want := range map[sale.OrderID]sale.OrderStatus{paid: sale.Paid, expired: sale.Expired, cancelled: sale.Cancelled} {
			if got := l.status(id); got != want {
				t.Errorf("order %s is %q, want %s", id, got, want)
			}
		}
		if o, ok, err := l.db.LiveOrder(l.ctx, layout.Item, "1"); err != nil || !ok || o.ID != paid {
			t.Errorf("the winner's order: %+v, %v, %v", o, ok, err)
		}
		// The catalogue keeps the item, for everybody to be told that the sale has ended.
		items, err := l.db.Catalogue(l.ctx)
		l.must(err)
		for _, it := range items {
			if want := map[bool]sale.Status{true: sale.Ended, false: sale.OnSale}[it.ID == layout.Item]; it.StatusAt(time.Now().Add(-time.Minute)) != want {
				t.Errorf("item %d is %s, want %s", it.ID, it.StatusAt(time.Now().Add(-time.Minute)), want)
			}
		}
		// Nobody brings the stock back, and whoever still wants to sell leaves nothing behind.
		states, err := l.db.LoadWatch(l.ctx)
		l.must(err)
		if len(states) != 1 || states[0].ItemID != other.Item {
			t.Errorf("watched over: %+v", states)
		}
		if _, err := l.keeper().Loader().Load(l.ctx, layout.Item, "test"); !errors.Is(err, ErrNotLoadable) {
			t.Errorf("load: %v", err)
		}
		if r := gateway.Reserve(l.ctx, layout, l.request(layout, "4", 1)); r.Outcome != sale.NotLoaded {
			t.Errorf("reserve: %s", r.Outcome)
		}
		if n := l.keys(layout); n != 0 {
			t.Errorf("%d keys are back", n)
		}
		if report := l.atRest(other); report.Free != 5 {
			t.Error(report)
		}
		if n := l.metric("flashgate_keeper_retired_items_total"); n != 1 {
			t.Errorf("%v items were retired", n)
		}
	})
}

func TestItemIsNotRetiredTooEarly(t *testing.T) {
	l := newLab(t, onMini)
	layout := l.sale(3, 2)
	k := l.keeper()
	l.endSale(layout, 24*time.Hour-time.Minute)
	l.putAway(k)
	if l.retired(layout) {
		t.Error("retired after less than 24 hours")
	}
	l.endSale(layout, 24*time.Hour)
	l.putAway(k)
	if !l.retired(layout) || l.keys(layout) != 0 {
		t.Errorf("not retired after 24 hours; %d keys", l.keys(layout))
	}
}

// A new item that nobody ever loaded.
func TestNeverLoadedItemIsRetired(t *testing.T) {
	l := newLab(t, onMini)
	layout := l.create(3, 2)
	l.endSale(layout, 0)
	l.putAway(l.keeper(atOnce))
	if !l.retired(layout) || l.keys(layout) != 0 {
		t.Errorf("not retired; %d keys", l.keys(layout))
	}
}

// hindrance is something of an item that somebody waits for.
type hindrance struct {
	name   string
	do     func(l *lab, layout shard.Layout)
	remove func(l *lab, k *Keeper, layout shard.Layout)
}

var hindrances = []hindrance{
	{
		"a pending order",
		func(l *lab, y shard.Layout) { l.buy(l.gateway(l.tape), y, "1", 1); l.consume() },
		func(l *lab, k *Keeper, y shard.Layout) {
			l.exec(`UPDATE flash_sale_order SET expires_at = now() - interval '1 second' WHERE item_id = $1`, y.Item)
			k.expire(l.ctx)
			l.settle(k)
		},
	},
	{
		"an order that its writer has not read",
		func(l *lab, y shard.Layout) {
			l.buy(l.gateway(l.tape), y, "1", 1)
			devtest.Eventually(l, timeout, func() bool { return l.entries(y) == 0 }, "its gateway is through")
		},
		func(l *lab, k *Keeper, y shard.Layout) {
			l.consume()
			l.exec(`UPDATE flash_sale_order SET expires_at = now() - interval '1 second' WHERE item_id = $1`, y.Item)
			k.expire(l.ctx)
			l.settle(k)
		},
	},
	{
		"a reservation whose gateway is at it",
		func(l *lab, y shard.Layout) {
			l.tape.set(func(t *tape) { t.down = true })
			l.buy(l.gateway(dead{}), y, "1", 1)
		},
		func(l *lab, k *Keeper, y shard.Layout) {
			l.tape.set(func(t *tape) { t.down = false })
			_, err := k.sweeper.sweep(l.ctx, y, true)
			l.must(err)
			l.consume()
			l.exec(`UPDATE flash_sale_order SET expires_at = now() - interval '1 second' WHERE item_id = $1`, y.Item)
			k.expire(l.ctx)
			l.settle(k)
		},
	},
	{
		"a correction",
		func(l *lab, y shard.Layout) {
			_, err := l.db.Restock(l.ctx, y.Item, 2, "")
			l.must(err)
		},
		func(l *lab, k *Keeper, _ shard.Layout) { l.settle(k) },
	},
	{
		"an entry that nobody can read",
		func(l *lab, y shard.Layout) { l.redis("HSET", key(y, 1, "pending"), "batch", "2\tfrom\tthe\tfuture") },
		func(l *lab, _ *Keeper, y shard.Layout) { l.redis("DEL", key(y, 1, "pending")) },
	},
	{
		"the broker is away",
		func(l *lab, _ shard.Layout) { l.tape.set(func(t *tape) { t.down = true }) },
		func(l *lab, _ *Keeper, _ shard.Layout) { l.tape.set(func(t *tape) { t.down = false }) },
	},
	{
		"a loader",
		func(l *lab, y shard.Layout) {
			_, ok, err := l.db.ClaimLoad(l.ctx, y.Item, 0)
			if err != nil || !ok {
				l.Fatalf("claim: %v, %v", ok, err)
			}
		},
		func(l *lab, _ *Keeper, y shard.Layout) { l.leaseRunsOut(y) },
	},
}

func TestItemIsNotRetiredWhileSomebodyWaits(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		for _, h := range hindrances {
			t.Run(h.name, func(t *testing.T) {
				layout := l.sale(10, 2)
				k := l.keeper(atOnce)
				h.do(l, layout)
				l.endSale(layout, 0)
				before := l.keys(layout)
				for range 3 {
					l.putAway(k)
				}
				if l.retired(layout) || l.keys(layout) != before {
					t.Fatalf("retired: %v, %d keys of %d", l.retired(layout), l.keys(layout), before)
				}
				h.remove(l, k, layout)
				devtest.Eventually(t, timeout, func() bool {
					l.putAway(k)
					return l.retired(layout) && l.keys(layout) == 0
				}, "retired behind it")
			})
		}
	})
}

// What a gateway left between two shards is finished first; where a shard has lost its stock nothing will come of it, and nobody waits for it.
func TestTransfersAreFinishedBeforeAnItemIsRetired(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		layout := l.sale(20, 2)
		k := l.keeper(atOnce, func(c *Config) { c.TransferAge = time.Hour })
		l.crashBehindTake(layout, 0, 1, 4)
		l.endSale(layout, 0)
		l.putAway(k)
		if l.retired(layout) {
			t.Fatal("retired while units are in transfer")
		}
		k.cfg.TransferAge = time.Millisecond
		devtest.Eventually(t, timeout, func() bool { l.putAway(k); return l.retired(layout) && l.keys(layout) == 0 }, "retired")

		layout = l.sale(20, 2)
		l.crashBehindTake(layout, 0, 1, 4)
		l.redis("DEL", key(layout, 1, "stock"))
		l.endSale(layout, 0)
		devtest.Eventually(t, timeout, func() bool { l.putAway(k); return l.retired(layout) && l.keys(layout) == 0 }, "retired")
	})
}

// An earlier layout had more shards than the item has now.
func TestLeftoversOfALargerLayoutAreRemoved(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		layout := l.sale(20, 7)
		l.exec(`UPDATE flash_sale_item SET shards = 2 WHERE id = $1`, layout.Item)
		narrow := shard.Layout{Item: layout.Item, Shards: 2}
		l.load(l.keeper(), narrow)
		if l.keys(shard.Layout{Item: layout.Item}) <= 4 {
			t.Fatal("the larger layout has left nothing")
		}
		id := l.buy(l.gateway(dead{}), narrow, "1", 1)
		// An entry that was left behind is an order like any other.
		l.redis("EVAL", `local e = redis.call('HGETALL', KEYS[1]); redis.call('HSET', KEYS[2], e[1], e[2]) return 'OK'`, "2", key(layout, 1, "pending"), key(layout, 6, "pending"))
		l.redis("DEL", key(layout, 1, "pending"))
		l.ripen(layout)
		l.endSale(layout, 0)
		k := l.keeper(atOnce)
		devtest.Eventually(t, timeout, func() bool { l.putAway(k); l.consume(); return l.status(id) == sale.Pending }, "the order is stored")
		if l.retired(layout) {
			t.Fatal("retired with a pending order")
		}
		l.overdue(id)
		k.expire(l.ctx)
		l.settle(k)
		devtest.Eventually(t, timeout, func() bool { l.putAway(k); return l.retired(layout) && l.keys(layout) == 0 }, "retired")
	})
}
