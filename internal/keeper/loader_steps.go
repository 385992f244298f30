package keeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"flashgate/internal/broker"
	"flashgate/internal/ledger"
	"flashgate/internal/pause"
	"flashgate/internal/sale"
	"flashgate/shard"
)

const (
	// Between two looks at the outboxes or offsets, doubled from the first to the longest.
	lookFirst   = 10 * time.Millisecond
	lookLongest = 250 * time.Millisecond
	// snapshotTimeout bounds the reading of all live orders of an item, writeTimeout the writing of its marks: a million take seconds.
	snapshotTimeout = 30 * time.Second
	writeTimeout    = 30 * time.Second
)

// steps does what a load consists of, under the claim of b.
//
// The number of shards may change on the way. Fence and quiesce are about every shard that may hold something of the item: those of the layout that
// the item has, those of the one that is wished for, and those that any earlier layout left. So no reservation is left anywhere when the snapshot
// makes the new layout the item's, and everybody who looks after the item from then on, the ordinary sweep as well as whoever takes over from a
// loader that dies behind its snapshot, need not look further than that layout. A wish for even more shards that comes behind the fence is in the
// snapshot, too: those shards are fenced then, and hold nothing, else they would have been found.
//
// Shards behind the end of the new layout are emptied before it is written: where they are not, the load has not ended, and the next one finds them.
func (l *Loader) steps(ctx context.Context, b *loading) (Outcome, error) {
	// Read under the claim: no snapshot but this one can change the epoch from now on.
	it, err := l.item(ctx, b.item)
	if err != nil {
		return 0, err
	}
	fenced, err := l.extent(ctx, &it)
	if err != nil {
		return 0, err
	}
	calm := l.calmBefore(ctx, b, &it)

	ok, err := l.fence(ctx, it.ID, fenced, b.token)
	if err != nil || !ok {
		return TakenOver, err
	}
	at := time.Now()
	if err := l.quiesce(ctx, shard.Layout{Item: it.ID, Shards: fenced}, at); err != nil {
		return 0, err
	}
	// Of a new item there is no event, and nobody can have reserved anything yet.
	if it.Epoch != 0 {
		if !calm.still(ctx, l, b.token) {
			if err := l.deadline(ctx, at); err != nil {
				return 0, err
			}
		}
		if err := l.drain(ctx); err != nil {
			return 0, err
		}
	}
	snapshot, ok, err := l.snapshot(ctx, it.ID, b.token)
	if err != nil || !ok {
		return TakenOver, err
	}
	if snapshot.Shards > fenced {
		fenced = snapshot.Shards
		if ok, err := l.fence(ctx, it.ID, fenced, b.token); err != nil || !ok {
			return TakenOver, err
		}
	}
	if snapshot.Shards < fenced {
		if ok, err := l.vacate(ctx, snapshot, fenced); err != nil || !ok {
			return TakenOver, err
		}
	}
	ok, err = l.write(ctx, snapshot)
	if err != nil || !ok {
		return TakenOver, err
	}
	return Loaded, nil
}

// quiesce waits until all outboxes are empty. Nothing that was reserved before the fence can come to Kafka any more by the hands of a gateway or a
// sweep when this is so AND the record deadline has passed (rule R9, see deadline). An outbox alone does not tell: where a server lost it, its reservations are on the wire
// of gateways that live. The deadline alone does not: a gateway that died left its reservations in the outbox. Only where no server has lost
// anything do the outboxes tell by themselves (see calm).
//
// An outbox that was found empty behind the fence stays empty, because nothing is reserved without a stock. So it need not be looked at again
// after the deadline. What comes to Kafka even later, from a gateway that was stopped and wakes up, is of an older epoch than the snapshot,
// and is refused by the order writer (rule R8).
func (l *Loader) quiesce(ctx context.Context, layout shard.Layout, fenced time.Time) error {
	failing := l.patience()
	for wait := lookFirst; ; wait = min(2*wait, lookLongest) {
		found, err := l.sweeper.sweep(ctx, layout, true)
		if err == nil && l.empty(found, fenced) {
			return nil
		}
		if found.removed > 0 {
			wait = lookFirst
			failing = l.patience() // some of it works
		}
		if failing.enough(err) || !pause.For(ctx, wait) {
			return fmt.Errorf("empty the outboxes: %w", errors.Join(context.Cause(ctx), err))
		}
	}
}

// deadline waits until no gateway sends anything any more that was reserved before the fence.
func (l *Loader) deadline(ctx context.Context, fenced time.Time) error {
	if !pause.For(ctx, time.Until(fenced.Add(l.cfg.RecordDeadline+l.cfg.Margin))) {
		return fmt.Errorf("wait for the record deadline: %w", context.Cause(ctx))
	}
	return nil
}

// empty reports whether nothing is left in the outboxes. An entry that nobody can read keeps the sale shut as long as an entry can stand at all, so
// that a keeper of a newer version may come and read it; then it is lost, and its units are sold again.
func (l *Loader) empty(found swept, fenced time.Time) bool {
	return found.left == 0 && (found.unreadable == 0 || time.Since(fenced) >= l.cfg.GiveUp)
}

