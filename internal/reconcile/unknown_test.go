package reconcile

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"flashgate/internal/ledger"
	"flashgate/internal/sale"
	"flashgate/shard"
)

// TestWhyNothingCanBeSaid has a reading of two shards that differs in one thing each from one of which something can be said.
func TestWhyNothingCanBeSaid(t *testing.T) {
	units := int64(3)
	off := errors.Join(errors.New("read account, item 1 shard 0: connection refused"), errors.New("read account, item 1 shard 1: connection refused"))
	for _, test := range []struct {
		name   string
		fault  error
		change func(r *reading, before *sale.Item, books *ledger.Books)
		want   string
	}{
		{"silence", fmt.Errorf("read account, item 1 shard 0: %w", context.DeadlineExceeded), nil, "Redis, or a server of it, has not answered within 2s"},
		{"no server", off, func(r *reading, _ *sale.Item, _ *ledger.Books) { r.shards[0].Whole, r.shards[1].Whole = false, false }, "Redis: read account, item 1 shard 0: connection refused; and 1 more of 2 shards"},
		{"one of two", off, func(r *reading, _ *sale.Item, _ *ledger.Books) { r.shards[0].Whole = false }, "Redis: read account, item 1 shard 0: connection refused"},
		{"a load", nil, func(_ *reading, _ *sale.Item, b *ledger.Books) { b.Leased = true }, whyLoading},
		{"a load has begun", nil, func(_ *reading, _ *sale.Item, b *ledger.Books) { b.Item.Claim++ }, whyLoading},
		{"a load in between", nil, func(_ *reading, before *sale.Item, _ *ledger.Books) { before.Epoch-- }, whyLoading},
		{"a fault", nil, func(r *reading, _ *sale.Item, _ *ledger.Books) { r.shards[1].Fault = errors.New("unreadable: stock") }, "shard 1: unreadable: stock"},
		{"no stock", nil, func(r *reading, _ *sale.Item, _ *ledger.Books) { r.shards[1].Stock = nil }, "the stock of shard 1 is not loaded"},
		{"another load", nil, func(r *reading, _ *sale.Item, _ *ledger.Books) { r.shards[0].Epoch-- }, "shard 0 is of another load than the item"},
		{"another layout", nil, func(r *reading, _ *sale.Item, _ *ledger.Books) { r.shards[0].K++ }, "shard 0 is of another load than the item"},
		{"a rush", nil, func(r *reading, _ *sale.Item, _ *ledger.Books) { r.shards[0].Whole = false }, "shard 0 changes too fast to be read at one instant; ask again"},
	} {
		r := &reading{}
		for n := range 2 {
			r.shards = append(r.shards, shard.Account{Whole: true, ShardReading: shard.ShardReading{Shard: n, Loaded: true, Readable: true, Stock: &units, K: 2, Epoch: 7}})
		}
		before := sale.Item{ID: 1, Quantity: 6, Shards: 2, Epoch: 7, Claim: 7}
		books := ledger.Books{Item: before}
		if test.change != nil {
			test.change(r, &before, &books)
		}
		if got := r.unsettledBecause(&before, &books, test.fault, 2*time.Second); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// TestAReportSaysWhyItsDriftIsUnknown has the three ends of a comparison.
func TestAReportSaysWhyItsDriftIsUnknown(t *testing.T) {
	reads := func(drifts ...int64) (streak []*reading) {
		for _, d := range drifts {
			streak = append(streak, &reading{item: sale.Item{Quantity: 10}, free: 10 - d, settled: true})
		}
		return streak
	}
	c := &Checker{}
	for _, test := range []struct {
		name   string
		streak []*reading
		want   string
	}{
		{"all adds up", reads(0), ""},
		{"a drift", reads(3, 3, 3), ""},
		{"it moves", reads(3, 2, 3), whyMoving},
		{"one reading", reads(3), whyTooFew},
		{"a load", []*reading{{why: whyLoading}}, whyLoading},
	} {
		report, _, err := c.conclude(t.Context(), test.streak)
		if err != nil || report.Unknown != test.want || (report.Drift == nil) != (test.want != "") {
			t.Errorf("%s: drift %v, %q, %v; want %q", test.name, report.Drift, report.Unknown, err, test.want)
		}
	}
}
