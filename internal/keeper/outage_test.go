package keeper

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
	"flashgate/shard"
)

// counting counts the calls that are under way.
type counting struct {
	Stock
	mu              sync.Mutex
	now, most, ever int
}

func (c *counting) enter() func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now++
	c.ever++
	c.most = max(c.most, c.now)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.now--
	}
}

func (c *counting) Read(ctx ctx, layout shard.Layout) ([]shard.ShardReading, error) {
	defer c.enter()()
	return c.Stock.Read(ctx, layout)
}

func (c *counting) Extent(ctx ctx, item int64) (int, error) {
	defer c.enter()()
	return c.Stock.Extent(ctx, item)
}

func (c *counting) Outbox(ctx ctx, layout shard.Layout, n int) (shard.Outbox, error) {
	defer c.enter()()
	return c.Stock.Outbox(ctx, layout, n)
}

func (c *counting) FinishTransfers(ctx ctx, layout shard.Layout, age time.Duration) error {
	defer c.enter()()
	return c.Stock.FinishTransfers(ctx, layout, age)
}

func TestStoppedRedisPilesUpNothing(t *testing.T) {
	redis := devtest.Redis(t)
	l := newLabAt(t, onReal, redis.URL())
	var layouts []shard.Layout
	for range 12 {
		layouts = append(layouts, l.sale(10, 5))
	}
	id := l.buy(l.gateway(dead{}), layouts[7], "1", 1)
	stock := &counting{Stock: l.stock}
	k := l.keeper(func(c *Config) {
		c.Stock, c.CallTimeout, c.ItemsAtOnce, c.ShardsAtOnce = stock, 50*time.Millisecond, 3, 2
	})
	l.must(redis.Pause())
	l.run(k)
	devtest.Eventually(t, timeout, func() bool {
		stock.mu.Lock()
		defer stock.mu.Unlock()
		return stock.ever > 150
	}, "the keeper goes on asking")
	// Three items of the sweep with two shards each, three of the watch, three of the transfers.
	stock.mu.Lock()
	most := stock.most
	stock.mu.Unlock()
	if most > 12 {
		t.Errorf("%d calls at once, want 12 at most", most)
	}
	l.must(redis.Resume())
	// It goes on as if nothing had been.
	_, err := l.db.Restock(l.ctx, layouts[3].Item, 1, "")
	l.must(err)
	l.atRest(layouts[7], id)
	if report := l.atRest(layouts[3]); report.Free != 11 {
		t.Error(report)
	}
	for _, layout := range layouts {
		if e := l.epoch(layout); e != 1 {
			t.Errorf("item %d was loaded %d times", layout.Item, e)
		}
	}
}

func TestKilledRedisComesBackEmpty(t *testing.T) {
	redis := devtest.Redis(t)
	l := newLabAt(t, onReal, redis.URL())
	layout := l.sale(20, 4)
	l.run(l.keeper())
	gateway := l.gateway(l.tape)
	var answered []sale.OrderID
	for i := range 8 {
		answered = append(answered, l.buy(gateway, layout, fmt.Sprint(i), 1))
	}
	l.atRest(layout, answered...)
	l.must(redis.Kill())
	l.must(redis.Restart(l.ctx))
	if report := l.atRest(layout, answered...); report.Live != 8 || report.Free != 12 {
		t.Error(report)
	}
}

func TestTwoKeepersShareTheWork(t *testing.T) {
	l := newLab(t, onMini)
	layout := l.sale(50, 2)
	patient := func(c *Config) { c.LeaseTTL = 10 * time.Second }
	first := l.keeper(patient)
	stopFirst := l.runKeeper(first)
	holder := func() int64 {
		return l.count(`SELECT count(*) FROM flash_sale_lease WHERE name = 'keeper/sweep' AND holder = $1 AND held_until > now()`, first.cfg.Holder)
	}
	devtest.Eventually(t, timeout, func() bool { return holder() == 1 }, "the first keeper has the turn")
	second := l.keeper(patient, func(c *Config) { c.Publisher = dead{} })
	l.runKeeper(second)
	l.write()
	gateway := l.gateway(dead{})
	var answered []sale.OrderID
	for i := range 20 {
		answered = append(answered, l.buy(gateway, layout, fmt.Sprint(i), 1))
	}
	// Whatever the second one published would never arrive.
	l.atRest(layout, answered...)
	for _, id := range answered {
		if n := l.tape.published(id); n != 1 {
			t.Errorf("order %s was published %d times", id, n)
		}
	}
	// A keeper that stops gives its turn back, so that nobody waits for the end of its lease.
	stopFirst()
	if holder() != 0 {
		t.Error("the first keeper still has the turn")
	}
	devtest.Eventually(t, timeout, func() bool {
		return l.count(`SELECT count(*) FROM flash_sale_lease WHERE name = 'keeper/sweep' AND holder = $1 AND held_until > now()`, second.cfg.Holder) == 1
	}, "the second keeper takes over")
}

func TestKeeperThatDiedIsTakenOverFrom(t *testing.T) {
	l := newLab(t, onMini)
	layout := l.sale(50, 2)
	for _, loop := range []string{"sweep", "watch", "transfers"} {
		ok, err := l.db.Lease(l.ctx, "keeper/"+loop, "somebody who died", 300*time.Millisecond)
		if err != nil || !ok {
			t.Fatalf("lease: %v, %v", ok, err)
		}
	}
	id := l.buy(l.gateway(dead{}), layout, "1", 1)
	l.redis("DEL", key(layout, 0, "stock"))
	l.run(l.keeper())
	if report := l.atRest(layout, id); report.Free != 49 {
		t.Error(report)
	}
}
