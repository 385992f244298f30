package gateway

import (
	"context"
	"time"

	"github.com/valyala/fasthttp"

	"flashgate/internal/sale"
)

// lookEnd says what a closer look found.
type lookEnd uint8

// What a closer look can find.
const (
	lookWinner  lookEnd = iota
	lookNobody          // no live order
	lookForged          // the token does not verify
	lookLimited         // the address asks too often
	lookBusy            // too many are being looked at
	lookEnds            // their number
)

var lookNames = [lookEnds]string{"winner", "nobody", "forged", "limited", "busy"}

// holding is a live order, or the reservation that will become one.
type holding struct {
	order    sale.OrderID
	quantity int64
	keyHash  string
}

// look answers a request that may come from a winner, in front of either 410. Only a winner who proves who he is gets another answer than everybody else:
// the one that a reservation would give him, without making one. In every other case the bytes are those of plain, so that nobody learns who bought.
func (g *Gateway) look(ctx *fasthttp.RequestCtx, began time.Time, e *entry, raw []byte, plain *answer) kind {
	a, end := g.lookCloser(ctx, began, e, raw)
	g.metrics.looks[end].Inc()
	if end != lookWinner {
		return g.answer(ctx, plain)
	}
	return g.answer(ctx, &a)
}

func (g *Gateway) lookCloser(ctx *fasthttp.RequestCtx, began time.Time, e *entry, raw []byte) (answer, lookEnd) {
	select {
	case g.looks <- struct{}{}:
		defer func() { <-g.looks }()
	default:
		return answer{}, lookBusy
	}
	if ok, _ := g.ports.Limits.PurchaseAddr(g.client(ctx)); !ok {
		return answer{}, lookLimited
	}
	claims, err := g.ports.Tokens.Verify(raw)
	if err != nil {
		return answer{}, lookForged
	}
	limited, cancel := g.limited(began)
	defer cancel()
	held, ok := g.held(limited, e, claims.Subject, traceparent(ctx))
	if !ok {
		return answer{}, lookNobody
	}
	w, bad, ok := parseWish(ctx, e.item.MaxPerUser)
	switch {
	case !ok:
		return bad, lookWinner
	case w.keyHash == "" || w.keyHash != held.keyHash:
		return alreadyPurchased(held.order), lookWinner
	case w.quantity != held.quantity:
		return answerKeyReused, lookWinner
	}
	return accepted(held.order), lookWinner
}

// held reads what a user holds at an item: his mark, or his row where there is no mark or Redis does not say. The mark gets a third of the time at
// most, so that a Redis that hangs leaves some for the database.
func (g *Gateway) held(ctx context.Context, e *entry, user, trace string) (holding, bool) {
	of := about{item: e.item.ID, trace: trace}
	short, cancel := context.WithTimeout(ctx, g.cfg.RequestTimeout/3)
	m, found, err := g.mark(short, e, user)
	cancel()
	if err != nil {
		g.log.warn("look up mark of possible winner", of.with("error", err)...)
	}
	if found {
		return holding{order: m.OrderID, quantity: m.Quantity, keyHash: m.KeyHash}, true
	}
	o, found, err := g.liveOrder(ctx, e.item.ID, user)
	if err != nil {
		g.log.warn("look up order of possible winner", of.with("error", err)...)
	}
	return holding{order: o.ID, quantity: o.Quantity, keyHash: o.KeyHash}, found
}
