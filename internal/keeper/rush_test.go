package keeper

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"flashgate/internal/broker"
	"flashgate/internal/broker/brokertest"
	"flashgate/internal/devstack/devtest"
	"flashgate/internal/pause"
	"flashgate/internal/sale"
	"flashgate/shard"
)

// kafka is the real way of an event: a producer for each process, a consumer group, offsets.
type kafka struct {
	*brokertest.Server
	l *lab
}

func (l *lab) kafka(t *testing.T) *kafka {
	s := brokertest.NewFake(t)
	s.CreateTopics(t)
	return &kafka{Server: s, l: l}
}

// inEarnest has a keeper work with real producers and order writers, and gives it times that those can keep.
func (k *kafka) inEarnest(admin *broker.Admin) func(*Config) {
	return func(c *Config) {
		c.Publisher, c.Offsets, c.Group = k.producer(), admin, k.Config.Group
		c.RecordDeadline, c.SweepEvery, c.CallTimeout, c.LeaseTTL = 500*time.Millisecond, 50*time.Millisecond, 10*time.Second, time.Second
	}
}

// everyone lets users from 0 to n-1 shop, so many at once, and returns when all of them have.
func everyone(n, atOnce int, shop func(user int)) {
	users := make(chan int, n)
	for u := range n {
		users <- u
	}
	close(users)
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for u := range users {
				shop(u)
			}
		})
	}
	wg.Wait()
}

func (k *kafka) producer() *broker.Producer {
	k.l.Helper()
	p, err := broker.NewProducer(broker.ProducerConfig{Config: k.Config})
	if err != nil {
		k.l.Fatal(err)
	}
	k.l.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			k.l.Error(err)
		}
	})
	return p
}

// write runs an order writer of the consumer group until the test ends.
func (k *kafka) write(t *testing.T) {
	client := k.Client(t, kgo.ConsumerGroup(k.Config.Group), kgo.ConsumeTopics(broker.Orders), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithCancel(k.l.ctx)
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			var events []sale.Event
			fetches := client.PollRecords(ctx, 500)
			fetches.EachRecord(func(r *kgo.Record) {
				if e, err := broker.Decode(r); err != nil {
					t.Error(err)
				} else {
					events = append(events, e)
				}
			})
			if _, err := k.l.db.Write(ctx, events); err != nil && ctx.Err() == nil {
				t.Errorf("write: %v", err)
				return
			}
			if err := client.CommitUncommittedOffsets(ctx); err != nil && ctx.Err() == nil {
				t.Logf("commit: %v", err)
			}
		}
	}()
}

// TestRush lets a crowd buy through two gateways while its Redis is wiped, a gateway dies, units are added, orders are cancelled and expire, and two
// keepers look after it.
func TestRush(t *testing.T) {
	l := newLab(t, onReal)
	k := l.kafka(t)
	const quantity, shoppers, more = 300, 600, 50
	layout := l.sale(quantity, 4)
	k.write(t)
	admin := k.Admin(t)
	for range 2 {
		l.runKeeper(l.keeper(k.inEarnest(admin)))
	}
	gateways := []*shard.Stock{l.gateway(k.producer()), l.gateway(k.producer())}
	var mu sync.Mutex
	var answered []sale.OrderID
	bought := 0
	// happen runs something once when so many have bought.
	happened := make(map[int]bool)
	happen := func(at int, what func()) {
		if bought >= at && !happened[at] {
			happened[at] = true
			what()
		}
	}
	everyone(shoppers, 8, func(u int) {
		id, ok := l.shop(gateways, layout, fmt.Sprint(u))
		if !ok {
			return
		}
		mu.Lock()
		bought++
		answered = append(answered, id)
		happen(60, func() { l.redis("FLUSHALL") })
		happen(100, func() {
			if _, err := l.db.Restock(l.ctx, layout.Item, more, ""); err != nil {
				t.Error(err)
			}
		})
		happen(150, func() { l.redis("DEL", key(layout, 1, "stock")) })
		happen(200, func() { l.gateway(dead{}).Reserve(l.ctx, layout, l.request(layout, "dead", 3)) })
		mu.Unlock()
		if u%7 == 0 {
			if _, _, err := l.db.Cancel(l.ctx, id, fmt.Sprint(u)); err != nil {
				t.Error(err)
			}
		}
	})
	for _, at := range []int{60, 100, 150, 200} {
		if !happened[at] {
			t.Errorf("only %d bought", bought)
		}
	}
	report := l.atRest(layout, answered...)
	if report.Quantity != quantity+more {
		t.Error(report)
	}
	// What came back at last is sold, too.
	for u := shoppers; report.Free > 0; u++ {
		if id, ok := l.shop(gateways, layout, fmt.Sprint(u)); ok {
			answered = append(answered, id)
		}
		report = l.atRest(layout, answered...)
	}
	t.Log(report)
}

// shop tries to buy until there is a definite answer, as a storefront does.
func (l *lab) shop(gateways []*shard.Stock, layout shard.Layout, user string) (sale.OrderID, bool) {
	for {
		ctx, cancel := context.WithTimeout(l.ctx, 10*time.Second)
		r := gateways[rand.IntN(len(gateways))].Reserve(ctx, layout, l.request(layout, user, 1))
		cancel()
		switch r.Outcome {
		case sale.Reserved, sale.Own:
			select {
			case <-r.Acked:
				return r.OrderID, true
			case <-time.After(timeout):
				l.Errorf("user %s: no acknowledgement", user)
				return r.OrderID, false
			}
		case sale.Already:
			// His earlier attempt, whose answer was lost, succeeded.
			return r.OrderID, true
		case sale.NoStock:
			return sale.OrderID{}, false
		case sale.NotLoaded, sale.Busy, sale.Failed, sale.Unknown, sale.Unreadable, sale.QueueFull:
			if !pause.For(l.ctx, 5*time.Millisecond) {
				l.Errorf("user %s: no definite answer, at last %s, %v", user, r.Outcome, r.Err)
				return sale.OrderID{}, false
			}
		default:
			l.Errorf("user %s: %s, %v", user, r.Outcome, r.Err)
			return sale.OrderID{}, false
		}
	}
}

// TestBrokerFrozenThenThawed is TestBrokerDownThenUp with a real producer, whose records are given up at their deadline.
func TestBrokerFrozenThenThawed(t *testing.T) {
	l := newLab(t, onMini)
	k := l.kafka(t)
	layout := l.sale(20, 3)
	k.write(t)
	l.runKeeper(l.keeper(func(c *Config) {
		c.Publisher, c.Offsets, c.Group, c.RecordDeadline = k.producer(), k.Admin(t), k.Config.Group, 200*time.Millisecond
	}))
	k.Freeze()
	s, err := shard.New(shard.Config{Client: l.connect(), Publisher: k.producer(), RecordDeadline: 200 * time.Millisecond, CallTimeout: 200 * time.Millisecond})
	l.must(err)
	var answered []sale.OrderID
	for i := range 10 {
		answered = append(answered, l.buy(s, layout, fmt.Sprint(i), 1))
	}
	devtest.Eventually(t, timeout, func() bool { return l.metric("flashgate_keeper_swept_reservations_total", "failed") > 0 }, "the sweep tries")
	k.Thaw()
	if report := l.atRest(layout, answered...); report.Live != 10 {
		t.Error(report)
	}
}
