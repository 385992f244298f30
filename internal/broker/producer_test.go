package broker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"flashgate/internal/broker"
	"flashgate/internal/broker/brokertest"
	"flashgate/internal/devstack"
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

func TestPublish(t *testing.T) {
	brokertest.Each(t, func(t *testing.T, s *brokertest.Server) {
		registry := prometheus.NewRegistry()
		p := newProducer(t, s, func(c *broker.ProducerConfig) { c.Registerer = registry })
		f := newFates(t)
		var all []sale.Event
		for shard := range 13 {
			for call := range 5 {
				batch := events(7, shard, 20)
				all = append(all, batch...)
				p.Publish(time.Now().Add(brokertest.Timeout), batch, f.done(fmt.Sprint(shard, " ", call)))
			}
		}
		p.Publish(time.Now().Add(brokertest.Timeout), nil, f.done("no events"))
		for name, err := range f.wait(13*5 + 1) {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		ids, partitions := orders(t, s)
		if len(ids) != len(all) || len(count(ids)) != len(all) {
			t.Errorf("%d records of %d orders, want %d of each", len(ids), len(count(ids)), len(all))
		}
		if len(partitions) != 13 {
			t.Errorf("%d keys, want 13", len(partitions))
		}
		// Each shard's records are in the order of publication: the times within a call rise.
		position := map[sale.OrderID]int{}
		for i, id := range ids {
			position[id] = i
		}
		for i := 1; i < len(all); i++ {
			if all[i].Shard == all[i-1].Shard && position[all[i].OrderID] < position[all[i-1].OrderID] {
				t.Fatalf("record %d of shard %d was overtaken", i, all[i].Shard)
			}
		}
		want := fmt.Sprintf("# HELP flashgate_broker_records_total Records handed to the producer, by what was reported of them. A record reported as failed may have arrived.\n"+
			"# TYPE flashgate_broker_records_total counter\n"+
			"flashgate_broker_records_total{result=\"acknowledged\"} %d\n"+
			"flashgate_broker_records_total{result=\"closed\"} 0\nflashgate_broker_records_total{result=\"deadline\"} 0\n"+
			"flashgate_broker_records_total{result=\"failed\"} 0\nflashgate_broker_records_total{result=\"full\"} 0\n", len(all))
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "flashgate_broker_records_total"); err != nil {
			t.Error(err)
		}
	})
}

// The topic is missing: every call is told so in time, nothing stays buffered, and the next call after the topic's creation works.
func TestPublishMissingTopic(t *testing.T) {
	brokertest.EachBare(t, func(t *testing.T, s *brokertest.Server) {
		p := newProducer(t, s)
		for round := range 2 {
			f := newFates(t)
			for i := range 500 {
				p.Publish(time.Now().Add(300*time.Millisecond), events(7, i%13, 1), f.done(fmt.Sprint(i)))
			}
			for name, err := range f.wait(500) {
				if err == nil {
					t.Fatalf("round %d, call %s: acknowledged without a topic", round, name)
				}
			}
			waitEmpty(t, p)
		}
		s.CreateTopics(t)
		if err := publish(t, p, events(7, 1, 3)); err != nil {
			t.Errorf("after the topic was created: %v", err)
		}
	})
}

// The topic is deleted and made anew under a running producer.
func TestPublishTopicMadeAnew(t *testing.T) {
	brokertest.Each(t, func(t *testing.T, s *brokertest.Server) {
		p := newProducer(t, s)
		if err := publish(t, p, events(7, 1, 3)); err != nil {
			t.Fatal(err)
		}
		s.DeleteTopics(t)
		f := newFates(t)
		p.Publish(time.Now().Add(300*time.Millisecond), events(7, 1, 1), f.done("gone"))
		if f.wait(1)["gone"] == nil {
			t.Error("acknowledged without a topic")
		}
		s.CreateTopics(t)
		again := events(7, 1, 3)
		devtest.Eventually(t, brokertest.Timeout, func() bool {
			f := newFates(t)
			p.Publish(time.Now().Add(2*time.Second), again, f.done("again"))
			return f.wait(1)["again"] == nil
		}, "published to the new topic")
		ids, _ := orders(t, s)
		for _, e := range again {
			if count(ids)[e.OrderID] == 0 {
				t.Errorf("order %s was acknowledged and is not there", e.OrderID)
			}
		}
	})
}

