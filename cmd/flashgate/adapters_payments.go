package main

import (
	"context"
	"errors"
	"fmt"

	"flashgate/gateway"
	"flashgate/internal/ledger"
	"flashgate/internal/sale"
	"flashgate/shard"
)

var _ gateway.Payments = paymentPorts{}

// paymentPorts shows the ledger to the gateway's webhook, and the stock, where orders are before the ledger knows them.
type paymentPorts struct {
	ledger *ledger.DB
	stock  markedStock
	places chan struct{} // see Unwritten
}

// markedStock tells what the shards hold. A *shard.Stock is one.
type markedStock interface {
	Read(ctx context.Context, layout shard.Layout) ([]shard.ShardReading, error)
	Holdings(ctx context.Context, layout shard.Layout) ([]shard.Holdings, error)
}

// unwrittenAtOnce is how many looks for unwritten orders a process takes at the same time: each moves every mark of an item over the network.
const unwrittenAtOnce = 4

func newPaymentPorts(db *ledger.DB, stock markedStock) paymentPorts {
	return paymentPorts{db, stock, make(chan struct{}, unwrittenAtOnce)}
}

var errManyLooks = errors.New("look for unwritten orders: too many at once")

var payOutcomes = map[ledger.PayOutcome]gateway.PayOutcome{
	ledger.PayDone: gateway.PayDone, ledger.PayNoOrder: gateway.PayNoOrder, ledger.PayMismatch: gateway.PayMismatch,
	ledger.PayEventReused: gateway.PayEventReused,
}

func (p paymentPorts) Pay(ctx context.Context, payment sale.Payment) (sale.PaymentResult, gateway.PayOutcome, error) {
	result, outcome, err := p.ledger.Pay(ctx, payment)
	return result, payOutcomes[outcome], err
}

// Unwritten asks in the direction in which a reservation goes: outbox, mark, row. One that leaves a place between two questions is in the next one
// when that is asked:
//
//	this call                     sweep, consumer
//	outboxes: empty
//	                              writes the row of an order whose mark stands
//	marks: the order's
//	rows: the order's
//
// A mark that goes before it is read belonged to an order that had ended, which has a row. Units of marks are compared with those of live orders:
// the mark of an ended order whose release is still to come counts as unwritten for that moment, which is the safe side.
//
// Stock that is unknown, or of another load than the item's last, is about to be loaded, and before a load everything that was reserved gets its row
// (section 7 of the design): until then nobody knows what there is. Of a retired item there is nothing any more.
//
// A provider that tells many payments of orders that do not exist is told to come back: no answer may be older than its question, so that none can
// be shared.
func (p paymentPorts) Unwritten(ctx context.Context, item int64) (bool, error) {
	select {
	case p.places <- struct{}{}:
		defer func() { <-p.places }()
	default:
		return false, errManyLooks
	}
	it, ok, err := p.ledger.Item(ctx, item)
	if err != nil || !ok || !it.RetiredAt.IsZero() {
		return false, err
	}
	if known, err := p.settled(ctx, &it); err != nil || !known {
		return !known, err
	}
	shards, err := p.stock.Holdings(ctx, layoutOf(&it))
	if err != nil {
		return false, fmt.Errorf("look for unwritten orders of item %d: %w", item, err)
	}
	// Once more: a server that was wiped just before it was asked for its marks has none.
	if known, err := p.settled(ctx, &it); err != nil || !known {
		return !known, err
	}
	var reserved int64
	var orders []sale.OrderID
	for _, held := range shards {
		for _, mark := range held.Marks {
			reserved += mark.Quantity
			orders = append(orders, mark.OrderID)
		}
	}
	now, held, ok, err := p.ledger.Standing(ctx, item, orders)
	if err != nil {
		return false, err
	}
	loadedAnew := !ok || now.Shards != it.Shards || now.Epoch != it.Epoch // what was read is of another time
	return loadedAnew || held != reserved, nil
}

// settled reports whether every shard has the stock of the item's last load, and nothing in its outbox.
func (p paymentPorts) settled(ctx context.Context, it *sale.Item) (bool, error) {
	layout := layoutOf(it)
	readings, err := p.stock.Read(ctx, layout)
	if err != nil {
		return false, fmt.Errorf("look for unwritten orders of item %d: %w", it.ID, err)
	}
	for _, r := range readings {
		if !r.Of(it.Epoch) || r.Stock == nil || r.Entries != 0 || r.K != int64(layout.Shards) {
			return false, nil
		}
	}
	return true, nil
}
