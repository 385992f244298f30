package keeper

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/pause"
	"flashgate/internal/reconcile"
	"flashgate/internal/sale"
	"flashgate/shard"
)

// checker makes a Checker that is done soon.
func (l *lab) checker(change ...func(*reconcile.Config)) *reconcile.Checker {
	l.Helper()
	cfg := reconcile.Config{
		Stock: l.stock, Ledger: l.db, Offsets: l.tape, RecordDeadline: time.Millisecond, Patience: 300 * time.Millisecond, CallTimeout: timeout, Logger: l.log,
	}
	for _, f := range change {
		f(&cfg)
	}
	c, err := reconcile.New(cfg)
	l.must(err)
	return c
}

// compared is what a Checker says of an item, in one line: nil is "?".
func (l *lab) compared(c *reconcile.Checker, layout shard.Layout) string {
	l.Helper()
	r, ok, err := c.Check(l.ctx, layout.Item)
	l.must(err)
	if !ok {
		l.Fatal("no such item")
	}
	return line(&r)
}

func line(r *reconcile.Report) string {
	number := func(n *int64) string {
		if n == nil {
			return "?"
		}
		return fmt.Sprint(*n)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d = %d sold %s free %s in flight %s moving %s drift", r.Item.Quantity, r.Item.Sold, number(r.Free), number(r.InFlight), number(r.Moving), number(r.Drift))
	if r.Undecided {
		b.WriteString(" undecided")
	}
	for _, o := range r.Orders {
		fmt.Fprintf(&b, " %s:%s:%d", o.OrderID, o.Reason, o.Quantity)
	}
	return b.String()
}

// repair loads an item as somebody does who wants a difference to be put right.
func (l *lab) repair(layout shard.Layout) {
	l.Helper()
	// A load waits for the order writer.
	stop := l.write()
	defer stop()
	outcome, err := l.keeper().Loader().Load(l.ctx, layout.Item, "repair")
	l.must(err)
	if outcome != Loaded {
		l.Fatal(outcome)
	}
}

// swallow is a broker that acknowledges what it loses.
type swallow struct{}

func (swallow) Publish(_ time.Time, _ []sale.Event, done func(error)) { done(nil) }

// published waits until the outboxes are empty.
func (l *lab) published(layout shard.Layout) {
	l.Helper()
	devtest.Eventually(l, timeout, func() bool { return l.entries(layout) == 0 }, "outboxes are empty")
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

// TestReconcileKnowsWhatIsInFlight has orders in the database, in Kafka and in an outbox, releases that wait, and a restock that does.
func TestReconcileKnowsWhatIsInFlight(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		layout := l.sale(200, 4)
		c := l.checker()
		s := l.gateway(l.tape)
		var ids []sale.OrderID
		for i := range 100 {
			ids = append(ids, l.buy(s, layout, fmt.Sprint(i), 1))
		}
		l.published(layout)
		want(t, "in Kafka", l.compared(c, layout), "200 = 0 sold 100 free 100 in flight 0 moving 0 drift undecided")
		l.consume()
		want(t, "at rest", l.compared(c, layout), "200 = 100 sold 100 free 0 in flight 0 moving 0 drift")
		if ok, err := c.Quick(l.ctx, layout.Item); !ok || err != nil {
			t.Errorf("sums: %v, %v", ok, err)
		}
		l.tape.set(func(t *tape) { t.hold = true })
		for i := range 15 {
			l.buy(s, layout, fmt.Sprint("held", i), 2)
		}
		want(t, "in the outbox", l.compared(c, layout), "200 = 100 sold 70 free 30 in flight 0 moving 0 drift")
		for i := range 5 {
			if _, _, err := l.db.Cancel(l.ctx, ids[i], fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		want(t, "before the release", l.compared(c, layout), "200 = 95 sold 70 free 35 in flight 0 moving 0 drift")
		if _, err := l.db.Restock(l.ctx, layout.Item, 7, ""); err != nil {
			t.Fatal(err)
		}
		want(t, "before the increase", l.compared(c, layout), "207 = 95 sold 70 free 35 in flight 7 moving 0 drift")
		l.settle(l.keeper())
		want(t, "behind both", l.compared(c, layout), "207 = 95 sold 82 free 30 in flight 0 moving 0 drift")
		l.tape.arrive(true)
		l.consume()
		l.published(layout)
		want(t, "in the end", l.compared(c, layout), "207 = 125 sold 82 free 0 in flight 0 moving 0 drift")
	})
}

// TestReconcileFindsAndALoadRepairs changes the stock by hand, both ways.
func TestReconcileFindsAndALoadRepairs(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		layout := l.sale(20, 2)
		c, s := l.checker(), l.gateway(l.tape)
		for i := range 5 {
			l.buy(s, layout, fmt.Sprint(i), 1)
		}
		l.consume()
		l.published(layout)
		before := l.redis("GET", key(layout, 0, "stock"))
		l.redis("SET", key(layout, 0, "stock"), "0")
		other := l.redis("GET", key(layout, 1, "stock"))
		want(t, "lost units", l.compared(c, layout), fmt.Sprintf("20 = 5 sold %s free 0 in flight 0 moving %s drift", other, before))
		if ok, err := c.Quick(l.ctx, layout.Item); ok || err != nil {
			t.Errorf("sums: %v, %v", ok, err)
		}
		l.repair(layout)
		want(t, "repaired", l.compared(c, layout), "20 = 5 sold 15 free 0 in flight 0 moving 0 drift")
		l.redis("INCRBY", key(layout, 1, "stock"), "3")
		want(t, "units that do not exist", l.compared(c, layout), "20 = 5 sold 18 free 0 in flight 0 moving -3 drift")
		l.repair(layout)
		l.repair(layout)
		want(t, "repaired twice", l.compared(c, layout), "20 = 5 sold 15 free 0 in flight 0 moving 0 drift")
		l.atRest(layout)
	})
}

