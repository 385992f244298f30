package keeper

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
	"flashgate/shard"
)

// readings counts how often the marks of a shard are read to make entries anew.
type readings struct {
	Stock
	n atomic.Int64
}

func (r *readings) Rebuild(ctx ctx, item int64, n int, batches ...string) ([]shard.Entry, error) {
	r.n.Add(1)
	return r.Stock.Rebuild(ctx, item, n, batches...)
}

// spoil has an order's outbox entry hold text. Its gateway is gone.
func (l *lab) spoil(layout shard.Layout, user, text string) (batch string) {
	l.Helper()
	mark, ok, err := l.stock.Mark(l.ctx, layout, user)
	if err != nil || !ok {
		l.Fatalf("mark of %s: %v, %v", user, ok, err)
	}
	l.redis("HSET", key(layout, sale.Home(user, layout.Shards), "pending"), mark.Batch, text)
	return mark.Batch
}

func TestUnreadableEntryIsMadeAnew(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		layout := l.sale(10, 2)
		gateway := l.gateway(dead{})
		ids := []sale.OrderID{l.buy(gateway, layout, "1", 2), l.buy(gateway, layout, "3", 1), l.buy(gateway, layout, "2", 1)}
		l.spoil(layout, "1", "nonsense")
		l.run(l.keeper())
		report := l.atRest(layout, ids...)
		if report.Live != 4 || report.Free != 6 || l.epoch(layout) != 1 {
			t.Errorf("%v, epoch %d", report, l.epoch(layout))
		}
		if n := l.metric("flashgate_keeper_alarms_total", alarmEntry); n != 1 {
			t.Errorf("%v alarms, want 1", n)
		}
	})
}

// A load does not wait for an entry that only the marks can tell of, and counts what they tell.
func TestLoadWithAnUnreadableEntry(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		layout := l.sale(10, 2)
		id := l.buy(l.gateway(dead{}), layout, "1", 2)
		l.spoil(layout, "1", "")
		l.write()
		k := l.keeper(func(c *Config) { c.GiveUp = 24 * time.Hour })
		if outcome, err := k.loader.Load(l.ctx, layout.Item, "test"); err != nil || outcome != Loaded {
			t.Fatalf("load: %v, %v", outcome, err)
		}
		if report := l.atRest(layout, id); report.Live != 2 || report.Free != 8 {
			t.Error(report)
		}
	})
}

// An entry that was made anew has an age as any other: young, it is left to its gateway; while the broker is away it waits, and
// at last it is given up. The marks are read once.
func TestUnreadableEntryAgesAsOthers(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		layout := l.sale(10, 1)
		id := l.buy(l.gateway(dead{}), layout, "1", 2)
		l.spoil(layout, "1", "nonsense")
		stock := &readings{Stock: l.stock}
		k := l.keeper(func(c *Config) { c.Stock, c.RecordDeadline, c.GiveUp = stock, time.Hour, 2*time.Hour })
		for range 3 {
			found, err := k.sweeper.sweep(l.ctx, layout, false)
			l.must(err)
			if found.left != 1 || found.unreadable != 0 || found.waiting != 1 || found.tried {
				t.Errorf("young: %+v", found)
			}
		}
		l.tape.set(func(t *tape) { t.down = true })
		for range 3 {
			if found, err := k.sweeper.sweep(l.ctx, layout, true); err == nil || found.left != 1 {
				t.Errorf("without a broker: %+v, %v", found, err)
			}
		}
		if n := stock.n.Load(); n != 1 {
			t.Errorf("the marks were read %d times", n)
		}
		l.ripen(layout) // by the time of the mark
		k = l.keeper(impatient)
		devtest.Eventually(t, timeout, func() bool {
			_, err := k.sweeper.sweep(l.ctx, layout, false)
			l.must(err)
			return l.status(id) == sale.Cancelled
		}, "it is given up")
		if n := l.entries(layout); n != 0 {
			t.Errorf("%d entries", n)
		}
		l.settle(k)
		if report := l.atRest(layout, id); report.Free != 10 {
			t.Error(report)
		}
	})
}

