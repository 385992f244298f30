package sale

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"
)

// OrderStatus is the state of an order.
type OrderStatus string

// The states of an order. PENDING → PAID | EXPIRED | CANCELLED; REJECTED on arrival. A state that is not live is for ever.
const (
	Pending   OrderStatus = "PENDING"
	Paid      OrderStatus = "PAID"
	Expired   OrderStatus = "EXPIRED"
	Cancelled OrderStatus = "CANCELLED"
	Rejected  OrderStatus = "REJECTED"
)

// Live reports whether an order in this state holds its units and blocks another order of its user.
func (s OrderStatus) Live() bool { return s == Pending || s == Paid }

// Order is a row of the ledger.
type Order struct {
	ID         OrderID
	ItemID     int64
	UserID     string
	Quantity   int64
	Price      Price // per unit, as shown when it was reserved
	Currency   string
	Status     OrderStatus
	RefundsDue int64 // payments that it does not need, and that have not been paid back
	KeyHash    string
	Shard      int
	Epoch      int64
	ReservedAt time.Time // by the clock of Redis
	CreatedAt  time.Time // by the clock of PostgreSQL, as ExpiresAt
	ExpiresAt  time.Time // end of the payment window
	PaidAt     time.Time // zero unless PAID
	EndedAt    time.Time // zero while it is live
	RefundedAt time.Time // when somebody last said that what was due has been paid back; zero if never

	RejectReason string // of a REJECTED order
	Trace        string // W3C traceparent of the purchase, or empty
}

// RefundDue reports whether money has come in that the order does not need, and has not been paid back.
func (o *Order) RefundDue() bool { return o.RefundsDue > 0 }

// Event says that units were reserved: what the outbox in Redis holds, Kafka carries and the consumer writes. The same reservation gives the
// same event, whoever publishes it and however often.
type Event struct {
	OrderID    OrderID
	ItemID     int64
	UserID     string
	Quantity   int64
	Shard      int
	Epoch      int64
	ReservedAt time.Time // millisecond precision, by the clock of Redis
	Price      Price
	Currency   string
	KeyHash    string // empty without Idempotency-Key
	Trace      string // W3C traceparent of the request, or empty; a header of the record
}

// Mark is what Redis remembers of a user who holds units: the proof that he bought, and what a retry is answered from.
type Mark struct {
	OrderID    OrderID
	Quantity   int64
	Price      Price
	Currency   string
	ReservedAt time.Time
	KeyHash    string
	Batch      string // the outbox entry that holds its event; empty after a load
}

// HashKey returns the hash of an Idempotency-Key that marks, events and rows carry in place of the key: 128 bits of SHA-256 in hexadecimal,
// or "" for no key.
func HashKey[T ~string | ~[]byte](key T) string {
	if len(key) == 0 {
		return ""
	}
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:16])
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
