package gateway

import (
	"context"
	"errors"
	"fmt"

	"flashgate/internal/sale"
)

// The reads and writes of single orders, each within its context whatever hangs.

type found[T any] struct {
	value T
	ok    bool
	err   error
}

// find runs a look-up within ctx.
func find[T any](ctx context.Context, g *Gateway, to *callee, read func() (T, bool, error)) (T, bool, error) {
	c := begin(g, to, func() found[T] {
		value, ok, err := read()
		return found[T]{value, ok && err == nil, err}
	})
	f, answered := c.wait(ctx)
	if !answered {
		return f.value, false, c.failure()
	}
	return f.value, f.ok, f.err
}

// mark reads a user's mark, under the layout of today: a gateway that has not heard of a change would look into the wrong shard. Of a retired item
// Redis holds nothing any more, and everything that was reserved has a row.
func (g *Gateway) mark(ctx context.Context, e *entry, user string) (sale.Mark, bool, error) {
	if !e.item.RetiredAt.IsZero() {
		return sale.Mark{}, false, nil
	}
	read := func(e *entry) (sale.Mark, bool, error) {
		return find(ctx, g, &g.redis, func() (sale.Mark, bool, error) { return g.ports.Marks.Mark(ctx, &e.item, user) })
	}
	m, ok, err := read(e)
	if !errors.Is(err, ErrWrongLayout) {
		return m, ok, err
	}
	if err := g.Refresh(ctx); err != nil {
		return sale.Mark{}, false, err
	}
	if e = g.entryOf(e.item.ID); e == nil {
		return sale.Mark{}, false, nil
	}
	return read(e)
}

// row reads an order, until ctx ends.
func (g *Gateway) row(ctx context.Context, id sale.OrderID) found[sale.Order] {
	return g.lookForRow(ctx, id).rest(ctx)
}

// liveOrder reads the live order of a user, until ctx ends.
func (g *Gateway) liveOrder(ctx context.Context, item int64, user string) found[sale.Order] {
	return g.lookForLive(ctx, item, user).rest(ctx)
}

// cancelled is the result of a wish to cancel.
type cancelled struct {
	order sale.Order
	how   Cancellation
}

func (g *Gateway) cancel(ctx context.Context, id sale.OrderID, user string) (cancelled, error) {
	c, _, err := find(ctx, g, &g.database, func() (cancelled, bool, error) {
		o, how, err := g.ports.Orders.Cancel(ctx, id, user)
		return cancelled{o, how}, true, err
	})
	if err != nil {
		return cancelled{}, fmt.Errorf("cancel order %v: %w", id, err)
	}
	return c, nil
}

// recorded is the result of telling the ledger of a payment.
type recorded struct {
	result sale.PaymentResult
	how    PayOutcome
}

func (g *Gateway) recordPayment(ctx context.Context, p sale.Payment) (recorded, error) {
	r, _, err := find(ctx, g, &g.database, func() (recorded, bool, error) {
		result, how, err := g.ports.Payments.Pay(ctx, p)
		return recorded{result, how}, true, err
	})
	return r, err
}

func (g *Gateway) unwrittenOrders(ctx context.Context, item int64) (bool, error) {
	coming, _, err := find(ctx, g, &g.database, func() (bool, bool, error) {
		coming, err := g.ports.Payments.Unwritten(ctx, item)
		return coming, true, err
	})
	return coming, err
}

func (g *Gateway) cancelUnwritten(ctx context.Context, event sale.Event) (cancelled, error) {
	c, _, err := find(ctx, g, &g.database, func() (cancelled, bool, error) {
		o, how, err := g.ports.Orders.CancelUnwritten(ctx, event)
		return cancelled{o, how}, true, err
	})
	if err != nil {
		return cancelled{}, fmt.Errorf("cancel order %v before it is written: %w", event.OrderID, err)
	}
	return c, nil
}
