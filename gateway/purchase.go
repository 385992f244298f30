package gateway

import (
	"context"
	"time"

	"github.com/valyala/fasthttp"

	"flashgate/internal/sale"
	"flashgate/internal/token"
)

// purchase answers POST …/items/{id}/purchase. The order of the checks is part of the API: what costs least and refuses most comes first.
func (g *Gateway) purchase(ctx *fasthttp.RequestCtx, began time.Time, idText []byte) kind {
	e, bad := g.item(idText)
	if bad != nil {
		return g.answer(ctx, bad)
	}
	switch e.item.StatusAt(began) {
	case sale.Upcoming:
		return g.answer(ctx, &e.notStarted)
	case sale.Paused:
		return g.answer(ctx, &answerPaused)
	case sale.Ended:
		winners, complete := e.endedWinners()
		among := winners
		if !complete {
			among = nil // everybody
		}
		if c, ok := g.mayHaveWon(ctx, among); ok {
			// In the seconds around the end the set is older than the last reservations. A crowd beyond what can be looked at is told what is
			// right for nearly all of it.
			busy := &answerEnded
			if winners.has(c.user) {
				busy = &answerUnreadable
			}
			return g.look(ctx, began, e, c, &answerEnded, busy)
		}
		return g.answer(ctx, &answerEnded)
	}
	if winners, soldOut := e.state.flag.soldOut(began); soldOut {
		if c, ok := g.mayHaveWon(ctx, winners); ok {
			return g.look(ctx, began, e, c, &answerSoldOut, &answerUnreadable)
		}
		return g.answer(ctx, &answerSoldOut)
	}

	if ok, after := g.ports.Limits.PurchaseAddr(g.client(ctx)); !ok {
		a := rateLimited(after)
		return g.answer(ctx, &a)
	}
	user, bad := g.user(ctx)
	if bad != nil {
		return g.answer(ctx, bad)
	}
	if ok, after := g.ports.Limits.PurchaseUser(user); !ok {
		a := rateLimited(after)
		return g.answer(ctx, &a)
	}
	w, wrong, ok := parseWish(ctx, e.item.MaxPerUser)
	if !ok {
		return g.answer(ctx, &wrong)
	}
	limited, cancel := g.limited(began)
	defer cancel()
	if w.quantity > e.item.MaxPerUser {
		a := g.tooMany(limited, e, user, w, traceparent(ctx))
		return g.answer(ctx, &a)
	}
	a := g.buy(limited, order{item: e.item.ID, user: user, wish: w, trace: traceparent(ctx), began: began})
	return g.answer(ctx, &a)
}

// item finds the item that a path names.
func (g *Gateway) item(idText []byte) (*entry, *answer) {
	id, err := sale.ParseID(idText)
	if err != nil {
		return nil, &answerBadItemID
	}
	return g.known(id)
}

// known finds an item. A catalogue that was never read knows nothing, not even that an item does not exist.
func (g *Gateway) known(id int64) (*entry, *answer) {
	items := g.catalogue.items.Load()
	if items == nil {
		return nil, &answerNoCatalogue
	}
	if e := items.byID[id]; e != nil {
		return e, nil
	}
	return nil, &answerNoItem
}

// limited is the context of a request: everything that it asks for together may take the request timeout, less half the margin that is left for the
// answer itself.
func (g *Gateway) limited(began time.Time) (context.Context, context.CancelFunc) {
	return context.WithTimeout(g.base, began.Add(g.cfg.RequestTimeout-g.margin()/2).Sub(g.cfg.Now()))
}

// margin is how long before the request timeout a reservation must have ended.
func (g *Gateway) margin() time.Duration { return min(answerMargin, g.cfg.RequestTimeout/10) }

// user returns who is asking, by a token that was verified; otherwise a 401 that says whether there was none or a bad one (RFC 6750,
// section 3.1), or a 503 when nobody can tell yet.
func (g *Gateway) user(ctx *fasthttp.RequestCtx) (string, *answer) {
	raw, ok := bearer(ctx)
	if !ok {
		return "", &answerNoToken
	}
	claims, err := g.ports.Tokens.Verify(raw)
	switch {
	case token.ReasonOf(err) == token.ReasonPending:
		return "", &answerNoKeys
	case err != nil:
		return "", &answerBadToken
	}
	return claims.Subject, nil
}
