package keeper

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

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
	anew map[place]*rebuilt        // shards with entries that cannot be read
}

// place is one shard of one item.
type place struct {
	item  int64
	shard int
}

func newSweeper(cfg *Config, m *metrics) *sweeper {
	return &sweeper{
		cfg: cfg, log: cfg.Logger, metrics: m, seldom: newSeldom(cfg.Now),
		room: semaphore.NewWeighted(int64(cfg.InFlight)), vain: make(map[place]map[string]bool), anew: make(map[place]*rebuilt),
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
//
// Behind the end of an item's layout there is nothing to sweep: before a load makes an item smaller, it has emptied the outboxes of both layouts behind
// a fence (see Loader.steps). A gateway that still believes in the larger layout finds no stock there, and reserves nothing.
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
	entries, unreadable, errRebuild := s.rebuild(ctx, at, outbox.Bad)
	entries = append(entries, outbox.Entries...)
	found := swept{left: len(entries), unreadable: unreadable}
	var old, due, settled []shard.Entry
	for _, e := range entries {
		age := outbox.Now.Sub(e.At)
		found.waiting += len(e.Events)
		if len(e.Events) > 0 { // else nobody knows its age, nor is anything of it left
			found.oldest = max(found.oldest, age)
		}
		switch {
		case len(e.Events) == 0:
			settled = append(settled, e)
		case age >= s.cfg.GiveUp:
			old = append(old, e)
		case all || age >= s.cfg.RecordDeadline:
			due = append(due, e)
		}
	}
	found.tried = len(old)+len(due)+len(settled) > 0
	errSettled := s.forget(ctx, at, settled)
	if errSettled == nil {
		found.settle(settled)
	}
	removed, refused, errGiveUp := s.giveUp(ctx, at, old)
	found.settle(removed)
	// An entry whose row the database refuses for good goes the way of all events: the order writer puts it with the dead letters.
	removed, errPublish := s.publish(ctx, at, append(due, refused...))
	found.settle(removed)
	return found, errors.Join(errRebuild, errSettled, errGiveUp, errPublish)
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

// outbox reads one outbox. After an outage of the broker it may hold a whole item's backlog: 200,000 entries take a second.
func (s *sweeper) outbox(ctx context.Context, layout shard.Layout, n int) (shard.Outbox, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*s.cfg.CallTimeout)
	defer cancel()
	return s.cfg.Stock.Outbox(ctx, layout, n)
}

// report says which entries cannot be read.
func (s *sweeper) report(ctx context.Context, at place, bad []shard.BadEntry) {
	for _, b := range bad {
		if s.seldom.say(b.Batch) {
			s.metrics.alarm(alarmEntry, at.item)
			s.log.ErrorContext(ctx, "keeper: cannot read an outbox entry", "item", at.item, "shard", at.shard, "batch", b.Batch, "error", b.Fault)
		}
	}
}
