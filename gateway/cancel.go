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
	a := g.cancelByID(limited, id, user, traceparent(ctx))
	return g.answer(ctx, &a)
}

// cancelByID cancels the row, or writes it as CANCELLED where the consumer has not written it yet. Both may find that the other was right a
// moment ago:
//
//	this request                      consumer
//	cancel: no row
//	read mark: it names this order
//	                                  writes the row
//	write as CANCELLED: there is one
//	cancel: done
//
// or the consumer wrote the row, and expiry ended it and released the mark, between the first two steps: no row, then no mark, then a row.
func (g *Gateway) cancelByID(ctx context.Context, id sale.OrderID, user, trace string) answer {
	item, ok := id.Item()
	if !ok {
		return answerNoOrder
	}
	of := about{order: id, item: item, trace: trace}
	marked := true
	for range cancelAttempts {
		done, err := g.cancel(ctx, id, user)
		if err != nil {
			g.warnUnlessStopping("cancel order", of.with("error", err)...)
			return answerCannotCancel
		}
		if done.how != CancelMissing {
			return g.cancellation(ctx, done, item, id, user)
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
			g.warnUnlessStopping("cancel order: look up mark", of.with("error", err)...)
			return answerCannotCancel
		}
		if marked = found && m.OrderID == id; !marked {
			continue // once more, for a row that came and ended meanwhile
		}
		done, err = g.cancelUnwritten(ctx, unwritten(&e.item, m, user))
		if err != nil {
			g.warnUnlessStopping("cancel order", of.with("error", err)...)
			return answerCannotCancel
		}
		if done.how != CancelMissing {
			return g.cancellation(ctx, done, item, id, user)
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
func (g *Gateway) cancellation(ctx context.Context, done cancelled, item int64, id sale.OrderID, user string) answer {
	if done.how == NotCancellable {
		return notCancellable(done.order.Status)
	}
	g.awaitRelease(ctx, item, id, user)
	return answer{kind: kindOK, body: appendOrder(nil, &done.order, time.Time{})}
}

const (
	// releaseWait is how long a cancellation waits for its units to return: ten times what it normally takes.
	releaseWait = 500 * time.Millisecond
	// Between two looks, doubled from the first to the longest.
	releaseLook    = 2 * time.Millisecond
	releaseLongest = 64 * time.Millisecond
)

// awaitRelease returns when the mark of a cancelled order is gone, so that the buyer can buy again at once: with the mark still there, a
// purchase with the old key would be answered with the order that he has just cancelled. The cancellation holds whatever comes of this; a
// release that takes longer is not waited for.
func (g *Gateway) awaitRelease(ctx context.Context, item int64, id sale.OrderID, user string) {
	ctx, cancel := context.WithTimeout(ctx, releaseWait)
	defer cancel()
	for wait := releaseLook; ; wait = min(2*wait, releaseLongest) {
		e, bad := g.known(item)
		if bad != nil {
			return
		}
		m, found, err := g.mark(ctx, e, user)
		if err != nil || !found || m.OrderID != id {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}
