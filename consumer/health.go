package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
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
	polled   time.Time
	answered time.Time
	stored   time.Time
}

// clock is a hook of the client that notes answers.
type clock struct {
	health *health
	now    func() time.Time
}

// OnBrokerRead implements kgo.HookBrokerRead.
func (c clock) OnBrokerRead(_ kgo.BrokerMetadata, _ int16, _ int, _, _ time.Duration, err error) {
	if err == nil {
		c.health.note(&c.health.answered, c.now())
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
	h.member = true
}

// Healthy returns what keeps this order writer from working, nil for nothing: it is a member of the group (with or without partitions, as there may
// be more writers than those), its loop turns, a broker answers, and so does the database. ctx bounds the question to the database, which is only
// asked when nothing was stored lately.
func (c *Consumer) Healthy(ctx context.Context) error {
	h := &c.health
	h.mu.Lock()
	member, polled, answered, stored := h.member, h.polled, h.answered, h.stored
	h.mu.Unlock()
	now := c.cfg.Now()
	switch {
	case !member:
		return errors.New("the order writer is not a member of its consumer group yet")
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
