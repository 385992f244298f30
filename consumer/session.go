package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"flashgate/internal/broker"
)

const (
	// pollFor is how long a poll waits for records. Between two polls offsets and letters that failed are tried again.
	pollFor = time.Second
	// commitTimeout bounds one commit.
	commitTimeout = 5 * time.Second
	// rebalanceTimeout is how long a rebalance waits for a member that is at work. It must outlast a write, a commit and the letters of a round.
	rebalanceTimeout = 45 * time.Second
	// leaveTimeout bounds leaving the group when there is no time left: the broker that coordinates it may be away.
	leaveTimeout = time.Second
)

// session is one membership in the group, by one client.
//
// Rebalancing is blocked from a poll that returned something until AllowRebalance, so partitions do not change hands between a write and the commit
// behind it. A wait for the database allows it, and blocks it again before anything else is done.
type session struct {
	*Consumer
	client *kgo.Client
	owned  *assignment
}

// join makes a client that becomes a member of the group in the background.
func (c *Consumer) join() (*session, error) {
	s := &session{Consumer: c, owned: newAssignment()}
	opts, err := broker.ClientOpts(c.cfg.Broker)
	if err != nil {
		return nil, err
	}
	opts = append(opts,
		kgo.ConsumerGroup(c.cfg.Broker.Group),
		kgo.ConsumeTopics(broker.Orders),
		// A new group, and one whose offset is out of range, begins at the start: what is read twice does no harm, what is skipped is lost.
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(c.cfg.SessionTimeout),
		kgo.HeartbeatInterval(c.cfg.SessionTimeout/6),
		kgo.RebalanceTimeout(rebalanceTimeout),
		// A fetch under way delays the return of a partition that had been paused, and holds what it brings in memory.
		kgo.FetchMaxWait(500*time.Millisecond),
		kgo.FetchMaxBytes(8<<20),
		kgo.OnPartitionsAssigned(s.assigned),
		kgo.OnPartitionsRevoked(s.revoked),
		kgo.OnPartitionsLost(s.revoked),
		kgo.WithHooks(clock{c}),
	)
	if c.cfg.InstanceID != "" {
		opts = append(opts, kgo.InstanceID(c.cfg.InstanceID))
	}
	if s.client, err = kgo.NewClient(opts...); err != nil {
		return nil, fmt.Errorf("make the Kafka consumer: %w", err)
	}
	return s, nil
}

func (s *session) assigned(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
	s.owned.add(topics)
	s.health.joined()
	if len(topics) > 0 {
		s.cfg.Logger.Info("partitions taken over", "partitions", topics[broker.Orders])
	}
}

// revoked is called when partitions go to another member, and when they are lost because the group took this one for dead. What was handled of
// them is committed already; what was not, the other member reads.
func (s *session) revoked(_ context.Context, client *kgo.Client, topics map[string][]int32) {
	s.owned.remove(topics)
	s.metrics.forgetLag(topics[broker.Orders])
	client.ResumeFetchPartitions(topics)
	if len(topics) > 0 {
		s.cfg.Logger.Info("partitions given up", "partitions", topics[broker.Orders])
	}
}

// run works until ctx ends, or until the client has become useless. work is the context of the batch in hand.
func (s *session) run(ctx, work context.Context) {
	stop := s.watchGroup(ctx)
	defer stop()
	for ctx.Err() == nil {
		fetches := s.poll(ctx)
		s.health.note(&s.health.polled, s.cfg.Now())
		useless := s.report(ctx, fetches)
		if !s.handle(work, s.take(fetches)) {
			return
		}
		s.sendLetters(work)
		s.commit(work)
		s.client.AllowRebalance()
		if useless {
			return
		}
	}
}

func (s *session) poll(ctx context.Context) kgo.Fetches {
	ctx, cancel := context.WithTimeout(ctx, pollFor)
	defer cancel()
	return s.client.PollRecords(ctx, s.cfg.BatchSize)
}

// report logs what went wrong in fetching; useless tells that this client will not get over it.
func (s *session) report(ctx context.Context, fetches kgo.Fetches) (useless bool) {
	fetches.EachError(func(_ string, number int32, err error) {
		switch {
		case errors.Is(err, context.DeadlineExceeded), ctx.Err() != nil:
			return // nothing came, or we are stopping
		case errors.Is(err, kerr.FencedInstanceID):
			return // which the hook of the client has said
		case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kgo.ErrClientClosed):
			useless = true
		}
		s.metrics.fetchErrors.Inc()
		s.cfg.Logger.Warn("cannot fetch", "topic", broker.Orders, "partition", number, "error", err)
	})
	return useless
}

// entry is one record in hand.
type entry struct {
	record    *kgo.Record
	partition *partition
}

// take returns the records of partitions that are ours.
func (s *session) take(fetches kgo.Fetches) []entry {
	var batch []entry
	fetches.EachPartition(func(t kgo.FetchTopicPartition) {
		p := s.owned.get(t.Partition)
		if p == nil || t.Topic != broker.Orders || len(t.Records) == 0 {
			return
		}
		p.begin(t.Records[0])
		for _, r := range t.Records {
			batch = append(batch, entry{r, p})
		}
	})
	return batch
}

// commit tells the broker how far each partition has come. What fails is told again with the next batch, or after the next poll.
func (s *session) commit(ctx context.Context) {
	offsets := map[int32]kgo.EpochOffset{}
	partitions := map[int32]*partition{}
	for _, p := range s.owned.all() {
		if at, news := p.safe(); news {
			offsets[p.number], partitions[p.number] = at, p
		}
	}
	if len(offsets) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	s.client.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{broker.Orders: offsets},
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, response *kmsg.OffsetCommitResponse, err error) {
			if err != nil {
				s.commitError(err)
				return
			}
			for _, topic := range response.Topics {
				for _, answer := range topic.Partitions {
					if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
						s.commitError(err)
					} else if p := partitions[answer.Partition]; p != nil {
						p.committed = offsets[answer.Partition].Offset
					}
				}
			}
		})
}

func (s *session) commitError(err error) {
	s.metrics.commitErrors.Inc()
	s.cfg.Logger.Warn("cannot commit offsets; they are committed later, or the records are read again", "error", err)
}

// leave gives the partitions back at once, so that nobody has to wait for the session to time out, and closes the client.
func (s *session) leave(work context.Context) {
	s.client.AllowRebalance()
	ctx := work
	if work.Err() != nil {
		ctx = context.WithoutCancel(work)
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	err := s.client.LeaveGroupContext(ctx)
	if err == nil && s.cfg.InstanceID != "" {
		err = s.leaveAsInstance(ctx)
	}
	if err != nil {
		s.cfg.Logger.Warn("cannot leave the consumer group; it notices when the session times out", "error", err)
	}
	s.client.CloseAllowingRebalance()
}
