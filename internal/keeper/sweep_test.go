package keeper

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
	"flashgate/shard"
)

func TestEntryOfADeadGatewayArrivesOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		layout := l.sale(10, 4)
		id := l.buy(l.gateway(dead{}), layout, "7", 2)
		if n := l.entries(layout); n != 1 {
			t.Fatalf("%d entries, want 1", n)
		}
		l.run(l.keeper())
		l.atRest(layout, id)
		if n := l.count(`SELECT count(*) FROM flash_sale_order`); n != 1 {
			t.Errorf("%d orders, want 1", n)
		}
		if s := l.status(id); s != sale.Pending {
			t.Errorf("the order is %q", s)
		}
	})
}

func TestYoungEntriesAreLeftToTheirGateway(t *testing.T) {
	l := newLab(t, onMini)
	layout := l.sale(10, 2)
	id := l.buy(l.gateway(dead{}), layout, "7", 1)
	k := l.keeper(func(c *Config) { c.RecordDeadline, c.GiveUp = time.Hour, 2*time.Hour })
	found, err := k.sweeper.sweep(l.ctx, layout, false)
	l.must(err)
	if found.left != 1 || found.tried || l.tape.published(id) != 0 {
		t.Errorf("swept %+v, published %d times", found, l.tape.published(id))
	}
	// During a fence there is nobody to leave it to.
	found, err = k.sweeper.sweep(l.ctx, layout, true)
	l.must(err)
	if found.left != 0 || found.removed != 1 || l.tape.published(id) != 1 {
		t.Errorf("swept %+v, published %d times", found, l.tape.published(id))
	}
}

func TestBrokerDownThenUp(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		layout := l.sale(100, 4)
		l.tape.set(func(t *tape) { t.down = true })
		l.run(l.keeper())
		gateway := l.gateway(l.tape)
		var answered []sale.OrderID
		for i := range 50 {
			answered = append(answered, l.buy(gateway, layout, fmt.Sprint(i), 1))
		}
		devtest.Eventually(t, timeout, func() bool { return l.metric("flashgate_keeper_swept_reservations_total", "failed") >= 50 }, "the sweep tries")
		if n := l.count(`SELECT count(*) FROM flash_sale_order`); n != 0 {
			t.Fatalf("%d orders while the broker is down", n)
		}
		l.tape.set(func(t *tape) { t.down = false })
		report := l.atRest(layout, answered...)
		if report.Live != 50 || report.Free != 50 {
			t.Error(report)
		}
	})
}

func TestLargeBacklogDrains(t *testing.T) {
	l := newLab(t, onReal)
	const reservations = 3000
	layout := l.sale(reservations, 3)
	gateway := l.gateway(dead{})
	var answered []sale.OrderID
	for i := range reservations {
		answered = append(answered, l.buy(gateway, layout, fmt.Sprint(i), 1))
	}
	// Fewer events may be on their way than an entry or a stride has.
	l.run(l.keeper(func(c *Config) { c.InFlight = 64 }))
	report := l.atRest(layout, answered...)
	if report.Live != reservations {
		t.Error(report)
	}
}

func TestEntryThatTheBrokerNeverTakesKeepsNobodyWaiting(t *testing.T) {
	l := newLab(t, onMini)
	layout := l.sale(2*strideEvents, 1)
	gateway := l.gateway(dead{})
	l.tape.refuse = map[string]bool{}
	// Older than all others, and more than a stride of them.
	for i := range strideEvents + 1 {
		user := fmt.Sprintf("bad %d", i)
		l.tape.refuse[user] = true
		l.buy(gateway, layout, user, 1)
	}
	id := l.buy(gateway, layout, "good", 1)
	k := l.keeper()
	devtest.Eventually(t, timeout, func() bool {
		_, _ = k.sweeper.sweep(l.ctx, layout, true)
		return l.tape.published(id) == 1
	}, "the good one is published")
}

func TestUnreadableEntryIsReportedAndKept(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		layout := l.sale(10, 2)
		blob := "2\tfrom\tthe\tfuture"
		l.redis("HSET", key(layout, 1, "pending"), "batch", blob)
		id := l.buy(l.gateway(dead{}), layout, "1", 1)
		k := l.keeper()
		for range 3 {
			_, err := k.sweeper.sweep(l.ctx, layout, true)
			l.must(err)
		}
		if got := l.redis("HGET", key(layout, 1, "pending"), "batch"); got != blob {
			t.Errorf("the entry is %q", got)
		}
		if n := l.metric("flashgate_keeper_alarms_total", alarmEntry, fmt.Sprint(layout.Item)); n != 1 {
			t.Errorf("%v alarms, want 1: the same entry is reported once a minute", n)
		}
		if l.tape.published(id) != 1 {
			t.Error("the entry beside it was not published")
		}
	})
}

