package shard

import (
	"time"

	"flashgate/internal/sale"
)

// Layout is an item and the number of shards among which the caller believes its units lie.
type Layout struct {
	Item   int64 // 1 to sale.MaxID
	Shards int   // 1 to sale.MaxShards
}

// Publisher sends events to the broker. Publish must not block. done is called exactly once, from any goroutine: with nil
// when the broker has acknowledged every event, with an error when at least one is not known to be there. A publisher
// gives up by the deadline and sends nothing after it that it can still stop. It cannot stop everything: a process that
// stands still between looking at the clock and writing to the connection sends late, and hears late that its event arrived.
// Neither is relied upon. Whoever says yes because of done looks at the clock himself, and an event that arrives behind a load
// is refused by its epoch (rule R8).
type Publisher interface {
	Publish(deadline time.Time, events []sale.Event, done func(error))
}

// Applied says what became of a correction. All but an error and NotLoaded, WrongLayout and Unreadable end it.
type Applied uint8

// What became of a correction.
const (
	// Done: applied, now or by an earlier call.
	Done Applied = iota + 1
	// Absorbed: older than the load of its shard, which has counted it.
	Absorbed
	// NotLoaded: the stock is unknown; try again after the load.
	NotLoaded
	// WrongLayout: the item has another number of shards by now; read it and try again.
	WrongLayout
	// Unreadable: Redis holds something that is no stock; a load is due.
	Unreadable
)

var appliedNames = [...]string{"", "done", "absorbed", "not_loaded", "wrong_layout", "unreadable"}

// String returns the name used in logs.
func (a Applied) String() string {
	if int(a) < len(appliedNames) && a > 0 {
		return appliedNames[a]
	}
	return "invalid"
}

// Correction names the reservation that is to be undone.
type Correction struct {
	User    string
	OrderID sale.OrderID
	Epoch   int64 // the item's, read in the transaction that wrote the correction (rule R6)
}

// Proof is what was free in all shards of an item, and whether it was proven that nothing was. A proof of an empty item
// holds for an instant not before At.
type Proof struct {
	Empty  bool
	Free   int64 // units in the shards
	Moving int64 // units in transfer between them
	At     time.Time

	shards []shardState
}

// ShardReading is what one shard holds. Numbers that could not be read are -1, Stock is nil then.
//
//nolint:revive // "a reading" alone could be of an outbox or a mark as well
type ShardReading struct {
	Shard    int
	Loaded   bool   // the stock is known, also where marks or outbox are off
	Readable bool   // nothing that was read is off; Fault says what is
	Stock    *int64 // units free
	Buyers   int64  // marks
	Entries  int64  // outbox entries
	Waiting  int64  // reservations in them
	Pending  int64  // units in them: not yet known to be in Kafka

	// MustEntries are the outbox entries that there must be: what went by the hand of no script is still counted.
	MustEntries int64

	Moving int64 // units in transfers that began here
	K      int64
	Epoch  int64
	Token  int64
	Fault  error // why it is not readable, or could not be reached
}

// Of reports whether the shard has the stock of the load with an epoch, and all that was read of it is good.
func (r ShardReading) Of(epoch int64) bool { return r.Loaded && r.Readable && r.Epoch == epoch }

// Entry is one batch of reservations in the outbox of a shard.
type Entry struct {
	Batch  string
	At     time.Time // by the clock of Redis
	Epoch  int64
	Events []sale.Event
}

// BadEntry is an outbox entry that is not one: Rebuild makes it anew, Forget removes it, a load counts its units as free.
type BadEntry struct {
	Batch string
	Blob  string
	Fault error
	// Foreign: it is of another version of this program, which can read it.
	Foreign bool
}

// Image is what a load writes: the loader's token, the units free, which are spread evenly over the shards, and the
// marks of all live orders by user.
type Image struct {
	Token int64 // becomes the epoch
	Free  int64
	Marks map[string]sale.Mark
}
