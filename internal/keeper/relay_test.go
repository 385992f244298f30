package keeper

import (
	"context"
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

func TestReleaseGivesBackAndVoidDoesNot(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		layout := l.sale(2, 2)
		k := l.keeper()
		gateway := l.gateway(l.tape)
		// Redis believes in one unit more than there is.
		l.redis("SET", key(layout, 0, "stock"), "2")
		var ids [3]sale.OrderID
		for i := range ids {
			ids[i] = l.buy(gateway, layout, fmt.Sprint(i), 1)
			l.consume() // in this order, whatever the clock says
		}
		a, b, c := ids[0], ids[1], ids[2]
		if s := []sale.OrderStatus{l.status(a), l.status(b), l.status(c)}; s[0] != sale.Pending || s[1] != sale.Pending || s[2] != sale.Rejected {
			t.Fatalf("orders are %v", s)
		}
		// The third unit never existed: its mark goes, and it is not offered again.
		l.settle(k)
		if _, ok, err := l.stock.Mark(l.ctx, layout, "2"); ok || err != nil {
			t.Errorf("the refused user still has a mark: %v", err)
		}
		if r := gateway.Reserve(l.ctx, layout, l.request(layout, "4", 1)); r.Outcome != sale.NoStock {
			t.Errorf("one more: %s", r.Outcome)
		}
		// A unit that did exist comes back.
		_, _, err := l.db.Cancel(l.ctx, a, "0")
		l.must(err)
		l.settle(k)
		l.buy(gateway, layout, "4", 1)
	})
}

func TestSecondOrderOfALiveUserReturnsItsUnit(t *testing.T) {
	l := newLab(t, onMini)
	layout := l.sale(5, 1)
	k := l.keeper()
	gateway := l.gateway(l.tape)
	first := l.buy(gateway, layout, "1", 1)
	l.consume()
	// Redis forgets who bought, and that anybody did, and sells to him once more.
	l.redis("DEL", key(layout, 0, "buyers"))
	l.redis("HSET", key(layout, 0, "meta"), "marks", "0")
	second := l.buy(gateway, layout, "1", 2)
	l.consume()
	if l.status(first) != sale.Pending || l.status(second) != sale.Rejected {
		t.Fatalf("orders are %q and %q", l.status(first), l.status(second))
	}
	l.settle(k)
	if got := l.redis("GET", key(layout, 0, "stock")); got != "4" {
		t.Errorf("stock %s, want 4", got)
	}
}

func TestRestockIsAddedOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		layout := l.sale(0, 4)
		l.run(l.keeper())
		for _, units := range []int64{1, 2, 3, 10} {
			_, err := l.db.Restock(l.ctx, layout.Item, units, "")
			l.must(err)
		}
		if report := l.atRest(layout); report.Free != 16 {
			t.Error(report)
		}
	})
}

// relayLedger lets a relay fail between the script and the deletion of its row.
type relayLedger struct {
	Ledger
	mu      sync.Mutex
	failing bool
}

func (f *relayLedger) FinishCorrections(ctx context.Context, ids ...int64) error {
	f.mu.Lock()
	failing := f.failing
	f.mu.Unlock()
	if failing {
		return errors.New("the relay died")
	}
	return f.Ledger.FinishCorrections(ctx, ids...)
}

func TestRelayThatDiesBehindTheScript(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		layout := l.sale(10, 3)
		failing := &relayLedger{Ledger: l.db, failing: true}
		dying := l.keeper(func(c *Config) { c.Ledger = failing })
		id := l.buy(l.gateway(l.tape), layout, "1", 2)
		l.consume()
		_, _, err := l.db.Cancel(l.ctx, id, "1")
		l.must(err)
		_, err = l.db.Restock(l.ctx, layout.Item, 5, "")
		l.must(err)
		dying.relay.round(l.ctx)
		if n := l.count(`SELECT count(*) FROM flash_sale_correction`); n != 2 {
			t.Fatalf("%d corrections stand, want 2", n)
		}
		l.exec(`UPDATE flash_sale_correction SET not_before = now()`) // the claims have run out
		l.settle(l.keeper())
		if report := l.atRest(layout); report.Free != 15 {
			t.Error(report)
		}
	})
}

