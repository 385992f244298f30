package shard

import (
	"context"
	"testing"
	"time"

	"flashgate/internal/pause"
	"flashgate/internal/sale"
)

// A caller who leaves while his event is being published anew reads nothing that is written for those who stay. What finds it is the race detector,
// which sees accesses that nothing orders: so the two sides meet by time alone.
func TestCallerLeavesWhileALostEntryIsPublished(t *testing.T) {
	l := newLab(t, onMini)
	layout := Layout{Item: 72, Shards: 1}
	robbed(l, l.stock(&broker{}), layout, robberies["an entry"])
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	s := l.stock(&broker{}, func(c *Config) { c.Publisher = leaving{c.Publisher, cancel} })
	r := s.Reserve(ctx, layout, request(layout, "gone", 2, "other"))
	if r.Outcome != sale.Unknown {
		t.Errorf("%+v", r)
	}
}

// leaving takes the caller away and publishes when he is gone.
type leaving struct {
	Publisher
	leave func()
}

func (p leaving) Publish(deadline time.Time, events []sale.Event, done func(error)) {
	p.leave()
	pause.For(context.Background(), 100*time.Millisecond)
	// Not from here: what publishing locks would put the two sides in an order.
	time.AfterFunc(100*time.Millisecond, func() { p.Publisher.Publish(deadline, events, done) })
}
