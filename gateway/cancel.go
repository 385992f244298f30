package gateway

import (
	"context"
	"time"

	"github.com/valyala/fasthttp"

	"flashgate/internal/sale"
)

// cancelAttempts bounds how often a cancellation changes between "there is a row" and "there is none"; each turn needs the consumer to be faster.
const cancelAttempts = 3

// cancelOrder answers DELETE …/orders/{id}.
func (g *Gateway) cancelOrder(ctx *fasthttp.RequestCtx, began time.Time, idText []byte) kind {
	id, err := sale.ParseOrderID(idText)
	if err != nil {
		return g.answer(ctx, &answerBadOrderID)
	}
	user, bad := g.caller(ctx)
	if bad != nil {
		return g.answer(ctx, bad)
	}
	limited, cancel := g.limited(began)
	defer cancel()
	a := g.cancelByID(limited, id, user)
	return g.answer(ctx, &a)
}

// cancelByID cancels the row, or writes it as CANCELLED where the consumer has not written it yet. Both may find that the other was right a moment ago:
//
//	this request                      consumer
//	cancel: no row
//	read mark: it names this order
//	                                  writes the row
//	write as CANCELLED: there is one
//	cancel: done
//
// or the consumer wrote the row, and expiry ended it and released the mark, between the first two steps: no row, then no mark, then a row.
func (g *Gateway) cancelByID(ctx context.Context, id sale.OrderID, user string) answer {
	item, ok := id.Item()
	if !ok {
		return answerNoOrder
	}
	marked := true
	for range cancelAttempts {
		done, err := g.cancel(ctx, id, user)
		if err != nil {
			g.log.warn("cancel order", "order", id, "error", err)
			return answerCannotCancel
		}
		if done.how != CancelMissing {
			return g.cancellation(done)
		}
		if !marked {
			return answerNoOrder
		}
		e, bad := g.known(item)
		switch {
		case bad == &answerNoItem:
			return answerNoOrder
		case bad != nil:
			return *bad
		}
		m, found, err := g.mark(ctx, e, user)
		if err != nil {
			g.log.warn("cancel order: look up mark", "order", id, "error", err)
			return answerCannotCancel
		}
		if marked = found && m.OrderID == id; !marked {
			continue // once more, for a row that came and ended meanwhile
		}
		done, err = g.cancelUnwritten(ctx, unwritten(&e.item, m, user))
		if err != nil {
			g.log.warn("cancel order", "order", id, "error", err)
			return answerCannotCancel
		}
		if done.how != CancelMissing {
			return g.cancellation(done)
		}
	}
	return answerCannotCancel
}

// unwritten rebuilds the event of a reservation from its mark. A mark without a row was made in the shard's current epoch, because a load keeps only
// marks that have one; so the epoch is the item's.
func unwritten(item *sale.Item, m sale.Mark, user string) sale.Event {
	return sale.Event{
		OrderID: m.OrderID, ItemID: item.ID, UserID: user, Quantity: m.Quantity, Shard: sale.Home(user, item.Shards), Epoch: item.Epoch,
		ReservedAt: m.ReservedAt, Price: m.Price, Currency: m.Currency, KeyHash: m.KeyHash,
	}
}

// cancellation is the answer to a wish that the database has decided.
func (g *Gateway) cancellation(done cancelled) answer {
	if done.how == NotCancellable {
		return notCancellable(done.order.Status)
	}
	return answer{kind: kindOK, body: appendOrder(nil, &done.order, time.Time{})}
}
