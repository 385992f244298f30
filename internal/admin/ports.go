package admin

import (
	"context"
	"errors"

	"flashgate/internal/sale"
)

// ErrOutcomeUnknown is wrapped by errors of Ledger after which the change may have been made all the same: the reply to its commit was lost.
var ErrOutcomeUnknown = errors.New("whether it was stored is unknown")

// Taken says which id exists already.
type Taken struct {
	What string // "sale" or "item"
	ID   int64
}

// RestockOutcome says how a wish to restock ended.
type RestockOutcome uint8

// The ends of a restock.
const (
	Restocked RestockOutcome = iota + 1
	NoItem
	RestockKeyReused // the key was used for this item with another number of units
	TooMany          // the item would have more than sale.MaxQuantity units
	Retired          // nothing of the item is sold any more
)

// Restock is what the ledger made of a restock.
type Restock struct {
	Quantity   int64 // of the item after it; after the first one with the same key
	Correction int64 // what the relay will carry out in Redis; see Ledger.CorrectionDone
	Repeated   bool  // the key was known: nothing was added now
}

// Standing is an item in the database at one instant.
type Standing struct {
	Item sale.Item
	Held int64 // units of those of the given orders that are live
}

// Ledger is the database. Implementations are safe for concurrent use and return soon after the context has ended; errors say that the database
// did not do it, ErrOutcomeUnknown apart.
type Ledger interface {
	// CreateSale stores a sale with its items, ids of 0 filled in, and returns it as stored, items in the given order. taken tells which id
	// exists; nothing is stored then.
	CreateSale(ctx context.Context, s sale.Sale) (created sale.Sale, taken *Taken, err error)
	// Sale reads a sale with its items.
	Sale(ctx context.Context, id int64) (s sale.Sale, ok bool, err error)
	// Sales reads up to limit sales with ids above after, in the order of their ids.
	Sales(ctx context.Context, after int64, limit int) ([]sale.Sale, error)
	// Item reads an item, retired ones too.
	Item(ctx context.Context, id int64) (it sale.Item, ok bool, err error)
	// Standing reads an item and sums up the units of those of orders that are live orders of it, all in one snapshot. Ids without a row are
	// no error; there may be as many as the item has units.
	Standing(ctx context.Context, item int64, orders []sale.OrderID) (st Standing, ok bool, err error)
	// Restock adds units to the quantity of an item, once per key unless that is empty, and has the relay add them in Redis.
	Restock(ctx context.Context, item, units int64, key string) (Restock, RestockOutcome, error)
	// CorrectionDone reports whether the relay has carried out the correction of a restock.
	CorrectionDone(ctx context.Context, correction int64) (bool, error)
}

// Holding is a mark: a reservation that Redis remembers.
type Holding struct {
	OrderID  sale.OrderID
	Quantity int64
}

// Shard is what one shard of an item holds.
type Shard struct {
	Known    bool      // the server answered and what it holds is readable; everything below counts only then
	Stock    *int64    // units free; nil when the stock is not loaded
	Holdings []Holding // the marks
	Pending  int64     // units of reservations that are not yet known to be in Kafka
	Moving   int64     // units in transfers to other shards that began here
}

// Stock is the stock in Redis. Implementations are safe for concurrent use and return soon after the context has ended.
type Stock interface {
	// Ping reports whether Redis answers.
	Ping(ctx context.Context) error
	// Read reads all shards of an item, in their order, each of them as nearly at one instant as the server allows. A shard that cannot be
	// read is not an error; it is not Known.
	Read(ctx context.Context, it sale.Item) ([]Shard, error)
	// Free sums up the units that are free in all shards; known is false when one of them is not loaded or not readable.
	Free(ctx context.Context, it sale.Item) (units int64, known bool, err error)
}

// Loader loads the stock of an item from the database into Redis.
type Loader interface {
	// Load returns when the item is loaded, whoever did it. It is called for new items, from several goroutines at once.
	Load(ctx context.Context, it sale.Item) error
}

// Catalogue is what the gateway of this process knows to sell.
type Catalogue interface {
	// Refresh reads it anew and returns when it is in use.
	Refresh(ctx context.Context) error
}
