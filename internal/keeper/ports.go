package keeper

import (
	"context"
	"time"

	"flashgate/internal/broker"
	"flashgate/internal/ledger"
	"flashgate/internal/sale"
	"flashgate/shard"
)

// Stock is what the keeper does to the shards in Redis. Every call ends soon after its context does; all are safe for concurrent use.
type Stock interface {
	// Read reads every shard of the layout. The error is about shards that did not answer.
	Read(ctx context.Context, layout shard.Layout) ([]shard.ShardReading, error)
	// Servers reads by which server every shard was loaded, and which one serves it.
	Servers(ctx context.Context, layout shard.Layout) ([]shard.ShardServer, error)

	// Accounts reads every shard of the layout with all its marks, each at one instant. The error is about shards that did not answer, or hold something else.
	Accounts(ctx context.Context, layout shard.Layout) ([]shard.Account, error)

	// Outbox reads the outbox of one shard, whatever its layout or state, and Redis' clock in the same instant.
	Outbox(ctx context.Context, layout shard.Layout, n int) (shard.Outbox, error)
	// Rebuild makes outbox entries that cannot be read anew from the marks of their shard. Those that are gone are left out, and one without events
	// is settled. The error wraps shard.ErrUnreadable where the marks do not tell.
	Rebuild(ctx context.Context, item int64, n int, batches ...string) ([]shard.Entry, error)
	// Forget removes outbox entries.
	Forget(ctx context.Context, item int64, n int, batches ...string) error

	// Release, Void and Increase carry out a correction, and tell the gateways when units came back. All may be repeated.
	Release(ctx context.Context, layout shard.Layout, c shard.Correction) (shard.Applied, error)
	Void(ctx context.Context, layout shard.Layout, c shard.Correction) (shard.Applied, error)
	Increase(ctx context.Context, layout shard.Layout, operation string, units, epoch int64) (shard.Applied, error)

	// FinishTransfers finishes the transfers of an item that are older than the given age.
	FinishTransfers(ctx context.Context, layout shard.Layout, age time.Duration) error

	// Fence makes the stock of shards 0 to n-1 unknown; false when a newer token was there.
	Fence(ctx context.Context, item int64, n int, token int64) (bool, error)
	// Load writes every shard anew and tells the gateways; false when a shard has another token by now.
	Load(ctx context.Context, layout shard.Layout, image shard.Image) (bool, error)
	// Vacate empties the shards behind the end of a layout, up to n-1; false when one has another token by now.
	Vacate(ctx context.Context, layout shard.Layout, n int, token int64) (bool, error)

	// Extent is the number of shards up to the last that holds any key of an item; 0 for none.
	Extent(ctx context.Context, item int64) (int, error)
	// Remove removes all keys of shards 0 to n-1.
	Remove(ctx context.Context, item int64, n int) error
}

// Ledger is what the keeper does in the database. Every call ends soon after its context does; all are safe for concurrent use.
type Ledger interface {
	Catalogue(ctx context.Context) ([]sale.Item, error)
	Item(ctx context.Context, id int64) (sale.Item, bool, error)
	Listen(ctx context.Context, fn func(topic string))
	Lease(ctx context.Context, name, holder string, ttl time.Duration) (bool, error)

	GiveUp(ctx context.Context, events []sale.Event) error
	Expire(ctx context.Context, limit int) (int, error)

	ClaimCorrections(ctx context.Context, n int, lease time.Duration) ([]ledger.Correction, error)
	FinishCorrections(ctx context.Context, ids ...int64) error
	PostponeCorrections(ctx context.Context, ids []int64, after time.Duration) error

	LoadWatch(ctx context.Context) ([]ledger.LoadState, error)
	ClaimLoad(ctx context.Context, item, above int64) (token int64, ok bool, err error)
	RenewLoad(ctx context.Context, item, token int64) (bool, error)
	Snapshot(ctx context.Context, item, token int64) (ledger.Snapshot, bool, error)
	EndLoad(ctx context.Context, item, token int64) error
	Wish(ctx context.Context, item int64) (ledger.Wish, error)

	ClaimEvents(ctx context.Context, fresh, again int, lease time.Duration) ([]ledger.OutgoingEvent, error)
	PostponeEvents(ctx context.Context, ids []int64, waits []time.Duration) error
	FinishEvents(ctx context.Context, ids ...int64) error
	WaitingEvents(ctx context.Context) (count int64, oldest time.Duration, err error)

	Totals(ctx context.Context, item int64) (ledger.Totals, bool, error)
	Books(ctx context.Context, item int64, asked []sale.OrderID) (ledger.Books, bool, error)

	Retirable(ctx context.Context, after time.Duration) ([]int64, error)
	Retire(ctx context.Context, item int64, after time.Duration) (bool, error)
}

// Publisher writes events to Kafka. Neither method blocks; done is called exactly once, soon after the deadline at the latest: with nil when the brokers
// have acknowledged everything, else with what went wrong first. Nothing is sent after the deadline. Safe for concurrent use.
type Publisher interface {
	// Publish writes reservations.
	Publish(deadline time.Time, events []sale.Event, done func(error))
	// PublishOrderEvent writes what became of an order or of stock.
	PublishOrderEvent(deadline time.Time, event broker.OrderEvent, done func(error))
}

// Offsets tells how far the consumers of a topic have come. Safe for concurrent use.
type Offsets interface {
	End(ctx context.Context, topic string) (broker.Ends, error)
	Passed(ctx context.Context, group string, ends broker.Ends) (bool, error)
}

var (
	_ Stock     = (*shard.Stock)(nil)
	_ Ledger    = (*ledger.DB)(nil)
	_ Publisher = (*broker.Producer)(nil)
	_ Offsets   = (*broker.Admin)(nil)
)
