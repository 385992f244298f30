package consumer_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kgo"

	"flashgate/consumer"
	"flashgate/internal/broker"
	"flashgate/internal/broker/brokertest"
	"flashgate/internal/devstack/devtest"
	"flashgate/internal/ledger"
	"flashgate/internal/sale"
)

func TestStores(t *testing.T) {
	each(t, func(l *lab) {
		registry := prometheus.NewRegistry()
		s := newSeam(l.db)
		first := l.events(500)
		l.send(first) // a new group begins at the start of the topic
		w := l.start(with(s), func(c *consumer.Config) { c.BatchSize, c.Registerer = 100, registry })
		second := l.events(500)
		l.send(second)
		l.settled()
		all := append(first, second...)
		l.exactly(all)
		if n := len(l.letters()); n != 0 {
			l.t.Errorf("%d dead letters", n)
		}
		if err := w.Healthy(brokertest.Context(l.t)); err != nil {
			l.t.Error(err)
		}
		w.stop(l.t)
		s.mu.Lock()
		defer s.mu.Unlock()
		if biggest := slices.Max(s.sizes); biggest > 100 || biggest < 2 {
			l.t.Errorf("batches of up to %d records, want more than one and at most 100", biggest)
		}
		if n, err := testutil.GatherAndCount(registry); err != nil || n != 0 {
			l.t.Errorf("%d metrics are left after the end, %v", n, err)
		}
	})
}

func TestStoresOptionalMembersFromTheItem(t *testing.T) {
	each(t, func(l *lab) {
		events := l.events(1)
		events[0].Price, events[0].Currency = "", ""
		l.send(events)
		l.start()
		l.settled()
		l.exactly(events)
		if price := column[string](l, `SELECT price::text || currency FROM flash_sale_order`); price[0] != "1980JPY" && price[0] != "1980.0000JPY" {
			l.t.Errorf("price %v, want the item's", price)
		}
	})
}

// Everything is delivered three times, within a batch and to one consumer after another.
func TestRedelivery(t *testing.T) {
	each(t, func(l *lab) {
		events := l.events(50)
		l.send(append(slices.Clone(events), events...))
		w := l.start()
		l.settled()
		w.stop(l.t)
		l.send(events)
		l.start()
		l.settled()
		l.exactly(events)
	})
}

// The topics are made after the consumer was started, and later made anew.
func TestTopicsComeAndGo(t *testing.T)              { comeAndGo(t, "") }
func TestTopicsComeAndGoForAnInstance(t *testing.T) { comeAndGo(t, "writer-0") }

func comeAndGo(t *testing.T, id string) {
	brokertest.EachBare(t, func(t *testing.T, s *brokertest.Server) {
		l := newLab(t, s, devtest.DatabaseLike(t, "ledger", ledger.Migrate))
		w := l.start(func(c *consumer.Config) { c.InstanceID = id })
		if err := w.Healthy(brokertest.Context(t)); err == nil {
			t.Log("healthy without a topic: it is a member with no partitions")
		}
		s.CreateTopics(t)
		first := l.events(20)
		l.send(first)
		l.settled()
		s.DeleteTopics(t)
		s.CreateTopics(t)
		second := l.events(20)
		l.send(second)
		l.settled()
		l.exactly(append(first, second...))
	})
}

// Two consumers share the work, a third comes, one goes, under load; every reservation is one order.
func TestRebalanceUnderLoad(t *testing.T) {
	each(t, func(l *lab) {
		var mu sync.Mutex
		busy := map[string]int{}
		named := func(name string) func(*consumer.Config) {
			s := newSeam(l.db)
			s.set(func(_ context.Context, events []sale.Event) error {
				mu.Lock()
				defer mu.Unlock()
				busy[name] += len(events)
				return nil
			})
			return with(s)
		}
		worked := func(name string) func() bool {
			return func() bool {
				mu.Lock()
				defer mu.Unlock()
				return busy[name] > 0
			}
		}
		var all []sale.Event
		load := func(until func() bool, what string) {
			devtest.Eventually(l.t, timeout, func() bool {
				events := l.events(20)
				l.send(events)
				all = append(all, events...)
				return until()
			}, "%s", what)
		}
		a := l.start(named("a"))
		load(worked("a"), "a works")
		l.start(named("b"))
		load(worked("b"), "b works beside a")
		l.start(named("c"))
		load(worked("c"), "c works beside a and b")
		a.stop(l.t) // the sessions are long: who waits for them to time out fails
		load(func() bool { return true }, "load after a has left")
		l.settled()
		l.exactly(all)
	})
}

func TestStopFinishesTheBatchInHand(t *testing.T) {
	each(t, func(l *lab) {
		s := newSeam(l.db)
		release := make(chan struct{})
		s.set(func(context.Context, []sale.Event) error { <-release; return nil })
		events := l.events(10)
		l.send(events)
		w := l.start(with(s))
		first := s.called(l.t)
		w.cancel()
		s.set(nil)
		close(release)
		w.await(l.t)
		var committed int64
		for _, offset := range l.committed() {
			committed += offset
		}
		if n := l.orders(); n != first || committed != int64(first) {
			l.t.Errorf("%d orders and %d offsets committed, want the %d of the batch", n, committed, first)
		}
		l.start()
		l.settled()
		l.exactly(events)
	})
}

// A batch that cannot be finished in time is left to whoever comes next.
func TestStopGivesUpTheBatchInHand(t *testing.T) {
	each(t, func(l *lab) {
		s := newSeam(l.db)
		s.set(func(ctx context.Context, _ []sale.Event) error { <-ctx.Done(); return ctx.Err() })
		events := l.events(10)
		l.send(events)
		w := l.start(with(s), func(c *consumer.Config) { c.StopTimeout = 50 * time.Millisecond })
		s.called(l.t)
		w.stop(l.t)
		for p, offset := range l.committed() {
			if offset != 0 {
				l.t.Errorf("offset %d of partition %d was committed", offset, p)
			}
		}
		l.start()
		l.settled()
		l.exactly(events)
	})
}