// TestReconcileNamesOrders makes every kind of disagreement about an order by hand.
func TestReconcileNamesOrders(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		layout := l.sale(20, 1)
		c, s := l.checker(), l.gateway(l.tape)
		unmarked, other, left := l.buy(s, layout, "unmarked", 2), l.buy(s, layout, "other", 1), l.buy(s, layout, "left", 3)
		l.consume()
		l.published(layout)
		lost := l.buy(l.gateway(swallow{}), layout, "lost", 4)
		l.published(layout)
		// Counted, as a script would; else the shard is unreadable, and loaded by itself.
		l.redis("HDEL", key(layout, 0, "buyers"), "unmarked")
		l.redis("HINCRBY", key(layout, 0, "meta"), "marks", "-1")
		strange := sale.NewOrderID(layout.Item)
		l.redis("HSET", key(layout, 0, "buyers"), "other", strings.Replace(l.redis("HGET", key(layout, 0, "buyers"), "other"), other.String(), strange.String(), 1))
		if _, _, err := l.db.Cancel(l.ctx, left, "left"); err != nil {
			t.Fatal(err)
		}
		l.exec(`DELETE FROM flash_sale_correction`)
		devtest.Eventually(t, timeout, func() bool {
			r, _, err := c.Check(l.ctx, layout.Item)
			l.must(err)
			return !r.Undecided // the reservation is older than a gateway may be slow
		}, "the lost reservation is old enough")
		r, _, err := c.Check(l.ctx, layout.Item)
		l.must(err)
		expected := []reconcile.Concern{
			{OrderID: unmarked, Reason: reconcile.MarkMissing, Quantity: 2}, {OrderID: other, Reason: reconcile.MarkDiffers, Quantity: 1},
			{OrderID: left, Reason: reconcile.MarkLeft, Quantity: 3}, {OrderID: lost, Reason: reconcile.EventLost, Quantity: 4},
			{OrderID: strange, Reason: reconcile.EventLost, Quantity: 1},
		}
		if len(r.Orders) != len(expected) {
			t.Errorf("named: %s", line(&r))
		}
		for _, o := range expected {
			if !slices.Contains(r.Orders, o) {
				t.Errorf("%v is not among %s", o, line(&r))
			}
		}
		// 3 sold; the marks hold 3 + 4 + 1 that are no live order's; and none of the 20 is anywhere else.
		if !strings.HasPrefix(line(&r), "20 = 3 sold 10 free 8 in flight 0 moving -1 drift") || !r.Wrong() {
			t.Error(line(&r))
		}
		l.repair(layout)
		want(t, "repaired", l.compared(c, layout), "20 = 3 sold 17 free 0 in flight 0 moving 0 drift")
		l.atRest(layout)
	})
}

