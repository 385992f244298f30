package broker_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"flashgate/internal/broker"
	"flashgate/internal/broker/brokertest"
	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
)

// orderEvents makes n events of n orders, with ids from first on.
func orderEvents(first int64, n int) []broker.OrderEvent {
	out := make([]broker.OrderEvent, n)
	for i := range out {
		out[i] = paidEvent()
		out[i].ID, out[i].OrderID = first+int64(i), sale.NewOrderID(1001)
		out[i].Key = out[i].OrderID.String()
	}
	return out
}

// told is what was reported of some events.
type told struct {
	acked []int64
	err   error // the first
	twice bool  // something was reported again
}

// tell publishes events, each by itself, and reports when all have been reported.
func tell(p *broker.Producer, deadline time.Time, events []broker.OrderEvent) <-chan told {
	ch := make(chan told, 1)
	var mu sync.Mutex
	var all told
	left := len(events)
	seen := make(map[int64]bool)
	for _, e := range events {
		p.PublishOrderEvent(deadline, e, func(err error) {
			mu.Lock()
			defer mu.Unlock()
			left--
			all.twice = all.twice || seen[e.ID]
			seen[e.ID] = true
			switch {
			case err == nil:
				all.acked = append(all.acked, e.ID)
			case all.err == nil:
				all.err = err
			}
			if left == 0 {
				slices.Sort(all.acked)
				ch <- all
			}
		})
	}
	return ch
}

func awaitTold(t *testing.T, ch <-chan told) told {
	t.Helper()
	select {
	case r := <-ch:
		if r.twice {
			t.Error("an event was reported twice")
		}
		return r
	case <-time.After(brokertest.Timeout):
		t.Fatal("some event was never reported")
		return told{}
	}
}

func publishEvents(t *testing.T, p *broker.Producer, events []broker.OrderEvent) told {
	t.Helper()
	return awaitTold(t, tell(p, time.Now().Add(brokertest.Timeout), events))
}

