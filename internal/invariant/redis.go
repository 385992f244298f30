package invariant

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"flashgate/internal/sale"
	"flashgate/shard"
)

// stockState is what Redis holds of an item.
type stockState struct {
	free      int64
	moving    int64
	marks     map[string]sale.Mark
	unsettled []string
}

// marksAtOnce is how many marks are read at once.
const marksAtOnce = 16

func readRedis(ctx context.Context, stock Stock, layout shard.Layout) (*stockState, error) {
	s := &stockState{marks: make(map[string]sale.Mark)}
	readings, err := stock.Read(ctx, layout)
	if err != nil {
		return nil, err
	}
	for _, r := range readings {
		s.add(r)
	}
	users, err := stock.Buyers(ctx, layout)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var faults []string
	var g errgroup.Group
	g.SetLimit(marksAtOnce)
	for _, user := range users {
		g.Go(func() error {
			mark, ok, err := stock.Mark(ctx, layout, user)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case unsettled(err):
				faults = append(faults, err.Error())
			case err != nil:
				return err
			case ok:
				s.marks[user] = mark
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	s.unsettled = append(s.unsettled, some(faults)...)
	return s, nil
}

// unsettled reports whether an error says what is there, rather than that it could not be read.
func unsettled(err error) bool {
	return errors.Is(err, shard.ErrNotLoaded) || errors.Is(err, shard.ErrUnreadable) || errors.Is(err, shard.ErrWrongLayout)
}

func (s *stockState) add(r shard.ShardReading) {
	switch {
	case r.Fault != nil:
		s.unsettled = append(s.unsettled, fmt.Sprintf("shard %d: %v", r.Shard, r.Fault))
	case !r.Loaded || r.Stock == nil:
		s.unsettled = append(s.unsettled, fmt.Sprintf("shard %d: its stock is unknown", r.Shard))
	default:
		s.free += *r.Stock
		s.moving += r.Moving
	}
	if r.Entries > 0 {
		s.unsettled = append(s.unsettled, fmt.Sprintf("shard %d: %d entries in the outbox", r.Shard, r.Entries))
	}
	if r.Moving > 0 {
		s.unsettled = append(s.unsettled, fmt.Sprintf("shard %d: %d units in transfer", r.Shard, r.Moving))
	}
}