// The broker stops answering: each call is told so by its deadline, and when it wakes up the next call works.
func TestPublishFrozenBroker(t *testing.T) {
	brokertest.Each(t, func(t *testing.T, s *brokertest.Server) {
		p := newProducer(t, s)
		if err := publish(t, p, events(7, 0, 1)); err != nil {
			t.Fatal(err)
		}
		freeze(t, s, p)
		f := newFates(t)
		for i := range 200 {
			p.Publish(time.Now().Add(300*time.Millisecond), events(7, i%13, 2), f.done(fmt.Sprint(i)))
		}
		for name, err := range f.wait(200) {
			if !errors.Is(err, broker.ErrDeadline) {
				t.Fatalf("call %s: %v, want ErrDeadline", name, err)
			}
		}
		waitEmpty(t, p)
		s.Thaw()
		last := events(7, 1, 5)
		if err := publish(t, p, last); err != nil {
			t.Fatalf("after the broker woke up: %v", err)
		}
		ids, _ := orders(t, s)
		there := count(ids)
		for _, e := range last {
			if there[e.OrderID] == 0 {
				t.Errorf("order %s was acknowledged and is not there", e.OrderID)
			}
		}
	})
}

// traffic counts produce requests and the answers to them.
type traffic struct{ requests, answers atomic.Int64 }

func (c *traffic) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if key == int16(kmsg.Produce) && err == nil {
		c.requests.Add(1)
	}
}

func (c *traffic) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if key == int16(kmsg.Produce) && err == nil {
		c.answers.Add(1)
	}
}

// A record that waits behind another with a later deadline is not sent after its own deadline, and the other one still arrives.
func TestPublishDeadlinesOutOfOrder(t *testing.T) {
	brokertest.Each(t, func(t *testing.T, s *brokertest.Server) {
		seen := &traffic{}
		p, err := broker.NewWatchedProducer(broker.ProducerConfig{Config: s.Config}, seen)
		if err != nil {
			t.Fatal(err)
		}
		closeAfter(t, p)
		if err := publish(t, p, events(7, 1, 1)); err != nil {
			t.Fatal(err)
		}
		s.Freeze()
		long, short := newFates(t), newFates(t)
		var patient []sale.OrderID
		wait := func() {
			batch := events(7, 1, 1)
			p.Publish(time.Now().Add(brokertest.Timeout), batch, long.done(batch[0].OrderID.String()))
			patient = append(patient, batch[0].OrderID)
		}
		// Five requests may be in flight to one broker. What comes after them waits in the client, in one batch.
		for seen.requests.Load()-seen.answers.Load() < 5 {
			before := seen.requests.Load()
			wait()
			devtest.Eventually(t, brokertest.Timeout, func() bool { return seen.requests.Load() > before }, "the next request is written")
		}
		for range 10 {
			wait()
		}
		hasty := events(7, 1, 1)
		p.Publish(time.Now().Add(200*time.Millisecond), hasty, short.done("hasty"))
		if err := short.wait(1)["hasty"]; !errors.Is(err, broker.ErrDeadline) {
			t.Fatalf("the hasty call: %v, want ErrDeadline", err)
		}
		s.Thaw()
		for name, err := range long.wait(len(patient)) {
			if err != nil {
				t.Errorf("patient call %s: %v", name, err)
			}
		}
		ids, _ := orders(t, s)
		times := count(ids)
		for _, id := range patient {
			if times[id] == 0 {
				t.Errorf("order %s was acknowledged and is not there", id)
			}
		}
		if times[hasty[0].OrderID] != 0 {
			t.Error("a record was sent after its deadline")
		}
	})
}

