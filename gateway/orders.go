package gateway

import (
	"context"
	"time"

	"github.com/valyala/fasthttp"

	"flashgate/internal/sale"
)

// caller checks what every request about orders has in common: the token (401), then how often its user asks (429).
func (g *Gateway) caller(ctx *fasthttp.RequestCtx) (string, *answer) {
	user, bad := g.user(ctx)
	if bad != nil {
		return "", bad
	}
	if ok, after := g.ports.Limits.ReadUser(user); !ok {
		a := tooOften(after)
		return "", &a
	}
	return user, nil
}

// readOrder answers GET …/orders/{id}.
func (g *Gateway) readOrder(ctx *fasthttp.RequestCtx, began time.Time, idText []byte) kind {
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
	a := g.orderByID(limited, id, user, traceparent(ctx))
	return g.answer(ctx, &a)
}

// orderByID looks into the database, then into Redis, where a reservation is until the consumer has written its row, and where there is neither
// into the database once more:
//
//	this request              consumer, keeper
//	no row
//	                          row is written; cancelled or expired at once; its mark is released
//	no mark
//	row, CANCELLED
//
// Without the third step an order that exists would be denied.
func (g *Gateway) orderByID(ctx context.Context, id sale.OrderID, user, trace string) answer {
	item, ok := id.Item()
	if !ok {
		return answerNoOrder
	}
	of := about{order: id, item: item, trace: trace}
	row, found, rowErr := g.row(ctx, id)
	if found {
		return g.ownOrder(row, user)
	}
	e, bad := g.known(item)
	switch {
	case bad == &answerNoItem:
		return g.noOrder(of, rowErr)
	case bad != nil:
		return *bad
	}
	m, found, err := g.mark(ctx, e, user)
	switch {
	case err != nil:
		g.log.warn("look up mark of order", of.with("error", err)...)
		return answerUnreadable
	case found && m.OrderID == id:
		return pendingOrder(e.item.ID, m)
	}
	if rowErr == nil {
		if row, found, rowErr = g.row(ctx, id); found {
			return g.ownOrder(row, user)
		}
	}
	return g.noOrder(of, rowErr)
}

// findOrder answers GET …/orders?itemId=N, the caller's live order.
func (g *Gateway) findOrder(ctx *fasthttp.RequestCtx, began time.Time, query []byte) kind {
	value, ok := queryValue(query, "itemId")
	item, err := sale.ParseID(value)
	if !ok || err != nil {
		return g.answer(ctx, &answerBadQuery)
	}
	user, bad := g.caller(ctx)
	if bad != nil {
		return g.answer(ctx, bad)
	}
	limited, cancel := g.limited(began)
	defer cancel()
	a := g.orderOfItem(limited, item, user, traceparent(ctx))
	return g.answer(ctx, &a)
}

// orderOfItem looks where orderByID does, in the same order and for the same reason: a reservation may become a row between two steps.
func (g *Gateway) orderOfItem(ctx context.Context, item int64, user, trace string) answer {
	of := about{item: item, trace: trace}
	e, bad := g.known(item)
	if bad != nil {
		return *bad
	}
	row, found, rowErr := g.liveOrder(ctx, item, user)
	if found {
		return g.ownOrder(row, user)
	}
	m, found, err := g.mark(ctx, e, user)
	if err != nil {
		g.log.warn("look up mark of user", of.with("error", err)...)
		return answerUnreadable
	}
	if !found {
		if rowErr == nil {
			if row, found, rowErr = g.liveOrder(ctx, item, user); found {
				return g.ownOrder(row, user)
			}
		}
		return g.noOrder(of, rowErr)
	}
	if rowErr == nil {
		// The mark may be of an order that has ended and whose release is under way: then it is no live order.
		row, found, _ = g.row(ctx, m.OrderID) // if the database went away just now, the mark is what is known
		switch {
		case found && !row.Status.Live():
			return answerNoOrder
		case found:
			return g.ownOrder(row, user)
		}
	}
	return pendingOrder(item, m)
}

// noOrder is the answer when nothing was found: 404, or 503 if the database could not be asked.
func (g *Gateway) noOrder(of about, err error) answer {
	if err != nil {
		g.log.warn("look up order", of.with("error", err)...)
		return answerUnreadable
	}
	return answerNoOrder
}

// ownOrder is the answer for a row. Somebody else's order does not exist.
func (g *Gateway) ownOrder(o sale.Order, user string) answer {
	if o.UserID != user {
		return answerNoOrder
	}
	return answer{kind: kindOK, body: appendOrder(nil, &o, g.cfg.Now())}
}

// pendingOrder is the answer for a reservation that is not in the database: nobody can pay for it yet, and its time to do so has not begun.
func pendingOrder(item int64, m sale.Mark) answer {
	return answer{kind: kindOK, body: appendOrder(nil, &sale.Order{
		ID: m.OrderID, ItemID: item, Quantity: m.Quantity, Price: m.Price, Currency: m.Currency, Status: sale.Pending, ReservedAt: m.ReservedAt,
	}, time.Time{})}
}

// appendOrder appends an order. Without ExpiresAt it is one that the database does not know.
func appendOrder(dst []byte, o *sale.Order, now time.Time) []byte {
	known := !o.ExpiresAt.IsZero()
	dst = o.ID.AppendTo(append(dst, `{"orderId":"`...))
	dst = appendInt(append(dst, `","itemId":`...), o.ItemID)
	dst = appendInt(append(dst, `,"quantity":`...), o.Quantity)
	dst = appendString(append(dst, `,"price":`...), string(o.Price))
	dst = appendString(append(dst, `,"currency":`...), o.Currency)
	dst = appendString(append(dst, `,"status":`...), string(o.Status))
	// Past its time an order cannot be paid, though the sweep may not have ended it yet.
	dst = appendBool(append(dst, `,"payable":`...), known && o.Status == sale.Pending && now.Before(o.ExpiresAt))
	dst = appendBool(append(dst, `,"refundDue":`...), o.RefundDue)
	dst = append(dst, `,"expiresAt":`...)
	if known {
		dst = appendTime(dst, o.ExpiresAt)
	} else {
		dst = append(dst, "null"...)
	}
	dst = appendTime(append(dst, `,"reservedAt":`...), o.ReservedAt)
	return append(dst, '}')
}
