package preflight

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/rueidis"
)

const (
	// clockCaution: a sale would open this much too early or late for those who look at another clock.
	clockCaution = 500 * time.Millisecond
	// clockNoGo: tokens are refused, payments are too old, loads wait for deadlines that others do not see.
	clockNoGo = 10 * time.Second
)

// clocks compares this machine's clock with the servers'. A reading is as good as half its round trip.
func (f *flight) clocks(ctx context.Context) {
	if f.ledger != nil {
		f.compareClock("postgresql", func() (now time.Time, err error) {
			err = f.pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now)
			return now, err
		})
	}
	if f.redis == nil {
		return
	}
	nodes := f.redis.Nodes()
	for _, address := range slices.Sorted(maps.Keys(nodes)) {
		node := nodes[address]
		f.compareClock("redis "+address, func() (time.Time, error) { return redisTime(ctx, node) })
	}
}

func (f *flight) compareClock(server string, read func() (time.Time, error)) {
	check := "clock of " + server
	asked := time.Now()
	theirs, err := read()
	trip := time.Since(asked)
	if err != nil {
		f.report.add(check, Caution, "cannot be read: %v", err)
		return
	}
	apart := theirs.Sub(asked.Add(trip / 2)).Abs()
	apart = max(0, apart-trip/2) // what the round trip does not explain
	verdict := Go
	switch {
	case apart >= clockNoGo:
		verdict = NoGo
	case apart >= clockCaution:
		verdict = Caution
	}
	f.report.add(check, verdict, "%s from this machine's", apart.Round(time.Millisecond))
}

func redisTime(ctx context.Context, node rueidis.Client) (time.Time, error) {
	parts, err := node.Do(ctx, node.B().Time().Build()).AsIntSlice()
	if err != nil {
		return time.Time{}, err
	}
	if len(parts) != 2 {
		return time.Time{}, fmt.Errorf("TIME answers %d values", len(parts))
	}
	return time.Unix(parts[0], parts[1]*int64(time.Microsecond)), nil
}
