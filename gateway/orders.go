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
		a := rateLimited(after)
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
// Without the third step an order that exists would be denied. rowLook has what happens when the database does not answer.
func (g *Gateway) orderByID(ctx context.Context, id sale.OrderID, user, trace string) answer {
	item, ok := id.Item()
	if !ok {
		return answerNoOrder
	}
	of := about{order: id, item: item, trace: trace}
	look := g.lookForRow(ctx, id)
	row := look.soon(ctx)
	if row.ok {
		return g.ownOrder(row.value, user)
	}
	e, bad := g.known(item)
	switch {
	case bad == &answerNoItem:
		if row = look.rest(ctx); row.ok {
			return g.ownOrder(row.value, user)
		}
		return g.noOrder(of, row.err)
	case bad != nil:
		return *bad
	}
	m, marked, err := g.mark(ctx, e, user)
	marked = marked && m.OrderID == id
	row, away := look.beside(ctx, marked)
	switch {
	case row.ok:
		return g.ownOrder(row.value, user)
	case err != nil:
		g.warnUnlessStopping("look up mark of order", of.with("error", err)...)
		return answerUnreadable
	case marked && (row.err == nil || away):
		return pendingOrder(e.item.ID, m)
	case !marked && row.err == nil:
		if row = g.row(ctx, id); row.ok {
			return g.ownOrder(row.value, user)
		}
	}
	return g.noOrder(of, row.err)
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
	look := g.lookForLive(ctx, item, user)
	row := look.soon(ctx)
	if row.ok {
		return g.ownOrder(row.value, user)
	}
	m, marked, err := g.mark(ctx, e, user)
	row, away := look.beside(ctx, marked)
	switch {
	case row.ok:
		return g.ownOrder(row.value, user)
	case err != nil:
		g.warnUnlessStopping("look up mark of user", of.with("error", err)...)
		return answerUnreadable
	case marked && row.err == nil:
		return g.orderOfMark(ctx, of, m, user)
	case marked && away:
		return pendingOrder(item, m)
	case !marked && row.err == nil:
		if row = g.liveOrder(ctx, item, user); row.ok {
			return g.ownOrder(row.value, user)
		}
	}
	return g.noOrder(of, row.err)
}

// orderOfMark is the answer for a mark whose user has no live order in the database: its order is not written yet, or has ended and its
// release is under way. Then it is no live order.
func (g *Gateway) orderOfMark(ctx context.Context, of about, m sale.Mark, user string) answer {
	look := g.lookForRow(ctx, m.OrderID)
	row := look.soon(ctx)
	if !row.ok {
		var away bool
		if row, away = look.beside(ctx, true); row.err != nil && !away {
			return g.noOrder(of, row.err)
		}
	}
	switch {
	case row.ok && !row.value.Status.Live():
		return answerNoOrder
	case row.ok:
		return g.ownOrder(row.value, user)
	}
	return pendingOrder(of.item, m) // if the database went away just now, the mark is what is known
}

// noOrder is the answer when nothing was found: 404, or 503 if the database could not be asked.
func (g *Gateway) noOrder(of about, err error) answer {
	if err != nil {
		g.warnUnlessStopping("look up order", of.with("error", err)...)
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
	dst = appendBool(append(dst, `,"refundDue":`...), o.RefundDue())
	dst = append(dst, `,"expiresAt":`...)
	if known {
		dst = appendTime(dst, o.ExpiresAt)
	} else {
		dst = append(dst, "null"...)
	}
	dst = appendTime(append(dst, `,"reservedAt":`...), o.ReservedAt)
	return append(dst, '}')
}
