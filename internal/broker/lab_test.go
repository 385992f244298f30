package broker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"flashgate/internal/broker"
	"flashgate/internal/broker/brokertest"
	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
)

// newProducer is closed with the test.
func newProducer(t *testing.T, s *brokertest.Server, change ...func(*broker.ProducerConfig)) *broker.Producer {
	t.Helper()
	cfg := broker.ProducerConfig{Config: s.Config}
	for _, f := range change {
		f(&cfg)
	}
	p, err := broker.NewProducer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, p)
	return p
}

func closeAfter(t *testing.T, p *broker.Producer) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), brokertest.Timeout)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
		waitEmpty(t, p)
	})
}

func waitEmpty(t *testing.T, p *broker.Producer) {
	t.Helper()
	devtest.Eventually(t, brokertest.Timeout, func() bool { records, bytes := p.Buffered(); return records == 0 && bytes == 0 }, "nothing buffered")
}

// freeze freezes the broker and waits until it has: a process does not stop all at once.
func freeze(t *testing.T, s *brokertest.Server, p *broker.Producer) {
	t.Helper()
	s.Freeze()
	devtest.Eventually(t, brokertest.Timeout, func() bool {
		f := newFates(t)
		p.Publish(time.Now().Add(100*time.Millisecond), events(frozenItem, 0, 1), f.done("probe"))
		return errors.Is(f.wait(1)["probe"], broker.ErrDeadline)
	}, "the broker is frozen")
	waitEmpty(t, p)
}

// frozenItem is the item of freeze's own events.
const frozenItem = 999

// events makes n reservations of one shard of an item.
func events(item int64, shard, n int) []sale.Event {
	out := make([]sale.Event, n)
	for i := range out {
		out[i] = sale.Event{
			OrderID: sale.NewOrderID(item), ItemID: item, UserID: fmt.Sprintf("u%d", i), Quantity: 1, Shard: shard, Epoch: 1,
			ReservedAt: time.UnixMilli(1_800_000_000_000 + int64(i)).UTC(), Price: "10", Currency: "EUR",
		}
	}
	return out
}

// fates collects what became of calls, and fails the test when one is reported twice.
type fates struct {
	t  *testing.T
	mu sync.Mutex
	of map[string]error
	ch chan struct{}
}

func newFates(t *testing.T) *fates {
	return &fates{t: t, of: map[string]error{}, ch: make(chan struct{}, 100_000)}
}

func (f *fates) done(name string) func(error) {
	return func(err error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if _, twice := f.of[name]; twice {
			f.t.Errorf("%s: done twice", name)
		}
		f.of[name] = err
		f.ch <- struct{}{}
	}
}

// wait returns the fates of n calls.
func (f *fates) wait(n int) map[string]error {
	f.t.Helper()
	timeout := time.NewTimer(brokertest.Timeout)
	defer timeout.Stop()
	for range n {
		select {
		case <-f.ch:
		case <-timeout.C:
			f.t.Fatalf("%d of %d calls were never reported", n-len(f.of), n)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.of
}

// publish publishes and waits.
func publish(t *testing.T, p *broker.Producer, events []sale.Event) error {
	t.Helper()
	f := newFates(t)
	p.Publish(time.Now().Add(brokertest.Timeout), events, f.done("call"))
	return f.wait(1)["call"]
}

// orders returns the ids in the orders topic, in the order of each partition, with the partition of each key.
func orders(t *testing.T, s *brokertest.Server) (ids []sale.OrderID, partitions map[string]int32) {
	t.Helper()
	partitions = map[string]int32{}
	for _, r := range s.Read(t, broker.Orders) {
		event, err := broker.Decode(r)
		if err != nil {
			t.Fatal(err)
		}
		if event.ItemID == frozenItem {
			continue
		}
		ids = append(ids, event.OrderID)
		if old, ok := partitions[string(r.Key)]; ok && old != r.Partition {
			t.Errorf("key %s is in partitions %d and %d", r.Key, old, r.Partition)
		}
		partitions[string(r.Key)] = r.Partition
	}
	return ids, partitions
}

func count(ids []sale.OrderID) map[sale.OrderID]int {
	times := map[sale.OrderID]int{}
	for _, id := range ids {
		times[id]++
	}
	return times
}
