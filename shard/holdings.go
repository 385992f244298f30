package shard

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/rueidis"

	"flashgate/internal/sale"
)

// Holdings returns the marks of every shard of a layout, by shard, in no order within one: who holds which units, as Redis remembers it. It is
// for people and for accounts; it moves every mark over the network. An error names the shards that did not answer, or hold something else;
// their part is nil then.
func (s *Stock) Holdings(ctx context.Context, layout Layout) ([][]sale.Mark, error) {
	if err := checkLayout(layout); err != nil {
		return nil, fmt.Errorf("read holdings: %w", err)
	}
	commands := make([]rueidis.Completed, layout.Shards)
	for i := range commands {
		commands[i] = s.cfg.Client.B().Hvals().Key(keysOf(layout.Item, i).buyers).Build()
	}
	holdings := make([][]sale.Mark, layout.Shards)
	failed := s.plain(ctx, commands, func(i int, answer rueidis.RedisResult) error {
		texts, err := answer.AsStrSlice()
		if err != nil {
			return err
		}
		marks := make([]sale.Mark, len(texts))
		for j, text := range texts {
			if marks[j], err = decodeMark(text); err != nil {
				return fmt.Errorf("%w: %w", ErrUnreadable, err)
			}
		}
		holdings[i] = marks
		return nil
	})
	var errs []error
	for i, err := range failed {
		if err != nil {
			errs = append(errs, place{layout.Item, i}.wrap("read holdings", err))
		}
	}
	return holdings, errors.Join(errs...)
}
