package keeper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
	"flashgate/shard"
)

func TestFirstLoad(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		layout := l.create(10, 3)
		l.tape.set(func(t *tape) { t.down = true }) // a new item needs no broker, and does not wait
		loader := l.keeper(func(c *Config) { c.RecordDeadline, c.GiveUp = time.Hour, 2*time.Hour }).Loader()
		l.must(loader.First(l.ctx, layout.Item))
		if report := l.atRest(layout); report.Free != 10 {
			t.Error(report)
		}
		epoch := l.epoch(layout)
		l.must(loader.First(l.ctx, layout.Item))
		if l.epoch(layout) != epoch {
			t.Error("an item that was loaded was loaded again")
		}
	})
}

func TestFirstLoadsAtOnceAndAKeeperThatSeesTheItem(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		// Whoever stalls for longer than a lease loads once more, in vain.
		patient := func(c *Config) { c.LeaseTTL = timeout }
		l.runKeeper(l.keeper(patient))
		loader := l.keeper(patient).Loader()
		for range 5 {
			layout := l.create(10, 3)
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					if err := loader.First(l.ctx, layout.Item); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if n := l.count(`SELECT claim FROM flash_sale_item WHERE id = $1`, layout.Item); n != 1 {
				t.Errorf("the item was loaded %d times", n)
			}
			if report := l.atRest(layout); report.Free != 10 {
				t.Error(report)
			}
		}
	})
}

func TestFirstLoadOfWhatCannotBeLoaded(t *testing.T) {
	l := newLab(t, onMini)
	loader := l.keeper().Loader()
	if err := loader.First(l.ctx, 4711); !errors.Is(err, ErrNotLoadable) {
		t.Errorf("an item that does not exist: %v", err)
	}
	layout := l.create(10, 1)
	l.exec(`UPDATE flash_sale_item SET retired_at = now()`)
	if err := loader.First(l.ctx, layout.Item); !errors.Is(err, ErrNotLoadable) {
		t.Errorf("a retired item: %v", err)
	}
}

func TestFirstLoadWithoutRedisEndsWithItsContext(t *testing.T) {
	l := newLabAt(t, onMini, "redis://"+devtest.MiniRedis(t).Addr())
	layout := l.create(10, 1)
	k := l.keeper(func(c *Config) { c.Stock = unreachable{l.stock} })
	ctx, cancel := context.WithTimeout(l.ctx, 50*time.Millisecond)
	defer cancel()
	if err := k.Loader().First(ctx, layout.Item); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errUnreachable) {
		t.Errorf("first load: %v", err)
	}
	if l.count(`SELECT claim FROM flash_sale_item`) != 0 {
		t.Error("the load was claimed though Redis does not answer")
	}
}

var errUnreachable = errors.New("no such host")

type unreachable struct{ Stock }

func (unreachable) Read(context.Context, shard.Layout) ([]shard.ShardReading, error) {
	return nil, errUnreachable
}

func TestLoadKeepsEverybodyWhoBought(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		layout := l.sale(20, 3)
		gateway := l.gateway(l.tape)
		k := l.keeper()
		stored, cancelled, inKafka := l.buy(gateway, layout, "1", 2), l.buy(gateway, layout, "2", 1), sale.OrderID{}
		l.consume()
		_, _, err := l.db.Cancel(l.ctx, cancelled, "2") // its release has not been carried out
		l.must(err)
		inKafka = l.buy(gateway, layout, "3", 3)
		inOutbox := l.buy(l.gateway(dead{}), layout, "4", 4)
		l.write()
		l.load(k, layout)
		l.runKeeper(k)
		report := l.atRest(layout, stored, cancelled, inKafka, inOutbox)
		if report.Live != 9 || report.Free != 11 {
			t.Error(report)
		}
		// Who bought is told so, under his id; who cancelled may buy again.
		if r := gateway.Reserve(l.ctx, layout, l.request(layout, "4", 1)); r.Outcome != sale.Already || r.OrderID != inOutbox {
			t.Errorf("the one from the outbox: %s %s, want %s", r.Outcome, r.OrderID, inOutbox)
		}
		l.buy(gateway, layout, "2", 1)
	})
}

func TestLoadWaitsForTheOrderWriters(t *testing.T) {
	l := newLab(t, onMini)
	layout := l.sale(20, 2)
	id := l.buy(l.gateway(l.tape), layout, "1", 2)
	s := l.stepper()
	done := l.begin(l.stepping(s), layout)
	devtest.Eventually(t, timeout, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.count["passed"] > 3
	}, "the loader asks how far the writers are")
	if got := l.redis("EXISTS", key(layout, 0, "stock")); got != "0" {
		t.Error("there is a stock before the writers have come that far")
	}
	l.consume()
	if r := <-done; r.err != nil || r.outcome != Loaded {
		t.Fatalf("load: %+v", r)
	}
	if report := l.atRest(layout, id); report.Free != 18 {
		t.Error(report)
	}
}

