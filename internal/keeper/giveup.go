package keeper

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"flashgate/internal/ledger"
	"flashgate/shard"
)

// giveUpEntries is how many entries are given up by one transaction, which holds the item's row meanwhile.
const giveUpEntries = 16

// giveUp cancels the reservations of entries, so that their units return (rule R3), and removes the entries. refused are those whose rows the
// database will never take; they stand, and nothing is released for them.
//
// The release is a row of the same transaction and nothing that is done here: whoever removes the entry first, this keeper, another one or
// the gateway whose publication was acknowledged at last, the unit returns because of the row, and once. An event that still arrives finds
// its row CANCELLED. If it was faster, the order stands and only the entry goes.
func (s *sweeper) giveUp(ctx context.Context, at place, entries []shard.Entry) (removed, refused []shard.Entry, err error) {
	var errs []error
	for chunk := range slices.Chunk(entries, giveUpEntries) {
		ended, no, err := s.endOrders(ctx, at, chunk)
		refused = append(refused, no...)
		if err != nil {
			errs = append(errs, err)
		}
		if err := s.forget(ctx, at, ended); err != nil {
			errs = append(errs, err)
			break
		}
		removed = append(removed, ended...)
		if err != nil {
			// The database is away: the next chunk would fare no better.
			break
		}
	}
	return removed, refused, errors.Join(errs...)
}

// endOrders writes the rows of entries: in one transaction, or, where the database refuses something of it, in one for each entry.
func (s *sweeper) endOrders(ctx context.Context, at place, entries []shard.Entry) (ended, refused []shard.Entry, err error) {
	err = s.giveUpEvents(ctx, entries)
	switch {
	case err == nil:
		s.count("given_up", entries)
		s.log.WarnContext(ctx, "keeper: gave reservations up", "item", at.item, "shard", at.shard, "entries", len(entries))
		return entries, nil, nil
	case ledger.Kind(err) != ledger.Permanent:
		return nil, nil, fmt.Errorf("give up reservations of item %d shard %d: %w", at.item, at.shard, err)
	case len(entries) == 1:
		if s.seldom.say(entries[0].Batch) {
			s.metrics.alarm(alarmGiveUp, at.item)
			s.log.ErrorContext(ctx, "keeper: the database refuses to give a reservation up", "item", at.item, "shard", at.shard,
				"batch", entries[0].Batch, "error", err)
		}
		return nil, entries, nil
	}
	for i := range entries {
		e, no, err := s.endOrders(ctx, at, entries[i:i+1])
		ended, refused = append(ended, e...), append(refused, no...)
		if err != nil {
			return ended, refused, err
		}
	}
	return ended, refused, nil
}

func (s *sweeper) giveUpEvents(ctx context.Context, entries []shard.Entry) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.databaseTimeout())
	defer cancel()
	return s.cfg.Ledger.GiveUp(ctx, eventsOf(entries))
}
