package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Admin asks the brokers about topics, groups and themselves. Safe for concurrent use; every call is bounded by its context and by the
// request timeout.
type Admin struct {
	cfg    Config
	client *kgo.Client
	admin  *kadm.Client
}

// NewAdmin makes an Admin. It connects when it is first asked something.
func NewAdmin(cfg Config) (*Admin, error) {
	cfg = cfg.WithDefaults()
	opts, err := ClientOpts(cfg)
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("make the Kafka admin client: %w", err)
	}
	return &Admin{cfg: cfg, client: client, admin: kadm.NewClient(client)}, nil
}

// Close ends the connections. Calls under way fail.
func (a *Admin) Close() { a.client.Close() }

// Ping reports whether a broker answers.
func (a *Admin) Ping(ctx context.Context) error {
	if err := a.client.Ping(ctx); err != nil {
		return fmt.Errorf("ping Kafka: %w", err)
	}
	return nil
}

// TopicsReady returns the topics that are missing or have a partition without a leader, in the order of Topics; none: flashgate can work.
func (a *Admin) TopicsReady(ctx context.Context) (missing []string, err error) {
	details, err := a.admin.ListTopics(ctx, Topics()...)
	if err != nil {
		return nil, fmt.Errorf("list the Kafka topics: %w", err)
	}
	for _, topic := range Topics() {
		if !ready(details[topic]) {
			missing = append(missing, topic)
		}
	}
	return missing, nil
}

func ready(topic kadm.TopicDetail) bool {
	if topic.Err != nil || len(topic.Partitions) == 0 {
		return false
	}
	for _, partition := range topic.Partitions {
		// A partition whose other replicas are away (LISTENER_NOT_FOUND, REPLICA_NOT_AVAILABLE) is written and read all the same.
		if partition.Leader < 0 || errors.Is(partition.Err, kerr.LeaderNotAvailable) {
			return false
		}
	}
	return true
}
