package keeper

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"flashgate/internal/broker"
	"flashgate/internal/broker/brokertest"
	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
)

func TestWhatBecomesOfOrdersIsToldOnceAndInOrder(t *testing.T) {
	onKafkas(t, func(t *testing.T, l *lab, kafka *kafka) {
		layout := l.sale(1000, 2)
		k := patient(l.keeper(func(c *Config) { c.Publisher = kafka.publisher() }))
		l.runKeeper(k)
		var want expectation
		for round := range 5 {
			for i, life := range lives {
				want.of(life.live(l, k, layout, fmt.Sprint(round, "-", i)), life.told)
			}
		}
		for range 3 {
			_, err := l.db.Restock(l.ctx, layout.Item, 7, "")
			l.must(err)
		}
		l.allTold()
		told := kafka.told(t)
		want.check(t, told, false)
		stock := told[fmt.Sprintf("item:%d", layout.Item)]
		if types(stock) != "increased increased increased" || stock[0].Quantity != 1007 || stock[2].Quantity != 1021 || stock[1].Delta != 7 {
			t.Errorf("of the stock was told %+v", stock)
		}
		for key, events := range told {
			for _, e := range events {
				if wantTrace := e.Type != broker.StockIncreased; (e.Trace == testTrace) != wantTrace {
					t.Errorf("%s of %s has the trace %q", e.Type, key, e.Trace)
				}
				if age := time.Since(e.At); age < 0 || age > timeout {
					t.Errorf("%s of %s happened at %v", e.Type, key, e.At)
				}
			}
		}
		// Five of the rejected ones were refused because of another order.
		if n, keys := l.metric("flashgate_keeper_events_total", "published"), len(told); n != 5*(1+2+3+3+2+3+1+2)+3 || keys != 5*(len(lives)+1)+1 {
			t.Errorf("%v events of %d keys were published", n, keys)
		}
	})
}

func TestTwoKeepersTellEachEventOnce(t *testing.T) {
	onKafkas(t, func(t *testing.T, l *lab, kafka *kafka) {
		layout := l.sale(1000, 2)
		var k *Keeper
		for range 2 {
			k = patient(l.keeper(func(c *Config) { c.Publisher = kafka.publisher() }))
			l.runKeeper(k)
		}
		var want expectation
		var crowd sync.WaitGroup
		for worker := range 4 {
			crowd.Go(func() {
				for round := range 4 {
					for i, life := range lives {
						want.of(life.live(l, k, layout, fmt.Sprint(worker, "-", round, "-", i)), life.told)
					}
				}
			})
		}
		crowd.Wait()
		l.allTold()
		want.check(t, kafka.told(t), false)
	})
}

// The broker is away for a while. The events wait, nothing else does, and then all of them are told.
func TestEventsWaitForTheBroker(t *testing.T) {
	onKafkas(t, func(t *testing.T, l *lab, kafka *kafka) {
		layout, other := l.sale(1000, 2), l.sale(10, 2)
		k := hasty(l.keeper(func(c *Config) { c.Publisher = kafka.publisher() }))
		gateway := l.gateway(l.tape)
		l.run(k)
		var want expectation
		for i, life := range lives {
			want.of(life.live(l, k, layout, fmt.Sprint("before-", i)), life.told)
		}
		l.allTold()
		kafka.Freeze()
		for i, life := range lives {
			want.of(life.live(l, k, layout, fmt.Sprint("away-", i)), life.told)
		}
		devtest.Eventually(t, timeout, func() bool { return l.metric("flashgate_keeper_events_total", "failed") > 0 }, "the broker is asked in vain")
		// Meanwhile somebody buys, cancels and gets the unit again.
		id := l.buy(gateway, other, "77", 1)
		devtest.Eventually(t, timeout, func() bool { return l.status(id) == sale.Pending }, "the order is stored")
		l.cancel(id, "77")
		devtest.Eventually(t, timeout, func() bool { return l.count(`SELECT count(*) FROM flash_sale_correction`) == 0 }, "the unit goes back")
		want.of(l.buy(gateway, other, "77", 1), "created")
		want.of(id, "created cancelled")
		if l.waiting() == 0 {
			t.Error("nothing waits for a broker that is away")
		}
		kafka.Thaw()
		l.atRest(other)
		l.allTold()
		want.check(t, kafka.told(t), true)
	})
}

