package shard

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/rueidis"

	"flashgate/internal/sale"
)

// maxMarks is how many marks one shard can be loaded with: Redis takes about a million arguments in a command, and a
// mark needs two.
const maxMarks = 500_000

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
	return eachOK("fence", item, s.runAll(ctx, calls))
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
	if image.Free < 0 || image.Free > sale.MaxQuantity || image.Token < 1 {
		return false, fmt.Errorf("load item %d: %d units with token %d", layout.Item, image.Free, image.Token)
	}
	args := make([][]string, layout.Shards)
	for i := range args {
		args[i] = []string{formatInt(image.Token), formatInt(int64(layout.Shards)), formatInt(spread(image.Free, layout.Shards, i))}
	}
	for user, mark := range image.Marks {
		if err := sale.CheckUser(user); err != nil {
			return false, fmt.Errorf("load item %d, order %s: user: %w", layout.Item, mark.OrderID, err)
		}
		text := encodeMark(mark)
		if _, err := decodeMark(text); err != nil {
			return false, fmt.Errorf("load item %d, order %s: its mark could not be read again: %w", layout.Item, mark.OrderID, err)
		}
		home := sale.Home(user, layout.Shards)
		args[home] = append(args[home], user, text)
	}
	calls := make([]call, layout.Shards)
	for i := range calls {
		if marks := len(args[i]) / 2; marks > maxMarks {
			return false, place{layout.Item, i}.wrap("load", fmt.Errorf("%d marks, a shard takes %d: use more shards", marks, maxMarks))
		}
		calls[i] = call{scriptLoad, keysOf(layout.Item, i).all(), args[i]}
	}
	ok, err := eachOK("load", layout.Item, s.runUntil(ctx, calls))
	if ok {
		s.announceCleared(ctx, layout.Item)
	}
	return ok, err
}

// eachOK sums up the answers of all shards to a loader.
func eachOK(what string, item int64, results []result) (bool, error) {
	refused := false
	var errs []error
	for i, r := range results {
		err := r.err
		if err == nil {
			err = r.fault()
		}
		switch {
		case err != nil:
			errs = append(errs, place{item, i}.wrap(what, err))
		case r.code == "REFUSED":
			refused = true
		}
	}
	if err := errors.Join(errs...); err != nil && !refused {
		return false, err
	}
	return !refused, nil
}

// Retire removes the keys of shards 0 to shards-1 of an item that is over: without stock, marks, outbox entries and
// transfers that anybody waits for, which the caller has made sure of.
func (s *Stock) Retire(ctx context.Context, item int64, shards int) error {
	if err := checkLayout(Layout{item, shards}); err != nil {
		return fmt.Errorf("retire: %w", err)
	}
	commands := make([]rueidis.Completed, shards)
	for i := range commands {
		commands[i] = s.cfg.Client.B().Unlink().Key(keysOf(item, i).all()...).Build()
	}
	var errs []error
	for i, err := range s.plain(ctx, commands, func(int, rueidis.RedisResult) error { return nil }) {
		if err != nil {
			errs = append(errs, place{item, i}.wrap("retire", err))
		}
	}
	return errors.Join(errs...)
}
