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
