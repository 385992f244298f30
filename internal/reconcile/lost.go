package reconcile

import (
	"context"
	"time"

	"flashgate/internal/broker"
	"flashgate/internal/pause"
	"flashgate/internal/sale"
	"flashgate/shard"
)

// passedWait is how long the order writers are waited for, passedEvery how often they are asked.
const (
	passedWait  = time.Second
	passedEvery = 50 * time.Millisecond
)

// lost finds out which marks without a row are of reservations whose event is nowhere. decided is false where that cannot be said of all of them.
//
// The order of the steps matters. A mark is written together with its outbox entry. The entry goes when the brokers have acknowledged its events, or when
// a row has been written instead; so where no entry stands now (2) the event is in the topic in front of the ends that are read afterwards (3), or there
// is a row by then, or Redis has lost the entry. In this last case its gateway may still be about to publish the event, until its record deadline:
// marks that are younger are left for another time (2). When the order writers have passed those ends (3), and there is still no row (4), no event will
// come by itself. (His retry would publish it, as long as the mark stands; then there is an order, and nothing to be named.)
func (c *Checker) lost(ctx context.Context, it *sale.Item, suspects map[sale.OrderID]suspect) (lost []Concern, decided bool, err error) {
	// 1: are the brokers there, and the order writers near? Outboxes may be large, and are read in vain while not.
	if !c.storedAll(ctx) {
		return nil, false, nil
	}
	// 2
	decided = true
	shards := make(map[int]bool)
	for _, s := range suspects {
		shards[s.shard] = true
	}
	left := make(map[sale.OrderID]suspect)
	for n := range shards {
		outbox, ok := c.outbox(ctx, it, n)
		if !ok {
			decided = false
			continue
		}
		stands := holders(outbox)
		for id, s := range suspects {
			if s.shard != n || stands.orders[id] || stands.batches[s.batch] {
				continue
			}
			if outbox.Now.Sub(s.reservedAt) < 2*c.cfg.RecordDeadline {
				decided = false
				continue
			}
			left[id] = s
		}
	}
	if len(left) == 0 {
		return nil, decided, nil
	}
	// 3
	if !c.storedAll(ctx) {
		return nil, false, nil
	}
	// 4
	asked := make([]sale.OrderID, 0, len(left))
	for id := range left {
		asked = append(asked, id)
	}
	books, ok, err := c.books(ctx, it.ID, asked)
	if err != nil || !ok {
		return nil, false, err
	}
	if books.Item.Claim != it.Claim || books.Item.Epoch != it.Epoch {
		return nil, false, nil // a load sees to them
	}
	live := make(map[sale.OrderID]bool)
	for _, o := range books.Live {
		live[o.ID] = true
	}
	for id, s := range left {
		if _, ended := books.Ended[id]; !ended && !live[id] {
			lost = append(lost, Concern{id, EventLost, s.quantity})
		}
	}
	return lost, decided, nil
}

// storedAll reports whether the order writers have stored, within a moment, all that is in the orders topic now.
func (c *Checker) storedAll(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, passedWait)
	defer cancel()
	ends, err := c.cfg.Offsets.End(ctx, broker.Orders)
	if err != nil {
		return false
	}
	for {
		passed, err := c.cfg.Offsets.Passed(ctx, c.cfg.Group, ends)
		if passed && err == nil {
			return true
		}
		if !pause.For(ctx, passedEvery) {
			return false
		}
	}
}

func (c *Checker) outbox(ctx context.Context, it *sale.Item, n int) (shard.Outbox, bool) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	outbox, err := c.cfg.Stock.Outbox(ctx, shard.Layout{Item: it.ID, Shards: it.Shards}, n)
	return outbox, err == nil
}

type holding struct {
	orders  map[sale.OrderID]bool
	batches map[string]bool // of entries that cannot be read
}

// holders are the orders whose events an outbox has.
func holders(outbox shard.Outbox) holding {
	h := holding{make(map[sale.OrderID]bool), make(map[string]bool)}
	for _, entry := range outbox.Entries {
		for _, e := range entry.Events {
			h.orders[e.OrderID] = true
		}
	}
	for _, bad := range outbox.Bad {
		h.batches[bad.Batch] = true
	}
	return h
}
