package keeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"flashgate/internal/sale"
	"flashgate/shard"
)

const (
	// retireSilent is how many items in a row may fail before a round ends: a server that is away is not asked about every item there ever was.
	retireSilent = 3
	// retireLongest is the longest wait until an item that failed is tried again; doubled from RetireEvery.
	retireLongest = 5 * time.Minute
	// retireLooks is how many retired items are looked for in Redis in one round, each with one question to every shard that it could have had;
	// retireEnough, how often each is, and retireAgain, how long lies between: nothing that began before it was retired takes as long.
	retireLooks  = 64
	retireEnough = 2
	retireAgain  = time.Minute
)

// retire ends the life of items whose sale is over. An item is retired when nothing of it is on its way any more:
//
//  1. its sale has ended for long enough, no order is PENDING, no correction waits, nobody is loading it (Retirable);
//  2. its outboxes are empty, and no units are in transfer;
//  3. the order writers have stored everything that is in Kafka behind 2;
//  4. Retire says so once more, under the locks of the sale and the item;
//  5. its keys are removed from Redis.
//
// Without 3 an order whose outbox entry the broker has acknowledged, and which its writer has yet to read, would find its item retired and be
// refused. With it, such an order is a row before 4 looks, and keeps its item.
//
// A sale that is extended meanwhile: whoever is first to the row of the sale decides. Before 4, the item is not retired, and nothing has happened to
// its keys; behind 4, the ledger refuses the extension.
//
// A gateway that still sells, because it has not heard that the sale was ended early, reserves behind 2. So 5 does not simply remove: it fences the
// shards first, after which nothing is reserved, sweeps what is in the outboxes, and removes the keys when they are empty. The event finds the item
// retired and becomes a REJECTED row: no 202 is without one.
//
// A crash between 4 and 5, or a server that was away then, leaves keys of a retired item. So every process that has the turn looks for those of each
// retired item once, and once more a while later: a loader that had claimed the item and was stopped may have fenced it anew. It gets no further,
// because there is no snapshot of a retired item.
//
// Everything may be done twice, by several keepers at once.
type retire struct {
	k    *Keeper
	turn *turn
	pace *pace // of items that failed, and of looks

	// Of the loop, which is one goroutine.
	looks map[int64]int // at retired items, that found nothing or left nothing
}

func newRetire(k *Keeper) *retire {
	return &retire{k: k, turn: k.slowTurn("retire", k.cfg.RetireEvery), pace: newPace(), looks: make(map[int64]int)}
}

func (r *retire) round(ctx context.Context) {
	if !r.turn.mine(ctx, r.k.cfg.Now()) {
		clear(r.looks) // somebody else looks, who may fail; when the turn is ours again we look anew
		return
	}
	known := make(map[int64]bool)
	r.retireDue(ctx, known)
	r.clearRetired(ctx, known)
	r.pace.keep(known)
}

// retireDue retires what may be retired, and adds every item that it dealt with to known.
func (r *retire) retireDue(ctx context.Context, known map[int64]bool) {
	items, err := r.retirable(ctx)
	if err != nil {
		r.complain(ctx, 0, err)
		return
	}
	var quiet []int64
	r.each(ctx, items, known, 0, func(item int64) error {
		ok, err := r.quiet(ctx, item)
		if ok {
			quiet = append(quiet, item)
		}
		return err
	})
	if len(quiet) == 0 {
		return
	}
	if err := r.stored(ctx); err != nil {
		r.complain(ctx, 0, err)
		return
	}
	r.each(ctx, quiet, known, 0, func(item int64) error { return r.finish(ctx, item) })
}

// clearRetired removes what Redis holds of items that were retired before, some items in each round.
func (r *retire) clearRetired(ctx context.Context, known map[int64]bool) {
	now := r.k.cfg.Now()
	var due []int64
	for _, item := range r.k.catalogue.retired() {
		if r.looks[item] == retireEnough {
			continue
		}
		known[item] = true
		if len(due) < retireLooks && r.pace.due(item, now) {
			due = append(due, item)
		}
	}
	r.each(ctx, due, known, retireAgain, func(item int64) error {
		it, err := r.item(ctx, item)
		if err != nil || it.RetiredAt.IsZero() {
			return err
		}
		if err := r.clear(ctx, &it); err != nil {
			return err
		}
		r.looks[item]++
		return nil
	})
}

// each does work on items that are due, one after another, and leaves the rest for later when several failed in a row. An item rests behind its work.
func (r *retire) each(ctx context.Context, items []int64, known map[int64]bool, rest time.Duration, work func(item int64) error) {
	silent := 0
	for _, item := range items {
		known[item] = true
		if ctx.Err() != nil || silent == retireSilent || !r.pace.due(item, r.k.cfg.Now()) {
			continue
		}
		err := errPanicked
		r.k.guard(ctx, "retire", func() { err = work(item) })
		if ctx.Err() != nil {
			continue
		}
		r.pace.worked(item, r.k.cfg.Now(), err == nil, rest, r.k.cfg.RetireEvery, retireLongest)
		silent++
		if err == nil {
			silent = 0
			continue
		}
		r.turn.failed.Store(true)
		r.complain(ctx, item, err)
	}
}

