package keeper

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/ledger"
	"flashgate/internal/sale"
	"flashgate/shard"
)

// aroundRetire lets things happen around the decision that retires an item.
type aroundRetire struct {
	Ledger
	before, behind func()
}

func (a aroundRetire) Retire(ctx ctx, item int64, after time.Duration) (bool, error) {
	a.before()
	defer a.behind()
	return a.Ledger.Retire(ctx, item, after)
}

// A gateway that has not heard of the end of the sale sells in the last moment before its item is retired.

func TestReservationBesideTheRetirementIsNotLost(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		layout := l.sale(20, 3)
		var id sale.OrderID
		gateway := l.gateway(dead{})
		k := l.keeper(atOnce, func(c *Config) {
			c.Ledger = aroundRetire{l.db, func() { id = l.buy(gateway, layout, "1", 1) }, func() {}}
		})
		l.endSale(layout, 0)
		l.putAway(k)
		if !l.retired(layout) || l.keys(layout) != 0 {
			t.Fatalf("retired: %v, %d keys", l.retired(layout), l.keys(layout))
		}
		l.consume()
		if got := l.status(id); got != sale.Rejected {
			t.Errorf("the order is %q, want a refused one: nothing of a 202 may be without a row", got)
		}
		// It has no correction that anybody would wait for.
		l.must(k.catalogue.refresh(l.ctx))
		l.settle(k)
		if n := l.keys(layout); n != 0 {
			t.Errorf("%d keys are back", n)
		}
	})
}

// brokenStock is a Redis that can go away for the removal, or for everything.
type brokenStock struct {
	Stock
	removes, reads error
}

func (b *brokenStock) Extent(ctx ctx, item int64) (int, error) {
	if b.reads != nil {
		return 0, b.reads
	}
	return b.Stock.Extent(ctx, item)
}

func (b *brokenStock) Remove(ctx ctx, item int64, n int) error {
	if b.removes != nil {
		return b.removes
	}
	return b.Stock.Remove(ctx, item, n)
}

func TestRedisAwayRetiresNothing(t *testing.T) {
	redis := devtest.Redis(t)
	l := newLabAt(t, onReal, redis.URL())
	var layouts []shard.Layout
	for range 8 {
		layouts = append(layouts, l.sale(3, 2))
		l.endSale(layouts[len(layouts)-1], 0)
	}
	l.must(redis.Pause())
	stock := &counting{Stock: l.stock}
	k := l.keeper(atOnce, func(c *Config) { c.Stock, c.CallTimeout = stock, 50*time.Millisecond })
	l.putAway(k)
	for _, layout := range layouts {
		if l.retired(layout) {
			t.Errorf("item %d is retired", layout.Item)
		}
	}
	if stock.ever > retireSilent {
		t.Errorf("a silent server was asked about %d items in one round", stock.ever)
	}
	l.must(redis.Resume())
	devtest.Eventually(t, timeout, func() bool {
		l.putAway(k)
		for _, layout := range layouts {
			if !l.retired(layout) {
				return false
			}
		}
		return l.redis("DBSIZE") == "0"
	}, "all of them are retired")
}

// A keeper dies, or Redis goes away, between the decision and the removal. Whoever comes next removes the keys.
func TestKeysOfRetiredItemsAreRemovedLater(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		layout := l.sale(20, 3)
		stock := &brokenStock{Stock: l.stock, removes: errors.New("Redis is away")}
		k := l.keeper(atOnce, func(c *Config) { c.Stock = stock })
		l.endSale(layout, 0)
		l.putAway(k)
		if !l.retired(layout) || l.keys(layout) == 0 {
			t.Fatalf("retired: %v, %d keys", l.retired(layout), l.keys(layout))
		}
		t.Run("by another keeper", func(t *testing.T) {
			l.putAway(l.keeper(atOnce))
			if n := l.keys(layout); n != 0 {
				t.Errorf("%d keys are left", n)
			}
		})
		t.Run("by itself", func(t *testing.T) {
			l.redis("HSET", key(layout, 0, "meta"), "token", "1")
			l.must(k.catalogue.refresh(l.ctx))
			stock.removes = nil
			devtest.Eventually(t, timeout, func() bool { l.putAway(k); return l.keys(layout) == 0 }, "removed")
		})
	})
}