// The broker dies and comes back on the same port.
func TestPublishDeadBroker(t *testing.T) {
	ctx := brokertest.Context(t)
	kafka, err := devstack.StartKafka(ctx, devstack.KafkaConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := kafka.Stop(); err != nil {
			t.Error(err)
		}
	})
	s := &brokertest.Server{Config: broker.Config{Brokers: kafka.Brokers(), Partitions: brokertest.Partitions}}
	s.CreateTopics(t)
	p := newProducer(t, s)
	if err := publish(t, p, events(7, 1, 1)); err != nil {
		t.Fatal(err)
	}
	if err := kafka.Kill(); err != nil {
		t.Fatal(err)
	}
	f := newFates(t)
	for i := range 100 {
		p.Publish(time.Now().Add(300*time.Millisecond), events(7, i%13, 1), f.done(fmt.Sprint(i)))
	}
	for name, err := range f.wait(100) {
		if err == nil {
			t.Fatalf("call %s: acknowledged by a dead broker", name)
		}
	}
	waitEmpty(t, p)
	if err := kafka.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if err := publish(t, p, events(7, 1, 1)); err != nil {
		t.Errorf("after the broker came back: %v", err)
	}
}

func TestPublishFull(t *testing.T) {
	brokertest.Each(t, func(t *testing.T, s *brokertest.Server) {
		p := newProducer(t, s, func(c *broker.ProducerConfig) { c.MaxRecords = 10 })
		if err := publish(t, p, events(7, 1, 11)); !errors.Is(err, broker.ErrFull) {
			t.Errorf("a call larger than the buffer: %v, want ErrFull", err)
		}
		freeze(t, s, p)
		f := newFates(t)
		p.Publish(time.Now().Add(brokertest.Timeout), events(7, 1, 10), f.done("first"))
		full := newFates(t)
		for i := range 1000 {
			p.Publish(time.Now().Add(brokertest.Timeout), events(7, 1, 1), full.done(fmt.Sprint(i)))
		}
		for name, err := range full.wait(1000) {
			if !errors.Is(err, broker.ErrFull) {
				t.Fatalf("call %s into a full buffer: %v, want ErrFull", name, err)
			}
		}
		s.Thaw()
		if err := f.wait(1)["first"]; err != nil {
			t.Errorf("the call that filled the buffer: %v", err)
		}
		if err := publish(t, p, events(7, 1, 10)); err != nil {
			t.Errorf("after the buffer was empty again: %v", err)
		}
	})
}

func TestPublishLate(t *testing.T) {
	brokertest.Each(t, func(t *testing.T, s *brokertest.Server) {
		p := newProducer(t, s)
		f := newFates(t)
		p.Publish(time.Now(), events(7, 1, 1), f.done("late"))
		if err := f.wait(1)["late"]; !errors.Is(err, broker.ErrDeadline) {
			t.Errorf("%v, want ErrDeadline", err)
		}
		if err := publish(t, p, events(7, 1, 1)); err != nil {
			t.Fatal(err)
		}
		if ids, _ := orders(t, s); len(ids) != 1 {
			t.Errorf("%d records, want the second call's alone", len(ids))
		}
	})
}

// Close delivers what is buffered.
func TestCloseDelivers(t *testing.T) {
	brokertest.Each(t, func(t *testing.T, s *brokertest.Server) {
		p := newProducer(t, s)
		f := newFates(t)
		for i := range 100 {
			p.Publish(time.Now().Add(brokertest.Timeout), events(7, i%13, 1), f.done(fmt.Sprint(i)))
		}
		if err := p.Close(brokertest.Context(t)); err != nil {
			t.Fatal(err)
		}
		for name, err := range f.wait(100) {
			if err != nil {
				t.Errorf("call %s: %v", name, err)
			}
		}
		if err := publish(t, p, events(7, 1, 1)); !errors.Is(err, broker.ErrClosed) {
			t.Errorf("a call after Close: %v, want ErrClosed", err)
		}
		if ids, _ := orders(t, s); len(ids) != 100 {
			t.Errorf("%d records, want 100", len(ids))
		}
	})
}

