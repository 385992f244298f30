package shard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"flashgate/internal/pause"
	"flashgate/internal/sale"
)

// retryWait is the pause before a call that certainly did not run is sent again; it doubles each time. A failover or a
// moving slot takes from some milliseconds to a second.
const retryWait = 2 * time.Millisecond

// attempt is one reserve call for a batch of requests.
type attempt struct {
	lane
	waiters  []*waiter
	batch    string    // names the outbox entry
	deadline time.Time // from then on nothing of this call is published or reported as reserved (rule R9)
}

// reserveBatch serves requests of one lane with one call. The call may be sent again only where the server said that it
// ran nothing; between two attempts the requests are queued again, so that their callers can leave without a doubt.
func (s *Stock) reserveBatch(at lane, waiters []*waiter) {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.CallTimeout)
	defer cancel()
	for wait := retryWait; ; wait *= 2 {
		waiters = keep(waiters, (*waiter).depart)
		if len(waiters) == 0 {
			return
		}
		a := &attempt{lane: at, waiters: waiters, batch: uuid.NewString(), deadline: s.cfg.Now().Add(s.cfg.RecordDeadline)}
		answer, err := s.callReserve(ctx, a)
		switch {
		case err == nil:
			s.distribute(a, answer)
			return
		case !neverRan(err):
			s.metrics.calls.WithLabelValues("lost").Inc()
			s.recoverBatch(a, at.place().wrap("reserve", err))
			return
		}
		s.metrics.calls.WithLabelValues("refused").Inc()
		waiters = keep(waiters, func(w *waiter) bool { return w.requeue(false) })
		if !passing(err) || !pause.For(ctx, wait) {
			answerAll(waiters, sale.Result{Outcome: sale.Failed, Err: at.place().wrap("reserve", err)})
			return
		}
	}
}

// keep returns the waiters for which ok holds, in order. It does not change the slice it is given.
func keep(waiters []*waiter, ok func(*waiter) bool) []*waiter {
	kept := make([]*waiter, 0, len(waiters))
	for _, w := range waiters {
		if ok(w) {
			kept = append(kept, w)
		}
	}
	return kept
}

func answerAll(waiters []*waiter, r sale.Result) {
	for _, w := range waiters {
		w.answer(r)
	}
}

// callReserve runs the script, once unless the server did not know it.
func (s *Stock) callReserve(ctx context.Context, a *attempt) (reply, error) {
	k := a.place().keys()
	limit := (s.cfg.OutboxLimit + int64(a.layout.Shards) - 1) / int64(a.layout.Shards)
	args := make([]string, 3, 3+7*len(a.waiters))
	args[0], args[1], args[2] = formatInt(int64(a.layout.Shards)), a.batch, formatInt(limit)
	for _, w := range a.waiters {
		r := &w.req
		args = append(args, r.UserID, r.OrderID.String(), formatInt(r.Quantity), r.KeyHash, string(r.Price), r.Currency, r.Trace)
	}
	s.metrics.batch.Observe(float64(len(a.waiters)))
	start := s.cfg.Now()
	results := s.runUntil(ctx, []call{{scriptReserve, k.all(), args}})
	s.metrics.callSeconds.Observe(s.cfg.Now().Sub(start).Seconds())
	return results[0].reply, results[0].err
}

// distribute answers the requests of a batch by what the script said about each.
func (s *Stock) distribute(a *attempt, r reply) {
	s.metrics.calls.WithLabelValues("ok").Inc()
	if r.code == "RAN" {
		// Somebody between here and Redis sent the call twice. What the first run did stands in the entry.
		s.recoverBatch(a, a.place().wrap("reserve", errors.New("the call arrived twice")))
		return
	}
	if err := r.fault(); err != nil {
		answerAll(a.waiters, refusal(a.place().wrap("reserve", err)))
		return
	}
	told, err := readAnswers(a, r)
	if err != nil {
		s.recoverBatch(a, a.place().wrap("read the answer of reserve", err))
		return
	}
	s.deliver(a, told)
}

// refusal is the result for an error after which nothing was reserved.
func refusal(err error) sale.Result {
	outcome := sale.Failed
	switch {
	case errors.Is(err, ErrNotLoaded):
		return sale.Result{Outcome: sale.NotLoaded}
	case errors.Is(err, ErrWrongLayout):
		return sale.Result{Outcome: sale.WrongLayout}
	case errors.Is(err, ErrUnreadable):
		outcome = sale.Unreadable
	}
	return sale.Result{Outcome: outcome, Err: err}
}

