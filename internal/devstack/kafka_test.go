package devstack_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"flashgate/internal/devstack"
	"flashgate/internal/devstack/devtest"
)

const (
	testTopic = "orders"
	testGroup = "writers"
)

// kafkaClient connects to a broker, with further options if any.
func kafkaClient(tb testing.TB, brokers []string, opts ...kgo.Opt) *kgo.Client {
	tb.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(brokers...)}, opts...)...)
	must(tb, err)
	tb.Cleanup(client.Close)
	return client
}

// createTopic makes the topic of these tests with as many partitions as the broker likes.
func createTopic(tb testing.TB, brokers []string) int {
	tb.Helper()
	ctx := startContext(tb)
	admin := kadm.NewClient(kafkaClient(tb, brokers))
	_, err := admin.CreateTopic(ctx, -1, 1, nil, testTopic)
	must(tb, err)
	topics, err := admin.ListTopics(ctx, testTopic)
	must(tb, err)
	return len(topics[testTopic].Partitions)
}

// produce sends records, each acknowledged before the next.
func produce(tb testing.TB, brokers []string, values ...string) {
	tb.Helper()
	client := kafkaClient(tb, brokers)
	for _, v := range values {
		must(tb, client.ProduceSync(startContext(tb), &kgo.Record{Topic: testTopic, Value: []byte(v)}).FirstErr())
	}
}

// consume reads n records as a member of the group and commits them.
func consume(tb testing.TB, brokers []string, n int) map[string]bool {
	tb.Helper()
	ctx := startContext(tb)
	client := kafkaClient(tb, brokers, kgo.ConsumeTopics(testTopic), kgo.ConsumerGroup(testGroup),
		kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	got := map[string]bool{}
	for len(got) < n {
		fetches := client.PollFetches(ctx)
		must(tb, ctx.Err())
		for _, r := range fetches.Records() {
			got[string(r.Value)] = true
		}
		must(tb, client.CommitUncommittedOffsets(ctx))
	}
	must(tb, client.LeaveGroupContext(ctx))
	return got
}

// committed is the sum of the group's committed offsets: the number of records it is past.
func committed(tb testing.TB, brokers []string) int64 {
	tb.Helper()
	offsets, err := kadm.NewClient(kafkaClient(tb, brokers)).FetchOffsets(startContext(tb), testGroup)
	must(tb, err)
	var sum int64
	offsets.Each(func(o kadm.OffsetResponse) { sum += o.At })
	return sum
}

func TestKafkaLife(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "kafka")
	k, err := devstack.StartKafka(startContext(t), devstack.KafkaConfig{Dir: dir})
	must(t, err)
	t.Cleanup(func() { must(t, k.Stop()) })
	createTopic(t, k.Brokers())
	produce(t, k.Brokers(), "a", "b")
	consume(t, k.Brokers(), 2)

	must(t, k.Kill())
	must(t, k.Restart(startContext(t)))
	if got := committed(t, k.Brokers()); got != 2 {
		t.Errorf("after a crash %d records are committed", got)
	}
	produce(t, k.Brokers(), "c")

	must(t, k.Pause())
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if err := kafkaClient(t, k.Brokers()).Ping(ctx); err == nil {
		t.Error("a frozen broker answers")
	}
	must(t, k.Resume())
	must(t, k.Stop())
	must(t, k.Stop())

	again, err := devstack.StartKafka(startContext(t), devstack.KafkaConfig{Dir: dir})
	must(t, err)
	t.Cleanup(func() { must(t, again.Stop()) })
	if got := consume(t, again.Brokers(), 1); !got["c"] {
		t.Errorf("on other ports the group goes on with %v", got)
	}
}

func TestKafkaSaysThatItsJarsAreMissing(t *testing.T) {
	t.Parallel()
	k, err := devstack.StartKafka(startContext(t), devstack.KafkaConfig{Libs: t.TempDir()})
	if err == nil {
		t.Fatal("started", k.Stop())
	}
	if !strings.Contains(err.Error(), "no jars of Kafka") {
		t.Errorf("the error is %v", err)
	}
}

func TestSharedKafka(t *testing.T) {
	t.Parallel()
	if first, second := devtest.Kafka(t), devtest.Kafka(t); first != second {
		t.Error("two brokers were started")
	}
	must(t, kafkaClient(t, devtest.Kafka(t).Brokers()).Ping(startContext(t)))
}

func TestKfakeKeepsRecordsAndOffsets(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "kafka")
	k, err := devstack.StartKfake(devstack.KfakeConfig{Dir: dir})
	must(t, err)
	if got := createTopic(t, k.Brokers()); got != 12 {
		t.Errorf("a topic has %d partitions by default", got)
	}
	produce(t, k.Brokers(), "a", "b", "c")
	consume(t, k.Brokers(), 3)
	produce(t, k.Brokers(), "d")
	must(t, k.Stop())
	must(t, k.Stop())

	// A program that is killed writes nothing at its end.
	program := startProgram(t, "kfake", dir)
	if got := committed(t, program.Brokers); got != 3 {
		t.Errorf("after Stop %d records are committed", got)
	}
	if got := consume(t, program.Brokers, 1); !got["d"] {
		t.Errorf("after Stop the group goes on with %v", got)
	}
	produce(t, program.Brokers, "e")
	program.kill()

	k, err = devstack.StartKfake(devstack.KfakeConfig{Dir: dir})
	must(t, err)
	t.Cleanup(func() { must(t, k.Stop()) })
	if got := committed(t, k.Brokers()); got != 4 {
		t.Errorf("after a crash %d records are committed", got)
	}
	if got := consume(t, k.Brokers(), 1); !got["e"] {
		t.Errorf("after a crash the group goes on with %v", got)
	}
}

func TestKfakeRestartsOnItsPorts(t *testing.T) {
	t.Parallel()
	k := devtest.Kfake(t, devstack.KfakeConfig{Brokers: 3, Partitions: 4, Dir: t.TempDir()})
	before := strings.Join(k.Brokers(), ",")
	if got := createTopic(t, k.Brokers()); got != 4 {
		t.Errorf("a topic has %d partitions", got)
	}
	must(t, k.Restart())
	if after := strings.Join(k.Brokers(), ","); after != before {
		t.Errorf("listened on %s, now on %s", before, after)
	}
	produce(t, k.Brokers(), "a")
}

func TestKfakeDirectoryIsNotShared(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	devtest.Kfake(t, devstack.KfakeConfig{Dir: dir})
	k, err := devstack.StartKfake(devstack.KfakeConfig{Dir: dir})
	if err == nil {
		t.Fatal("started twice", k.Stop())
	}
	if !strings.Contains(err.Error(), "another process uses it") {
		t.Errorf("the error is %v", err)
	}
}
