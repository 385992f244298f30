package keeper

import (
	"context"
	"slices"
	"strconv"
	"time"

	"flashgate/internal/pause"
	"flashgate/internal/reconcile"
)

const (
	// reconcileAgain is the wait before a difference is looked at a second time. Units in a transfer or restock whose carrier has died count twice until
	// another has finished it.
	reconcileAgain = 3 * time.Second
	// reconcileNamed is how many orders a log line names.
	reconcileNamed = 5
)

// reconciling looks for items whose units in Redis and in the database do not add up. What it finds it says, in a metric, an alarm and a log line,
// and leaves for people to put right: a load stops the sale for a moment, and what made the difference would make it again.
//
// Items that are on sale, and those that did not add up the last time, are looked at one after another: their sums first, which cost little, and their
// marks only where those do not agree.
type reconciling struct {
	k       *Keeper
	turn    *turn
	checker *reconcile.Checker
	again   time.Duration

	// Of the loop, which is one goroutine.
	found map[int64]finding
}

// finding is what was said of an item last.
type finding struct {
	drift  int64
	orders []string
}

func (f finding) nothing() bool { return f.drift == 0 && len(f.orders) == 0 }

func (f finding) same(other finding) bool {
	return f.drift == other.drift && slices.Equal(f.orders, other.orders)
}

// Checker makes one that compares what the loader would load, for people; it reads from the same servers.
func (l *Loader) Checker() (*reconcile.Checker, error) {
	return reconcile.New(reconcile.Config{
		Stock: l.cfg.Stock, Ledger: l.cfg.Ledger, Offsets: l.cfg.Offsets, Group: l.cfg.Group, RecordDeadline: l.cfg.RecordDeadline,
		CallTimeout: 2 * l.cfg.CallTimeout, Logger: l.log,
	})
}

func newReconciling(k *Keeper) (*reconciling, error) {
	checker, err := k.loader.Checker()
	if err != nil {
		return nil, err
	}
	t := k.slowTurn("reconcile", k.cfg.ReconcileEvery)
	return &reconciling{k: k, turn: t, checker: checker, again: reconcileAgain, found: make(map[int64]finding)}, nil
}

func (r *reconciling) round(ctx context.Context) {
	if !r.turn.mine(ctx, r.k.cfg.Now()) {
		// Whoever has the turn shows what there is.
		r.k.metrics.drift.Reset()
		r.k.metrics.concerned.Reset()
		clear(r.found)
		return
	}
	items, cares := r.k.catalogue.watched()
	known := make(map[int64]bool, len(items))
	for _, it := range items {
		_, wrong := r.found[it.ID]
		if ctx.Err() != nil || it.Epoch == 0 || cares[it.ID] != full && !wrong {
			continue
		}
		known[it.ID] = true
		r.k.guard(ctx, "reconcile", func() { r.item(ctx, it.ID) })
	}
	if ctx.Err() != nil {
		return
	}
	for item := range r.found {
		if !known[item] {
			r.say(ctx, item, finding{}) // it is retired
		}
	}
	r.forget(known)
}

// item looks at one item.
func (r *reconciling) item(ctx context.Context, item int64) {
	looked, ok, err := r.look(ctx, item)
	if err != nil {
		r.turn.failed.Store(true)
		if ctx.Err() == nil && r.k.seldom.say([2]any{"reconcile", item}) {
			r.k.log.WarnContext(ctx, "keeper: cannot compare the stock with the database", "item", item, "error", err)
		}
		return
	}
	if ok {
		r.say(ctx, item, looked)
	}
}

// look compares an item until what it finds is nothing, or is found a second time; false where it could not be found out.
func (r *reconciling) look(ctx context.Context, item int64) (finding, bool, error) {
	// What was wrong is compared mark by mark until it is right: marks of wrong orders do not show in sums.
	if _, wrong := r.found[item]; !wrong {
		if agreed, err := r.checker.Quick(ctx, item); err != nil || agreed {
			return finding{}, err == nil, err
		}
	}
	first, ok, err := r.check(ctx, item)
	if err != nil || !ok || first.nothing() || !pause.For(ctx, r.again) {
		return first, ok && first.nothing(), err
	}
	second, ok, err := r.check(ctx, item)
	if err != nil || !ok {
		return finding{}, false, err
	}
	// What is new is left for the next round.
	if first.drift != second.drift {
		second.drift = 0
	}
	second.orders = slices.DeleteFunc(second.orders, func(id string) bool { return !slices.Contains(first.orders, id) })
	return second, true, nil
}

func (r *reconciling) check(ctx context.Context, item int64) (finding, bool, error) {
	report, ok, err := r.checker.Check(ctx, item)
	if err != nil || !ok || report.Drift == nil {
		return finding{}, false, err
	}
	f := finding{drift: *report.Drift}
	for _, o := range report.Orders {
		f.orders = append(f.orders, o.OrderID.String())
	}
	return f, true, nil
}

// say shows what was found, and tells of it when it is not what was said last.
func (r *reconciling) say(ctx context.Context, item int64, f finding) {
	m, label := r.k.metrics, r.k.metrics.label(item)
	if label == strconv.FormatInt(item, 10) {
		m.drift.WithLabelValues(label).Set(float64(f.drift))
		m.concerned.WithLabelValues(label).Set(float64(len(f.orders)))
	}
	last := r.found[item]
	if f.nothing() {
		delete(r.found, item)
	} else {
		r.found[item] = f
	}
	switch {
	case f.same(last):
	case f.nothing():
		r.k.log.InfoContext(ctx, "keeper: the stock and the database agree again", "item", item)
	default:
		m.alarm(alarmDrift, item)
		r.k.log.ErrorContext(ctx, "keeper: the stock and the database do not agree; see `flashgate item reconcile`", "item", item, "drift", f.drift,
			"concerned", len(f.orders), "orders", f.orders[:min(reconcileNamed, len(f.orders))])
	}
}

// forget takes the gauges of items away that are not looked at any more.
func (r *reconciling) forget(known map[int64]bool) {
	m := r.k.metrics
	m.mu.Lock()
	defer m.mu.Unlock()
	for item := range m.items {
		if !known[item] {
			label := strconv.FormatInt(item, 10)
			m.drift.DeleteLabelValues(label)
			m.concerned.DeleteLabelValues(label)
		}
	}
}