func TestOutboxThatIsNoneKeepsOthersGoing(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		layout := l.sale(10, 2)
		l.redis("SET", key(layout, 0, "pending"), "text")
		id := l.buy(l.gateway(dead{}), layout, "1", 1)
		found, err := l.keeper().sweeper.sweep(l.ctx, layout, true)
		l.must(err)
		if found.lost != 1 || l.tape.published(id) != 1 {
			t.Errorf("swept %+v, published %d times", found, l.tape.published(id))
		}
		if n := l.metric("flashgate_keeper_alarms_total", alarmOutbox); n != 1 {
			t.Errorf("%v alarms, want 1", n)
		}
	})
}

func TestSweepGoesOnWithoutTheDatabase(t *testing.T) {
	l := newLab(t, onMini)
	layout := l.sale(10, 2)
	k := l.keeper(func(c *Config) { c.Ledger = &brokenLedger{Ledger: l.db} })
	id := l.buy(l.gateway(dead{}), layout, "1", 1)
	l.must(k.catalogue.refresh(l.ctx)) // as read before the database went away
	k.cfg.Ledger.(*brokenLedger).breakAll()
	l.runKeeper(k)
	devtest.Eventually(t, timeout, func() bool { return l.tape.published(id) == 1 && l.entries(layout) == 0 }, "the entry is swept")
}

func TestSweptBacklogIsMeasured(t *testing.T) {
	l := newLab(t, onMini)
	layout := l.sale(10, 2)
	l.tape.set(func(t *tape) { t.down = true })
	gateway := l.gateway(dead{})
	for i := range 3 {
		l.buy(gateway, layout, fmt.Sprint(i), 2)
	}
	l.run(l.keeper())
	devtest.Eventually(t, timeout, func() bool { return l.metric("flashgate_keeper_outbox_reservations") == 3 }, "three reservations wait")
	l.tape.set(func(t *tape) { t.down = false })
	l.atRest(layout)
	devtest.Eventually(t, timeout, func() bool {
		return l.metric("flashgate_keeper_outbox_reservations") == 0 && l.metric("flashgate_keeper_outbox_oldest_seconds") == 0
	}, "nothing waits")
}

// panicky panics at one item.
type panicky struct {
	Stock
	item int64
}

func (p panicky) Outbox(ctx ctx, layout shard.Layout, n int) (shard.Outbox, error) {
	if layout.Item == p.item {
		panic("a fault of the program")
	}
	return p.Stock.Outbox(ctx, layout, n)
}

func TestPanicAtOneItemStaysThere(t *testing.T) {
	l := newLab(t, onMini)
	bad, good := l.sale(10, 2), l.sale(10, 2)
	gateway := l.gateway(dead{})
	l.buy(gateway, bad, "1", 1)
	id := l.buy(gateway, good, "1", 1)
	k := l.keeper(func(c *Config) { c.Stock = panicky{l.stock, bad.Item} })
	l.run(k)
	l.atRest(good, id)
	if l.metric("flashgate_keeper_panics_total", "sweep") == 0 {
		t.Error("no panic was counted")
	}
	if _, err := k.sweeper.sweep(l.ctx, bad, true); err == nil || !strings.Contains(err.Error(), errPanicked.Error()) {
		t.Errorf("sweep of the bad item: %v", err)
	}
}

// An outbox that lost an entry makes a load due. Whoever asked again in time has published his event himself, and the load counts it.
func TestRetryBeforeTheLoadForALostEntry(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		layout := l.sale(10, 2)
		dead := l.gateway(dead{})
		lost, asked := l.buy(dead, layout, "1", 2), l.buy(dead, layout, "3", 3)
		l.redis("DEL", key(layout, 1, "pending"))
		r := l.gateway(l.tape).Reserve(l.ctx, layout, l.request(layout, "3", 3))
		if r.Outcome != sale.Already || r.OrderID != asked {
			t.Fatalf("retry: %+v", r)
		}
		l.run(l.keeper())
		devtest.Eventually(t, timeout, func() bool { return l.epoch(layout) > 1 }, "the item is loaded")
		if report := l.atRest(layout, asked); report.Live != 3 || report.Free != 7 || l.status(lost) != "" {
			t.Errorf("%v, the other order is %q", report, l.status(lost))
		}
	})
}
