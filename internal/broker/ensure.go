package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// TopicState is what EnsureTopics found or made.
type TopicState struct {
	Name       string
	Created    bool // it did not exist before
	Partitions int
	// TooFew: the topic existed with fewer partitions than configured. It works; adding partitions is left to the operator, because it
	// moves keys to other partitions while their records are being read.
	TooFew bool
}

// readyPoll is how often EnsureTopics asks whether new topics have leaders. A creation takes some tens of milliseconds.
const readyPoll = 25 * time.Millisecond

// EnsureTopics creates the topics that are missing and waits until every topic has its leaders. An existing topic is left as it is. It may be
// called by several processes at once.
func EnsureTopics(ctx context.Context, cfg Config) ([]TopicState, error) {
	admin, err := NewAdmin(cfg)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	return admin.EnsureTopics(ctx)
}

// EnsureTopics is the function of the same name with the connections of a.
func (a *Admin) EnsureTopics(ctx context.Context) ([]TopicState, error) {
	states := make([]TopicState, 0, len(Topics()))
	for _, topic := range Topics() {
		created, err := a.create(ctx, topic)
		if err != nil {
			return nil, fmt.Errorf("create Kafka topic %s: %w", topic, err)
		}
		states = append(states, TopicState{Name: topic, Created: created})
	}
	if err := a.waitReady(ctx); err != nil {
		return nil, err
	}
	details, err := a.admin.ListTopics(ctx, Topics()...)
	if err != nil {
		return nil, fmt.Errorf("count the partitions of the Kafka topics: %w", err)
	}
	for i := range states {
		states[i].Partitions = len(details[states[i].Name].Partitions)
		states[i].TooFew = states[i].Partitions < a.cfg.Partitions
	}
	return states, nil
}

func (a *Admin) create(ctx context.Context, topic string) (created bool, err error) {
	response, err := a.admin.CreateTopic(ctx, int32(a.cfg.Partitions), int16(a.cfg.Replication), a.settings(topic), topic)
	switch {
	case errors.Is(err, kerr.TopicAlreadyExists):
		return false, nil
	case err != nil:
		// The broker's message says what the code does not: how many brokers there are, for one.
		if response.ErrMessage != "" {
			return false, fmt.Errorf("%w: %s", err, response.ErrMessage)
		}
		return false, err
	}
	return true, nil
}

// settings returns the topic settings that flashgate depends on; all others are the cluster's.
func (a *Admin) settings(topic string) map[string]*string {
	settings := map[string]*string{}
	if a.cfg.Replication >= 3 {
		// An acknowledged order then survives the loss of any one broker, and that loss does not stop the sale.
		settings["min.insync.replicas"] = kadm.StringPtr("2")
	}
	if topic == DeadLetters {
		// Dead letters wait for a person, however long that takes. They are larger than the records they hold by their headers.
		settings["retention.ms"] = kadm.StringPtr("-1")
		settings["max.message.bytes"] = kadm.StringPtr(fmt.Sprint(deadLetterMaxBytes))
	}
	return settings
}

func (a *Admin) waitReady(ctx context.Context) error {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		missing, err := a.TopicsReady(ctx)
		if err != nil {
			return err
		}
		if len(missing) == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the Kafka topics %v: %w", missing, ctx.Err())
		}
	}
}