// TestReconcileIsNotFooledByARush compares all the time while a crowd buys, cancels and does not pay, units are added and loads go on; nothing of it is
// ever a difference.
func TestReconcileIsNotFooledByARush(t *testing.T) {
	l := newLab(t, onReal)
	k := l.kafka(t)
	const quantity, shoppers = 150, 400
	layout := l.sale(quantity, 4, window(300*time.Millisecond))
	k.write(t)
	admin := k.Admin(t)
	keeper := l.keeper(k.inEarnest(admin))
	l.runKeeper(keeper)
	c := l.checker(func(cfg *reconcile.Config) {
		cfg.Offsets, cfg.Group, cfg.RecordDeadline, cfg.Patience = admin, k.Config.Group, 500*time.Millisecond, 400*time.Millisecond
	})
	ctx, stop := context.WithCancel(l.ctx)
	var comparing sync.WaitGroup
	looked, sure := 0, 0
	comparing.Go(func() {
		for ctx.Err() == nil {
			r, _, err := c.Check(ctx, layout.Item)
			if err != nil {
				if ctx.Err() == nil {
					t.Error(err)
				}
				return
			}
			looked++
			if r.Drift != nil {
				sure++
			}
			if r.Wrong() {
				t.Errorf("in the middle of a rush: %s", line(&r))
			}
		}
	})
	gateways := []*shard.Stock{l.gateway(k.producer()), l.gateway(k.producer())}
	everyone(shoppers, 6, func(u int) {
		id, ok := l.shop(gateways, layout, fmt.Sprint(u))
		if ok && u%3 == 0 {
			if _, _, err := l.db.Cancel(l.ctx, id, fmt.Sprint(u)); err != nil {
				t.Error(err)
			}
		}
		switch u {
		case 100, 200:
			if _, err := l.db.Restock(l.ctx, layout.Item, 10, ""); err != nil {
				t.Error(err)
			}
		case 150:
			if _, err := keeper.Loader().Load(l.ctx, layout.Item, "repair"); err != nil {
				t.Error(err)
			}
		}
		pause.For(l.ctx, 20*time.Millisecond)
	})
	l.atRest(layout)
	stop()
	comparing.Wait()
	t.Logf("%d comparisons, %d of them certain", looked, sure)
	if r, _, err := c.Check(l.ctx, layout.Item); err != nil || r.Drift == nil || r.Wrong() {
		t.Errorf("at rest: %s, %v", line(&r), err)
	}
}

// TestReconcileWithoutServers knows what it does not know.
func TestReconcileWithoutServers(t *testing.T) {
	l := newLab(t, onReal)
	layout := l.sale(20, 2)
	s := l.gateway(swallow{})
	l.buy(s, layout, "lost", 1)
	l.published(layout)
	l.tape.set(func(t *tape) { t.down = true })
	want(t, "without brokers", l.compared(l.checker(), layout), "20 = 0 sold 19 free 1 in flight 0 moving 0 drift undecided")
	l.tape.set(func(t *tape) { t.down = false })
	l.redis("DEL", key(layout, 1, "stock"))
	want(t, "without a stock", l.compared(l.checker(), layout), "20 = 0 sold ? free 1 in flight 0 moving ? drift")
	r, ok, err := l.checker().Check(l.ctx, layout.Item+1)
	if ok || err != nil {
		t.Errorf("an item that does not exist: %s, %v", line(&r), err)
	}
}

// TestKeeperRaisesTheAlarm changes a stock by hand under a running keeper, and back.
func TestKeeperRaisesTheAlarm(t *testing.T) {
	l := newLab(t, onMini)
	layout := l.sale(20, 2)
	k := l.keeper(func(c *Config) { c.ReconcileEvery = 10 * time.Millisecond })
	k.reconcile.again = time.Millisecond
	l.run(k)
	item := fmt.Sprint(layout.Item)
	l.redis("DECRBY", key(layout, 0, "stock"), "4")
	devtest.Eventually(t, timeout, func() bool { return l.metric("flashgate_keeper_drift_units", item) == 4 }, "the drift shows")
	if n := l.metric("flashgate_keeper_alarms_total", "drift", item); n != 1 {
		t.Errorf("%v alarms", n)
	}
	if n := l.metric("flashgate_keeper_concerned_orders", item); n != 0 {
		t.Errorf("%v orders", n)
	}
	if e := l.epoch(layout); e != 1 {
		t.Errorf("the keeper has loaded by itself: epoch %d", e)
	}
	if _, err := k.Loader().Load(l.ctx, layout.Item, "repair"); err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, timeout, func() bool { return l.metric("flashgate_keeper_drift_units", item) == 0 }, "the drift is gone")
	if n := l.metric("flashgate_keeper_alarms_total", "drift", item); n != 1 {
		t.Errorf("%v alarms", n)
	}
}
