package shard

import (
	"context"
	"errors"
	"fmt"

	"flashgate/internal/sale"
)

// MaxMarks is how many marks one shard can be loaded with: Redis takes about a million arguments in a command, and a
// mark needs two.
const MaxMarks = 500_000

const (
	// marksAtOnce is how many marks are sent in one pipeline, or those of one shard: a third of a second of Redis' time.
	// The client's own PING waits behind it, and is taken for the silence of a dead server after a while.
	marksAtOnce = 100_000
)

// Fence makes the stock of shards 0 to shards-1 unknown and stores the loader's token there (rule R7). shards covers the old
// and the new layout. False: a newer loader was at one of them, and this one has to give up; the shards before it may be
// fenced. It may be repeated with the same token until the load is written.
func (s *Stock) Fence(ctx context.Context, item int64, shards int, token int64) (bool, error) {
	if err := checkLayout(Layout{item, shards}); err != nil {
		return false, fmt.Errorf("fence: %w", err)
	}
	calls := make([]call, shards)
	for i := range calls {
		k := keysOf(item, i)
		calls[i] = call{scriptFence, []string{k.stock, k.meta}, []string{formatInt(token)}}
	}
	return eachOK("fence", item, 0, s.runAll(ctx, calls))
}

// Load writes an image into the shards of a layout that the same token has fenced: everything they held is replaced, and
// the token becomes their epoch (rule R10). False: a newer loader was at one of them, and the whole load is void. It may be
// repeated with the same image. Every gateway is told after it.
//
// It is bounded by ctx alone: a shard with 300,000 marks takes Redis about a second.
func (s *Stock) Load(ctx context.Context, layout Layout, image Image) (bool, error) {
	if err := checkLayout(layout); err != nil {
		return false, fmt.Errorf("load: %w", err)
	}
	calls, err := imageCalls(layout, image)
	if err != nil {
		return false, fmt.Errorf("load item %d: %w", layout.Item, err)
	}
	for first := 0; first < len(calls); {
		last, marks := first, 0
		for last < len(calls) && (last == first || marks+marksIn(calls[last]) <= marksAtOnce) {
			marks += marksIn(calls[last])
			last++
		}
		if ok, err := eachOK("load", layout.Item, first, s.runUntil(ctx, calls[first:last])); !ok || err != nil {
			return false, err
		}
		first = last
	}
	s.announceCleared(ctx, layout.Item)
	return true, nil
}

// loadArgs is the number of arguments of load before the marks.
const loadArgs = 3

func marksIn(c call) int { return (len(c.args) - loadArgs) / 2 }

// imageCalls makes the calls that load an image, by shard.
func imageCalls(layout Layout, image Image) ([]call, error) {
	if image.Free < 0 || image.Free > sale.MaxQuantity || image.Token < 1 {
		return nil, fmt.Errorf("%d units with token %d", image.Free, image.Token)
	}
	calls := make([]call, layout.Shards)
	for i := range calls {
		calls[i] = call{scriptLoad, keysOf(layout.Item, i).all(), []string{
			formatInt(image.Token), formatInt(int64(layout.Shards)), formatInt(spread(image.Free, layout.Shards, i)),
		}}
	}
	for user, mark := range image.Marks {
		if err := sale.CheckUser(user); err != nil {
			return nil, fmt.Errorf("user of order %s: %w", mark.OrderID, err)
		}
		text := encodeMark(mark)
		if _, err := decodeMark(text); err != nil {
			return nil, fmt.Errorf("the mark of order %s could not be read again: %w", mark.OrderID, err)
		}
		c := &calls[sale.Home(user, layout.Shards)]
		c.args = append(c.args, user, text)
	}
	for i, c := range calls {
		if n := marksIn(c); n > MaxMarks {
			return nil, fmt.Errorf("shard %d: %d marks, a shard takes %d: use more shards", i, n, MaxMarks)
		}
	}
	return calls, nil
}

// eachOK sums up the answers to a loader of shards from first on.
func eachOK(what string, item int64, first int, results []result) (bool, error) {
	refused := false
	var errs []error
	for i, r := range results {
		err := r.err
		if err == nil {
			err = r.fault()
		}
		switch {
		case err != nil:
			errs = append(errs, place{item, first + i}.wrap(what, err))
		case r.code == "REFUSED":
			refused = true
		}
	}
	if err := errors.Join(errs...); err != nil && !refused {
		return false, err
	}
	return !refused, nil
}
