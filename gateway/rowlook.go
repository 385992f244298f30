package gateway

import (
	"context"
	"errors"
	"time"

	"flashgate/internal/sale"
)

// rowLook is a look-up of a row for which the user's mark may have to stand in. A live order has a mark, PENDING or PAID, and the mark does
// not say which; it also stands for a moment after its order has ended. So the row is what counts, and the mark is what is known without
// it: of an order that the database does not know yet, or while nobody can ask the database.
//
// A database that is away need not say so: frozen, or behind a network that swallows what it is sent, it says nothing. The row therefore
// has a third of the request's time to itself. If it takes longer, the look-up goes on while the mark is read, and then one of three things
// is the case:
//
//   - The look-up has failed, and nobody else has got an answer since it began: the database says that it is away, and the mark is believed.
//   - It has answered nobody for the time of silence, though the catalogue alone asks it again and again: it is away as well.
//   - Others got answers: it is slow, and what it is slow to say may be that the order was paid or has ended. Then it is waited for, until
//     it answers or has been silent for long enough.
type rowLook struct {
	gateway *Gateway
	call    *call[found[sale.Order]]
	began   time.Time
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
	l := &rowLook{gateway: g, began: g.cfg.Now()}
	l.call = begin(g, &g.database, func() found[sale.Order] {
		row, ok, err := read()
		if err == nil {
			g.databaseAnswered()
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
		f.err = l.call.failure()
	}
	return f
}

// beside returns what is known of the row once the mark was read. away reports that the database is not to be asked, whether it has said so
// or nothing at all: then a mark that stands has to do. Without one there is nothing to be said but by the database, which is waited for.
func (l *rowLook) beside(ctx context.Context, markStands bool) (f found[sale.Order], away bool) {
	if !markStands {
		return l.rest(ctx), false
	}
	for {
		short, cancel := context.WithTimeout(ctx, l.gateway.silence()-l.gateway.silentFor())
		f = l.rest(short)
		cancel()
		switch {
		case f.err == nil:
			return f, false
		case l.gateway.silentFor() >= l.gateway.silence():
			return f, true
		case l.call.ended: // an error; that time was up is not the database's word
			return f, !errors.Is(f.err, context.DeadlineExceeded) && l.gateway.answeredAt.Load() <= l.began.UnixNano()
		case ctx.Err() != nil:
			return f, false
		} // somebody got an answer meanwhile
	}
}

// databaseAnswered notes a sign of life of the database.
func (g *Gateway) databaseAnswered() { g.answeredAt.Store(g.cfg.Now().UnixNano()) }

// silentFor is how long ago the database last answered anybody here.
func (g *Gateway) silentFor() time.Duration {
	return g.cfg.Now().Sub(time.Unix(0, g.answeredAt.Load()))
}

// silence is how long the database must not have answered anybody before it counts as away. The catalogue asks it every CatalogueEvery; one answer of
// those may be late, and no request, however little time it has, takes a database for away that has had no time to answer.
func (g *Gateway) silence() time.Duration { return max(g.third(), 2*g.cfg.CatalogueEvery) }

// third is what a look-up may take at most that leaves time for another one.
func (g *Gateway) third() time.Duration { return g.cfg.RequestTimeout / 3 }

const (
	// endedTime is how long a purchase waits to hear whether the order that it has met has ended. It takes a millisecond, from a database that is well.
	endedTime = 200 * time.Millisecond
	// maxChecks bounds how many wait for that at the same time, so that a database that is not well holds up nobody else.
	maxChecks = 64
)

// hasEnded reports whether the database knows for certain that an order has ended. Its mark stands until the keeper has given the units
// back, which takes as long as the keeper is away; until then the mark must not be taken for a live order. When the database cannot say,
// the mark is what is known.
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
