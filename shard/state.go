package shard

import (
	"context"
	"fmt"
)

// shardState is one reading of one shard. Numbers that are missing or unreadable are -1.
type shardState struct {
	place
	err  error // why this is no stock of the layout asked for; nil when it is
	loss error // what is off with marks or outbox; the stock counts all the same, but a load is due

	answered                      bool // the numbers below are what the shard holds
	loaded                        bool
	stock, k, epoch, adds, bver   int64
	waiting, units, moving, token int64
	mustMarks, mustEntries        int64 // marks and outbox entries that there must be
	marks, entries                int64 // that there are
}

// survey reads all shards of a layout, each in one instant but one after another: what moves between them meanwhile may be
// seen twice or not at all, which is what the two passes of a proof are for.
func (s *Stock) survey(ctx context.Context, layout Layout) []shardState {
	calls := make([]call, layout.Shards)
	for i := range calls {
		calls[i] = call{scriptState, keysOf(layout.Item, i).all(), nil}
	}
	states := make([]shardState, layout.Shards)
	for i, r := range s.runAll(ctx, calls) {
		states[i] = readState(layout, place{layout.Item, i}, r)
	}
	return states
}

func readState(layout Layout, at place, r result) shardState {
	st := shardState{place: at, stock: -1, k: -1, epoch: -1, adds: -1, bver: -1, waiting: -1, units: -1, moving: -1, token: -1, mustMarks: -1, mustEntries: -1, marks: -1, entries: -1}
	if r.err != nil {
		st.err = at.wrap("read state", r.err)
		return st
	}
	if len(r.values) != 14 {
		st.err = at.wrap("read state", fmt.Errorf("%q with %d values", r.code, len(r.values)))
		return st
	}
	for i, n := range []*int64{&st.stock, &st.k, &st.epoch, &st.adds, &st.bver, &st.waiting, &st.units, &st.moving, &st.token, &st.mustMarks, &st.mustEntries, &st.marks, &st.entries} {
		if value, err := parseCount(r.values[i+1]); err == nil {
			*n = value
		}
	}
	st.answered = true
	err := r.fault()
	if what := r.values[0]; err != nil && (what == "buyers" || what == "pending") {
		st.loss, err = at.wrap("read state", st.lost(what, err)), nil
	}
	st.loaded = err == nil
	switch {
	case err != nil:
		st.err = at.wrap("read state", err)
	case st.k != int64(layout.Shards):
		st.err = at.wrap("read state", fmt.Errorf("%w: %d, not %d", ErrWrongLayout, st.k, layout.Shards))
	}
	return st
}

// lost says more about marks or an outbox that the script found to be off.
func (st *shardState) lost(what string, fault error) error {
	switch {
	case what == "pending" && st.entries >= max(0, st.mustEntries):
		return fmt.Errorf("%w: %d reservations of %d units are counted in no entry", fault, st.waiting, st.units)
	case what == "pending" && st.entries >= 0:
		return fmt.Errorf("%w: %d entries, and not %d", fault, st.entries, st.mustEntries)
	case what == "buyers" && st.marks >= 0 && st.marks != st.mustMarks:
		return fmt.Errorf("%w: %d marks, and not %d", fault, st.marks, st.mustMarks)
	case what == "buyers" && st.marks >= 0:
		return fmt.Errorf("%w: a mark that is none", fault)
	}
	return fault // another type of key
}

// verdict is the first reason why states are not one whole item: a shard that is not readable, or of another load than the
// first. Another layout goes before anything else, because the caller can do something about it.
func verdict(states []shardState) error {
	var first error
	for _, st := range states {
		if isLayout(st.err) {
			return st.err
		}
		if first == nil && st.err != nil {
			first = st.err
		}
	}
	if first != nil {
		return first
	}
	for _, st := range states {
		if st.epoch != states[0].epoch {
			return st.wrap("read state", fmt.Errorf("%w: it has epoch %d, shard 0 has %d", ErrNotLoaded, st.epoch, states[0].epoch))
		}
	}
	return nil
}

// losses is the first thing that is off with the marks or the outbox of any shard.
func losses(states []shardState) error {
	for _, st := range states {
		if st.loss != nil {
			return st.loss
		}
	}
	return nil
}
