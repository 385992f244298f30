package broker

import (
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// PublishOrderEvents writes events to the topic of order events and calls done exactly once: when the fate of every one is known, at the deadline at
// the latest, with the ids of those that the brokers have acknowledged, in no order, and with what went wrong first with the others; nil if nothing
// did. It does not wait for anything itself. done runs on a goroutine of its own, possibly before PublishOrderEvents returns, and holds up nothing but
// Close.
//
// Nothing is sent after its deadline. Each event is on its own: one that fails, because its partition has no leader, say, takes no other along. That
// is also why two events of one key do not belong into one call: if the first is tried again, the second may overtake it.
func (p *Producer) PublishOrderEvents(deadline time.Time, events []OrderEvent, done func(acked []int64, err error)) {
	if len(events) == 0 {
		go done(nil, nil)
		return
	}
	all := &results{left: len(events), done: done}
	for _, e := range events {
		p.submit(deadline, []*kgo.Record{EncodeOrderEvent(e)}, func(err error) { all.add(e.ID, err) })
	}
}

// results collects the fates of several calls.
type results struct {
	done func(acked []int64, err error)

	mu    sync.Mutex
	left  int
	acked []int64
	err   error // the first
}

// add takes the fate of one call. With the last one it calls done, under the eyes of Close, as every callback of a call is.
func (r *results) add(id int64, err error) {
	r.mu.Lock()
	r.left--
	last := r.left == 0
	switch {
	case err == nil:
		r.acked = append(r.acked, id)
	case r.err == nil:
		r.err = err
	}
	r.mu.Unlock()
	if last {
		r.done(r.acked, r.err)
	}
}
