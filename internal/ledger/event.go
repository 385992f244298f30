package ledger

import (
	"errors"
	"fmt"
	"time"

	"flashgate/internal/sale"
)

// Bounds of the time of a reservation: wide enough for any clock that runs, narrow enough for every type on the way.
var (
	earliest = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	latest   = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
)

// checkEvents returns a *PermanentError that names every event which cannot be stored whatever the database holds.
func checkEvents(events []sale.Event) error {
	var at []int
	var first error
	for i := range events {
		if err := checkEvent(&events[i]); err != nil {
			at = append(at, i)
			if first == nil {
				first = fmt.Errorf("event of order %s: %w", events[i].OrderID, err)
			}
		}
	}
	if first == nil {
		return nil
	}
	return &PermanentError{At: at, Err: first}
}

func checkEvent(e *sale.Event) error {
	if item, ok := e.OrderID.Item(); !ok || item != e.ItemID {
		return fmt.Errorf("the order id is not one of item %d", e.ItemID)
	}
	if err := sale.CheckUser(e.UserID); err != nil {
		return fmt.Errorf("user id %w", err)
	}
	if e.Quantity < 1 || e.Quantity > sale.MaxQuantity {
		return fmt.Errorf("quantity %d is not between 1 and %d", e.Quantity, sale.MaxQuantity)
	}
	if e.Price != "" {
		if _, err := sale.ParsePrice(string(e.Price)); err != nil {
			return fmt.Errorf("price %w", err)
		}
	}
	if e.Currency != "" {
		if err := sale.CheckCurrency(e.Currency); err != nil {
			return fmt.Errorf("currency %w", err)
		}
	}
	if e.Shard < 0 || e.Shard >= sale.MaxShards {
		return fmt.Errorf("shard %d is not between 0 and %d", e.Shard, sale.MaxShards-1)
	}
	if e.Epoch < 0 {
		return fmt.Errorf("epoch %d is negative", e.Epoch)
	}
	if e.ReservedAt.Before(earliest) || e.ReservedAt.After(latest) {
		return errors.New("time of the reservation is not between the years 2000 and 9999")
	}
	return nil
}

// payload is what an order id stands for. Two events, or an event and a row, with the same id and the same payload are the same reservation,
// told twice. Shard, epoch and trace do not belong to it: they say how the event came about, and who builds it from a mark has them
// from elsewhere.
type payload struct {
	item       int64
	user       string
	quantity   int64
	price      sale.Price
	currency   string
	keyHash    string
	reservedAt int64 // milliseconds since 1970, the precision of an event
	anonymous  bool  // of a row: who bought has been forgotten
}

func payloadOf(e *sale.Event) payload {
	return payload{
		item: e.ItemID, user: e.UserID, quantity: e.Quantity, price: e.Price, currency: e.Currency, keyHash: e.KeyHash,
		reservedAt: e.ReservedAt.UnixMilli(),
	}
}

// same reports whether an event has the payload that is known of its order id. An event without price or currency got those of the item when
// it was stored, so it is not compared by them. A row that was made anonymous contradicts nothing: it does not know its user and key any more, and
// a record of the contradiction would name one.
func (known payload) same(e *sale.Event) bool {
	other := payloadOf(e)
	if other.price == "" || known.price == "" || known.price.Equal(other.price) {
		other.price = known.price
	}
	if other.currency == "" || known.currency == "" {
		other.currency = known.currency
	}
	return known.anonymous || known == other
}
