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
	lookLimited         // this user is asked for too often from this address
	lookBusy            // too many are being looked up
	lookFailed          // it cannot be found out at the moment
	lookEnds            // their number
)

var lookNames = [lookEnds]string{"winner", "nobody", "forged", "limited", "busy", "failed"}

// holding is a live order, or the reservation that will become one.
type holding struct {
	order    sale.OrderID
	quantity int64
	keyHash  string
}

// look answers a request that may come from a winner, in front of either 410. Only who proves who he is gets another answer than everybody
// else: a winner the one that a reservation would give him, without making one, and somebody of whom it cannot be found out whether he is a
// winner 503. In every other case the bytes are those of plain, so that nobody learns who bought.
//
// Nor by what his requests do to others: what is charged in front of the signature is charged to the address together with the user that
// the token claims. Were it the bucket that all purchases of an address share, a stranger would send tokens of his own making for a user,
// and see by another item's 429 whether they had been charged: whether that user is among the winners. A place among those who are looked
// up is taken behind the signature, for the same reason.
//
// Known limit: a claim that is in the set costs a check of the signature more than one that is not, some 4 µs with a secret and some ten
// times as much with a public key. Who measures a gateway from nearby, many thousand times, can tell.
//
// busy is for those who find no place among the ones that are looked at.
func (g *Gateway) look(ctx *fasthttp.RequestCtx, began time.Time, e *entry, c claim, plain, busy *answer) kind {
	a, end := g.lookCloser(ctx, began, e, c)
	g.metrics.looks[end].Inc()
	switch end {
	case lookWinner:
		return g.answer(ctx, &a)
	case lookBusy:
		return g.answer(ctx, busy)
	case lookFailed:
		return g.answer(ctx, &answerUnreadable)
	}
	return g.answer(ctx, plain)
}

func (g *Gateway) lookCloser(ctx *fasthttp.RequestCtx, began time.Time, e *entry, c claim) (answer, lookEnd) {
	if !g.ports.Limits.LookAddr(g.client(ctx), c.user) {
		return answer{}, lookLimited
	}
	claims, err := g.ports.Tokens.Verify(c.token)
	if err != nil {
		return answer{}, lookForged // also one that nobody can judge yet: who has not proven who he is learns nothing about the one he names
	}
	select {
	case g.looks <- struct{}{}:
		defer func() { <-g.looks }()
	default:
		return answer{}, lookBusy
	}
	limited, cancel := g.limited(began)
	defer cancel()
	held, end := g.held(limited, e, claims.Subject, traceparent(ctx))
	if end != lookWinner {
		return answer{}, end
	}
	w, bad, ok := parseWish(ctx, e.item.MaxPerUser)
	if !ok {
		return bad, lookWinner
	}
	return held.answer(w), lookWinner
}

// answer is what a reservation would say to somebody who holds units already.
func (h holding) answer(w wish) answer {
	switch {
	case w.keyHash == "" || w.keyHash != h.keyHash:
		return alreadyPurchased(h.order)
	case w.quantity != h.quantity:
		return answerKeyReused
	}
	return accepted(h.order)
}

// tooMany answers a purchase of more units than one user may have. It reserves nothing; but whoever has bought before maxPerUser was
// lowered, and repeats that, is answered like everybody else who repeats a purchase. For that his own mark is read, or his row, which costs
// no more than asking for an order, and is bounded by the same kind of bucket; and by places of their own, since a whole crowd may ask for
// what its pages still offer, and must take none from the winners of what is sold out. Of whom nothing is found, or nothing can be found out, the quantity is what is wrong.
func (g *Gateway) tooMany(ctx context.Context, e *entry, user string, w wish, trace string) answer {
	select {
	case g.tooManyLooks <- struct{}{}:
		defer func() { <-g.tooManyLooks }()
	default:
		return badQuantity(e.item.MaxPerUser)
	}
	if held, end := g.held(ctx, e, user, trace); end == lookWinner {
		return held.answer(w)
	}
	return badQuantity(e.item.MaxPerUser)
}

// held reads what a user, who has proven that he is this user, holds at an item: his mark, or his row where there is no mark or Redis does
// not say. The mark gets a third of the time at most, so that a Redis that hangs leaves some for the database. When one of the two could
// not be asked, and the other one, if it could, knows of nothing, the look has failed: a reservation may have no row yet, and a Redis that
// has lost its data knows of no mark.
func (g *Gateway) held(ctx context.Context, e *entry, user, trace string) (holding, lookEnd) {
	of := about{item: e.item.ID, trace: trace}
	short, cancel := context.WithTimeout(ctx, g.third())
	m, marked, markErr := g.mark(short, e, user)
	cancel()
	switch {
	case markErr != nil:
		g.warnUnlessStopping("look up mark of possible winner", of.with("error", markErr)...)
	case marked && g.hasEnded(ctx, m.OrderID):
		return holding{}, lookNobody // while its mark stands, there is no other order
	case marked:
		return holding{order: m.OrderID, quantity: m.Quantity, keyHash: m.KeyHash}, lookWinner
	}
	row := g.liveOrder(ctx, e.item.ID, user)
	switch {
	case row.ok:
		return holding{order: row.value.ID, quantity: row.value.Quantity, keyHash: row.value.KeyHash}, lookWinner
	case row.err != nil:
		g.warnUnlessStopping("look up order of possible winner", of.with("error", row.err)...)
		return holding{}, lookFailed
	case markErr != nil:
		return holding{}, lookFailed
	}
	return holding{}, lookNobody
}
