package gateway

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"flashgate/internal/sale"
	"flashgate/internal/token"
)

// Ports are what the gateway needs from others. All of them are required, must be safe for concurrent use, and get items that they must not
// change. Every call with a context ends soon after the context does. Their errors get into the log: they name no user and quote nothing that a
// client has sent.
type Ports struct {
	Seller Seller
	Zero   Zero
	Marks  Marks
	Orders Orders
	// Payments is asked only by requests that the payment provider has signed.
	Payments Payments
	Source   Source
	Notices  Notices
	Limits   Limits
	Clients  Clients
	Tokens   Tokens
	// Ready reports whether everything else that a purchase needs is there, now. Anybody may have it called, as often as he likes: what it asks for
	// serves all who ask at the time. It may wait for that, and bounds the wait itself, to a few seconds.
	Ready func(ctx context.Context) bool
}

func (p Ports) validate() error {
	for _, port := range []struct {
		name    string
		missing bool
	}{
		{"Seller", p.Seller == nil},
		{"Zero", p.Zero == nil},
		{"Marks", p.Marks == nil},
		{"Orders", p.Orders == nil},
		{"Payments", p.Payments == nil},
		{"Source", p.Source == nil},
		{"Notices", p.Notices == nil},
		{"Limits", p.Limits == nil},
		{"Clients", p.Clients == nil},
		{"Tokens", p.Tokens == nil},
		{"Ready", p.Ready == nil},
	} {
		if port.missing {
			return errors.New("the port " + port.name + " is missing")
		}
	}
	return nil
}

// Seller takes units out of stock.
type Seller interface {
	// Reserve asks for units. The context carries the deadline of the request; a reservation that was made before it stands.
	Reserve(ctx context.Context, item *sale.Item, request sale.Request) sale.Result
}

// Proof says whether an item was empty, and when. What else an implementation keeps in it is its own business.
type Proof interface {
	// Empty reports that no unit was free, units in transfer counted as free.
	Empty() bool
	// At is an instant, by the gateway's clock, at which this was so.
	At() time.Time
}

// Reproof compares an item with an earlier proof.
type Reproof struct {
	Same          bool  // nothing was added to any shard since the proof, so the item was empty all the time
	BuyersChanged bool  // somebody became a buyer, or stopped being one, since the proof
	Next          Proof // what to compare with next time; nil unless Same
}

// Zero proves that nothing is left (rule R14), and says who has it.
type Zero interface {
	// Prove takes two readings of every shard. A shard whose stock is unknown makes the item not empty, not an error.
	Prove(ctx context.Context, item *sale.Item) (Proof, error)
	// Reprove takes one reading and compares it with last.
	Reprove(ctx context.Context, item *sale.Item, last Proof) (Reproof, error)
	// Buyers calls yield with every user who has a mark, and returns the epoch of the load whose marks they are: every shard has its stock and all of its
	// marks, in the layout of the item, and all are of that one load. Everything else is an error, ErrUnknownStock where a load is all that is needed;
	// the users so far are nobody's buyers then.
	Buyers(ctx context.Context, item *sale.Item, yield func(user string)) (epoch int64, err error)
}

// ErrUnknownStock is what Zero.Buyers returns for an item that is not loaded, or not in the layout that the caller knows.
var ErrUnknownStock = errors.New("the stock is unknown")

// ErrWrongLayout is what Marks returns when the item has another number of shards by now.
var ErrWrongLayout = errors.New("the item has another number of shards")

// Marks reads what Redis remembers of a buyer.
type Marks interface {
	// Mark reads the user's mark at the item and changes nothing; ok is false when there is none.
	Mark(ctx context.Context, item *sale.Item, user string) (mark sale.Mark, ok bool, err error)
}

// Cancellation says how a wish to cancel ended.
type Cancellation uint8

// The ends of a cancellation.
const (
	// CancelMissing: there is no such order of this user in the database.
	CancelMissing Cancellation = iota
	// Cancelled: the order is CANCELLED, by this call or an earlier one.
	Cancelled
	// NotCancellable: the order is in another state, which it keeps.
	NotCancellable
)

