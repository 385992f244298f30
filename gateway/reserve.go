package gateway

import (
	"context"
	"time"

	"flashgate/internal/pause"
	"flashgate/internal/sale"
)

const (
	// answerMargin is what is left of the request timeout when a reservation must have ended; at most a tenth of the timeout. For half of it a late
	// result is still waited for.
	answerMargin = 100 * time.Millisecond
	// warmupPause is the time between two attempts at an item that is being loaded.
	warmupPause = 100 * time.Millisecond
	// layoutAttempts bounds how often one request follows an item to another number of shards, which changes some times a day at most.
	layoutAttempts = 3
)

// order is a purchase that passed all checks. It holds no bytes of the request.
type order struct {
	item  int64
	user  string
	trace string
	began time.Time
	wish
}

// buy reserves units and says what came of it before ctx, the request's time, has ended.
func (g *Gateway) buy(ctx context.Context, o order) answer {
	reserveBy := o.began.Add(g.cfg.RequestTimeout - g.margin())
	for layouts, first := 0, true; ; first = false {
		e, bad := g.known(o.item)
		if bad != nil {
			return *bad
		}
		asked := g.cfg.Now()
		if !first { // time has passed since the checks
			if a := e.closed(asked); a != nil {
				return *a
			}
		}
		r := g.reserve(ctx, e, o, reserveBy.Sub(asked))
		switch r.Outcome {
		case sale.Own, sale.Already, sale.KeyReused:
			if g.hasEnded(ctx, r.OrderID) {
				return answerUnitsReturning
			}
		}
		switch r.Outcome {
		case sale.Reserved, sale.Own:
			return g.confirm(ctx, r, asked.Add(g.cfg.RecordDeadline), reserveBy)
		case sale.Already:
			return alreadyPurchased(r.OrderID)
		case sale.KeyReused:
			return answerKeyReused
		case sale.NoStock:
			// The reservation has proven that nothing is left, and this answer rests on that. The flag needs a proof of its own: whether its generation
			// was read before this one cannot be said any more (rule R15).
			g.raise(e, true)
			return answerSoldOut
		case sale.Insufficient:
			return insufficient(r.Available)
		case sale.NotLoaded:
			// A load takes a moment, and most of it has passed for most who come in it: holding them briefly saves a round of retries.
			if g.cfg.Now().Add(warmupPause).After(o.began.Add(g.cfg.WarmupHold)) || !pause.For(ctx, warmupPause) {
				return answerWarmingUp
			}
		case sale.WrongLayout:
			if layouts++; layouts == layoutAttempts {
				g.log.warn("reserve: the layout is not the catalogue's", about{item: o.item, trace: o.trace}.with("shards", e.item.Shards)...)
				return answerUnavailable
			}
			if err := g.Refresh(ctx); err != nil {
				return answerUnavailable
			}
		case sale.QueueFull, sale.OutboxFull:
			return answerQueueFull
		case sale.Unknown:
			g.logReserve(e, o, r)
			return outcomeUnknown(r.OrderID)
		case sale.Unreadable, sale.Failed:
			g.logReserve(e, o, r)
			return answerUnavailable
		default: // sale.Busy, and what a later version may say
			return answerUnavailable
		}
	}
}

// closed returns the answer of an item that is not on sale, or nil.
func (e *entry) closed(now time.Time) *answer {
	switch e.item.StatusAt(now) {
	case sale.Upcoming:
		return &e.notStarted
	case sale.Paused:
		return &answerPaused
	case sale.Ended:
		return &answerEnded
	}
	return nil
}

// reserve makes one attempt, under an order id of its own (rule R1). If the attempt does not end in time, its outcome is unknown: it may have run.
func (g *Gateway) reserve(ctx context.Context, e *entry, o order, left time.Duration) sale.Result {
	request := sale.Request{
		OrderID:  sale.NewOrderID(o.item),
		UserID:   o.user,
		Quantity: o.quantity,
		KeyHash:  o.keyHash,
		Price:    e.item.Price,
		Currency: e.item.Currency,
		Trace:    o.trace,
	}
	r := sale.Result{Outcome: sale.Failed, Err: errNoTime}
	if left > 0 {
		// Not derived from ctx: when the client's time is up, this one's has been for a moment, and a result that is on its way is still of use.
		limited, cancel := context.WithTimeout(g.base, left)
		c := begin(g, &g.redis, func() sale.Result {
			defer cancel()
			return g.ports.Seller.Reserve(limited, &e.item, request)
		})
		var ok bool
		switch r, ok = c.wait(ctx); {
		case c.never:
			cancel()
			r = sale.Result{Outcome: sale.Failed, Err: c.failure()}
		case !ok:
			r = sale.Result{Outcome: sale.Unknown, Err: c.failure()}
		}
	}
	if r.Outcome == sale.Unknown && r.OrderID.IsZero() {
		r.OrderID = request.OrderID
	}
	g.metrics.reserved(r.Outcome)
	return r
}

// confirm waits for the broker and answers a purchase that stands: 202 as soon as the event is acknowledged, and also when the time for
// that is up, since the outbox entry will be published by the keeper. Not so after the record deadline, whether an acknowledgement is seen
// then or not: a load waits for the deadline of what was reserved before it and no longer (rule R9). What is seen late may have been late:
//
//	this process                  load
//	reserves; sends the event
//	stands still
//	                              fences, waits until the record deadline has passed, counts the unit as free
//	goes on: acknowledged
//
// An own reservation that was known to be in Kafka when it was met is no record of this request, and has no deadline: its row is there or will be.
func (g *Gateway) confirm(ctx context.Context, r sale.Result, recordBy, answerBy time.Time) answer {
	if r.Outcome == sale.Own && g.acked(ctx, r.Acked, 0) {
		g.metrics.acked.Inc()
		return accepted(r.OrderID)
	}
	now := g.cfg.Now()
	until := now.Add(g.cfg.PublishTimeout)
	if recordBy.Before(until) {
		until = recordBy
	}
	if answerBy.Before(until) {
		until = answerBy
	}
	acked := g.acked(ctx, r.Acked, until.Sub(now))
	switch {
	case !g.cfg.Now().Before(recordBy):
		return outcomeUnknown(r.OrderID)
	case acked:
		g.metrics.acked.Inc()
	default:
		g.metrics.unacked.Inc()
	}
	return accepted(r.OrderID)
}

// acked waits up to d for the channel to be closed.
func (g *Gateway) acked(ctx context.Context, closed <-chan struct{}, d time.Duration) bool {
	select {
	case <-closed:
		return true
	default:
	}
	if d <= 0 {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-closed:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	select {
	case <-closed:
		return true
	default:
		return false
	}
}

// logReserve logs an attempt that went wrong. That nobody knows whether an order was made is worth a line when the gateway stops, too.
func (g *Gateway) logReserve(e *entry, o order, r sale.Result) {
	warn := g.warnUnlessStopping
	if r.Outcome == sale.Unknown {
		warn = g.log.warn
	}
	of := about{order: r.OrderID, item: o.item, trace: o.trace}
	warn("reserve: "+r.Outcome.String(), of.with("shard", r.Shard, "epoch", e.item.Epoch, "error", r.Err)...)
}