// A keeper is killed when the broker has an event and the database does not know. Another one tells it again, byte for byte.
func TestKeeperKilledBehindTheBroker(t *testing.T) {
	onKafkas(t, func(t *testing.T, l *lab, kafka *kafka) {
		layout := l.sale(10, 1)
		dying := &eventSteps{Ledger: l.db, Publisher: kafka.publisher(), killed: true}
		k := hasty(l.keeper(func(c *Config) { c.Ledger, c.Publisher = dying, dying }))
		k.events.deadline = timeout
		id := l.order(layout, "1", 1)
		l.pay(id, 1)
		if claimed, told, _ := k.events.batch(l.ctx); claimed != 1 || told != 0 {
			t.Fatalf("the dying keeper claimed %d and told %d", claimed, told)
		}
		l.runKeeper(patient(l.keeper(func(c *Config) { c.Publisher = kafka.publisher() })))
		l.allTold()
		records := kafka.Read(t, broker.OrderEvents)
		if got := types(kafka.told(t)[id.String()]); got != "created created paid" {
			t.Fatalf("told %q", got)
		}
		first, again := records[0], records[1]
		if brokertest.Header(first, "ce_id") != brokertest.Header(again, "ce_id") || string(first.Value) != string(again.Value) {
			t.Errorf("the repetition is another event: %v %s, %v %s", first.Headers, first.Value, again.Headers, again.Value)
		}
	})
}

// A keeper is stopped with its claim in its hands, and wakes up when others have told that event and the next. It says nothing any more.
func TestKeeperStoppedInFrontOfTheBroker(t *testing.T) {
	onKafkas(t, func(t *testing.T, l *lab, kafka *kafka) {
		layout := l.sale(10, 1)
		stopped := &eventSteps{Ledger: l.db, Publisher: kafka.publisher(), claimed: newHalt()}
		slow := hasty(l.keeper(func(c *Config) { c.Ledger, c.Publisher = stopped, stopped }))
		id := l.order(layout, "1", 1)
		done := make(chan [2]int, 1)
		go func() {
			claimed, told, _ := slow.events.batch(l.ctx)
			done <- [2]int{claimed, told}
		}()
		<-stopped.claimed.reached
		l.pay(id, 1)
		l.runKeeper(patient(l.keeper(func(c *Config) { c.Publisher = kafka.publisher() })))
		l.allTold()
		close(stopped.claimed.wake)
		if r := <-done; r != [2]int{1, 0} {
			t.Errorf("the stopped keeper claimed %d and told %d", r[0], r[1])
		}
		if got := types(kafka.told(t)[id.String()]); got != "created paid" {
			t.Errorf("told %q", got)
		}
	})
}

// A backlog, as after an outage.
func TestBacklogIsTold(t *testing.T) {
	onKafkas(t, func(t *testing.T, l *lab, kafka *kafka) {
		const orders = 10_000
		layout := l.sale(orders, 1)
		l.orders(layout, "u", orders)
		k := patient(l.keeper(func(c *Config) { c.Publisher = kafka.publisher() }))
		k.events.look(l.ctx)
		if n, age := l.metric("flashgate_keeper_events_waiting"), l.metric("flashgate_keeper_events_oldest_seconds"); n != orders || age <= 0 {
			t.Errorf("%v events wait, the oldest for %v s", n, age)
		}
		began := time.Now()
		k.events.round(l.ctx) // one round: it does not wait for the next tick while batches are full
		t.Logf("%d events in %v", orders, time.Since(began))
		if n := l.waiting(); n != 0 {
			t.Errorf("%d events were left", n)
		}
		k.events.look(l.ctx)
		if n, age := l.metric("flashgate_keeper_events_waiting"), l.metric("flashgate_keeper_events_oldest_seconds"); n != 0 || age != 0 {
			t.Errorf("%v events wait, the oldest for %v s", n, age)
		}
		if n := len(kafka.told(t)); n != orders {
			t.Errorf("%d orders were told of", n)
		}
	})
}
