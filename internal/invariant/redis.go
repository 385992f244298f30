package invariant

import (
	"context"
	"fmt"

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

func readRedis(ctx context.Context, stock Stock, layout shard.Layout) (*stockState, error) {
	s := &stockState{marks: make(map[string]sale.Mark)}
	readings, err := stock.Read(ctx, layout)
	if err != nil {
		return nil, err
	}
	for _, r := range readings {
		s.add(r)
	}
	holdings, err := stock.Holdings(ctx, layout)
	if holdings == nil {
		return nil, err
	}
	for at, held := range holdings {
		switch {
		case held.Marks == nil:
			return nil, err // the shard could not be read
		case !held.Whole:
			s.unsettled = append(s.unsettled, fmt.Sprintf("shard %d: marks that cannot be read", at))
		}
		for _, mark := range held.Marks {
			// A mark beside its user's home is one that no script finds.
			if sale.Home(mark.User, layout.Shards) == at {
				s.marks[mark.User] = mark.Mark
			}
		}
	}
	return s, nil
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
