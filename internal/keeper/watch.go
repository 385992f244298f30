package keeper

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"flashgate/internal/ledger"
	"flashgate/shard"
)

// watch finds out for which items a load is due, and has it done (rule R11). A load that is begun in vain costs a moment of the sale and nothing
// else, so what it sees need not be of one instant.
type watch struct {
	k       *Keeper
	pace    *pace // of looking
	servers *pace // of asking who serves the shards
	fail    *pace // of loads that failed

	mu    sync.Mutex
	asked map[int64]string // items whose load somebody has asked for, and why
	wake  chan struct{}
}

func newWatch(k *Keeper) *watch {
	return &watch{k: k, pace: newPace(), servers: newPace(), fail: newPace(), asked: make(map[int64]string), wake: make(chan struct{}, 1)}
}

// ask has an item loaded, whatever its shards look like.
func (w *watch) ask(item int64, reason string) {
	w.mu.Lock()
	w.asked[item] = reason
	w.mu.Unlock()
	w.nudge()
}

// nudge has the watch look at once.
func (w *watch) nudge() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watch) round(ctx context.Context) {
	now := w.k.cfg.Now()
	w.mu.Lock()
	asked := w.asked
	w.asked = make(map[int64]string)
	w.mu.Unlock()
	for item, reason := range asked {
		w.load(ctx, item, reason, func(context.Context) (bool, error) { return true, nil })
	}
	if !w.k.watchTurn.mine(ctx, now) {
		return
	}
	states, err := w.states(ctx)
	if err != nil {
		if ctx.Err() == nil && w.k.seldom.say("load states") {
			w.k.log.WarnContext(ctx, "keeper: cannot watch over the stock", "error", err)
		}
		return
	}
	_, cares := w.k.catalogue.watched()
	// Where units are sold now comes first.
	slices.SortStableFunc(states, func(a, b ledger.LoadState) int { return int(cares[b.ItemID]) - int(cares[a.ItemID]) })
	known := make(map[int64]bool, len(states))
	for _, s := range states {
		known[s.ItemID] = true
		if !w.pace.due(s.ItemID, now) {
			continue
		}
		rest := time.Duration(0)
		if cares[s.ItemID] != full && s.Epoch != 0 {
			rest = w.k.cfg.IdleEvery
		}
		w.k.watchCrew.offer(ctx, s.ItemID, func() {
			w.k.guard(ctx, "watch", func() {
				answered := w.look(ctx, s)
				w.pace.worked(s.ItemID, w.k.cfg.Now(), answered, rest, w.k.cfg.WatchEvery, watchSilent)
			})
		})
	}
	w.pace.keep(known)
	w.servers.keep(known)
	w.fail.keep(known)
}

func (w *watch) states(ctx context.Context) ([]ledger.LoadState, error) {
	ctx, cancel := context.WithTimeout(ctx, w.k.cfg.databaseTimeout())
	defer cancel()
	return w.k.cfg.Ledger.LoadWatch(ctx)
}

// watchSilent is how long an item whose servers do not answer is left alone at most.
const watchSilent = 2 * time.Second

// look asks the shards of one item, and begins a load that is due. It reports whether all of them answered.
func (w *watch) look(ctx context.Context, s ledger.LoadState) bool {
	if s.Leased {
		return true // somebody is at it: until his lease is given back, shards that have no stock yet are as they must be
	}
	reason, at, fault, err := w.due(ctx, s)
	if err != nil {
		// Not every shard answers. The others go on selling until a load can be brought to its end.
		if ctx.Err() == nil {
			w.k.watchTurn.failed.Store(true)
			if w.k.seldom.say([2]any{"silent", s.ItemID}) {
				w.k.log.WarnContext(ctx, "keeper: cannot read the stock", "item", s.ItemID, "error", err)
			}
		}
		return false
	}
	if reason == "" {
		return true
	}
	w.load(ctx, s.ItemID, reason, func(ctx context.Context) (bool, error) {
		if still, err := w.unchanged(ctx, s); !still || err != nil {
			return false, err
		}
		if fault != nil && w.k.seldom.say([3]any{reason, s.ItemID, at}) {
			w.k.metrics.alarm(alarmStock+reason, s.ItemID)
			log := w.k.log.With("item", s.ItemID, "epoch", s.Epoch, "reason", reason)
			if at >= 0 {
				log = log.With("shard", at)
			}
			log.ErrorContext(ctx, "keeper: the stock is wrong, a load is due", "fault", fault)
		}
		return true, nil
	})
	return true
}