// inTopic returns the events in their topic, in the order of each partition.
func inTopic(t *testing.T, s *brokertest.Server) []broker.OrderEvent {
	t.Helper()
	var all []broker.OrderEvent
	for _, r := range s.Read(t, broker.OrderEvents) {
		e, err := broker.DecodeOrderEvent(r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func TestPublishOrderEvent(t *testing.T) {
	brokertest.Each(t, func(t *testing.T, s *brokertest.Server) {
		p := newProducer(t, s)
		events := append(orderEvents(1, 499), increaseEvent())
		events[499].ID = 500
		if r := publishEvents(t, p, events); r.err != nil || len(r.acked) != 500 || r.acked[0] != 1 || r.acked[499] != 500 {
			t.Fatalf("%d acknowledged, %v", len(r.acked), r.err)
		}
		there := map[int64]broker.OrderEvent{}
		for _, e := range inTopic(t, s) {
			there[e.ID] = e
		}
		for _, e := range events {
			if there[e.ID] != e {
				t.Fatalf("read %+v, want %+v", there[e.ID], e)
			}
		}
	})
}

// One call after another keeps the order of a key.
func TestPublishOrderEventKeepsTheOrderOfAKey(t *testing.T) {
	brokertest.Each(t, func(t *testing.T, s *brokertest.Server) {
		p := newProducer(t, s)
		id := sale.NewOrderID(1001)
		for i, kind := range []string{broker.OrderCreated, broker.OrderExpired, broker.OrderRefundDue} {
			e := paidEvent()
			e.ID, e.Type, e.OrderID, e.Key = int64(i+1), kind, id, id.String()
			e.Status = []string{"PENDING", "EXPIRED", "EXPIRED"}[i]
			if r := publishEvents(t, p, []broker.OrderEvent{e}); r.err != nil {
				t.Fatal(r.err)
			}
		}
		for i, e := range inTopic(t, s) {
			if e.ID != int64(i+1) {
				t.Errorf("event %d is in place %d", e.ID, i+1)
			}
		}
	})
}

// A frozen broker: the call is told so at its deadline, nothing is sent afterwards, nothing stays buffered.
func TestPublishOrderEventFrozenBroker(t *testing.T) {
	brokertest.Each(t, func(t *testing.T, s *brokertest.Server) {
		p := newProducer(t, s)
		if r := publishEvents(t, p, orderEvents(1, 10)); r.err != nil {
			t.Fatal(r.err)
		}
		freeze(t, s, p)
		if r := awaitTold(t, tell(p, time.Now().Add(300*time.Millisecond), orderEvents(11, 200))); !errors.Is(r.err, broker.ErrDeadline) || len(r.acked) != 0 {
			t.Errorf("%d acknowledged, %v, want ErrDeadline", len(r.acked), r.err)
		}
		waitEmpty(t, p)
		s.Thaw()
		if r := publishEvents(t, p, orderEvents(211, 10)); r.err != nil {
			t.Errorf("after the broker woke up: %v", r.err)
		}
	})
}

// A deadline that has passed is kept: whoever slept since he set it sends nothing.
func TestPublishOrderEventTooLate(t *testing.T) {
	brokertest.Each(t, func(t *testing.T, s *brokertest.Server) {
		p := newProducer(t, s)
		if r := awaitTold(t, tell(p, time.Now().Add(-time.Nanosecond), orderEvents(1, 50))); !errors.Is(r.err, broker.ErrDeadline) || len(r.acked) != 0 {
			t.Errorf("%d acknowledged, %v, want ErrDeadline", len(r.acked), r.err)
		}
		if r := publishEvents(t, p, orderEvents(51, 1)); r.err != nil {
			t.Fatal(r.err)
		}
		if there := inTopic(t, s); len(there) != 1 || there[0].ID != 51 {
			t.Errorf("in the topic: %+v", there)
		}
	})
}

// Some partitions refuse: the events of the others are acknowledged, and each that was is there.
func TestPublishOrderEventInPart(t *testing.T) {
	s := brokertest.NewFake(t)
	s.CreateTopics(t)
	p := newProducer(t, s)
	events := orderEvents(1, 100)
	if r := publishEvents(t, p, events); r.err != nil {
		t.Fatal(r.err)
	}
	bad := int32(-1)
	for _, r := range s.Read(t, broker.OrderEvents) {
		bad = r.Partition
	}
	s.Fake.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: broker.OrderEvents, Partitions: []int32{bad}, Err: kerr.PolicyViolation, Count: -1})
	for i := range events {
		events[i].ID += 100
	}
	r := publishEvents(t, p, events)
	if !errors.Is(r.err, kerr.PolicyViolation) || len(r.acked) == 0 || len(r.acked) == len(events) {
		t.Fatalf("%d of %d acknowledged, %v", len(r.acked), len(events), r.err)
	}
	there := map[int64]int{}
	for _, e := range inTopic(t, s) {
		there[e.ID]++
	}
	for _, id := range r.acked {
		if there[id] != 1 {
			t.Errorf("event %d was acknowledged and is there %d times", id, there[id])
		}
	}
}

// What is too much for the buffer is refused at once, and only that.
func TestPublishOrderEventFull(t *testing.T) {
	brokertest.Each(t, func(t *testing.T, s *brokertest.Server) {
		p := newProducer(t, s, func(c *broker.ProducerConfig) { c.MaxRecords = 10 })
		freeze(t, s, p)
		ch := tell(p, time.Now().Add(brokertest.Timeout), orderEvents(1, 25))
		if records, _ := p.Buffered(); records != 10 {
			t.Errorf("%d records buffered, want 10", records)
		}
		s.Thaw()
		if r := awaitTold(t, ch); !errors.Is(r.err, broker.ErrFull) || len(r.acked) != 10 {
			t.Errorf("%d acknowledged, %v, want 10 and ErrFull", len(r.acked), r.err)
		}
	})
}

// Close waits for what is under way, and its callback.
func TestPublishOrderEventClose(t *testing.T) {
	brokertest.Each(t, func(t *testing.T, s *brokertest.Server) {
		p, err := broker.NewProducer(broker.ProducerConfig{Config: s.Config})
		if err != nil {
			t.Fatal(err)
		}
		var chs []<-chan told
		for i := range 10 {
			chs = append(chs, tell(p, time.Now().Add(brokertest.Timeout), orderEvents(int64(i*100+1), 100)))
		}
		if err := p.Close(brokertest.Context(t)); err != nil {
			t.Fatal(err)
		}
		for i, ch := range chs {
			select {
			case r := <-ch:
				if r.err != nil || len(r.acked) != 100 {
					t.Errorf("call %d: %d acknowledged, %v", i, len(r.acked), r.err)
				}
			default:
				t.Errorf("call %d was not reported when Close returned", i)
			}
		}
		if r := publishEvents(t, p, orderEvents(1, 3)); !errors.Is(r.err, broker.ErrClosed) {
			t.Errorf("after Close: %v", r.err)
		}
	})
}

// Whatever the broker answers, each call is reported once, and what was acknowledged is there.
func TestPublishOrderEventUnderFaults(t *testing.T) {
	s := brokertest.NewFake(t)
	s.CreateTopics(t)
	p := newProducer(t, s)
	faults := []*kerr.Error{kerr.NotLeaderForPartition, kerr.RequestTimedOut, kerr.NotEnoughReplicas, kerr.InvalidProducerEpoch, kerr.UnknownServerError}
	acked := map[int64]bool{}
	for round := range 15 {
		s.Fake.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: faults[round%len(faults)], Count: 1 + round%3})
		r := awaitTold(t, tell(p, time.Now().Add(time.Second), orderEvents(int64(round*40+1), 40)))
		if (r.err == nil) != (len(r.acked) == 40) {
			t.Errorf("round %d: %d acknowledged, %v", round, len(r.acked), r.err)
		}
		for _, id := range r.acked {
			acked[id] = true
		}
	}
	there := map[int64]bool{}
	for _, e := range inTopic(t, s) {
		there[e.ID] = true
	}
	for id := range acked {
		if !there[id] {
			t.Errorf("event %d was acknowledged and is not there", id)
		}
	}
	if len(acked) == 0 {
		t.Error("nothing was acknowledged at all")
	}
	devtest.Eventually(t, brokertest.Timeout, func() bool { return publishEvents(t, p, orderEvents(1001, 1)).err == nil }, "published after the faults")
}
