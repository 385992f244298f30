package shard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"flashgate/internal/pause"
)

// giveTries is how often give and settle are sent before their record is left to whoever comes next. Both may be repeated.
const giveTries = 3

// take moves units into transfer records at their sources. A take whose answer is missing is not repeated: its record, if
// there is one, is found by whoever looks for unfinished transfers. The error is the first refusal that does not pass by itself:
// a full memory, a missing permission. Every other failure shows as units that are not there.
func (s *Stock) take(ctx context.Context, layout Layout, moves []move) (taken []transfer, refused error) {
	calls := make([]call, len(moves))
	ids := make([]string, len(moves))
	for i, m := range moves {
		k := keysOf(layout.Item, m.from)
		ids[i] = uuid.NewString()
		calls[i] = call{scriptTake, []string{k.stock, k.meta}, []string{
			formatInt(int64(layout.Shards)), ids[i], formatInt(int64(m.to)), formatInt(m.units),
		}}
	}
	results := s.runAll(ctx, calls)
	for i, m := range moves {
		r := results[i]
		if r.err != nil {
			switch {
			case !neverRan(r.err):
				s.metrics.moves.WithLabelValues("unsettled").Inc()
			case !passing(r.err) && refused == nil:
				refused = place{layout.Item, m.from}.wrap("take", r.err)
			}
			continue
		}
		if r.code != "OK" || len(r.values) != 2 {
			continue // somebody was faster, or a load is under way; the next look at the shards tells
		}
		units, e1 := parseQuantity(r.values[0])
		epoch, e2 := parseCount(r.values[1])
		if e1 == nil && e2 == nil {
			taken = append(taken, transfer{id: ids[i], from: m.from, to: m.to, units: units, epoch: epoch})
		}
	}
	return taken, refused
}

// give adds units at their destinations and returns the transfers that may be settled: given now or before, or of an older
// load than the destination, which has counted their units. The others keep their record.
func (s *Stock) give(ctx context.Context, layout Layout, transfers []transfer) ([]transfer, error) {
	return s.repeat(ctx, layout.Item, transfers, "give", func(t transfer) call {
		k := keysOf(layout.Item, t.to)
		return call{scriptGive, []string{k.stock, k.meta}, []string{
			formatInt(int64(layout.Shards)), t.id, formatInt(t.units), formatInt(t.epoch),
		}}
	}, func(t transfer, r reply) bool {
		if r.code == "OK" {
			s.metrics.movedUnits.Add(float64(t.units))
		}
		return r.code == "OK" || r.code == "KNOWN" || r.code == "STALE"
	})
}

// settle removes the records of transfers that have been given.
func (s *Stock) settle(ctx context.Context, item int64, transfers []transfer) error {
	settled, err := s.repeat(ctx, item, transfers, "settle", func(t transfer) call {
		return call{scriptSettle, []string{keysOf(item, t.from).meta}, []string{t.id, formatInt(t.epoch)}}
	}, func(_ transfer, r reply) bool { return r.code == "OK" })
	s.metrics.moves.WithLabelValues("done").Add(float64(len(settled)))
	s.metrics.moves.WithLabelValues("unsettled").Add(float64(len(transfers) - len(settled)))
	return err
}

// repeat runs an idempotent script for each transfer, again where the call itself failed, and returns the transfers of
// which done says so. The error is of the others.
func (s *Stock) repeat(ctx context.Context, item int64, todo []transfer, what string, build func(transfer) call, done func(transfer, reply) bool) ([]transfer, error) {
	var finished []transfer
	var errs []error
	for try, wait := 1, retryWait; len(todo) > 0; try, wait = try+1, wait*4 {
		calls := make([]call, len(todo))
		for i, t := range todo {
			calls[i] = build(t)
		}
		var failed []transfer
		for i, r := range s.runAll(ctx, calls) {
			t := todo[i]
			switch {
			case r.err != nil && try < giveTries:
				failed = append(failed, t)
			case r.err != nil:
				errs = append(errs, fmt.Errorf("%s transfer %s, item %d shards %d to %d: %w", what, t.id, item, t.from, t.to, r.err))
			case done(t, r.reply):
				finished = append(finished, t)
			default:
				errs = append(errs, fmt.Errorf("%s transfer %s, item %d shards %d to %d: %s", what, t.id, item, t.from, t.to, r.code))
			}
		}
		todo = failed
		if len(todo) > 0 && !pause.For(ctx, wait) {
			errs = append(errs, ctx.Err())
			break
		}
	}
	return finished, errors.Join(errs...)
}

// FinishTransfers completes transfers that began longer than olderThan ago, by the clock of the source: what a process
// left behind that died between take and settle. Whoever else is at the same transfer does no harm. A transfer whose
// destination is not loaded keeps its record; that, and shards that did not answer, make the error. It wraps ErrUnreadable where
// records cannot be read, or do not make up the units that count as moving: then units are lost to the sale, and only a load
// brings them back.
func (s *Stock) FinishTransfers(ctx context.Context, layout Layout, olderThan time.Duration) error {
	if err := checkLayout(layout); err != nil {
		return fmt.Errorf("finish transfers: %w", err)
	}
	calls := make([]call, layout.Shards)
	for i := range calls {
		calls[i] = call{scriptTransfers, []string{keysOf(layout.Item, i).meta}, nil}
	}
	var old []transfer
	var errs []error
	for i, r := range s.runAll(ctx, calls) {
		found, err := readTransfers(layout, i, r, olderThan)
		if err != nil {
			errs = append(errs, place{layout.Item, i}.wrap("read transfers", err))
		}
		old = append(old, found...)
	}
	given, err := s.give(ctx, layout, old)
	errs = append(errs, err, s.settle(ctx, layout.Item, given))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("finish transfers: %w", err)
	}
	return nil
}

func readTransfers(layout Layout, from int, r result, olderThan time.Duration) ([]transfer, error) {
	if err := r.failure(len(r.values) >= 2 && len(r.values)%2 == 0); err != nil {
		return nil, err
	}
	now, err := parseMillis(r.values[0])
	if err != nil {
		return nil, err
	}
	var old []transfer
	var errs []error
	units := int64(0)
	for i := 2; i < len(r.values); i += 2 {
		t, err := decodeTransfer(from, r.values[i], r.values[i+1])
		if err == nil && t.to >= layout.Shards {
			err = fmt.Errorf("read transfer %s: no shard %d of %d", t.id, t.to, layout.Shards)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%w: %w", ErrUnreadable, err))
			continue
		}
		units += t.units
		if now.Sub(t.at) >= olderThan {
			old = append(old, t)
		}
	}
	// Whoever is not loaded has no number, and its records are void.
	if moving := r.values[1]; len(errs) == 0 && moving != "" && moving != formatInt(units) {
		errs = append(errs, fmt.Errorf("%w: %q units count as moving, their records are of %d", ErrUnreadable, moving, units))
	}
	return old, errors.Join(errs...)
}
