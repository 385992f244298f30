package broker

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// PublishOrderEvent writes an event to the topic of order events and calls done exactly once: with nil when the brokers have acknowledged it, else, at
// the deadline or earlier, with what went wrong. It does not wait for anything itself. done runs on a goroutine of its own, possibly before
// PublishOrderEvent returns, and holds up nothing but Close.
//
// Nothing is sent after its deadline. Each event is on its own: one that fails, because its partition has no leader, say, takes no other along. That
// is also why two events of one key may not be under way at once: if the first is tried again, the second may overtake it.
func (p *Producer) PublishOrderEvent(deadline time.Time, event OrderEvent, done func(error)) {
	p.submit(deadline, []*kgo.Record{EncodeOrderEvent(event)}, done)
}