func TestLoadWaitsForWhatIsOnTheWire(t *testing.T) {
	// The server with the outbox is wiped while the record is on the wire of a gateway that lives. Nothing but the deadline tells.
	everywhere(t, func(t *testing.T, l *lab) {
		layout := l.sale(3, 2)
		l.write()
		l.tape.set(func(t *tape) { t.hold = true })
		id := l.buy(l.gateway(l.tape), layout, "1", 2)
		l.redis("FLUSHALL")
		s := l.stepper()
		cfg := l.config()
		cfg.Stock, cfg.Ledger, cfg.Offsets, cfg.RecordDeadline = s, s, s, 300*time.Millisecond
		loader, err := NewLoader(cfg)
		l.must(err)
		s.at = "behind outbox 1"
		done := l.begin(loader, layout)
		<-s.stopped
		// Within the deadline, and behind the look at the outboxes, which are empty.
		l.tape.arrive(true)
		close(s.wake)
		if r := <-done; r.err != nil || r.outcome != Loaded {
			t.Fatalf("load: %+v", r)
		}
		report := l.atRest(layout, id)
		if l.status(id) != sale.Pending || report.Free != 1 {
			t.Errorf("the order is %q, %v", l.status(id), report)
		}
	})
}

func TestLoadWaitsForTheRecordDeadline(t *testing.T) {
	l := newLab(t, onMini)
	layout := l.sale(3, 2)
	s := l.stepper()
	cfg := l.config()
	cfg.Stock, cfg.Ledger, cfg.Offsets, cfg.RecordDeadline, cfg.Margin = s, s, s, 100*time.Millisecond, 50*time.Millisecond
	loader, err := NewLoader(cfg)
	l.must(err)
	s.at = "before end 2" // the ends of what has to be stored are read when nothing is sent any more
	began := time.Now()
	done := l.begin(loader, layout)
	<-s.stopped
	if waited := time.Since(began); waited < 150*time.Millisecond {
		t.Errorf("nothing was waited for: %v", waited)
	}
	close(s.wake)
	if r := <-done; r.err != nil || r.outcome != Loaded {
		t.Fatalf("load: %+v", r)
	}
}

func TestLoadWaitsForTheOutboxes(t *testing.T) {
	l := newLab(t, onMini)
	l.write()
	layout := l.sale(3, 2)
	id := l.buy(l.gateway(dead{}), layout, "1", 2)
	l.tape.set(func(t *tape) { t.refuse = map[string]bool{"1": true} })
	s := l.stepper()
	done := l.begin(l.stepping(s), layout)
	devtest.Eventually(t, timeout, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.count["outbox"] > 3
	}, "the outboxes are swept again and again")
	if got := l.redis("EXISTS", key(layout, 0, "stock"), key(layout, 1, "stock")); got != "0" {
		t.Error("there is a stock while there is something in an outbox")
	}
	l.tape.set(func(t *tape) { t.refuse = nil })
	if r := <-done; r.err != nil || r.outcome != Loaded {
		t.Fatalf("load: %+v", r)
	}
	if report := l.atRest(layout, id); report.Free != 1 || l.status(id) != sale.Pending {
		t.Error(report)
	}
}

func TestRecordThatComesToKafkaBehindTheSnapshot(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		layout := l.sale(3, 2)
		l.write()
		k := l.keeper()
		l.tape.set(func(t *tape) { t.hold = true })
		// Its gateway was stopped and wakes up when its unit has been counted, and sold to somebody else.
		id := l.buy(l.gateway(l.tape), layout, "1", 3)
		l.redis("FLUSHALL")
		// Nothing to be swept: the wire is the gateway's alone.
		wire := l.tape.wire
		l.tape.set(func(t *tape) { t.hold, t.wire = false, nil })
		l.load(k, layout)
		other := l.buy(l.gateway(l.tape), layout, "2", 3)
		l.tape.set(func(t *tape) { t.wire = wire })
		l.tape.arrive(false)
		l.runKeeper(k)
		report := l.atRest(layout, id, other)
		if l.status(id) != sale.Rejected || l.status(other) != sale.Pending {
			t.Errorf("orders are %q and %q, %v", l.status(id), l.status(other), report)
		}
	})
}

func TestUnreadableEntryDelaysALoadAndDoesNotPreventIt(t *testing.T) {
	l := newLab(t, onMini)
	layout := l.sale(10, 2)
	l.redis("HSET", key(layout, 1, "pending"), "batch", "2\tfrom\tthe\tfuture")
	k := l.keeper(func(c *Config) { c.GiveUp = 200 * time.Millisecond })
	began := time.Now()
	l.load(k, layout)
	if time.Since(began) < 200*time.Millisecond {
		t.Error("the load did not wait for somebody who can read the entry")
	}
	if report := l.atRest(layout); report.Free != 10 {
		t.Error(report)
	}
}