// answers is what a reserve call said.
type answers struct {
	epoch   int64
	at      time.Time // of the reservations, by the clock of Redis
	letters []byte    // one for each request
	marks   []sale.Mark
}

func readAnswers(a *attempt, r reply) (answers, error) {
	if r.code != "OK" || len(r.values) != 3+len(a.waiters) {
		return answers{}, fmt.Errorf("%q with %d values", r.code, len(r.values))
	}
	epoch, e1 := parseCount(r.values[0])
	at, e2 := parseMillis(r.values[1])
	if err := errors.Join(e1, e2); err != nil {
		return answers{}, err
	}
	told := answers{epoch: epoch, at: at, letters: make([]byte, len(a.waiters)), marks: make([]sale.Mark, len(a.waiters))}
	for i, text := range r.values[3:] {
		if text == "" {
			return answers{}, errors.New("a request without an answer")
		}
		var err error
		switch told.letters[i] = text[0]; text[0] {
		case 'O', 'P', 'B', 'Q', 'M':
			told.marks[i], err = decodeMark(text[1:])
		case 'A', 'K':
			told.marks[i].OrderID, err = sale.ParseOrderID(text[1:])
		}
		if err != nil {
			told.letters[i] = 'C'
		}
	}
	return told, nil
}

// deliver publishes what was won and answers every request of the batch.
func (s *Stock) deliver(a *attempt, told answers) {
	late := s.late(a.deadline)
	var won []sale.Event
	for i, w := range a.waiters {
		if told.letters[i] == 'R' {
			won = append(won, reservedEvent(a.place(), &w.req, told.epoch, told.at))
		}
	}
	var p *publication // nil: too late
	if len(won) > 0 && !late {
		p = s.publishBatch(a, won)
	}
	for i, w := range a.waiters {
		mark := told.marks[i]
		switch told.letters[i] {
		case 'R':
			w.answer(standing(sale.Reserved, w.req.OrderID, told.epoch, p))
		case 'O':
			w.answer(sale.Result{Outcome: sale.Own, OrderID: mark.OrderID, Epoch: told.epoch, Acked: closedChannel})
		case 'P', 'B':
			again := p
			if mark.Batch != a.batch && !late {
				again = s.publishAgain(a, w, mark, told.epoch)
			}
			if told.letters[i] == 'B' && again != nil {
				w.before = again
				w.answer(sale.Result{Outcome: sale.Already, OrderID: mark.OrderID})
				continue
			}
			w.answer(standing(sale.Own, mark.OrderID, told.epoch, again))
		case 'Q', 'M':
			outcome := sale.Own
			if told.letters[i] == 'M' {
				outcome = sale.Already
			}
			s.answerOnceAcked(a, w, outcome, mark, told.epoch, late)
		case 'A':
			w.answer(sale.Result{Outcome: sale.Already, OrderID: mark.OrderID})
		case 'K':
			w.answer(sale.Result{Outcome: sale.KeyReused, OrderID: mark.OrderID})
		case 'F':
			w.answer(sale.Result{Outcome: sale.OutboxFull})
		case 'E':
			s.starve(a.layout, w)
		default:
			w.answer(sale.Result{Outcome: sale.Unreadable, Err: a.place().wrap("reserve: mark of the user", ErrUnreadable)})
		}
	}
}

// standing is the result for a reservation whose outbox entry stands and that is being published, or that is not because the
// deadline has passed: the unit is taken, but only the sweep may publish it now, and a yes would promise what a load may be
// about to undo.
func standing(o sale.Outcome, id sale.OrderID, epoch int64, p *publication) sale.Result {
	if p == nil {
		return sale.Result{Outcome: sale.Unknown, OrderID: id, Epoch: epoch, Err: errLate}
	}
	return sale.Result{Outcome: o, OrderID: id, Epoch: epoch, Acked: p.acked}
}

func reservedEvent(at place, r *sale.Request, epoch int64, reservedAt time.Time) sale.Event {
	return sale.Event{
		OrderID: r.OrderID, ItemID: at.item, UserID: r.UserID, Quantity: r.Quantity, Shard: at.shard, Epoch: epoch,
		ReservedAt: reservedAt, Price: r.Price, Currency: r.Currency, KeyHash: r.KeyHash, Trace: r.Trace,
	}
}
