package shard

import (
	"context"
	"fmt"
)

// shardState is one reading of one shard. Numbers that are missing or unreadable are -1.
type shardState struct {
	place
	err error // why this is no stock of the layout asked for; nil when it is

	answered                      bool // the numbers below are what the shard holds
	loaded                        bool
	stock, k, epoch, adds, bver   int64
	waiting, units, moving, token int64
	marks, entries                int64
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
	st := shardState{place: at, stock: -1, k: -1, epoch: -1, adds: -1, bver: -1, waiting: -1, units: -1, moving: -1, token: -1, marks: -1, entries: -1}
	if r.err != nil {
		st.err = at.wrap("read state", r.err)
		return st
	}
	if len(r.values) != 12 {
		st.err = at.wrap("read state", fmt.Errorf("%q with %d values", r.code, len(r.values)))
		return st
	}
	for i, n := range []*int64{&st.stock, &st.k, &st.epoch, &st.adds, &st.bver, &st.waiting, &st.units, &st.moving, &st.token, &st.marks, &st.entries} {
		if value, err := parseCount(r.values[i+1]); err == nil {
			*n = value
		}
	}
	st.answered, st.loaded = true, r.code == "OK"
	if err := r.fault(); err != nil {
		st.err = at.wrap("read state", err)
	} else if st.k != int64(layout.Shards) {
		st.err = at.wrap("read state", fmt.Errorf("%w: %d, not %d", ErrWrongLayout, st.k, layout.Shards))
	}
	return st
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
