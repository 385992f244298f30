package keeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"flashgate/internal/ledger"
	"flashgate/internal/pause"
	"flashgate/shard"
)

// correct carries out the corrections of one shard, one after another. It stops where the shard is to blame: the rest would fare no better.
// A single row that cannot be carried out only waits itself.
func (r *relay) correct(ctx context.Context, c *corner) {
	var done, later []int64
	wait := r.resting(c.place)
	errorsInARow := 0
	for i, row := range c.rows {
		if wait > 0 {
			later = append(later, ids(c.rows[i:])...)
			break
		}
		applied, err := r.apply(ctx, row)
		if ctx.Err() != nil {
			return // we are stopping: the claim runs out
		}
		r.metrics.corrections.WithLabelValues(string(row.Op), resultOf(applied, err)).Inc()
		if finished(applied) {
			done = append(done, row.ID)
			errorsInARow = 0
			continue
		}
		later = append(later, row.ID)
		r.complain(ctx, c.place, row, applied, err)
		if err != nil {
			errorsInARow++
		}
		if toBlame(applied, err, errorsInARow) {
			wait = r.rest(c.place, applied)
		}
	}
	if wait == 0 {
		r.recovered(c.place)
		wait = relayRow
	}
	r.settle(ctx, c.place, done, later, wait)
}

// finished reports whether the row has no more to do.
func finished(applied shard.Applied) bool { return applied == shard.Done || applied == shard.Absorbed }

// toBlame reports whether a failure is the shard's and not the row's. A value that one row names may be refused for its own sake, two in a
// row are no accident.
func toBlame(applied shard.Applied, err error, errorsInARow int) bool {
	if err != nil {
		return errorsInARow > 1 || errors.Is(err, context.DeadlineExceeded)
	}
	return applied != shard.Unreadable
}

func resultOf(applied shard.Applied, err error) string {
	if err != nil {
		return "failed"
	}
	return applied.String()
}

// complain says what could not be done. A stock that is not loaded is no complaint: its load is under way, or the watch says what keeps it.
func (r *relay) complain(ctx context.Context, at place, row ledger.Correction, applied shard.Applied, err error) {
	log := r.cfg.Logger.With("item", at.item, "shard", at.shard, "op", row.Op, "correction", row.ID, "epoch", row.Epoch)
	switch {
	case err != nil:
		if r.seldom.say([2]any{"failed", at}) {
			log.WarnContext(ctx, "keeper: a correction of the stock waits", "error", err)
		}
	case applied == shard.Unreadable:
		// The watch sees a stock that is none; it does not see a single mark. So the load is asked for here.
		r.due(at.item, reasonUnreadable)
		if r.seldom.say([2]any{"unreadable", at}) {
			r.metrics.alarm(alarmCorrection, at.item)
			log.ErrorContext(ctx, "keeper: a correction of the stock met something unreadable; a load is due")
		}
	}
}

// apply carries out one correction under the layout of now. Where that is out of date it looks once more.
func (r *relay) apply(ctx context.Context, row ledger.Correction) (shard.Applied, error) {
	for again := true; ; again = false {
		it, ok := r.catalogue.item(row.ItemID)
		if !ok {
			return 0, fmt.Errorf("item %d is not in the catalogue", row.ItemID)
		}
		if !it.RetiredAt.IsZero() {
			return shard.Absorbed, nil // nothing is left in Redis to be corrected
		}
		applied, err := r.run(ctx, layoutOf(&it), row)
		if err != nil || applied != shard.WrongLayout || !again {
			return applied, err
		}
		r.refresh(ctx)
	}
}

func (r *relay) run(ctx context.Context, layout shard.Layout, row ledger.Correction) (shard.Applied, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CallTimeout)
	defer cancel()
	c := shard.Correction{User: row.UserID, OrderID: row.OrderID, Epoch: row.Epoch}
	switch row.Op {
	case ledger.OpRelease:
		return r.cfg.Stock.Release(ctx, layout, c)
	case ledger.OpVoid:
		return r.cfg.Stock.Void(ctx, layout, c)
	case ledger.OpIncrease:
		return r.cfg.Stock.Increase(ctx, layout, row.OperationID, row.Units, row.Epoch)
	}
	// Of a newer version, whose relays know it.
	return 0, fmt.Errorf("correction %d: unknown operation %q", row.ID, row.Op)
}

// settle deletes rows that are done and postpones the others. It runs to its end when the keeper stops: what it would leave is done twice.
func (r *relay) settle(ctx context.Context, at place, done, later []int64, wait time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.databaseTimeout())
	defer cancel()
	var errs []error
	if len(done) > 0 {
		errs = append(errs, r.cfg.Ledger.FinishCorrections(ctx, done...))
	}
	if len(later) > 0 {
		// Not all rows of all relays at the same instant.
		errs = append(errs, r.cfg.Ledger.PostponeCorrections(ctx, later, pause.Jitter(wait)))
	}
	if err := errors.Join(errs...); err != nil && r.seldom.say([2]any{"settle", at}) {
		// The rows come again when their claim runs out, and are idempotent.
		r.cfg.Logger.WarnContext(ctx, "keeper: cannot settle corrections", "item", at.item, "shard", at.shard, "error", err)
	}
}

// resting returns how much longer a shard is left alone.
func (r *relay) resting(at place) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, r.unwell[at].until.Sub(r.cfg.Now()))
}

// rest leaves a shard alone for a while and returns how long.
func (r *relay) rest(at place, applied shard.Applied) time.Duration {
	longest := relayUnwell
	if applied == shard.NotLoaded || applied == shard.WrongLayout {
		longest = relayLoading
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.unwell[at]
	wait := doubled(relayFirst, u.failures, longest)
	r.unwell[at] = unwell{failures: u.failures + 1, until: r.cfg.Now().Add(wait)}
	return wait
}

func (r *relay) recovered(at place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.unwell, at)
}

func ids(rows []ledger.Correction) []int64 {
	out := make([]int64, len(rows))
	for i, row := range rows {
		out[i] = row.ID
	}
	return out
}
