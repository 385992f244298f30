package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

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
	Known    bool      // the server answered and its numbers are readable; everything below counts only then
	Partial  bool      // marks are missing or not readable: Holdings are some of them, and their sum is unknown
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

// ErrBadCursor is wrapped by errors of the ports that read pages: the cursor is none that they have given out.
var ErrBadCursor = errors.New("the cursor is not one that an answer gave")

// SaleChange is what is to change of a sale. Nil leaves a value as it is.
type SaleChange struct {
	Name     *string
	StartsAt *time.Time
	EndsAt   *time.Time
	Paused   *bool
}

// ItemChange is what is to change of an item. Nil leaves a value as it is.
type ItemChange struct {
	Shards     *int
	Quantity   *int64
	Price      *sale.Price
	MaxPerUser *int64
	Paused     *bool
}

// ChangeOutcome says how a wish to change a sale or an item ended. All but Changed left everything as it was.
type ChangeOutcome uint8

// The ends of a change.
const (
	Changed       ChangeOutcome = iota + 1
	NothingThere                // there is no such sale or item
	SaleStarted                 // the start cannot be moved any more
	BadWindow                   // the sale would end before it starts
	ChangeRetired               // nothing of it is sold any more
	BelowSold                   // the quantity is smaller than what is sold
)

// Changes is the part of the database that changes sales and items. What changes is in the audit table and announced to every gateway when a call
// returns. Values are checked by the caller. Implementations are safe for concurrent use; their errors are those of Ledger.
type Changes interface {
	// UpdateSale changes a sale and returns it as it is then.
	UpdateSale(ctx context.Context, id int64, change SaleChange) (sale.Sale, ChangeOutcome, error)
	// UpdateItem changes an item and returns it as it is then; after BelowSold as it is. A larger quantity is a restock of the difference.
	UpdateItem(ctx context.Context, id int64, change ItemChange) (ChangedItem, ChangeOutcome, error)
}

// ChangedItem is an item behind a change.
type ChangedItem struct {
	sale.Item
	Wish int64 // number of what a load has yet to do for this change: another number of shards, fewer units; 0: nothing. See Reloader.WishEnd
}

// Wish is what a change leaves to a load.
type Wish struct {
	Number int64 // see ChangedItem
	Fewer  int64 // units that it takes away; 0: none
}

// WishOutcome says what became of a wish.
type WishOutcome uint8

// The states of a wish. What was wished later takes its place, as if this one had been carried out before.
const (
	WishOpen      WishOutcome = iota // something is still wished of the item, or its stock is not loaded
	WishDone                         // carried out; or what took its place was carried out or withdrawn. The stock is loaded
	WishBelowSold                    // the quantity was below what was sold when the load came to it, and stays as it was
	WishReplaced                     // the load came to another quantity in its place, which was below what was sold: nothing was taken away for either
	WishRetired                      // the item was retired first
)

// WishEnd is what became of a wish. Sold and Quantity, after WishBelowSold and WishReplaced, are those of the item when the load came to it.
type WishEnd struct {
	Outcome        WishOutcome
	Sold, Quantity int64
}

// StatusRefundDue selects, in the place of a status, the orders with money to be paid back.
const StatusRefundDue = "REFUND_DUE"

// OrderFilter selects a page of orders.
type OrderFilter struct {
	Item   int64  // 0: of every item
	Status string // a sale.OrderStatus or StatusRefundDue; empty: any
	Cursor string // what the page before gave; empty: from the newest
	Limit  int
}

// Payment is what the payment provider has said about an order.
type Payment struct {
	EventID    string
	Succeeded  bool
	Amount     sale.Amount
	Currency   string
	Effect     string    // what it did to the order: paid, failed, refund_due
	ReceivedAt time.Time // by the clock of the database
	RefundedAt time.Time // zero where nothing was paid back
}

// RefundOutcome says how the marking of refunds ended.
type RefundOutcome uint8

// The ends of marking payments of an order as paid back. Only RefundMarked changed anything.
const (
	RefundMarked       RefundOutcome = iota + 1
	RefundMarkedBefore               // by earlier calls, all of what was meant
	RefundNotDue                     // one of those named has not to be paid back; or none was named, nothing is due, and nothing ever was paid back
	RefundNoOrder
)

// Refund is what became of the word that payments have been paid back.
type Refund struct {
	Outcome RefundOutcome
	Order   sale.Order // as it is then
	Event   string     // RefundNotDue: the one that has not to be paid back; empty: none was named
}

// Orders is the part of the database that has the orders. Implementations are safe for concurrent use; their errors are those of Ledger, and
// ErrBadCursor.
type Orders interface {
	// Order reads an order, whatever its state.
	Order(ctx context.Context, id sale.OrderID) (o sale.Order, ok bool, err error)
	// Orders reads a page of orders, newest first. next is empty after the last page.
	Orders(ctx context.Context, filter OrderFilter) (page []sale.Order, next string, err error)
	// Payments reads what was said about an order, in the order of arrival.
	Payments(ctx context.Context, id sale.OrderID) ([]Payment, error)
	// Refunded marks payments as paid back: those with the event ids, all of them or none; for nil, all that is due at that moment. What it changes
	// is in the audit table, with the ids.
	Refunded(ctx context.Context, id sale.OrderID, events []string) (Refund, error)
}