func TestConfigValidate(t *testing.T) {
	sound := consumer.Config{Broker: broker.Config{Brokers: []string{"127.0.0.1:9"}}, Ledger: (*ledger.DB)(nil), DeadLetters: (*broker.Producer)(nil)}
	if err := sound.WithDefaults().Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*consumer.Config){
		"no ledger":       func(c *consumer.Config) { c.Ledger = nil },
		"no dead letters": func(c *consumer.Config) { c.DeadLetters = nil },
		"no brokers":      func(c *consumer.Config) { c.Broker.Brokers = nil },
		"batch size":      func(c *consumer.Config) { c.BatchSize = -1 },
		"instance id":     func(c *consumer.Config) { c.InstanceID = "pod/1" },
		"session":         func(c *consumer.Config) { c.SessionTimeout = time.Millisecond },
		"write timeout":   func(c *consumer.Config) { c.WriteTimeout = -1 },
		"stop timeout":    func(c *consumer.Config) { c.StopTimeout = -1 },
		"retry waits":     func(c *consumer.Config) { c.RetryMin, c.RetryMax = time.Second, time.Millisecond },
	} {
		cfg := sound
		change(&cfg)
		if _, err := consumer.New(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestHealthy(t *testing.T) {
	each(t, func(l *lab) {
		var mu sync.Mutex
		ahead := time.Duration(0)
		now := func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return time.Now().Add(ahead)
		}
		skip := func(d time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			ahead += d
		}
		sick := errors.New("database away")
		s := &pinged{seam: newSeam(l.db)}
		ctx := brokertest.Context(l.t)
		cfg := consumer.Config{Broker: l.Config, Ledger: s, DeadLetters: l.dead, Now: now}
		idle, err := consumer.New(cfg)
		if err != nil {
			l.t.Fatal(err)
		}
		if idle.Healthy(ctx) == nil {
			l.t.Error("ready before it runs")
		}
		w := l.start(func(c *consumer.Config) { c.Ledger, c.Now = s, now })
		devtest.Eventually(l.t, timeout, func() bool { return w.Healthy(ctx) == nil }, "ready")
		s.fail(sick)
		if err := w.Healthy(ctx); !errors.Is(err, sick) {
			l.t.Errorf("the database is away: %v", err)
		}
		l.send(l.events(1))
		l.settled()
		if err := w.Healthy(ctx); err != nil {
			l.t.Errorf("a write has just succeeded: %v", err)
		}
		s.fail(nil)
		devtest.Eventually(l.t, timeout, func() bool { return w.Healthy(ctx) == nil }, "ready again")
		l.Freeze()
		devtest.Eventually(l.t, timeout, func() bool { skip(time.Second); return w.Healthy(ctx) != nil }, "not ready while no broker answers")
		l.Thaw()
		devtest.Eventually(l.t, timeout, func() bool { return w.Healthy(ctx) == nil }, "ready when the broker answers again")
	})
}

// A group that does not come to rest, because a member holds up its rebalance, is told; the partitions of a writer that has gone would wait as well.
func TestNotHealthyWhileTheGroupDoesNotSettle(t *testing.T) {
	each(t, func(l *lab) {
		ctx := brokertest.Context(l.t)
		var ahead atomic.Int64
		w := l.start(func(c *consumer.Config) {
			c.SessionTimeout = 10 * time.Second
			c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		})
		devtest.Eventually(l.t, timeout, func() bool { return w.Healthy(ctx) == nil }, "ready")
		opts, err := broker.ClientOpts(l.Config)
		if err != nil {
			l.t.Fatal(err)
		}
		// It has a record in hand, and holds its partitions until it is done with it.
		holds, err := kgo.NewClient(append(opts, kgo.ConsumerGroup(l.Config.Group), kgo.ConsumeTopics(broker.Orders), kgo.Balancers(kgo.CooperativeStickyBalancer()),
			kgo.BlockRebalanceOnPoll(), kgo.DisableAutoCommit(), kgo.SessionTimeout(longSession), kgo.RebalanceTimeout(longSession))...)
		if err != nil {
			l.t.Fatal(err)
		}
		defer holds.CloseAllowingRebalance()
		devtest.Eventually(l.t, timeout, func() bool {
			l.send(l.events(20))
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			if holds.PollFetches(ctx).NumRecords() > 0 {
				return true
			}
			holds.AllowRebalance()
			return false
		}, "the other member has records")
		l.start(func(c *consumer.Config) { c.SessionTimeout = 10 * time.Second })
		unsettled := func() bool {
			ahead.Add(int64(time.Second))
			err := w.Healthy(ctx)
			return err != nil && strings.Contains(err.Error(), "to settle")
		}
		devtest.Eventually(l.t, timeout, unsettled, "not ready while the group rebalances without an end")
		holds.AllowRebalance()
		devtest.Eventually(l.t, timeout, func() bool { return w.Healthy(ctx) == nil }, "ready when the group has settled")
	})
}

// pinged is a ledger whose Ping can fail.
type pinged struct {
	*seam
	pingMu sync.Mutex
	err    error
}

func (p *pinged) fail(err error) {
	p.pingMu.Lock()
	defer p.pingMu.Unlock()
	p.err = err
}

func (p *pinged) Ping(context.Context) error {
	p.pingMu.Lock()
	defer p.pingMu.Unlock()
	return p.err
}