func (r *retire) complain(ctx context.Context, item int64, err error) {
	if ctx.Err() == nil && r.k.seldom.say([2]any{"retire", item}) {
		r.k.log.WarnContext(ctx, "keeper: what is over stays in Redis for now", "item", item, "error", err)
	}
}

// quiet reports whether Redis holds nothing of an item that anybody waits for. Old outbox entries are published, and old transfers finished, on the way.
func (r *retire) quiet(ctx context.Context, item int64) (bool, error) {
	it, err := r.item(ctx, item)
	if err != nil || it.Model != sale.Counter || !it.RetiredAt.IsZero() {
		return false, err
	}
	extent, err := r.extent(ctx, item)
	if err != nil || extent == 0 {
		return err == nil, err
	}
	layout := shard.Layout{Item: item, Shards: max(extent, it.Shards)}
	found, err := r.k.sweeper.sweep(ctx, layout, false)
	if err != nil || found.left+found.unreadable > 0 {
		return false, err
	}
	for again := true; ; again = false {
		readings, err := r.k.loader.read(ctx, layout)
		if err != nil || !moving(readings[:it.Shards]) {
			return err == nil, err
		}
		if !again {
			return false, nil
		}
		if err := r.k.finishTransfers(ctx, item); err != nil {
			return false, err
		}
	}
}

// moving reports whether units are in transfer. Where a shard has no stock nothing will ever come of a transfer: the load that is due counts
// from the database, and of an item that is over without a live order the units are nobody's.
func moving(readings []shard.ShardReading) bool {
	units := int64(0)
	for _, s := range readings {
		if !s.Loaded {
			return false
		}
		units += max(0, s.Moving)
	}
	return units > 0
}

// stored waits until the order writers have stored everything that is in Kafka now, or the next round is due.
func (r *retire) stored(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.k.cfg.RetireEvery)
	defer cancel()
	return r.k.loader.drain(ctx)
}

// finish retires an item for good, unless something has changed.
func (r *retire) finish(ctx context.Context, item int64) error {
	done, err := r.retire(ctx, item)
	if err != nil || !done {
		return err
	}
	r.k.metrics.retired.Inc()
	r.k.log.InfoContext(ctx, "keeper: item retired", "item", item)
	it, err := r.item(ctx, item)
	if err != nil {
		return err
	}
	return r.clear(ctx, &it)
}

// clear removes the keys of a retired item as soon as nothing is in its outboxes. Fenced with a token above every claim that there was, and there
// will be no other, its shards reserve nothing and take no load.
func (r *retire) clear(ctx context.Context, it *sale.Item) error {
	extent, err := r.extent(ctx, it.ID)
	if err != nil || extent == 0 || it.Model != sale.Counter {
		return err
	}
	layout := shard.Layout{Item: it.ID, Shards: max(extent, it.Shards)}
	ok, err := r.k.loader.fence(ctx, it.ID, layout.Shards, it.Claim+1)
	if err != nil {
		return err
	}
	if !ok {
		return errors.New("a shard has a newer token than the database ever gave")
	}
	found, err := r.k.sweeper.sweep(ctx, layout, true)
	if err != nil {
		return err
	}
	if left := found.left + found.unreadable; left > 0 {
		return fmt.Errorf("%d outbox entries are left", left)
	}
	return r.remove(ctx, layout)
}

// The calls, each under its own bound.

func (r *retire) retirable(ctx context.Context) ([]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, r.k.cfg.databaseTimeout())
	defer cancel()
	return r.k.cfg.Ledger.Retirable(ctx, *r.k.cfg.RetireAfter)
}

func (r *retire) retire(ctx context.Context, item int64) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, r.k.cfg.databaseTimeout())
	defer cancel()
	return r.k.cfg.Ledger.Retire(ctx, item, *r.k.cfg.RetireAfter)
}

// item is an item, retired or not.
func (r *retire) item(ctx context.Context, id int64) (sale.Item, error) {
	ctx, cancel := context.WithTimeout(ctx, r.k.cfg.databaseTimeout())
	defer cancel()
	it, ok, err := r.k.cfg.Ledger.Item(ctx, id)
	if err == nil && !ok {
		err = fmt.Errorf("item %d does not exist", id)
	}
	return it, err
}

func (r *retire) extent(ctx context.Context, item int64) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, r.k.cfg.CallTimeout)
	defer cancel()
	return r.k.cfg.Stock.Extent(ctx, item)
}

func (r *retire) remove(ctx context.Context, layout shard.Layout) error {
	ctx, cancel := context.WithTimeout(ctx, r.k.cfg.CallTimeout)
	defer cancel()
	return r.k.cfg.Stock.Remove(ctx, layout.Item, layout.Shards)
}
