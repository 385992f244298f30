package reconcile

import (
	"context"

	"flashgate/internal/broker"
	"flashgate/internal/ledger"
	"flashgate/internal/sale"
	"flashgate/shard"
)

// Stock is what is read of Redis. Every call ends soon after its context does.
type Stock interface {
	Read(ctx context.Context, layout shard.Layout) ([]shard.ShardReading, error)
	Accounts(ctx context.Context, layout shard.Layout) ([]shard.Account, error)
	Outbox(ctx context.Context, layout shard.Layout, n int) (shard.Outbox, error)
}

// Ledger is what is read of the database. Every call ends soon after its context does.
type Ledger interface {
	Item(ctx context.Context, id int64) (sale.Item, bool, error)
	Totals(ctx context.Context, item int64) (ledger.Totals, bool, error)
	Books(ctx context.Context, item int64, asked []sale.OrderID) (ledger.Books, bool, error)
}

// Offsets tells how far the order writers have come. Every call ends soon after its context does.
type Offsets interface {
	End(ctx context.Context, topic string) (broker.Ends, error)
	Passed(ctx context.Context, group string, ends broker.Ends) (bool, error)
}

var (
	_ Stock   = (*shard.Stock)(nil)
	_ Ledger  = (*ledger.DB)(nil)
	_ Offsets = (*broker.Admin)(nil)
)
