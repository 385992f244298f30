package shard

import (
	"context"

	"github.com/redis/rueidis"

	"flashgate/internal/sale"
)

// Extent returns how many shards of an item there are up to the last that holds any key: those of its layout, and what a
// larger one left behind. 0: Redis holds nothing of the item. It asks for every shard that an item can have.
func (s *Stock) Extent(ctx context.Context, item int64) (int, error) {
	extent := 0
	err := s.eachShard(ctx, Layout{item, sale.MaxShards}, "look for keys", func(k keys) rueidis.Completed {
		return s.cfg.Client.B().Exists().Key(k.all()...).Build()
	}, func(i int, answer rueidis.RedisResult) error {
		n, err := answer.AsInt64()
		if n > 0 {
			extent = i + 1
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return extent, nil
}

// Remove removes the keys of shards 0 to shards-1 of an item that is over: without stock, marks, outbox entries and
// transfers that anybody waits for, which the caller has made sure of. It may be repeated. After an error some shards may be
// gone and others not. Nothing makes the keys anew but a fence: every other script leaves a shard without a stock as it is.
func (s *Stock) Remove(ctx context.Context, item int64, shards int) error {
	return s.eachShard(ctx, Layout{item, shards}, "remove", func(k keys) rueidis.Completed {
		// The memory of a million marks is freed beside the other work of the server.
		return s.cfg.Client.B().Unlink().Key(k.all()...).Build()
	}, func(int, rueidis.RedisResult) error { return nil })
}