// A loader has claimed the item, is stopped, and wakes up when the item is retired. Its fence makes keys anew; it gets no further, and the second
// look at the item removes them.
func TestLoaderStoppedOverTheRetirement(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		layout := l.sale(20, 3)
		s := l.stepper()
		done := l.stopAt(s, "before fence 1", layout)
		l.leaseRunsOut(layout)
		l.endSale(layout, 0)
		var passed time.Duration
		k := l.keeper(atOnce, func(c *Config) { c.Now = func() time.Time { return time.Now().Add(passed) } })
		l.putAway(k)
		l.must(k.catalogue.refresh(l.ctx))
		l.putAway(k) // the first look
		if !l.retired(layout) || l.keys(layout) != 0 {
			t.Fatalf("retired: %v, %d keys", l.retired(layout), l.keys(layout))
		}
		close(s.wake)
		if r := <-done; r.err == nil && r.outcome != TakenOver {
			t.Errorf("load: %+v", r)
		}
		if l.keys(layout) == 0 {
			t.Fatal("the stopped loader fenced nothing: this test shows nothing")
		}
		passed = retireAgain + time.Second
		l.putAway(k)
		if n := l.keys(layout); n != 0 {
			t.Errorf("%d keys are left", n)
		}
		// That was enough: what is retired is not asked about for ever.
		l.redis("SET", key(layout, 0, "stock"), "1")
		passed *= 3
		l.putAway(k)
		if n := l.keys(layout); n != 1 {
			t.Errorf("%d keys", n)
		}
	})
}

// Somebody extends the sale while its item is being retired: either he is refused, or the item is as it was.
func TestSaleExtendedBesideTheRetirement(t *testing.T) {
	l := newLab(t, onReal)
	gateway := l.gateway(dead{})
	won := make(map[ledger.PatchOutcome]int)
	for round := range 60 {
		layout := l.sale(5, 2)
		l.endSale(layout, 0)
		it, _, err := l.db.Item(l.ctx, layout.Item)
		l.must(err)
		// He comes when the keepers begin, when one of them is about to decide, or behind that.
		begin, before, behind := newHalt(), newHalt(), newHalt()
		for _, h := range []*halt{begin, before, behind} {
			close(h.wake)
		}
		begin.here()
		around := aroundRetire{l.db, before.here, behind.here}
		var outcome ledger.PatchOutcome
		var all sync.WaitGroup
		all.Go(func() {
			<-[]*halt{begin, before, behind}[round%3].reached
			later := time.Now().Add(time.Hour)
			_, outcome, err = l.db.UpdateSale(l.ctx, it.SaleID, ledger.SalePatch{EndsAt: &later})
		})
		for range 2 {
			k := l.keeper(atOnce, func(c *Config) { c.Ledger, c.RetireEvery = around, timeout })
			all.Go(func() { k.retire.retireDue(l.ctx, make(map[int64]bool)) }) // whoever has the turn
		}
		all.Wait()
		l.must(err)
		won[outcome]++
		r := gateway.Reserve(l.ctx, layout, l.request(layout, "1", 1))
		switch outcome {
		case ledger.Patched:
			if l.retired(layout) || r.Outcome != sale.Reserved {
				t.Fatalf("extended: retired %v, reserve %s %v", l.retired(layout), r.Outcome, r.Err)
			}
		case ledger.PatchRetired:
			if !l.retired(layout) || r.Outcome != sale.NotLoaded || l.keys(layout) != 0 {
				t.Fatalf("refused: retired %v, reserve %s %v, %d keys", l.retired(layout), r.Outcome, r.Err, l.keys(layout))
			}
		default:
			t.Fatalf("extend: %v", outcome)
		}
		l.exec(`UPDATE flash_sale SET ends_at = now() + interval '1 hour'`) // out of the way of the next round
	}
	t.Logf("extended %d times, refused %d times", won[ledger.Patched], won[ledger.PatchRetired])
	if won[ledger.Patched] == 0 || won[ledger.PatchRetired] == 0 {
		t.Error("one side always won: this test shows nothing")
	}
}

// Two keepers retire many items at once while a third sale goes on.
func TestTwoKeepersRetireBesideASale(t *testing.T) {
	l := newLab(t, onReal)
	open := l.sale(200, 4)
	gateway := l.gateway(l.tape)
	for range 2 {
		l.runKeeper(l.keeper(atOnce))
	}
	l.write()
	var answered []sale.OrderID
	var over []shard.Layout
	for i := range 20 {
		over = append(over, l.sale(5, 3))
		l.endSale(over[i], 0)
		for j := range 5 {
			answered = append(answered, l.buy(gateway, open, fmt.Sprint(i*5+j), 1))
		}
	}
	for _, layout := range over {
		l.isGone(layout)
	}
	if report := l.atRest(open, answered...); report.Live != 100 || report.Free != 100 {
		t.Error(report)
	}
	if e := l.epoch(open); e != 1 {
		t.Errorf("the open sale was loaded %d times", e)
	}
}
