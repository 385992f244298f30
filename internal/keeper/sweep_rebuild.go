package keeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"flashgate/shard"
)

const (
	// rebuildSteps is how many calls' time the reading of all marks of a shard may take.
	rebuildSteps = 10
	// rebuildAgain is the wait before marks that did not tell are read again: 100,000 of them are work for Redis, and what cannot be read now is
	// mended by a load or by hand. A load that waits for such an entry waits for minutes.
	rebuildAgain = 5 * time.Second
)

// rebuilt is what marks told of the entries of a shard that cannot be read. The events of an entry never change, so they are found out once;
// marks that have gone since are of orders with rows, to which a second event does nothing.
type rebuilt struct {
	entries map[string]shard.Entry
	again   time.Time // not before
}

// rebuild makes entries that cannot be read anew, so that they are published, given up and removed as any other: otherwise their reservations would
// be lost with the next load, which would wait for them until nobody can come any more who reads them. left is how many cannot be made. They stay, as
// do those of another version: its keepers can read them, and what this one would make of them may lack something.
func (s *sweeper) rebuild(ctx context.Context, at place, bad []shard.BadEntry) (entries []shard.Entry, left int, err error) {
	known := s.rebuiltOf(at, bad)
	var wanted []string
	for _, b := range bad {
		e, ok := known.entries[b.Batch]
		switch {
		case ok:
			entries = append(entries, e)
		case b.Foreign:
			left++
		default:
			wanted = append(wanted, b.Batch)
		}
	}
	if len(wanted) == 0 {
		return entries, left, nil
	}
	left += len(wanted)
	if s.cfg.Now().Before(known.again) {
		return entries, left, nil
	}
	made, err := s.fromMarks(ctx, at, wanted)
	switch {
	case errors.Is(err, shard.ErrUnreadable):
		if s.seldom.say([2]any{"rebuild", at}) {
			s.log.ErrorContext(ctx, "keeper: the marks do not tell what was in an outbox entry that cannot be read", "item", at.item, "shard", at.shard,
				"entries", len(wanted), "error", err)
		}
		s.remade(at, nil, s.cfg.Now().Add(rebuildAgain))
		return entries, left, nil
	case err != nil:
		return entries, left, fmt.Errorf("read marks for an outbox entry that cannot be read: %w", err)
	}
	s.remade(at, made, time.Time{})
	for _, e := range made {
		s.log.WarnContext(ctx, "keeper: an outbox entry was made anew from marks", "item", at.item, "shard", at.shard, "batch", e.Batch, "reservations", len(e.Events))
	}
	// Those that are not made are gone.
	return append(entries, made...), left - len(wanted), nil
}

func (s *sweeper) fromMarks(ctx context.Context, at place, batches []string) ([]shard.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, rebuildSteps*s.cfg.CallTimeout)
	defer cancel()
	return s.cfg.Stock.Rebuild(ctx, at.item, at.shard, batches...)
}

// rebuiltOf returns what is known of a shard's unreadable entries, and forgets those that do not stand any more.
func (s *sweeper) rebuiltOf(at place, bad []shard.BadEntry) rebuilt {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.anew[at]
	if len(bad) == 0 || was == nil {
		delete(s.anew, at)
		return rebuilt{}
	}
	now := rebuilt{entries: make(map[string]shard.Entry), again: was.again}
	for _, b := range bad {
		if e, ok := was.entries[b.Batch]; ok {
			now.entries[b.Batch] = e
		}
	}
	s.anew[at] = &now
	return now
}

// remade remembers entries, or when to look again.
func (s *sweeper) remade(at place, made []shard.Entry, again time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := rebuilt{entries: make(map[string]shard.Entry), again: again}
	if was := s.anew[at]; was != nil {
		for batch, e := range was.entries {
			now.entries[batch] = e
		}
	}
	for _, e := range made {
		now.entries[e.Batch] = e
	}
	s.anew[at] = &now
}
