package gateway

import (
	"context"
	"time"

	"flashgate/internal/sale"
)

// rowLook is a look-up of a row for which the user's mark may have to stand in. A live order has a mark, PENDING or PAID, and the mark does not say which;
// it also stands for a moment after its order has ended. So the row is what counts, and the mark is what is known without it: of an order that the
// database does not know yet, or while nobody can ask the database.
//
// A database that is away need not say so: frozen, or behind a network that swallows what it is sent, it says nothing. The row therefore has a third of the
// request's time to itself. If it takes longer, the look-up goes on while the mark is read, and then one of two things is the case:
//
//   - Nobody has got an answer from the database since this look-up began, though the catalogue alone asks it every second: it is away, and the mark is
//     believed, as it is when the database refuses connections.
//   - Others got theirs: it is slow, and what it is slow to say may be that the order was paid or has ended. Then it is waited for.
type rowLook struct {
	gateway *Gateway
	call    *call[found[sale.Order]]
	before  uint64 // the database's answers when this look-up began
}

// lookForRow begins to read an order.
func (g *Gateway) lookForRow(ctx context.Context, id sale.OrderID) *rowLook {
	return g.beginLook(func() (sale.Order, bool, error) { return g.ports.Orders.Order(ctx, id) })
}

// lookForLive begins to read the live order of a user.
func (g *Gateway) lookForLive(ctx context.Context, item int64, user string) *rowLook {
	return g.beginLook(func() (sale.Order, bool, error) { return g.ports.Orders.LiveOrder(ctx, item, user) })
}

func (g *Gateway) beginLook(read func() (sale.Order, bool, error)) *rowLook {
	l := &rowLook{gateway: g, before: g.answers.Load()}
	l.call = begin(g, func() found[sale.Order] {
		row, ok, err := read()
		if err == nil {
			g.answers.Add(1)
		}
		return found[sale.Order]{row, ok && err == nil, err}
	})
	return l
}

// soon waits for the row for the first third of the request's time. Its error may be that there is no answer yet.
func (l *rowLook) soon(ctx context.Context) found[sale.Order] {
	short, cancel := context.WithTimeout(ctx, l.gateway.third())
	defer cancel()
	return l.rest(short)
}

// rest waits for the row until ctx ends.
func (l *rowLook) rest(ctx context.Context) found[sale.Order] {
	f, ok := l.call.wait(ctx)
	if !ok {
		f.err = errNoAnswer
	}
	return f
}

// beside returns what is known of the row by the time the mark was read. away reports that the database is not to be asked, whether it has said so or
// nothing at all: then a mark that stands has to do. Without one there is nothing to be said but by the database, which is waited for.
func (l *rowLook) beside(ctx context.Context, markStands bool) (f found[sale.Order], away bool) {
	if markStands && l.gateway.answers.Load() == l.before {
		return found[sale.Order]{err: errNoAnswer}, true
	}
	return l.rest(ctx), false
}

// third is what a look-up may take at most that leaves time for another one.
func (g *Gateway) third() time.Duration { return g.cfg.RequestTimeout / 3 }

const (
	// endedTime is how long a purchase waits to hear whether the order that it has met has ended. It takes a millisecond, from a database that is well.
	endedTime = 200 * time.Millisecond
	// maxChecks bounds how many wait for that at the same time, so that a database that is not well holds up nobody else.
	maxChecks = 64
)

// hasEnded reports whether the database knows for certain that an order has ended. Its mark stands until the keeper has given the units back, which
// takes as long as the keeper is away; until then the mark must not be taken for a live order. When the database cannot say, the mark is what is known.
func (g *Gateway) hasEnded(ctx context.Context, id sale.OrderID) bool {
	select {
	case g.checks <- struct{}{}:
		defer func() { <-g.checks }()
	default:
		return false
	}
	short, cancel := context.WithTimeout(ctx, min(endedTime, g.third()))
	defer cancel()
	f := g.row(short, id)
	return f.ok && !f.value.Status.Live()
}
