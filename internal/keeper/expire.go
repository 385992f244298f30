package keeper

import (
	"context"
	"time"
)

// expireBatch is how many orders one call ends. Each item's are one transaction, which holds the item's row.
const expireBatch = 500

// expire ends the orders whose payment window is over, until none is left. Any number of keepers may do it at once: every order is ended by
// one guarded statement, so it expires once, and its release is a row of the same transaction.
func (k *Keeper) expire(ctx context.Context) {
	for ctx.Err() == nil {
		n, err := k.expireSome(ctx)
		k.metrics.expired.Add(float64(n))
		if err != nil && ctx.Err() == nil {
			// Of one item, or of the database; the others are done all the same, and this one is tried again in the next round.
			k.log.WarnContext(ctx, "keeper: cannot expire orders", "error", err)
			return
		}
		if n < expireBatch {
			return
		}
	}
}

func (k *Keeper) expireSome(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*k.cfg.databaseTimeout())
	defer cancel()
	return k.cfg.Ledger.Expire(ctx, expireBatch)
}

// transfers finishes what a crash left between take and settle. It gives by the epoch that the record holds (rule R13), never by the current
// one: after a load the shards refuse it, and only the record goes. Whoever else is at the same transfer, its gateway or another keeper,
// does no harm: the destination remembers the operation.
func (k *Keeper) transfers(ctx context.Context) {
	if !k.transfersTurn.mine(ctx, k.cfg.Now()) {
		return
	}
	items, cares := k.catalogue.watched()
	for _, it := range items {
		if cares[it.ID] != full || it.Shards == 1 || it.Epoch == 0 {
			continue
		}
		k.transfersCrew.offer(ctx, it.ID, func() {
			k.guard(ctx, "transfers", func() {
				if err := k.finishTransfers(ctx, it.ID); err != nil && ctx.Err() == nil {
					k.transfersTurn.failed.Store(true)
					if k.seldom.say([2]any{"transfers", it.ID}) {
						k.log.WarnContext(ctx, "keeper: transfers are left for later", "item", it.ID, "error", err)
					}
				}
			})
		})
	}
}

func (k *Keeper) finishTransfers(ctx context.Context, item int64) error {
	it, ok := k.catalogue.item(item)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 3*k.cfg.CallTimeout)
	defer cancel()
	return k.cfg.Stock.FinishTransfers(ctx, layoutOf(&it), k.cfg.TransferAge)
}

// every runs round at once, then whenever the interval has passed or it is woken, until ctx ends. Rounds do not overlap.
func (k *Keeper) every(ctx context.Context, loop string, interval time.Duration, wake <-chan struct{}, round func(context.Context)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		k.guard(ctx, loop, func() { round(ctx) })
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-wake:
		}
	}
}
