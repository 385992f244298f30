package keeper

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errTakenOver ends the context of a load whose claim is not the newest any more.
var errTakenOver = errors.New("somebody else took the load over")

// loading is a load that somebody has begun.
type loading struct {
	item    int64
	token   int64  // of the claim; 0 for none
	above   int64  // the newest token that a shard has seen
	lease   string // name of the item's lease; "" for none
	holder  string
	planned bool // nothing was wrong with the stock: it is a wish that is to be carried out
}

// begin takes the item's lease and claims its load if it is due.
//
// Between a look at an item and its claim somebody else may finish the whole load: of a new item, that takes a few milliseconds. The second load
// would shut the sale for seconds, for nothing. So whoever looks has a lease of the item before he looks, and has it until his load has ended.
// It is not the lease of the claim, which comes too late for that. A process that stalls for longer than the lease loads in vain, and does
// no other harm.
func (l *Loader) begin(ctx context.Context, b *loading, due func(context.Context) (bool, error)) (Outcome, error) {
	held, err := l.take(ctx, b, l.cfg.LeaseTTL)
	if err != nil {
		return 0, err
	}
	if !held {
		b.lease = ""
		return Busy, nil
	}
	still, err := due(ctx)
	if err != nil {
		return 0, err
	}
	if !still {
		return NotDue, nil
	}
	token, ok, err := l.claim(ctx, b.item, b.above)
	if err != nil {
		return 0, err
	}
	if !ok {
		return Busy, nil
	}
	b.token = token
	return 0, nil
}

// end gives back what begin took, so that the next one need not wait. What cannot be given back runs out.
func (l *Loader) end(ctx context.Context, b *loading) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.cfg.databaseTimeout())
	defer cancel()
	var errs [2]error
	if b.token != 0 {
		errs[0] = l.cfg.Ledger.EndLoad(ctx, b.item, b.token)
	}
	if b.lease != "" {
		_, errs[1] = l.take(ctx, b, 0)
	}
	if err := errors.Join(errs[:]...); err != nil {
		l.log.WarnContext(ctx, "keeper: the leases of a load run out by themselves", "item", b.item, "epoch", b.token, "error", err)
	}
}

// hold does the steps of a load and renews its leases meanwhile. It ends early when somebody else has claimed the load: the rest of this one would
// be in vain. While the database does not answer it goes on, because only an answer says so.
func (l *Loader) hold(ctx context.Context, b *loading) (Outcome, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() {
		tick := time.NewTicker(min(renewEvery, l.cfg.LeaseTTL/2))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if ok, err := l.renew(ctx, b.item, b.token); err == nil && !ok {
				cancel(errTakenOver)
				return
			}
			// Lost or not: the claim decides.
			_, _ = l.take(ctx, b, l.cfg.LeaseTTL)
		}
	})
	defer renewing.Wait()
	defer cancel(nil)
	outcome, err := l.steps(ctx, b)
	if err != nil && errors.Is(context.Cause(ctx), errTakenOver) {
		return TakenOver, nil
	}
	return outcome, err
}

// renewEvery is half of what the ledger grants for a claim.
const renewEvery = time.Second
