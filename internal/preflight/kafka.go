package preflight

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"flashgate/internal/broker"
)

// kafka looks at the topics and at who reads them.
func (f *flight) kafka(ctx context.Context) {
	const check = "kafka"
	opts, err := broker.ClientOpts(f.Kafka)
	if err != nil {
		f.report.add(check, NoGo, "%v", err)
		return
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		f.report.add(check, NoGo, "%v", err)
		return
	}
	admin := kadm.NewClient(client)
	defer admin.Close()
	topics, err := admin.ListTopics(ctx, broker.Topics()...)
	if err != nil {
		f.report.add(check, NoGo, "does not answer: %v", f.BlameKafka(err))
		return
	}
	for _, name := range broker.Topics() {
		f.judgeTopic(topics[name], name)
	}
	f.orderWriters(ctx, admin)
}

func (f *flight) judgeTopic(topic kadm.TopicDetail, name string) {
	check := "topic " + name
	if topic.Err != nil || len(topic.Partitions) == 0 {
		f.report.add(check, NoGo, "is missing: run `flashgate migrate`")
		return
	}
	var leaderless, behind []string
	replicas := -1
	for _, p := range topic.Partitions.Sorted() {
		if p.Leader < 0 {
			leaderless = append(leaderless, fmt.Sprint(p.Partition))
		}
		if len(p.ISR) < len(p.Replicas) {
			behind = append(behind, fmt.Sprint(p.Partition))
		}
		if replicas < 0 || len(p.Replicas) < replicas {
			replicas = len(p.Replicas)
		}
	}
	n := len(topic.Partitions)
	switch {
	case len(leaderless) > 0:
		f.report.add(check, NoGo, "partitions without a leader: %s", strings.Join(leaderless, ", "))
	case len(behind) > 0:
		f.report.add(check, Caution, "partitions with replicas that are behind: %s", strings.Join(behind, ", "))
	case n < f.Kafka.Partitions:
		f.report.add(check, Caution, "%d partitions, fewer than the %d that are configured", n, f.Kafka.Partitions)
	case replicas < f.Kafka.Replication:
		f.report.add(check, Caution, "%d replicas, fewer than the %d that are configured", replicas, f.Kafka.Replication)
	case replicas < 2:
		f.report.add(check, Caution, "%d partitions, of which the loss of one broker takes some away: they have one replica", n)
	default:
		f.report.add(check, Go, "%d partitions, %d replicas", n, replicas)
	}
}

// orderWriters says whether anybody writes orders, and how far behind they are.
func (f *flight) orderWriters(ctx context.Context, admin *kadm.Client) {
	const check = "consumers"
	lags, err := admin.Lag(ctx, f.Kafka.Group)
	lag, known := lags[f.Kafka.Group]
	switch {
	case errors.Is(err, kerr.CoordinatorNotAvailable), err == nil && errors.Is(lag.Error(), kerr.CoordinatorNotAvailable):
		// So says a broker that has never had a group: it makes the topic of their offsets when the first one asks.
		f.report.add(check, NoGo, "nobody is in the group %s, or the broker that coordinates it is away: start `flashgate consumer`, and look again", f.Kafka.Group)
	case err != nil:
		f.report.add(check, NoGo, "group %s cannot be asked: %v", f.Kafka.Group, err)
	case !known || lag.Error() != nil || len(lag.Members) == 0:
		f.report.add(check, NoGo, "nobody is in the group %s: start `flashgate consumer`", f.Kafka.Group)
	case lag.State != "Stable":
		f.report.add(check, Caution, "group %s is %s: look again in a moment", f.Kafka.Group, lag.State)
	case lag.Lag.Total() > 1000:
		f.report.add(check, Caution, "group %s is %d records behind", f.Kafka.Group, lag.Lag.Total())
	default:
		f.report.add(check, Go, "%d in the group %s, %d records behind", len(lag.Members), f.Kafka.Group, lag.Lag.Total())
	}
}
