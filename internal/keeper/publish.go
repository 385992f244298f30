package keeper

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"flashgate/internal/sale"
	"flashgate/shard"
)

// strideEvents is how many events of one shard are published before the first of them must be acknowledged. A shard has more only where a
// broker was away; then it is not to be found out by each of 200,000 events that it still is.
const strideEvents = 512

// publish publishes the events of entries, the oldest first, and removes those entries whose events are all acknowledged. It stops when the
// broker acknowledged nothing of a whole stride.
func (s *sweeper) publish(ctx context.Context, at place, entries []shard.Entry) (removed []shard.Entry, err error) {
	s.sort(at, entries)
	vain := make(map[string]bool)
	defer func() { s.remember(at, vain) }()
	for len(entries) > 0 {
		n, events := 0, 0
		for n < len(entries) && (n == 0 || events+len(entries[n].Events) <= strideEvents) {
			events += len(entries[n].Events)
			n++
		}
		acked, failed, cause := s.publishStride(ctx, entries[:n])
		for _, e := range failed {
			vain[e.Batch] = true
		}
		if err := s.forget(ctx, at, acked); err != nil {
			return removed, err
		}
		removed = append(removed, acked...)
		if len(acked) == 0 && cause != nil {
			return removed, fmt.Errorf("publish the outbox of item %d shard %d: %w", at.item, at.shard, cause)
		}
		entries = entries[n:]
	}
	return removed, nil
}

// sort puts the oldest first, and behind them those that were tried in vain the last time: an entry that the broker will never take must not
// keep a whole stride of others from it.
func (s *sweeper) sort(at place, entries []shard.Entry) {
	s.mu.Lock()
	vain := s.vain[at]
	s.mu.Unlock()
	slices.SortFunc(entries, func(a, b shard.Entry) int {
		switch {
		case vain[a.Batch] == vain[b.Batch]:
			return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Batch, b.Batch))
		case vain[a.Batch]:
			return 1
		}
		return -1
	})
}

func (s *sweeper) remember(at place, vain map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(vain) == 0 {
		delete(s.vain, at)
	} else {
		s.vain[at] = vain
	}
}

// publishStride publishes entries and waits until the fate of each is known. cause is the first failure.
func (s *sweeper) publishStride(ctx context.Context, entries []shard.Entry) (acked, failed []shard.Entry, cause error) {
	type fate struct {
		entry int
		err   error
	}
	// With room for all: whoever reports a fate does not wait, even when nobody listens any more.
	fates := make(chan fate, len(entries))
	sent := 0
	for i, e := range entries {
		weight := int64(min(len(e.Events), s.cfg.InFlight))
		if cause = s.room.Acquire(ctx, weight); cause != nil {
			break
		}
		sent++
		s.cfg.Publisher.Publish(s.cfg.Now().Add(s.cfg.RecordDeadline), e.Events, func(err error) {
			s.room.Release(weight)
			fates <- fate{i, err}
		})
	}
	for range sent {
		select {
		case f := <-fates:
			if f.err == nil {
				acked = append(acked, entries[f.entry])
				continue
			}
			failed = append(failed, entries[f.entry])
			if cause == nil {
				cause = f.err
			}
		case <-ctx.Done():
			return acked, failed, ctx.Err()
		}
	}
	s.count("published", acked)
	s.count("failed", failed)
	return acked, failed, cause
}

func (s *sweeper) count(result string, entries []shard.Entry) {
	n := 0
	for _, e := range entries {
		n += len(e.Events)
	}
	s.metrics.swept.WithLabelValues(result).Add(float64(n))
}

// forgetEntries is how many entries are removed by one call.
const forgetEntries = 500

// forget removes entries. It runs to its end even if the caller's time is up: what it would leave is published once more.
func (s *sweeper) forget(ctx context.Context, at place, entries []shard.Entry) error {
	ctx = context.WithoutCancel(ctx)
	for chunk := range slices.Chunk(entries, forgetEntries) {
		batches := make([]string, len(chunk))
		for i, e := range chunk {
			batches[i] = e.Batch
		}
		if err := s.forgetChunk(ctx, at, batches); err != nil {
			return err
		}
	}
	return nil
}

func (s *sweeper) forgetChunk(ctx context.Context, at place, batches []string) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.CallTimeout)
	defer cancel()
	return s.cfg.Stock.Forget(ctx, at.item, at.shard, batches...)
}

// eventsOf puts the events of entries together.
func eventsOf(entries []shard.Entry) []sale.Event {
	var events []sale.Event
	for _, e := range entries {
		events = append(events, e.Events...)
	}
	return events
}
