package broker_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"flashgate/internal/broker"
	"flashgate/internal/broker/brokertest"
	"flashgate/internal/devstack/devtest"
)

func TestEnsureTopics(t *testing.T) {
	brokertest.EachBare(t, func(t *testing.T, s *brokertest.Server) {
		ctx := brokertest.Context(t)
		admin := s.Admin(t)
		if err := admin.Ping(ctx); err != nil {
			t.Fatal(err)
		}
		if missing, err := admin.TopicsReady(ctx); err != nil || !slices.Equal(missing, broker.Topics()) {
			t.Fatalf("missing %v, %v; want all", missing, err)
		}
		// Somebody made one of them by hand, too small.
		if _, err := kadm.NewClient(s.Client(t)).CreateTopic(ctx, 2, 1, nil, broker.OrderEvents); err != nil {
			t.Fatal(err)
		}
		states, err := broker.EnsureTopics(ctx, s.Config)
		if err != nil {
			t.Fatal(err)
		}
		want := []broker.TopicState{
			{Name: broker.Orders, Created: true, Partitions: brokertest.Partitions},
			{Name: broker.DeadLetters, Created: true, Partitions: brokertest.Partitions},
			{Name: broker.OrderEvents, Partitions: 2, TooFew: true},
		}
		if !slices.Equal(states, want) {
			t.Errorf("%+v, want %+v", states, want)
		}
		devtest.Eventually(t, brokertest.Timeout, func() bool {
			missing, err := admin.TopicsReady(ctx) // remembers its last answer for a moment
			return err == nil && len(missing) == 0
		}, "no topic missing")
		states, err = admin.EnsureTopics(ctx)
		if err != nil || slices.ContainsFunc(states, func(s broker.TopicState) bool { return s.Created }) {
			t.Errorf("a second time: %+v, %v", states, err)
		}
	})
}

func TestEnsureTopicsImpossible(t *testing.T) {
	brokertest.EachBare(t, func(t *testing.T, s *brokertest.Server) {
		if s.Fake != nil {
			s = brokertest.NewFake(t)
		}
		cfg := s.Config
		cfg.Replication = 3 // of one broker
		if _, err := broker.EnsureTopics(brokertest.Context(t), cfg); !errors.Is(err, kerr.InvalidReplicationFactor) {
			t.Errorf("%v, want the broker's refusal", err)
		}
	})
}

func TestAdminWithoutBroker(t *testing.T) {
	s := brokertest.NewFake(t)
	if err := s.Fake.Stop(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	admin := s.Admin(t)
	if err := admin.Ping(ctx); err == nil {
		t.Error("nobody answered the ping, and no error")
	}
	if _, err := admin.TopicsReady(ctx); err == nil {
		t.Error("nobody told the topics, and no error")
	}
	if _, err := admin.End(ctx, broker.Orders); err == nil {
		t.Error("nobody told the ends, and no error")
	}
	if _, err := admin.Passed(ctx, "g", broker.Ends{Topic: broker.Orders, Offsets: map[int32]int64{0: 1}}); err == nil {
		t.Error("nobody told the offsets, and no error")
	}
}

func TestDrain(t *testing.T) {
	brokertest.Each(t, func(t *testing.T, s *brokertest.Server) {
		ctx := brokertest.Context(t)
		admin := s.Admin(t)
		group := s.Config.Group
		passed := func(ends broker.Ends, want bool, when string) {
			t.Helper()
			var got bool
			var err error
			// A new broker has no coordinator for the group at first, and says so.
			devtest.Eventually(t, brokertest.Timeout, func() bool { got, err = admin.Passed(ctx, group, ends); return err == nil }, "%s: an answer", when)
			if got != want {
				t.Errorf("%s: passed %v, want %v", when, got, want)
			}
		}
		commit := func(partition int32, offset int64) {
			t.Helper()
			var offsets kadm.Offsets
			offsets.AddOffset(broker.Orders, partition, offset, -1)
			if err := kadm.NewClient(s.Client(t)).CommitAllOffsets(ctx, group, offsets); err != nil {
				t.Fatal(err)
			}
		}

		empty, err := admin.End(ctx, broker.Orders)
		if err != nil || len(empty.Offsets) != 0 {
			t.Fatalf("ends of an empty topic: %+v, %v", empty, err)
		}
		passed(empty, true, "an empty topic, by a group that never was")

		client := s.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		write := func(partition int32, n int) {
			t.Helper()
			for range n {
				if err := client.ProduceSync(ctx, &kgo.Record{Topic: broker.Orders, Partition: partition, Value: []byte("x")}).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
		}
		write(0, 3)
		write(2, 2)
		ends, err := admin.End(ctx, broker.Orders)
		if err != nil || len(ends.Offsets) != 2 || ends.Offsets[0] != 3 || ends.Offsets[2] != 2 {
			t.Fatalf("ends %+v, %v", ends, err)
		}
		passed(ends, false, "a group without commits")
		commit(0, 3)
		passed(ends, false, "one partition of two")
		commit(2, 1)
		passed(ends, false, "one record short")
		commit(2, 2)
		passed(ends, true, "all of it")
		write(0, 1)
		lag, err := admin.Lag(ctx, group, broker.Orders)
		if want := map[int32]int64{0: 1, 1: 0, 2: 0, 3: 0}; err != nil || !maps.Equal(lag, want) {
			t.Errorf("lag %v, %v; want %v", lag, err, want)
		}
		lag, err = admin.Lag(ctx, devtest.Name("nobody"), broker.Orders)
		if want := map[int32]int64{0: 4, 1: 0, 2: 2, 3: 0}; err != nil || !maps.Equal(lag, want) {
			t.Errorf("lag of a group without commits %v, %v; want %v", lag, err, want)
		}
		passed(ends, true, "what was written afterwards does not matter")
		commit(0, 2)
		passed(ends, false, "set back")

		// Retention deletes what the group has not read: nothing of it will ever come.
		var upTo kadm.Offsets
		upTo.AddOffset(broker.Orders, 0, 4, -1)
		if responses, err := kadm.NewClient(s.Client(t)).DeleteRecords(ctx, upTo); err != nil || responses.Error() != nil {
			t.Fatal(err, responses.Error())
		}
		passed(ends, true, "the records are gone")
		if after, err := admin.End(ctx, broker.Orders); err != nil || len(after.Offsets) != 1 || after.Offsets[2] != 2 {
			t.Errorf("ends after deletion: %+v, %v", after, err)
		}
		if _, err := admin.End(ctx, "no-such-topic"); err == nil {
			t.Error("a missing topic has ends")
		}
	})
}

// A partition whose leader cannot be asked makes End fail; leaving it out would end a drain too soon.
func TestEndIncomplete(t *testing.T) {
	s := brokertest.NewFake(t)
	s.CreateTopics(t)
	ctx := brokertest.Context(t)
	fault := s.Fake.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Partitions: []int32{1}, Err: kerr.UnknownServerError, Count: -1})
	if ends, err := s.Admin(t).End(ctx, broker.Orders); err == nil {
		t.Errorf("ends %+v of a partition that did not answer", ends)
	}
	fault.Remove()
	if _, err := s.Admin(t).End(ctx, broker.Orders); err != nil {
		t.Error(err)
	}
	s.Fake.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Err: kerr.GroupAuthorizationFailed, Count: 1})
	if _, err := s.Admin(t).Passed(ctx, "g", broker.Ends{Topic: broker.Orders, Offsets: map[int32]int64{0: 1}}); err == nil {
		t.Error("the group's offsets could not be read, and no error")
	}
}