func TestLoadEndsWhenSomebodyElseClaimsIt(t *testing.T) {
	l := newLab(t, onMini)
	layout := l.sale(3, 2)
	l.buy(l.gateway(l.tape), layout, "1", 1)
	s := l.stepper()
	done := l.begin(l.stepping(s), layout) // waits for an order writer that is not there
	devtest.Eventually(t, timeout, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.count["passed"] > 0
	}, "the loader waits")
	l.exec(`UPDATE flash_sale_item SET claim = claim + 1, lease_until = now() + interval '1 minute'`)
	if r := <-done; r.err != nil || r.outcome != TakenOver {
		t.Errorf("load: %+v", r)
	}
	// It gave back what was its own, and nothing else.
	if n := l.count(`SELECT count(*) FROM flash_sale_item WHERE lease_until > now()`); n != 1 {
		t.Error("the lease of the other one was given back")
	}
}

func TestLoaderStoppedAtEveryStep(t *testing.T) {
	l := newLab(t, onMini)
	l.write()
	for _, step := range l.steps() {
		t.Run(step, func(t *testing.T) {
			c := l.crowd(t)
			s := l.stepper()
			done := l.stopAt(s, step, c.layout)
			c.sell() // where the stopped one has not fenced yet
			l.leaseRunsOut(c.layout)
			k := l.keeper()
			outcome, err := k.loader.Load(l.ctx, c.layout.Item, "test")
			if err != nil || outcome != Loaded {
				t.Fatalf("the other loader: %v, %v", outcome, err)
			}
			c.sell()
			close(s.wake)
			if r := <-done; r.err != nil {
				t.Logf("the stopped loader: %v", r.err)
			}
			c.sell()
			c.check(k)
		})
	}
}

func TestLoadersStoppedAtTwoSteps(t *testing.T) {
	l := newLab(t, onMini)
	l.write()
	// Those between which something changes that the other one can see.
	steps := []string{"before claim 1", "before fence 1", "before outbox 1", "before snapshot 1", "before load 1", "before end load 1"}
	for _, first := range steps {
		for _, second := range steps {
			t.Run(first+", "+second, func(t *testing.T) {
				c := l.crowd(t)
				a, b := l.stepper(), l.stepper()
				doneA := l.stopAt(a, first, c.layout)
				l.leaseRunsOut(c.layout)
				doneB := l.stopAt(b, second, c.layout)
				c.sell()
				close(a.wake)
				<-doneA
				c.sell()
				close(b.wake)
				<-doneB
				c.sell()
				c.check(l.keeper()) // which brings to its end what neither of them did
			})
		}
	}
}

// crowd is an item with reservations at every stage, and buyers who go on buying.
type crowd struct {
	testing.TB
	l        *lab
	layout   shard.Layout
	gateway  *shard.Stock
	answered []sale.OrderID
	buyers   int
	quantity int64 // in the end
}

func (l *lab) crowd(t testing.TB) *crowd {
	l.Helper()
	c := &crowd{TB: t, l: l, layout: l.sale(8, 2), gateway: l.gateway(l.tape), quantity: 10}
	c.sell()
	c.answered = append(c.answered, l.buy(l.gateway(dead{}), c.layout, "in the outbox", 1))
	_, err := l.db.Restock(l.ctx, c.layout.Item, 2, "")
	l.must(err)
	return c
}

// follow takes up the number of shards that the item has now.
func (c *crowd) follow() {
	c.Helper()
	it, _, err := c.l.db.Item(c.l.ctx, c.layout.Item)
	c.l.must(err)
	c.layout.Shards = it.Shards
}

// sell lets a buyer buy, if anything is to be had, and every second one cancel.
func (c *crowd) sell() {
	c.Helper()
	c.buyers++
	user := fmt.Sprint("buyer ", c.buyers)
	r := c.gateway.Reserve(c.l.ctx, c.layout, c.l.request(c.layout, user, 1))
	if r.Outcome != sale.Reserved {
		return
	}
	c.answered = append(c.answered, r.OrderID)
	if c.buyers%2 == 0 {
		devtest.Eventually(c, timeout, func() bool { return c.l.status(r.OrderID) != "" }, "the order is stored")
		_, _, err := c.l.db.Cancel(c.l.ctx, r.OrderID, user)
		c.l.must(err)
	}
}

// check lets a keeper finish everything and checks the invariants.
func (c *crowd) check(k *Keeper) {
	c.Helper()
	stop := c.l.runKeeper(k)
	defer stop()
	report := c.l.atRest(c.layout, c.answered...)
	if report.Quantity != c.quantity {
		c.Error(report)
	}
	// Out of the next keeper's sight.
	c.l.exec(`UPDATE flash_sale_item SET retired_at = now() WHERE id = $1`, c.layout.Item)
}
