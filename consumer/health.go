package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// silentFor is how long the loop, or every broker, may be silent before the consumer is not ready. Polls return every second and heartbeats are
	// answered as often; a batch may take some seconds.
	silentFor = 15 * time.Second
	// freshFor is how long a successful write stands for a database that answers.
	freshFor = 5 * time.Second
)

// health is what readiness is decided from. It is a hook of the client: an answer of a broker shows that it is there.
type health struct {
	mu       sync.Mutex
	member   bool
	fenced   bool      // another process has joined under our id
	kept     time.Time // the group's coordinator answered a heartbeat, or the end of a rebalance
	polled   time.Time
	answered time.Time
	stored   time.Time
}

// clock is a hook of the client that notes answers, and the end of a membership.
type clock struct{ *Consumer }

// OnBrokerRead implements kgo.HookBrokerRead.
func (c clock) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if err != nil {
		return
	}
	c.health.note(&c.health.answered, c.cfg.Now())
	switch kmsg.Key(key) {
	case kmsg.Heartbeat, kmsg.SyncGroup:
		// A request to join is not among them: it is answered when every other member has come, which may take most of a minute.
		c.health.note(&c.health.kept, c.cfg.Now())
	}
}

// OnGroupManageError implements kgo.HookGroupManageError: the group does not know this member any more, there is no way to ask it, or another process
// has joined under the same id. After the last the client asks again and again, with growing waits, as the member that it was: it does not put the
// other one out, and takes its place when that one has left or its session has ended.
func (c clock) OnGroupManageError(err error) {
	if c.health.left(errors.Is(err, kerr.FencedInstanceID)) {
		c.cfg.Logger.Error("another process uses the same consumer id; this one writes no orders until that one has gone", "id", c.cfg.InstanceID)
	}
}

// note sets one of the times of h.
func (h *health) note(what *time.Time, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*what = now
}

func (h *health) joined() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.member, h.fenced = true, false
}

// left reports whether it is news that another process has our place.
func (h *health) left(fenced bool) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.member = false
	news = fenced && !h.fenced
	h.fenced = h.fenced || fenced // until we are a member again
	return news
}

func (h *health) isFenced() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fenced
}

// Healthy returns what keeps this order writer from working, nil for nothing: it is a member of the group (with or without partitions, as there may
// be more writers than those) and hears from it, its loop turns, a broker answers, and so does the database. ctx bounds the question to the database, which is only
// asked when nothing was stored lately.
func (c *Consumer) Healthy(ctx context.Context) error {
	h := &c.health
	h.mu.Lock()
	member, fenced, kept, polled, answered, stored := h.member, h.fenced, h.kept, h.polled, h.answered, h.stored
	h.mu.Unlock()
	now := c.cfg.Now()
	switch {
	case fenced:
		return fmt.Errorf("another process uses the same consumer id, %q, and has the place of this order writer in its consumer group", c.cfg.InstanceID)
	case !member:
		return errors.New("the order writer is not a member of its consumer group yet")
	case now.Sub(kept) > max(silentFor, c.cfg.SessionTimeout):
		// The partitions that it has are still written, but nobody takes over those of a writer that has gone.
		return fmt.Errorf("the order writer has waited for its consumer group to settle for %v", now.Sub(kept).Round(time.Second))
	case polled.IsZero():
		return errors.New("the order writer has not asked for records yet")
	case now.Sub(polled) > silentFor:
		return fmt.Errorf("the order writer has not asked for records for %v", now.Sub(polled).Round(time.Second))
	case now.Sub(answered) > silentFor:
		return fmt.Errorf("no Kafka broker has answered for %v", now.Sub(answered).Round(time.Second))
	case now.Sub(stored) <= freshFor:
		return nil
	}
	if err := c.cfg.Ledger.Ping(ctx); err != nil {
		return fmt.Errorf("the order writer cannot reach the database: %w", err)
	}
	return nil
}
