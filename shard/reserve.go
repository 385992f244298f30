package shard

import (
	"context"
	"errors"
	"sync"
	"time"

	"flashgate/internal/sale"
)

var (
	errClosed      = errors.New("reserve: the gateway is shutting down")
	errNoPublisher = errors.New("reserve: no publisher is configured")
	errStillQueued = errors.New("reserve: time was up before the request was sent")
	errNoAnswer    = errors.New("reserve: time was up before Redis answered")
	errNoUnit      = errors.New("reserve: time was up before a unit had moved here")
)

// Reserve takes units for a user, whose mark it writes in the same instant. It returns by the end of ctx, which ends no
// call that has been sent: its winners are published all the same, and whoever gave up learns from Unknown under which
// order id. See sale.Outcome for the answers; Result.Err is for the log.
//
// Close is waited for by nobody but the caller: after it Reserve answers Failed.
func (s *Stock) Reserve(ctx context.Context, layout Layout, req sale.Request) sale.Result {
	result := s.reserve(ctx, layout, &req)
	s.metrics.outcomes[result.Outcome].Inc()
	return result
}

func (s *Stock) reserve(ctx context.Context, layout Layout, req *sale.Request) sale.Result {
	if err := checkRequest(layout, req); err != nil {
		return sale.Result{Outcome: sale.Failed, Err: err}
	}
	home := sale.Home(req.UserID, layout.Shards)
	if s.cfg.Publisher == nil {
		return sale.Result{Outcome: sale.Failed, Shard: home, Err: errNoPublisher}
	}
	if ctx.Err() != nil {
		return sale.Result{Outcome: sale.Failed, Shard: home, Err: errStillQueued}
	}
	if !s.track.enter() {
		return sale.Result{Outcome: sale.Failed, Shard: home, Err: errClosed}
	}
	defer s.track.leave()

	w := &waiter{req: *req, home: home, arrived: s.cfg.Now(), done: make(chan sale.Result, 1)}
	if !s.requests.push(lane{layout, home}, w) {
		return sale.Result{Outcome: sale.QueueFull, Shard: home}
	}
	var result sale.Result
	select {
	case result = <-w.done:
	case <-ctx.Done():
		result = w.giveUp()
	}
	// The outcome is asked first: only who was given a result by its channel may read the rest. One who leaves meanwhile may be written to.
	if (result.Outcome == sale.Already || result.Outcome == sale.Own) && w.before != nil {
		return s.afterPublishing(ctx, w, result)
	}
	return result
}

// phase is where a waiter stands.
type phase uint8

const (
	queued   phase = iota // waits for its lane: nothing about it is with Redis
	sent                  // part of a call that may have run
	starving              // its home had too few units; nothing about it is with Redis
	answered              // done holds the result
	left                  // nobody waits any more
)

// waiter is a request on its way. The lane, the mover and the caller of Reserve meet in it; phase decides between them.
//
// The race that matters: the caller's time is up while the lane is about to send. Either the lane gets the lock first: the
// phase is sent, the caller finds that and answers Unknown with the order id of this very attempt. Or the caller does: the
// phase is left, and the lane, which asks depart for every request it is about to send, leaves it out.
type waiter struct {
	req     sale.Request // OrderID is guarded by mu
	home    int
	arrived time.Time
	done    chan sale.Result // buffered: whoever answers does not wait
	before  *publication     // to be waited for before the caller is told of his order; set before done is
	alone   bool             // nothing but before can bring his order to Kafka; likewise

	// Of the mover, which is alone with the waiter while it is starving.
	rounds int // moves made for it that did not help; for quantities above one
	tries  int // looks at the shards that found its units in transfer

	mu    sync.Mutex
	phase phase
}

// depart marks the waiter as sent, unless its caller has left.
func (w *waiter) depart() bool { return w.become(sent) }

// become changes the phase of a waiter that has not ended.
func (w *waiter) become(next phase) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.phase == answered || w.phase == left {
		return false
	}
	w.phase = next
	return true
}

// requeue makes the waiter ready for another attempt, under a fresh order id if asked: an id may stand for one reservation
// only (rule R1). False when its caller has left.
func (w *waiter) requeue(fresh bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.phase == answered || w.phase == left {
		return false
	}
	w.phase = queued
	if fresh {
		item, _ := w.req.OrderID.Item()
		w.req.OrderID = sale.NewOrderID(item)
	}
	return true
}

// here reports whether somebody still waits.
func (w *waiter) here() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.phase != answered && w.phase != left
}

// answer ends the request with a result; the first one counts, and none does after its caller has left.
func (w *waiter) answer(r sale.Result) {
	r.Shard = w.home
	if w.become(answered) {
		w.done <- r
	}
}

// answerOnceAcked answers a user of whose order the mark is the last trace, because Redis lost outbox entries: it is published
// from the mark, unless that is too late, and no sweep follows. The acknowledgement is waited for, see afterPublishing.
func (s *Stock) answerOnceAcked(a *attempt, w *waiter, o sale.Outcome, mark sale.Mark, epoch int64, late bool) {
	var p *publication
	if !late {
		p = s.publishAgain(a, w, mark, epoch)
		w.before, w.alone = p, true
	}
	w.answer(standing(o, mark.OrderID, epoch, p))
}

// giveUp ends the request from its caller's side.
func (w *waiter) giveUp() sale.Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.phase
	if was == answered {
		// The answer is on its way into done, or there.
		return <-w.done
	}
	w.phase = left
	switch was {
	case sent:
		return sale.Result{Outcome: sale.Unknown, OrderID: w.req.OrderID, Shard: w.home, Err: errNoAnswer}
	case starving:
		return sale.Result{Outcome: sale.Busy, Shard: w.home, Err: errNoUnit}
	}
	return sale.Result{Outcome: sale.Failed, Shard: w.home, Err: errStillQueued}
}
