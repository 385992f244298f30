package broker_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

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
