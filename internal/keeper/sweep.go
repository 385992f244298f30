package keeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"flashgate/internal/sale"
	"flashgate/shard"
)

// sweeper publishes what gateways left in their outboxes: those that died between reserve and acknowledgement, and those whose broker was
// slow. It is safe for concurrent use. Two of them at the same entry publish its events twice, which the ledger does not mind, as it does
// not mind a gateway that publishes them at the same time: an event is the same whoever tells it.
type sweeper struct {
	cfg     *Config
	log     *slog.Logger
	metrics *metrics
	seldom  *seldom
	room    *semaphore.Weighted // events on their way to the broker

	mu   sync.Mutex
	vain map[place]map[string]bool // entries that the last sweep of a shard tried in vain
}

// place is one shard of one item.
type place struct {
	item  int64
	shard int
}

func newSweeper(cfg *Config, m *metrics) *sweeper {
	return &sweeper{
		cfg: cfg, log: cfg.Logger, metrics: m, seldom: newSeldom(time.Minute, cfg.Now),
		room: semaphore.NewWeighted(int64(cfg.InFlight)), vain: make(map[place]map[string]bool),
	}
}

// swept is what a sweep found and left.
type swept struct {
	left       int           // entries that stand, young ones among them
	unreadable int           // entries that stand and cannot be read
	lost       int           // outboxes that are none: what was in them is gone, as from a wiped server
	waiting    int           // reservations in the former
	oldest     time.Duration // age of the oldest of them
	removed    int           // entries that are gone now
	tried      bool          // something was published or given up, in vain or not
}

func (s *swept) add(o swept) {
	s.left += o.left
	s.unreadable += o.unreadable
	s.lost += o.lost
	s.waiting += o.waiting
	s.oldest = max(s.oldest, o.oldest)
	s.removed += o.removed
	s.tried = s.tried || o.tried
}

// sweep goes through the outboxes of an item once: entries from the age of RecordDeadline on are published, or all of them at once; entries
// from the age of GiveUp on are given up; and those that are settled are removed. A shard that fails does not keep the others waiting.
func (s *sweeper) sweep(ctx context.Context, layout shard.Layout, all bool) (swept, error) {
	found, errs := make([]swept, layout.Shards), make([]error, layout.Shards)
	var g errgroup.Group
	g.SetLimit(s.cfg.ShardsAtOnce)
	for n := range layout.Shards {
		g.Go(func() error {
			// The error unless the shard comes to its end.
			errs[n] = errPanicked
			s.metrics.guard(ctx, s.log, "sweep", func() { found[n], errs[n] = s.sweepShard(ctx, layout, n, all) })
			return nil
		})
	}
	_ = g.Wait() // errors are in errs
	var sum swept
	for _, f := range found {
		sum.add(f)
	}
	return sum, errors.Join(errs...)
}

// errPanicked stands for the result of work that a panic ended.
var errPanicked = errors.New("caught a panic")

func (s *sweeper) sweepShard(ctx context.Context, layout shard.Layout, n int, all bool) (swept, error) {
	at := place{layout.Item, n}
	outbox, err := s.outbox(ctx, layout, n)
	if errors.Is(err, shard.ErrUnreadable) {
		if s.seldom.say(at) {
			s.metrics.alarm(alarmOutbox, at.item)
			s.log.ErrorContext(ctx, "keeper: an outbox is none", "item", at.item, "shard", n, "error", err)
		}
		return swept{lost: 1}, nil
	}
	if err != nil {
		return swept{}, err
	}
	s.report(ctx, at, outbox.Bad)
	found := swept{left: len(outbox.Entries), unreadable: len(outbox.Bad)}
	var old, due []shard.Entry
	for _, e := range outbox.Entries {
		age := outbox.Now.Sub(e.At)
		found.waiting += len(e.Events)
		found.oldest = max(found.oldest, age)
		switch {
		case age >= s.cfg.GiveUp:
			old = append(old, e)
		case all || age >= s.cfg.RecordDeadline:
			due = append(due, e)
		}
	}
	found.tried = len(old)+len(due) > 0
	removed, refused, errGiveUp := s.giveUp(ctx, at, old)
	found.settle(removed)
	// An entry whose row the database refuses for good goes the way of all events: the order writer puts it with the dead letters.
	removed, errPublish := s.publish(ctx, at, append(due, refused...))
	found.settle(removed)
	return found, errors.Join(errGiveUp, errPublish)
}

// settle takes entries off that are gone.
func (s *swept) settle(gone []shard.Entry) {
	s.left -= len(gone)
	s.removed += len(gone)
	for _, e := range gone {
		s.waiting -= len(e.Events)
	}
	if s.waiting == 0 {
		s.oldest = 0
	}
}

func (s *sweeper) outbox(ctx context.Context, layout shard.Layout, n int) (shard.Outbox, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.CallTimeout)
	defer cancel()
	return s.cfg.Stock.Outbox(ctx, layout, n)
}

// report says which entries cannot be read. They stay: they may be of a newer version, whose keepers can read them, and they are the only
// trace of their orders.
func (s *sweeper) report(ctx context.Context, at place, bad []shard.BadEntry) {
	for _, b := range bad {
		if s.seldom.say(b.Batch) {
			s.metrics.alarm(alarmEntry, at.item)
			s.log.ErrorContext(ctx, "keeper: cannot read an outbox entry", "item", at.item, "shard", at.shard, "batch", b.Batch, "error", b.Fault)
		}
	}
}

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