func TestTwoRelaysWithTheSameRows(t *testing.T) {
	l := newLab(t, onReal)
	layout := l.sale(100, 3)
	gateway := l.gateway(l.tape)
	for i := range 50 {
		id := l.buy(gateway, layout, fmt.Sprint(i), 1)
		l.consume()
		_, _, err := l.db.Cancel(l.ctx, id, fmt.Sprint(i))
		l.must(err)
	}
	_, err := l.db.Restock(l.ctx, layout.Item, 7, "")
	l.must(err)
	claimed, err := l.db.ClaimCorrections(l.ctx, 100, time.Hour)
	l.must(err)
	if len(claimed) != 51 {
		t.Fatalf("%d corrections claimed", len(claimed))
	}
	var wg sync.WaitGroup
	for range 2 {
		relay := l.keeper().relay
		wg.Go(func() { relay.carryOut(l.ctx, claimed) })
	}
	wg.Wait()
	if report := l.atRest(layout); report.Free != 107 {
		t.Error(report)
	}
}

func TestStalledRelayAndALoad(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		layout := l.sale(10, 3)
		k := l.keeper()
		id := l.buy(l.gateway(l.tape), layout, "1", 2)
		l.consume()
		_, _, err := l.db.Cancel(l.ctx, id, "1")
		l.must(err)
		_, err = l.db.Restock(l.ctx, layout.Item, 5, "")
		l.must(err)
		claimed, err := l.db.ClaimCorrections(l.ctx, 100, time.Hour)
		l.must(err)
		// The load counts what the rows in the relay's hands are about.
		l.load(k, layout)
		k.relay.carryOut(l.ctx, claimed)
		if report := l.atRest(layout); report.Free != 15 {
			t.Error(report)
		}
		if n := l.metric("flashgate_keeper_corrections_total", "absorbed"); n != 2 {
			t.Errorf("%v corrections absorbed, want 2", n)
		}
	})
}

// load loads an item, which nobody else does.
func (l *lab) load(k *Keeper, layout shard.Layout) {
	l.Helper()
	outcome, err := k.loader.Load(l.ctx, layout.Item, "test")
	if err != nil || outcome != Loaded {
		l.Fatalf("load: %v, %v", outcome, err)
	}
}

func TestCorrectionOfAStockThatIsNotLoadedWaits(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		away, there := l.sale(10, 2), l.sale(10, 2)
		k := l.keeper()
		l.redis("DEL", key(away, 0, "stock"), key(away, 1, "stock"))
		for _, layout := range []shard.Layout{away, there} {
			_, err := l.db.Restock(l.ctx, layout.Item, 5, "")
			l.must(err)
		}
		k.relay.round(l.ctx)
		if report := l.atRest(there); report.Free != 15 {
			t.Error(report)
		}
		if n := l.count(`SELECT count(*) FROM flash_sale_correction WHERE item_id = $1`, away.Item); n != 1 {
			t.Fatalf("%d corrections wait, want 1", n)
		}
		if got := l.redis("EXISTS", key(away, 0, "stock")); got != "0" {
			t.Error("the correction made a stock key")
		}
		l.load(k, away)
		l.settle(k)
		if report := l.atRest(away); report.Free != 15 {
			t.Error(report)
		}
	})
}

// silent is a Redis that does not answer for one item.
type silent struct {
	Stock
	item int64

	mu    sync.Mutex
	calls int
}

