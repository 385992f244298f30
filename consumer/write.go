package consumer

import (
	"context"
	"errors"
	"slices"
	"time"

	"flashgate/internal/broker"
	"flashgate/internal/ledger"
	"flashgate/internal/pause"
	"flashgate/internal/sale"
)

// reservation is an entry that could be understood.
type reservation struct {
	entry
	event sale.Event
}

// handle stores a batch, in its order, and turns what cannot be stored into letters. It reports false when ctx ended first: the batch is left as it
// is, and nothing of it will be committed.
func (s *session) handle(ctx context.Context, batch []entry) bool {
	if len(batch) == 0 {
		return true
	}
	s.metrics.batchSize.Observe(float64(len(batch)))
	sound := make([]reservation, 0, len(batch))
	var letters []*letter
	for _, e := range batch {
		event, err := broker.Decode(e.record)
		if err != nil {
			letters = append(letters, poisonLetter(e, err))
			continue
		}
		sound = append(sound, reservation{e, event})
	}
	refused, err := s.write(ctx, sound)
	if err != nil {
		s.cfg.Logger.Warn("stopped before the batch was stored; its records are read again", "records", len(batch))
		return false
	}
	for _, l := range append(letters, refused...) {
		s.addLetter(l)
	}
	for _, e := range batch {
		e.partition.handled(e.record)
	}
	return true
}

// write stores reservations in one transaction, and waits for as long as the database is in trouble. It returns letters for those that the ledger
// refuses, and an error when ctx ended first. Partitions that go to another member during a wait are left to that one.
func (s *session) write(ctx context.Context, batch []reservation) (refused []*letter, err error) {
	for attempt := 0; len(batch) > 0; attempt++ {
		err := s.writeOnce(ctx, batch)
		switch ledger.Kind(err) {
		case 0:
			return nil, nil
		case ledger.Permanent:
			return s.divide(ctx, batch, err)
		}
		s.metrics.retries.Inc()
		s.cfg.Logger.Warn("cannot write orders, trying again", "attempt", attempt+1, "orders", len(batch), "error", err)
		if err := s.waitForLedger(ctx, attempt); err != nil {
			return nil, err
		}
		batch = slices.DeleteFunc(batch, func(r reservation) bool { return !s.owned.has(r.partition) })
	}
	return nil, nil
}

func (s *session) writeOnce(ctx context.Context, batch []reservation) error {
	events := make([]sale.Event, len(batch))
	for i := range batch {
		events[i] = batch[i].event
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.WriteTimeout)
	defer cancel()
	started := time.Now()
	written, err := s.cfg.Ledger.Write(ctx, events)
	s.metrics.writeSeconds.Observe(time.Since(started).Seconds())
	if err != nil {
		return err
	}
	s.health.note(&s.health.stored, s.cfg.Now())
	for i, w := range written {
		s.metrics.records.WithLabelValues(w.String()).Inc()
		switch w {
		case ledger.Conflict, ledger.RejectedNoRoom, ledger.RejectedStale, ledger.RejectedDuplicate:
			// Each of these means that a buyer was promised something that does not hold.
			s.cfg.Logger.Error("order not stored as reserved", "outcome", w.String(), "order", events[i].OrderID.String(),
				"item", events[i].ItemID, "shard", events[i].Shard, "epoch", events[i].Epoch)
		}
	}
	return nil
}

// waitForLedger waits before the next attempt. Rebalances may happen meanwhile: a member that waits out a database must not hold up the group.
func (s *session) waitForLedger(ctx context.Context, attempt int) error {
	s.client.AllowRebalance()
	pause.For(ctx, s.waits().After(attempt+1))
	// A poll with an ended context fetches nothing; it waits for a rebalance that is under way, and blocks the next one.
	ended, end := context.WithCancel(ctx)
	end()
	s.client.PollRecords(ended, 1)
	s.health.note(&s.health.polled, s.cfg.Now())
	return ctx.Err()
}

// divide finds the reservations that made the ledger refuse a batch, stores the others and returns letters for those.
func (s *session) divide(ctx context.Context, batch []reservation, cause error) ([]*letter, error) {
	if len(batch) == 1 {
		return []*letter{refusedLetter(batch[0], cause)}, nil
	}
	var letters []*letter
	for _, part := range parts(batch, cause) {
		refused, err := s.write(ctx, part)
		if err != nil {
			return nil, err
		}
		letters = append(letters, refused...)
	}
	return letters, nil
}

// parts splits a batch that was refused: where the ledger named events, into the others, all together, and each of these alone, which tells what
// is wrong with it; else into halves.
func parts(batch []reservation, cause error) [][]reservation {
	var named *ledger.PermanentError
	if errors.As(cause, &named) && len(named.At) > 0 {
		var others []reservation
		var alone [][]reservation
		for i := range batch {
			if slices.Contains(named.At, i) {
				alone = append(alone, batch[i:i+1:i+1])
			} else {
				others = append(others, batch[i])
			}
		}
		if len(alone) > 0 {
			return append([][]reservation{others}, alone...)
		}
	}
	half := len(batch) / 2
	return [][]reservation{batch[:half:half], batch[half:]}
}