// Orders is the ledger.
type Orders interface {
	// Order reads an order of anybody.
	Order(ctx context.Context, id sale.OrderID) (order sale.Order, ok bool, err error)
	// LiveOrder reads the user's live order of an item.
	LiveOrder(ctx context.Context, item int64, user string) (order sale.Order, ok bool, err error)
	// Cancel cancels the user's order if it is PENDING. The order is filled in unless the answer is CancelMissing.
	Cancel(ctx context.Context, id sale.OrderID, user string) (order sale.Order, how Cancellation, err error)
	// CancelUnwritten writes the event's order as CANCELLED, and sees to it that its units return, if the database does not know the order yet.
	// CancelMissing means that it knows it by now: the caller cancels that one.
	CancelUnwritten(ctx context.Context, event sale.Event) (order sale.Order, how Cancellation, err error)
}

// PayOutcome says how telling the ledger of a payment ended.
type PayOutcome uint8

// The outcomes of a payment.
const (
	// PayDone: it is recorded, by this call or an earlier one, and the result says where the order stands.
	PayDone PayOutcome = iota + 1
	// PayNoOrder: there is no such order in the database.
	PayNoOrder
	// PayMismatch: amount or currency is not what the order costs. Nothing was recorded.
	PayMismatch
	// PayEventReused: the event's id came before with another payload. Nothing was recorded.
	PayEventReused
)

// Payments records what the payment provider says.
type Payments interface {
	// Pay records a payment and changes its order accordingly, once, however often the event is told. After an error it may have done so.
	Pay(ctx context.Context, payment sale.Payment) (result sale.PaymentResult, outcome PayOutcome, err error)
	// Unwritten reports whether an item may have reservations that are not in the database yet. False, for an item that nobody knows too, means
	// that what was reserved before the call has its row.
	Unwritten(ctx context.Context, item int64) (bool, error)
}

// Source is where the catalogue comes from.
type Source interface {
	// Catalogue reads every item, retired ones too.
	Catalogue(ctx context.Context) ([]sale.Item, error)
	// Watch calls changed whenever the catalogue may have changed, until ctx ends. changed does not block. Watch looks after lost
	// connections itself; an error means that it has given up.
	Watch(ctx context.Context, changed func()) error
}

// Notice is what gateways and keepers tell each other about an item.
type Notice struct {
	Item    int64
	Flagged bool // true: a gateway set its flag; false: units came back
}

// Notices carries them. Delivery is not promised.
type Notices interface {
	// Announce tells everybody, this process too.
	Announce(ctx context.Context, notice Notice) error
	// Subscribe calls heard for every notice until ctx ends. heard does not block. Subscribe looks after lost connections itself; an
	// error means that it has given up.
	Subscribe(ctx context.Context, heard func(Notice)) error
}

// Limits are the token buckets. A refusal says how long the next token takes.
type Limits interface {
	PurchaseAddr(addr netip.Addr) (ok bool, retryAfter time.Duration)
	// LookAddr is asked before somebody who may be a winner is looked at. user is the hash of the user whom his token claims, which nobody has verified:
	// every pair of an address and a user has a bucket, and no other bucket is touched.
	LookAddr(addr netip.Addr, user uint64) (ok bool)
	PurchaseUser(user string) (ok bool, retryAfter time.Duration)
	ReadUser(user string) (ok bool, retryAfter time.Duration)
}

// Clients finds the client behind proxies.
type Clients interface {
	// Header is the name of the header whose lines Resolve wants.
	Header() string
	// Resolve names the client of a request from peer. It keeps nothing of lines.
	Resolve(peer netip.Addr, lines [][]byte) netip.Addr
}

// Tokens checks who is asking. A *token.Verifier is one.
type Tokens interface {
	// Verify checks a token whole. It keeps nothing of raw, and does not block.
	Verify(raw []byte) (token.Claims, error)
}
