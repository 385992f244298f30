package sale

// Request asks for units of an item. The order id is fresh for every attempt (rule R1).
type Request struct {
	OrderID  OrderID
	UserID   string
	Quantity int64 // 1 to the item's MaxPerUser
	KeyHash  string
	Price    Price
	Currency string
	Trace    string
}

// Outcome says how a request for units ended.
type Outcome uint8

// The outcomes. Only Reserved took a unit; every other one but Unknown left the stock as it was.
const (
	// Reserved: the units are taken and the outbox entry stands. Result.Acked tells when the broker has the event.
	Reserved Outcome = iota + 1
	// Own: the user's own reservation, repeated with the same key and quantity. Same answer as the first time; where its outbox entry
	// still stood the event is being published again (rule R2), else Result.Acked is closed.
	Own
	// Already: the user holds units here; Result.OrderID names the order. Its event was published before, as far as the time allowed.
	Already
	// KeyReused: the user's reservation with the same key had another quantity.
	KeyReused
	// NoStock: no unit was free at some instant during the call, proven by two readings of every shard (rule R14).
	NoStock
	// Insufficient: fewer units than asked for were left, proven likewise; Result.Available says how many.
	Insufficient
	// NotLoaded: the stock of a shard that had to be asked is unknown and being loaded.
	NotLoaded
	// WrongLayout: the item has another number of shards by now. The caller reads the item again and repeats; nothing happened.
	WrongLayout
	// Unreadable: Redis holds something that is no stock. Nothing was changed.
	Unreadable
	// QueueFull: too many requests wait for this shard in this process.
	QueueFull
	// OutboxFull: too many reservations of the item wait for the broker.
	OutboxFull
	// Busy: units exist, but others were faster each time; a repetition is safe.
	Busy
	// Failed: Redis did not answer or refused, and nothing was reserved for certain.
	Failed
	// Unknown: the call may have run, or run later; Result.OrderID names the order that exists if it did (rule V11).
	Unknown
)

var outcomeNames = [...]string{"", "reserved", "own", "already", "key_reused", "no_stock", "insufficient", "not_loaded", "wrong_layout",
	"unreadable", "queue_full", "outbox_full", "busy", "failed", "unknown"}

// String returns the name used in metrics and logs.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) && o > 0 {
		return outcomeNames[o]
	}
	return "invalid"
}

// Result is the answer to a Request.
type Result struct {
	Outcome   Outcome
	OrderID   OrderID         // Reserved, Own, Already, KeyReused, Unknown
	Shard     int             // the user's home
	Epoch     int64           // Reserved, Own
	Available int64           // Insufficient
	Acked     <-chan struct{} // Reserved, Own: closed when the broker acknowledged; never closed if it did not
	Err       error           // what went wrong, for the log: Unreadable, Failed, Unknown
}
