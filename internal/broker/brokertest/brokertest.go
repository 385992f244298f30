// Package brokertest runs tests against the in-process Kafka and a real one, and reads what they wrote.
package brokertest

import (
	"context"
	"errors"
	"sync"
	"testing" //nolint:depguard // helpers of tests, which no product package imports
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"flashgate/internal/broker"
	"flashgate/internal/devstack"         //nolint:depguard // helpers of tests, which no product package imports
	"flashgate/internal/devstack/devtest" //nolint:depguard // helpers of tests, which no product package imports
)

// Timeout bounds every wait of the tests. It is for a machine under load: no assertion about speed.
const Timeout = time.Minute

// Partitions of the topics that Each makes.
const Partitions = 4

// Server is the Kafka under test.
type Server struct {
	// Config connects to it, with a consumer group of the test's own.
	Config broker.Config
	// Fake is the in-process Kafka, nil for the real one.
	Fake *devstack.Kfake
	// Freeze stops answers to everything while connections stay open; Thaw answers what has come meanwhile, and all that follows.
	Freeze, Thaw func()
}

// Each runs test on either Kafka, with the topics there and empty. Such tests must not run in parallel: the real broker has one set of topics.
func Each(t *testing.T, test func(t *testing.T, s *Server)) {
	t.Helper()
	EachBare(t, func(t *testing.T, s *Server) {
		s.CreateTopics(t)
		test(t, s)
	})
}

// EachBare is Each without topics.
func EachBare(t *testing.T, test func(t *testing.T, s *Server)) {
	t.Helper()
	t.Run("kfake", func(t *testing.T) { test(t, NewFake(t)) })
	t.Run("kafka", func(t *testing.T) {
		kafka := devtest.Kafka(t)
		s := newServer(kafka.Brokers())
		s.Freeze, s.Thaw = switches(t, func() error { return kafka.Pause() }, func() error { return kafka.Resume() })
		s.DeleteTopics(t)
		test(t, s)
	})
}

// NewFake starts an in-process Kafka without topics.
func NewFake(t *testing.T, cfg ...devstack.KfakeConfig) *Server {
	t.Helper()
	var c devstack.KfakeConfig
	if len(cfg) > 0 {
		c = cfg[0]
	}
	g := newGate()
	c.Options = append(c.Options, kfake.ListenFn(g.listen))
	fake := devtest.Kfake(t, c)
	s := newServer(fake.Brokers())
	s.Fake = fake
	s.Freeze, s.Thaw = switches(t, func() error { g.shut(); return nil }, func() error { g.unshut(); return nil })
	return s
}

func newServer(brokers []string) *Server {
	return &Server{Config: broker.Config{Brokers: brokers, Group: devtest.Name("group"), Partitions: Partitions}}
}

// switches returns off and on as functions that fail the test, and sees to it that what is off is on again in the end.
func switches(t *testing.T, off, on func() error) (func(), func()) {
	var mu sync.Mutex
	isOff := false
	set := func(want bool, do func() error) {
		mu.Lock()
		defer mu.Unlock()
		if isOff == want {
			return
		}
		isOff = want
		if err := do(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() { set(false, on) })
	return func() { set(true, off) }, func() { set(false, on) }
}

// Context is bounded by Timeout and by the test.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Timeout)
	t.Cleanup(cancel)
	return ctx
}

// CreateTopics makes the topics of flashgate.
func (s *Server) CreateTopics(t testing.TB) {
	t.Helper()
	if _, err := broker.EnsureTopics(Context(t), s.Config); err != nil {
		t.Fatal(err)
	}
}

// DeleteTopics removes the topics of flashgate, and returns when they are gone.
func (s *Server) DeleteTopics(t testing.TB) {
	t.Helper()
	ctx := Context(t)
	admin := kadm.NewClient(s.Client(t))
	responses, err := admin.DeleteTopics(ctx, broker.Topics()...)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range responses {
		if r.Err != nil && !errors.Is(r.Err, kerr.UnknownTopicOrPartition) {
			t.Fatal(r.Err)
		}
	}
	devtest.Eventually(t, Timeout, func() bool {
		details, err := admin.ListTopics(ctx)
		return err == nil && !details.Has(broker.Orders) && !details.Has(broker.DeadLetters) && !details.Has(broker.OrderEvents)
	}, "topics deleted")
}

// Client is a plain client of the server for the test's own use.
func (s *Server) Client(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	base, err := broker.ClientOpts(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(append(base, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// Admin is closed with the test.
func (s *Server) Admin(t testing.TB) *broker.Admin {
	t.Helper()
	admin, err := broker.NewAdmin(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	return admin
}

// Write writes records as they are, one after another, and fills in where they went.
func (s *Server) Write(t testing.TB, records ...*kgo.Record) {
	t.Helper()
	client := s.Client(t, kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	if err := client.ProduceSync(Context(t), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// Read returns everything that is in topic now, each partition in its order.
func (s *Server) Read(t testing.TB, topic string) []*kgo.Record {
	t.Helper()
	ctx := Context(t)
	admin := s.Admin(t)
	var ends broker.Ends
	var err error
	// A broker that has just woken up elects the leaders of its partitions anew.
	devtest.Eventually(t, Timeout, func() bool { ends, err = admin.End(ctx, topic); return err == nil }, "the end of %s is known", topic)
	left := len(ends.Offsets)
	client := s.Client(t, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	var all []*kgo.Record
	for left > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if end := ends.Offsets[r.Partition]; r.Offset < end {
				all = append(all, r)
				if r.Offset == end-1 {
					left--
				}
			}
		})
	}
	return all
}

// Header returns the value of a header, "" when it is missing.
func Header(r *kgo.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}