func (s *silent) Release(ctx context.Context, layout shard.Layout, c shard.Correction) (shard.Applied, error) {
	if layout.Item == s.item {
		s.mu.Lock()
		s.calls++
		s.mu.Unlock()
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return s.Stock.Release(ctx, layout, c)
}

func TestServerThatIsSilentCostsOneCallAndNotTheOthers(t *testing.T) {
	l := newLab(t, onMini)
	bad, good := l.sale(300, 1), l.sale(10, 1)
	gateway := l.gateway(l.tape)
	for i := range 300 {
		l.buy(gateway, bad, fmt.Sprint(i), 1)
	}
	id := l.buy(gateway, good, "1", 1)
	l.consume()
	l.exec(`UPDATE flash_sale_order SET expires_at = now() WHERE item_id = $1`, bad.Item)
	_, err := l.db.Expire(l.ctx, 1000)
	l.must(err)
	_, _, err = l.db.Cancel(l.ctx, id, "1")
	l.must(err)
	stock := &silent{Stock: l.stock, item: bad.Item}
	k := l.keeper(func(c *Config) { c.Stock, c.CallTimeout = stock, 100*time.Millisecond; c.RelayWorkers = 1 })
	k.relay.round(l.ctx)
	l.atRest(good, id)
	if n := l.count(`SELECT count(*) FROM flash_sale_correction`); n != 300 {
		t.Errorf("%d corrections wait, want 300", n)
	}
	// Three batches were claimed; the first found out, and the shard rests for longer than the others took.
	if stock.calls > 3 {
		t.Errorf("%d calls to the silent server", stock.calls)
	}
}

func TestRowThatIsRefusedKeepsNoOtherWaiting(t *testing.T) {
	l := newLab(t, onMini)
	layout := l.sale(10, 1)
	k := l.keeper()
	gateway := l.gateway(l.tape)
	bad, good := l.buy(gateway, layout, "bad", 1), l.buy(gateway, layout, "good", 1)
	l.consume()
	// The mark of the first says something unreadable.
	l.redis("HSET", key(layout, 0, "buyers"), "bad", bad.String()+"\tmany\t")
	for user, id := range map[string]sale.OrderID{"bad": bad, "good": good} {
		_, _, err := l.db.Cancel(l.ctx, id, user)
		l.must(err)
	}
	k.relay.round(l.ctx)
	if n := l.count(`SELECT count(*) FROM flash_sale_correction WHERE order_id = $1`, [16]byte(good)); n != 0 {
		t.Error("the good correction waits")
	}
	// Nothing but a load makes the other one readable, and it comes by itself.
	before := l.epoch(layout)
	l.run(k)
	devtest.Eventually(t, timeout, func() bool { return l.epoch(layout) > before }, "the item is loaded")
	if report := l.atRest(layout, bad, good); report.Free != 10 {
		t.Error(report)
	}
}

func TestCorrectionIsRoutedByTheLayoutOfNow(t *testing.T) {
	l := newLab(t, onMini)
	layout := l.sale(10, 2)
	k := l.keeper() // believes in two shards
	id := l.buy(l.gateway(l.tape), layout, "5", 2)
	l.consume()
	l.exec(`UPDATE flash_sale_item SET shards = 3 WHERE id = $1`, layout.Item)
	layout.Shards = 3
	l.load(l.keeper(), layout)
	_, _, err := l.db.Cancel(l.ctx, id, "5")
	l.must(err)
	k.relay.round(l.ctx)
	if report := l.atRest(layout); report.Free != 10 {
		t.Error(report)
	}
}

func TestCorrectionsOfARetiredItemAreAbsorbed(t *testing.T) {
	l := newLab(t, onMini)
	layout := l.sale(10, 2)
	_, err := l.db.Restock(l.ctx, layout.Item, 5, "")
	l.must(err)
	l.exec(`UPDATE flash_sale_item SET retired_at = now()`)
	l.must(l.stock.Remove(l.ctx, layout.Item, layout.Shards))
	l.keeper().relay.round(l.ctx)
	if n := l.count(`SELECT count(*) FROM flash_sale_correction`); n != 0 {
		t.Errorf("%d corrections wait for a retired item", n)
	}
	if got := l.redis("KEYS", "*"); got != "[]" {
		t.Errorf("keys were made: %s", got)
	}
}

func TestUnknownOperationIsLeftToOthers(t *testing.T) {
	l := newLab(t, onMini)
	layout := l.sale(10, 1)
	k := l.keeper()
	row := ledger.Correction{ID: 1, ItemID: layout.Item, Op: "later", UserID: "1", Epoch: 1}
	applied, err := k.relay.apply(l.ctx, row)
	if err == nil || finished(applied) {
		t.Errorf("applied: %v, %v", applied, err)
	}
}

func TestShardsRestForLongerTheOftenerTheyFail(t *testing.T) {
	l := newLab(t, onMini)
	c := newClock()
	k := l.keeper(func(cfg *Config) { cfg.Now = c.now })
	at := place{1, 2}
	for _, tc := range []struct {
		applied shard.Applied
		longest time.Duration
	}{{shard.NotLoaded, relayLoading}, {shard.WrongLayout, relayLoading}, {0, relayUnwell}} {
		k.relay.recovered(at)
		if k.relay.resting(at) != 0 {
			t.Fatal("a shard rests that is well")
		}
		last := time.Duration(0)
		for range 12 {
			wait := k.relay.rest(at, tc.applied)
			if wait < last || wait > tc.longest || k.relay.resting(at) != wait {
				t.Errorf("%v: waits %v behind %v, rests %v", tc.applied, wait, last, k.relay.resting(at))
			}
			last = wait
			c.pass(wait)
			if k.relay.resting(at) != 0 {
				t.Error("it rests for longer than it should")
			}
		}
		if last != tc.longest {
			t.Errorf("%v: the longest wait is %v, want %v", tc.applied, last, tc.longest)
		}
	}
}
