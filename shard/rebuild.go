package shard

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/rueidis"

	"flashgate/internal/sale"
)

// scanMarks is how many marks one step of a scan asks for: a fraction of a millisecond of Redis' time.
const scanMarks = 500

// Rebuild makes outbox entries of one shard that cannot be read anew from the marks of their reservations, which name their
// batch and hold whatever an event needs but the trace. It changes nothing. Entries that do not stand any more are left out;
// one without events is settled, and may be forgotten.
//
// The error wraps ErrUnreadable where marks are missing, or one cannot be read, which may be of any batch: then nothing is
// returned, because entries that lack an event must not be forgotten.
//
// A mark that is gone was removed by the release or the void of an order that has ended, so its row is there, and its event
// would change nothing. What happens meanwhile:
//
//	acknowledged by its gateway    before the entry was looked at: it is left out. Behind it: published twice, which the ledger
//	                               does not mind, and forgotten twice.
//	fenced                         nothing that is read here goes with a fence.
//	loaded                         the entry stood at an instant, so its batch is of the epoch of that instant: a load would have
//	                               removed it. Marks of a later load name no batch. So whatever is found has its true epoch, and
//	                               the ledger refuses what that load has written off (rule R8). What is not found any more is of no
//	                               use either; the second look tells, and such entries are left out.
//	another keeper does the same   both find the same events.
//
// It is bounded by ctx alone, and reads all marks of the shard in small steps: 100,000 take Redis a tenth of a second.
func (s *Stock) Rebuild(ctx context.Context, item int64, shard int, batches ...string) ([]Entry, error) {
	at := place{item, shard}
	entries, err := s.rebuild(ctx, at, batches)
	if err != nil {
		return nil, at.wrap("make outbox entries from marks", err)
	}
	return entries, nil
}

func (s *Stock) rebuild(ctx context.Context, at place, batches []string) ([]Entry, error) {
	standing, err := s.standing(ctx, at, batches)
	if err != nil || len(standing) == 0 {
		return nil, err
	}
	// The epochs are of before the scan, the count is of behind it: a mark that is lost in between is missed in the count.
	unread, err := s.scan(ctx, at, standing)
	if err != nil {
		return nil, err
	}
	after := s.look(ctx, at)
	if !after.answered {
		return nil, after.err
	}
	entries := make([]Entry, 0, len(standing))
	for _, batch := range batches {
		entry, ok := standing[batch]
		if !ok || entry.Epoch != after.epoch {
			continue
		}
		delete(standing, batch)
		entries = append(entries, *entry)
	}
	switch {
	case len(entries) == 0:
		return nil, nil
	case after.mustMarks < 0 || after.marks != after.mustMarks:
		return nil, fmt.Errorf("%w: %d marks, and not %d", ErrUnreadable, after.marks, after.mustMarks)
	case unread > 0:
		return nil, fmt.Errorf("%w: %d marks", ErrUnreadable, unread)
	}
	return entries, nil
}

// standing returns those entries that stand, without events, by batch, each with the epoch of the instant in which it stood.
func (s *Stock) standing(ctx context.Context, at place, batches []string) (map[string]*Entry, error) {
	k := at.keys()
	calls := make([]call, len(batches))
	for i, batch := range batches {
		calls[i] = call{scriptReadBack, []string{k.buyers, k.pending, k.meta}, []string{batch}}
	}
	standing := make(map[string]*Entry)
	for i, r := range s.runAll(ctx, calls) {
		err := r.failure(len(r.values) == 3)
		if err != nil {
			return nil, err
		}
		if r.values[0] == "" {
			continue
		}
		epoch, err := parseCount(r.values[1])
		if err != nil {
			return nil, fmt.Errorf("%w: the epoch: %w", ErrUnreadable, err)
		}
		standing[batches[i]] = &Entry{Batch: batches[i], Epoch: epoch}
	}
	return standing, nil
}

// scan goes through all marks of a shard and adds the events of those that are of the given entries. unread counts those that
// cannot be read.
func (s *Stock) scan(ctx context.Context, at place, entries map[string]*Entry) (unread int, err error) {
	key := at.keys().buyers
	// A step may bring what an earlier one has brought.
	seen := make(map[sale.OrderID]bool)
	for cursor := uint64(0); ; {
		command := s.cfg.Client.B().Hscan().Key(key).Cursor(cursor).Count(scanMarks).Build()
		var step rueidis.ScanEntry
		err := s.plain(ctx, []rueidis.Completed{command}, func(_ int, answer rueidis.RedisResult) (err error) {
			step, err = answer.AsScanEntry()
			return err
		})[0]
		if e, ok := rueidis.IsRedisErr(err); ok && strings.HasPrefix(e.Error(), "WRONGTYPE") {
			return 0, fmt.Errorf("%w: buyers", ErrUnreadable)
		}
		if err != nil {
			return 0, err
		}
		for i := 0; i+1 < len(step.Elements); i += 2 {
			user := step.Elements[i]
			mark, err := decodeMark(step.Elements[i+1])
			of, ours := mark.OrderID.Item()
			if err != nil || sale.CheckUser(user) != nil || !ours || of != at.item {
				unread++
				continue
			}
			if entry := entries[mark.Batch]; entry != nil && !seen[mark.OrderID] {
				seen[mark.OrderID] = true
				entry.At = mark.ReservedAt // the script gives a batch one time
				entry.Events = append(entry.Events, markEvent(at, user, mark, entry.Epoch, ""))
			}
		}
		if cursor = step.Cursor; cursor == 0 {
			return unread, nil
		}
	}
}

// look reads one shard, whatever its layout.
func (s *Stock) look(ctx context.Context, at place) shardState {
	r := s.runAll(ctx, []call{{scriptState, at.keys().all(), nil}})
	return readState(Layout{Item: at.item}, at, r[0])
}
