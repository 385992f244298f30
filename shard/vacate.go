package shard

import "context"

// Vacate empties the shards of an item from the end of layout up to shards-1, which a larger layout has left behind and the
// same token has fenced: what they held is removed, as by Load, and nothing can be sold there. Whoever still believes in the
// larger layout is told WrongLayout. False: a newer loader was at one of them, and the whole load is void. It may be repeated
// until the next fence.
func (s *Stock) Vacate(ctx context.Context, layout Layout, shards int, token int64) (bool, error) {
	var calls []call
	for i := layout.Shards; i < shards; i++ {
		calls = append(calls, call{scriptLoad, keysOf(layout.Item, i).all(), []string{formatInt(token), formatInt(int64(layout.Shards)), "0"}})
	}
	return eachOK("vacate", layout.Item, layout.Shards, s.runAll(ctx, calls))
}