// While the marks do not tell, the entry stays and is looked at again from time to time; with the mark it goes.
func TestUnreadableEntryWithAnUnreadableMark(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		layout := l.sale(10, 1)
		gateway := l.gateway(dead{})
		id, other := l.buy(gateway, layout, "1", 2), l.buy(gateway, layout, "2", 1)
		l.spoil(layout, "1", "nonsense")
		buyers := key(layout, 0, "buyers")
		mark := l.redis("HGET", buyers, "1")
		l.redis("HSET", buyers, "1", "nonsense")
		stock := &readings{Stock: l.stock}
		var ahead atomic.Int64
		k := l.keeper(func(c *Config) {
			c.Stock = stock
			c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		})
		for range 5 {
			found, err := k.sweeper.sweep(l.ctx, layout, true)
			l.must(err)
			if found.left != 0 || found.unreadable != 1 {
				t.Errorf("swept %+v", found)
			}
		}
		if n := stock.n.Load(); n != 1 {
			t.Errorf("the marks were read %d times at once", n)
		}
		if l.tape.published(id) != 0 || l.tape.published(other) != 1 || l.entries(layout) != 1 {
			t.Errorf("published %d and %d times, %d entries", l.tape.published(id), l.tape.published(other), l.entries(layout))
		}
		l.redis("HSET", buyers, "1", mark)
		ahead.Store(int64(2 * rebuildAgain))
		found, err := k.sweeper.sweep(l.ctx, layout, true)
		l.must(err)
		if found.left != 0 || found.unreadable != 0 || found.removed != 1 || l.tape.published(id) != 1 {
			t.Errorf("with the mark: %+v, published %d times", found, l.tape.published(id))
		}
	})
}

// Of an entry whose orders have all ended nothing is left to be told, whether its event has arrived or not.
func TestUnreadableEntryOfAnEndedOrder(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		layout := l.sale(10, 1)
		id := l.buy(l.gateway(dead{}), layout, "1", 2)
		event := l.outbox(layout, 0).Entries[0].Events
		k := l.keeper()
		l.must(l.db.GiveUp(l.ctx, event))
		l.settle(k)
		l.redis("HSET", key(layout, 0, "pending"), l.outbox(layout, 0).Entries[0].Batch, "nonsense")
		found, err := k.sweeper.sweep(l.ctx, layout, false)
		l.must(err)
		if found.left != 0 || found.unreadable != 0 || found.removed != 1 || l.tape.published(id) != 0 || l.entries(layout) != 0 {
			t.Errorf("swept %+v, published %d times, %d entries", found, l.tape.published(id), l.entries(layout))
		}
		if report := l.atRest(layout, id); report.Free != 10 || l.status(id) != sale.Cancelled {
			t.Error(report)
		}
	})
}

// Two keepers and the gateway itself, all at the same entries: every order once.
func TestUnreadableEntriesOfManyHands(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		layout := l.sale(200, 2)
		l.tape.set(func(t *tape) { t.hold = true })
		gateway := l.gateway(l.tape)
		var ids []sale.OrderID
		for i := range 20 {
			user := fmt.Sprint(i)
			ids = append(ids, l.buy(gateway, layout, user, 1))
			l.spoil(layout, user, "nonsense")
		}
		a, b := l.keeper(), l.keeper()
		var hands sync.WaitGroup
		hands.Go(func() { l.tape.arrive(true) }) // the gateway removes its entries
		for _, k := range []*Keeper{a, b} {
			hands.Go(func() {
				for range 3 {
					if _, err := k.sweeper.sweep(l.ctx, layout, true); err != nil {
						t.Log(err)
					}
				}
			})
		}
		hands.Wait()
		l.run(a)
		if report := l.atRest(layout, ids...); report.Live != 20 || report.Free != 180 {
			t.Error(report)
		}
		if n := l.count(`SELECT count(*) FROM flash_sale_order`); n != 20 {
			t.Errorf("%d orders", n)
		}
	})
}
