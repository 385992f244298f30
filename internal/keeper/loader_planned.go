package keeper

import (
	"context"
	"slices"

	"flashgate/internal/sale"
	"flashgate/shard"
)

// timely reports whether the brokers take what is old enough for the sweep, and answer, and the order writers keep up: then a load takes a moment. During
// an outage it would stop a sale that goes on.
func (l *Loader) timely(ctx context.Context, layout shard.Layout) bool {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.KeepUp)
	defer cancel()
	// The brokers first: during an outage the outboxes are long, and reading them is work for a Redis that goes on selling.
	if _, err := l.ends(ctx); err != nil {
		return false
	}
	_, err := l.sweeper.sweep(ctx, layout, false)
	return err == nil && l.drain(ctx) == nil
}

// intact reports whether every shard has the whole stock of the item's last load.
func intact(it *sale.Item, readings []shard.ShardReading) bool {
	for _, r := range readings {
		if !r.Loaded || r.Fault != nil || r.Epoch != it.Epoch {
			return false
		}
	}
	return true
}

// calm is what the shards of an item looked like before the fence of a load that nobody needs.
//
// If no server lost anything between the last load and the end of quiesce, every reservation whose event has not been acknowledged had an entry in an
// outbox, and the empty outboxes alone say that all of them are in Kafka: there is no need to wait for the record deadline as well. What is
// asked for that:
//
//   - Before the fence every shard was whole, and served by the server that was loaded.
//   - Behind quiesce it is served by the same one, has the fence's token, and still the epoch and the counters of the load, which say that
//     nothing waits. A server that was wiped in between, be it before the fence, has none of them: only a load writes those. One
//     that was restarted, or promoted, is another server.
//
// Whatever cannot be read is a reason to wait, and so is a server that tells nothing about itself: it may have taken over from another one at any time.
type calm struct {
	ok      bool
	layout  shard.Layout
	epoch   int64
	servers []shard.ShardServer
}

// calmBefore looks before the fence, under the claim: nobody else begins a load.
func (l *Loader) calmBefore(ctx context.Context, b *loading, it *sale.Item) calm {
	c := calm{layout: layoutOf(it), epoch: it.Epoch}
	if !b.planned {
		return c
	}
	var err error
	if c.servers, err = l.servers(ctx, c.layout); err != nil {
		return c
	}
	if !same(c.servers) {
		return c
	}
	readings, err := l.read(ctx, c.layout)
	c.ok = err == nil && intact(it, readings)
	return c
}

// same reports whether every shard is certainly served by the server that was loaded.
func same(servers []shard.ShardServer) bool {
	return !slices.ContainsFunc(servers, func(s shard.ShardServer) bool { return !s.Known() || s.Changed() })
}

// still looks again when the outboxes are empty.
func (c calm) still(ctx context.Context, l *Loader, token int64) bool {
	if !c.ok {
		return false
	}
	readings, err := l.read(ctx, c.layout)
	if err != nil {
		return false
	}
	for _, r := range readings {
		if r.Fault != nil || r.Loaded || r.Token != token || r.K != int64(c.layout.Shards) || r.Epoch != c.epoch {
			return false
		}
		// An entry that is gone and was never removed is still counted.
		if r.Entries != 0 || r.MustEntries != 0 || r.Waiting != 0 {
			return false
		}
	}
	servers, err := l.servers(ctx, c.layout)
	if err != nil || !same(servers) {
		return false
	}
	for i, s := range servers {
		if (shard.ShardServer{Stored: c.servers[i].Current, Current: s.Current}).Changed() {
			return false
		}
	}
	return true
}

func (l *Loader) servers(ctx context.Context, layout shard.Layout) ([]shard.ShardServer, error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.CallTimeout)
	defer cancel()
	return l.cfg.Stock.Servers(ctx, layout)
}