// due asks the shards of an item whether a load is due: why, the first shard where that shows, and what is wrong, nil where nothing is. The error is
// about shards that did not answer.
func (w *watch) due(ctx context.Context, s ledger.LoadState) (reason string, at int, fault, err error) {
	readings, err := w.k.loader.read(ctx, shard.Layout{Item: s.ItemID, Shards: s.Shards})
	if err != nil {
		return "", -1, nil, err
	}
	if reason, at = due(s, readings); reason != "" {
		switch {
		case at >= 0:
			fault = cmp.Or(readings[at].Fault, shardFaults[reason])
		case reason == dueNoRoom:
			fault = errNoRoom
		}
		return reason, at, fault, nil
	}
	at, fault, err = w.foreign(ctx, s)
	switch {
	case at >= 0:
		reason = reasonServer
	case err == nil:
		// A wish comes last: what is wrong with the stock is to be said, and waited for, whoever wishes for a load besides.
		reason = s.Due
	}
	return reason, at, fault, err
}

// dueNoRoom is the ledger's reason for a load after it has refused an order for lack of room.
const dueNoRoom = "no_room"

var errNoRoom = errors.New("there were more units in Redis than there are: the database refused an order for lack of room, and the order writer's log names its shard")

// shardFaults are what is wrong with shards that can be read.
var shardFaults = map[string]error{
	reasonMissing: errors.New("it has no stock"),
	reasonEpoch:   errors.New("it is of another load than the item's last"),
}

// due says why a load is due, and the first shard where that shows, -1 for none; "" if no load is due, or one that somebody only wishes for.
func due(s ledger.LoadState, readings []shard.ShardReading) (reason string, at int) {
	switch {
	case s.Epoch == 0:
		return reasonFirst, -1
	case s.Due != "" && s.Due != ledger.DuePlanned:
		return s.Due, -1
	case s.Abandoned:
		return reasonAbandoned, -1
	}
	for i, r := range readings {
		switch {
		case errors.Is(r.Fault, shard.ErrUnreadable):
			return reasonUnreadable, i
		case errors.Is(r.Fault, shard.ErrWrongLayout):
			return reasonLayout, i
		case !r.Loaded:
			return reasonMissing, i
		case r.Epoch != s.Epoch:
			return reasonEpoch, i
		}
	}
	return "", -1
}

// unchanged reports whether nobody has claimed or loaded the item since its state was read, at a time when nobody could load it. Then what was seen
// of its shards in between was not somebody's load under way, nor are the state of before a load and the shards of behind it set side by side.
func (w *watch) unchanged(ctx context.Context, s ledger.LoadState) (bool, error) {
	it, err := w.k.loader.item(ctx, s.ItemID)
	return err == nil && it.Claim == s.Claim && it.Epoch == s.Epoch, err
}

// load has an item loaded in the background if it is still due then, unless it is being loaded, or failed a moment ago.
func (w *watch) load(ctx context.Context, item int64, reason string, due func(context.Context) (bool, error)) {
	if !w.fail.due(item, w.k.cfg.Now()) {
		return
	}
	w.k.loadCrew.offerNow(item, func() {
		w.k.guard(ctx, "load", func() {
			outcome, err := w.k.loader.loadIf(ctx, item, reason, due)
			// An item that was retired since it was looked at has no stock to load, and needs none.
			failed := err != nil && ctx.Err() == nil && !errors.Is(err, ErrNotLoadable)
			postponed := err == nil && outcome == Postponed
			w.fail.worked(item, w.k.cfg.Now(), !failed && !postponed, 0, w.k.cfg.WatchEvery, w.k.cfg.IdleEvery)
			if failed || postponed {
				// Perhaps this keeper alone is cut off from what a load needs.
				w.k.watchTurn.failed.Store(true)
			}
			if failed {
				w.k.metrics.alarm(alarmLoad, item)
				w.k.log.ErrorContext(ctx, "keeper: cannot load the stock, trying again", "item", item, "reason", reason, "error", err)
			}
		})
	})
}