// Close fails what cannot be delivered in its time; done has been called for every call when it returns.
func TestCloseGivesUp(t *testing.T) {
	brokertest.Each(t, func(t *testing.T, s *brokertest.Server) {
		cfg := broker.ProducerConfig{Config: s.Config}
		p, err := broker.NewProducer(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := publish(t, p, events(7, 1, 1)); err != nil {
			t.Fatal(err)
		}
		freeze(t, s, p)
		f := newFates(t)
		for i := range 100 {
			p.Publish(time.Now().Add(brokertest.Timeout), events(7, i%13, 1), f.done(fmt.Sprint(i)))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.Close(ctx); err == nil {
			t.Error("Close says that everything was delivered")
		}
		f.mu.Lock()
		reported := len(f.of)
		f.mu.Unlock()
		if reported != 100 {
			t.Errorf("%d of 100 calls were reported when Close returned", reported)
		}
		for name, err := range f.wait(100) {
			if !errors.Is(err, broker.ErrClosed) {
				t.Errorf("call %s: %v, want ErrClosed", name, err)
			}
		}
		if err := p.Close(t.Context()); err != nil {
			t.Errorf("closed again: %v", err)
		}
	})
}

// A broker that refuses a producer id makes franz-go fail everything for ever; the producer gets over it.
func TestPublishAfterProducerIDRefused(t *testing.T) {
	s := brokertest.NewFake(t)
	s.CreateTopics(t)
	refusal := s.Fake.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.ClusterAuthorizationFailed, TopLevel: true, Count: -1})
	p := newProducer(t, s)
	if err := publish(t, p, events(7, 1, 1)); !errors.Is(err, kerr.ClusterAuthorizationFailed) {
		t.Fatalf("%v, want the broker's refusal", err)
	}
	refusal.Remove()
	devtest.Eventually(t, brokertest.Timeout, func() bool { return publish(t, p, events(7, 1, 1)) == nil }, "published after the refusal ended")
}

// Whatever the broker answers, each call is reported once, and what was acknowledged is there.
func TestPublishUnderFaults(t *testing.T) {
	s := brokertest.NewFake(t, devstack.KfakeConfig{Brokers: 3})
	s.CreateTopics(t)
	p := newProducer(t, s)
	cluster := s.Fake.Cluster()
	faults := []*kerr.Error{kerr.NotLeaderForPartition, kerr.RequestTimedOut, kerr.UnknownTopicOrPartition, kerr.NotEnoughReplicas,
		kerr.OutOfOrderSequenceNumber, kerr.InvalidProducerEpoch, kerr.UnknownServerError, kerr.KafkaStorageError}
	f := newFates(t)
	calls := map[string][]sale.Event{}
	var results map[string]error
	for round := range 24 {
		cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: faults[round%len(faults)], Count: 1 + round%3})
		if round%5 == 4 {
			cluster.ShufflePartitionLeaders()
		}
		for i := range 10 {
			name := fmt.Sprint(round, " ", i)
			calls[name] = events(7, i, 1+i%4)
			p.Publish(time.Now().Add(time.Duration(50+i*100)*time.Millisecond), calls[name], f.done(name))
		}
		results = f.wait(10)
	}
	ids, _ := orders(t, s)
	there := count(ids)
	acknowledged := 0
	for name, err := range results {
		if err != nil {
			continue
		}
		acknowledged++
		for _, e := range calls[name] {
			if there[e.OrderID] == 0 {
				t.Errorf("call %s: order %s was acknowledged and is not there", name, e.OrderID)
			}
		}
	}
	if acknowledged == 0 {
		t.Error("nothing was acknowledged at all")
	}
}
