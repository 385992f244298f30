package keeper

import (
	"context"
	"sync"
	"time"

	"flashgate/internal/ledger"
	"flashgate/internal/sale"
)

const (
	// relayBatch is how many corrections a worker claims at once.
	relayBatch = 128
	// relayLease is how long nobody else gets them. A worker needs a fraction of it, and a second more where a server is silent; it is also how
	// long a correction waits whose worker died.
	relayLease = 5 * time.Second
	// Waits until a shard that could not be corrected is tried again: doubled from the first to the longest. A shard that is being loaded is not
	// given up for long, because its units are missing from the sale; one that does not answer has other worries.
	relayFirst   = 50 * time.Millisecond
	relayLoading = 500 * time.Millisecond
	relayUnwell  = 5 * time.Second
	// relayRow is the wait of a single row where the shard is well.
	relayRow = time.Second
)

// relay carries corrections from the database to Redis: claim, run the script, delete the row. Any number of workers in any number of keepers
// do it at once.
//
// A worker may die or stall anywhere, so a correction is carried out at least once:
//
//   - It dies behind the script: the claim runs out and somebody runs the script again. The mark is gone, or names another order, or the
//     operation is known: nothing is added twice (rules R4, R13).
//   - Two relays have the same row because a claim was too short: likewise, in whatever order they come.
//   - It stalls with the row in its hands, and a load happens meanwhile: the row became true before the snapshot, which has counted it, and
//     carries the epoch of its transaction. The shard is of a newer one and absorbs it (rule R6).
//   - The row became true after the snapshot but reaches a shard that is not loaded yet: there is no stock key, NOT_LOADED, and the row stays.
//     A shard of the old epoch cannot be there with its stock: all of them were fenced before the snapshot.
//   - The row is deleted only when the shard applied or absorbed it. If that deletion fails, see the first case.
type relay struct {
	cfg       *Config
	metrics   *metrics
	catalogue *catalogue
	seldom    *seldom
	due       func(item int64, reason string) // asks for a load

	wake chan struct{}

	mu     sync.Mutex
	unwell map[place]unwell
}

// unwell is a shard that could not be corrected. Its rows wait without being tried, so that a server which does not answer costs one call's
// time now and then, and not the time of everybody else's corrections.
type unwell struct {
	failures int
	until    time.Time
}

func newRelay(cfg *Config, m *metrics, c *catalogue, due func(int64, string)) *relay {
	return &relay{
		cfg: cfg, metrics: m, catalogue: c, seldom: newSeldom(cfg.Now), due: due,
		wake: make(chan struct{}, 1), unwell: make(map[place]unwell),
	}
}

// nudge wakes a worker.
func (r *relay) nudge() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// round claims corrections and carries them out. While there may be more it wakes another worker, too.
func (r *relay) round(ctx context.Context) {
	for ctx.Err() == nil {
		claimed, err := r.claim(ctx)
		if err != nil {
			if ctx.Err() == nil && r.seldom.say("claim") {
				r.cfg.Logger.WarnContext(ctx, "keeper: cannot claim corrections", "error", err)
			}
			return
		}
		if len(claimed) == relayBatch {
			r.nudge()
		}
		r.carryOut(ctx, claimed)
		if len(claimed) < relayBatch {
			return
		}
	}
}

func (r *relay) claim(ctx context.Context) ([]ledger.Correction, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.databaseTimeout())
	defer cancel()
	return r.cfg.Ledger.ClaimCorrections(ctx, relayBatch, relayLease)
}

// corner is a shard with its corrections, in the order in which they became true.
type corner struct {
	place
	rows []ledger.Correction
}

// carryOut runs claimed corrections, the shards side by side.
func (r *relay) carryOut(ctx context.Context, claimed []ledger.Correction) {
	corners := r.sortOut(ctx, claimed)
	room := make(chan struct{}, r.cfg.ShardsAtOnce)
	var wg sync.WaitGroup
	for _, c := range corners {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			r.metrics.guard(ctx, r.cfg.Logger, "relay", func() { r.correct(ctx, c) })
		})
	}
	wg.Wait()
}

// sortOut groups corrections by the shard that they are for under the current layout (rule R12). Those of an item that nobody knows stay
// claimed: the item is newer than the catalogue, which is read again meanwhile.
func (r *relay) sortOut(ctx context.Context, claimed []ledger.Correction) []*corner {
	corners := make(map[place]*corner)
	var order []*corner
	refreshed := false
	for _, row := range claimed {
		it, ok := r.catalogue.item(row.ItemID)
		if !ok && !refreshed {
			refreshed = true
			r.refresh(ctx)
			it, ok = r.catalogue.item(row.ItemID)
		}
		if !ok {
			continue
		}
		at := place{item: row.ItemID, shard: shardOf(row, it.Shards)}
		if corners[at] == nil {
			corners[at] = &corner{place: at}
			order = append(order, corners[at])
		}
		corners[at].rows = append(corners[at].rows, row)
	}
	return order
}

// shardOf is the shard that holds the mark of a release or void. An increase goes where Increase decides; it is grouped with shard 0.
func shardOf(row ledger.Correction, shards int) int {
	if row.Op == ledger.OpIncrease {
		return 0
	}
	return sale.Home(row.UserID, shards)
}

func (r *relay) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.databaseTimeout())
	defer cancel()
	// On an error the old catalogue stays, and whatever is wrong with it is found out by the next call.
	_ = r.catalogue.refresh(ctx)
}