// Reservations finds in Redis what is not in the database yet. Implementations are safe for concurrent use and return soon after the context has
// ended.
type Reservations interface {
	// Find looks for the reservation with this order id among those of an item. The trace is empty where Redis has forgotten it. An error means
	// that it may be there all the same, because a shard did not answer or is being loaded.
	Find(ctx context.Context, it sale.Item, id sale.OrderID) (e sale.Event, ok bool, err error)
}

// AuditFilter selects a page of the audit table.
type AuditFilter struct {
	Subject string // such as sale:7, item:1001, order:ID, dlq; empty: every one
	Before  int64  // only entries with smaller ids; 0: from the newest
	Limit   int
}

// AuditEntry is one change that somebody made.
type AuditEntry struct {
	ID      int64
	At      time.Time
	What    string
	Subject string
	Before  []byte // JSON; nil for nothing
	After   []byte // likewise
}

// Audit is the audit table. Implementations are safe for concurrent use.
type Audit interface {
	// Audit reads a page, newest first.
	Audit(ctx context.Context, filter AuditFilter) ([]AuditEntry, error)
	// BeginReload writes the row of a load that somebody has asked for: the item as it is before.
	BeginReload(ctx context.Context, item int64) (row uuid.UUID, err error)
	// EndReload adds to that row the item as it is after the load.
	EndReload(ctx context.Context, item int64, row uuid.UUID) error
}

// Reloader loads the stock of an item anew, as the keeper does by itself when it sees that a load is due.
type Reloader interface {
	// Reload returns when the item has been loaded by a load that began after the call, whoever did it. It tries until ctx ends, unless a server
	// that a load needs does not answer at all.
	Reload(ctx context.Context, item int64) error
	// CarryOut returns when nothing that is wished of an item (see ChangedItem) is open any more, whoever brought it there. It begins loads by itself,
	// each only when brokers and order writers keep up. It tries until ctx ends; the keepers go on then.
	CarryOut(ctx context.Context, item int64) error
	// WishEnd says what became of a wish.
	WishEnd(ctx context.Context, item int64, wish Wish) (WishEnd, error)
}

// Letter is a dead letter: a record that the order writer could not store.
type Letter struct {
	Partition       int32 // of the dead-letter topic
	Offset          int64
	At              time.Time
	Reason          string
	Error           string
	Topic           string // where the record was; empty where the letter does not say
	SourcePartition *int32
	SourceOffset    *int64
	Key             *string // nil for none, and for one that is no text
	Value           *string // nil for none, and for one that is no text or too long to be shown
	ValueBytes      int
	OrderID         sale.OrderID // zero where none could be read
}

// DeadLetters is the dead-letter topic. Implementations are safe for concurrent use and return soon after the context has ended.
type DeadLetters interface {
	// List reads up to limit letters behind cursor, oldest first; an empty cursor is the start. Those that are closed are left out. next is empty when
	// there are no more.
	List(ctx context.Context, cursor string, limit int) (letters []Letter, next string, err error)
	// Replay puts letters back where they came from, and closes them with a row in the audit table. A part of the work is a call's worth: the result
	// says where the next call goes on. Its errors may be a *ReplayError, ErrNoLetter and ErrBadCursor.
	Replay(ctx context.Context, wish Replay) (Replayed, error)
	// ClosedAt returns when a letter was closed; false for one that is open, or never was.
	ClosedAt(ctx context.Context, letter LetterPlace) (at time.Time, ok bool, err error)
}

// ErrNoLetter says that there is no letter at the place that a replay names.
var ErrNoLetter = errors.New("there is no such letter")

// ReplayError says that a replay came to its end too early.
type ReplayError struct {
	Done   int // letters that were put back and closed
	Unsure int // letters that may have been put back, and are not closed: they will be replayed once more
	Err    error
}

// Error implements error.
func (e *ReplayError) Error() string {
	return fmt.Sprintf("replay dead letters: %d done, %d unsure: %v", e.Done, e.Unsure, e.Err)
}

// Unwrap returns what went wrong.
func (e *ReplayError) Unwrap() error { return e.Err }

// Replay says which letters are to be replayed: one, or all behind the cursor.
type Replay struct {
	DryRun bool         // only say what would be done
	One    *LetterPlace // this one alone
	Reason string       // only letters that are there for this reason; empty: for any
	Cursor string       // what the call before gave; empty: the first
	Asked  []byte       // the wish as JSON, for the audit table
}

// LetterPlace is where a letter is in the dead-letter topic.
type LetterPlace struct {
	Partition int32
	Offset    int64
}

// Replayed is what a call did.
type Replayed struct {
	Replayed []ReplayedLetter
	Kept     []KeptLetter
	Next     string // the cursor of the next call; empty when nothing is left to do
}

// ReplayedLetter is a letter that was put back, or would be.
type ReplayedLetter struct {
	LetterPlace
	OrderID sale.OrderID
	Reason  string // for which it was set aside
}

// KeptLetter is a letter that cannot be put back, as it is no reservation now either.
type KeptLetter struct {
	LetterPlace
	OrderID sale.OrderID // zero where none could be read
	Reason  string       // for which it stays
	Error   string
}