// drain waits until the order writers have stored everything that is in Kafka now.
func (l *Loader) drain(ctx context.Context) error {
	var ends broker.Ends
	err := l.until(ctx, func() (ok bool, err error) {
		ends, err = l.ends(ctx)
		return err == nil, err
	})
	if err == nil {
		err = l.until(ctx, func() (bool, error) { return l.passed(ctx, ends) })
	}
	if err != nil {
		return fmt.Errorf("wait for the order writers: %w", err)
	}
	return nil
}

// until looks again and again. An error is a look that failed.
func (l *Loader) until(ctx context.Context, look func() (bool, error)) error {
	failing := l.patience()
	for wait := lookFirst; ; wait = min(2*wait, lookLongest) {
		ok, err := look()
		if ok {
			return nil
		}
		if failing.enough(err) || !pause.For(ctx, wait) {
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// patience bounds how long a step of a load is tried that only fails. A loader that is cut off from the brokers, or from a shard, would keep the item's
// lease, and the sale shut, for as long as it lives, whoever else could load it. Beginning anew costs at most one record deadline more. A step
// that works and is not through yet, as the order writers are behind, is waited for without an end.
type patience struct {
	limit time.Duration
	since time.Time // of the last look that did not fail, or of the start
}

func (l *Loader) patience() *patience { return &patience{limit: l.cfg.Patience, since: time.Now()} }

// enough is told how a look ended, and reports whether it was the last one.
func (p *patience) enough(err error) bool {
	if err == nil {
		p.since = time.Now()
	}
	return err != nil && time.Since(p.since) >= p.limit
}

// The calls of a load, each under its own bound.

func (l *Loader) item(ctx context.Context, id int64) (sale.Item, error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.databaseTimeout())
	defer cancel()
	it, ok, err := l.cfg.Ledger.Item(ctx, id)
	switch {
	case err != nil:
		return sale.Item{}, err
	case !ok:
		return sale.Item{}, fmt.Errorf("item %d does not exist: %w", id, ErrNotLoadable)
	case !it.RetiredAt.IsZero():
		return sale.Item{}, fmt.Errorf("item %d is retired: %w", id, ErrNotLoadable)
	case it.Model != sale.Counter:
		return sale.Item{}, fmt.Errorf("item %d has the stock model %s: %w", id, it.Model, ErrNotLoadable)
	}
	return it, nil
}

func (l *Loader) read(ctx context.Context, layout shard.Layout) ([]shard.ShardReading, error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.CallTimeout)
	defer cancel()
	return l.cfg.Stock.Read(ctx, layout)
}

func (l *Loader) wish(ctx context.Context, item int64) (ledger.Wish, error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.databaseTimeout())
	defer cancel()
	return l.cfg.Ledger.Wish(ctx, item)
}

// extent is the number of shards that a load is about. Shards that only an earlier layout had are asked for and not insisted upon: a server that has
// none but those must not keep the others shut.
func (l *Loader) extent(ctx context.Context, it *sale.Item) (int, error) {
	wish, err := l.wish(ctx, it.ID)
	if err != nil {
		return 0, err
	}
	extent := max(it.Shards, wish.Shards)
	if it.Epoch == 0 {
		return extent, nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.cfg.CallTimeout)
	defer cancel()
	found, err := l.cfg.Stock.Extent(ctx, it.ID)
	if err != nil {
		l.log.WarnContext(ctx, "keeper: cannot look for what earlier layouts left", "item", it.ID, "error", err)
	}
	return max(extent, found), nil
}

func (l *Loader) take(ctx context.Context, b *loading, ttl time.Duration) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.databaseTimeout())
	defer cancel()
	return l.cfg.Ledger.Lease(ctx, b.lease, b.holder, ttl)
}

func (l *Loader) claim(ctx context.Context, item, above int64) (int64, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.databaseTimeout())
	defer cancel()
	return l.cfg.Ledger.ClaimLoad(ctx, item, above)
}

func (l *Loader) renew(ctx context.Context, item, token int64) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.databaseTimeout())
	defer cancel()
	return l.cfg.Ledger.RenewLoad(ctx, item, token)
}

func (l *Loader) fence(ctx context.Context, item int64, shards int, token int64) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*l.cfg.CallTimeout)
	defer cancel()
	return l.cfg.Stock.Fence(ctx, item, shards, token)
}

func (l *Loader) ends(ctx context.Context) (broker.Ends, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*l.cfg.CallTimeout)
	defer cancel()
	return l.cfg.Offsets.End(ctx, broker.Orders)
}

func (l *Loader) passed(ctx context.Context, ends broker.Ends) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*l.cfg.CallTimeout)
	defer cancel()
	return l.cfg.Offsets.Passed(ctx, l.cfg.Group, ends)
}

func (l *Loader) snapshot(ctx context.Context, item, token int64) (ledger.Snapshot, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	return l.cfg.Ledger.Snapshot(ctx, item, token)
}

func (l *Loader) vacate(ctx context.Context, s ledger.Snapshot, shards int) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*l.cfg.CallTimeout)
	defer cancel()
	return l.cfg.Stock.Vacate(ctx, shard.Layout{Item: s.ItemID, Shards: s.Shards}, shards, s.Token)
}

func (l *Loader) write(ctx context.Context, s ledger.Snapshot) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return l.cfg.Stock.Load(ctx, shard.Layout{Item: s.ItemID, Shards: s.Shards}, shard.Image{Token: s.Token, Free: s.Free(), Marks: s.Marks})
}
