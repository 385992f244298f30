package shard

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/rueidis"

	"flashgate/internal/sale"
)

// recoverBatch answers the requests of a call whose reply is missing: it may have run, it may run later, or never. It is
// not repeated. A second run would find marks that were made, ended and released in between, and take units under order
// ids that have ended; or it would write its outbox entry over the first one's (trace V11).
//
// The entry of the batch is written in the same instant as everything else of the call. So when it stands, it names all
// winners, and the others certainly got nothing and may try again. When it does not stand, either the call has not run
// yet, or the entry was published and removed by a sweep; a mark with the request's own order id tells the latter.
func (s *Stock) recoverBatch(a *attempt, cause error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.CallTimeout)
	defer cancel()
	back, err := s.readBack(ctx, a)
	for wait := retryWait; err != nil && pause(ctx, wait); wait *= 2 {
		back, err = s.readBack(ctx, a)
	}
	switch {
	case err != nil:
		s.metrics.lost.WithLabelValues("nothing").Inc()
		unknown(a.waiters, errors.Join(cause, err))
	case back.entry != nil:
		s.metrics.lost.WithLabelValues("entry").Inc()
		s.deliverEntry(a, back.entry)
	default:
		s.deliverMarks(a, back, cause)
	}
}

// unknown answers requests of which nobody can say yet what became of them.
func unknown(waiters []*waiter, cause error) {
	for _, w := range waiters {
		w.answer(sale.Result{Outcome: sale.Unknown, OrderID: w.req.OrderID, Err: cause})
	}
}

// readBack is what a shard holds of a batch.
type readBack struct {
	entry *Entry      // nil: no such entry
	marks []sale.Mark // of the batch's users, zero where there is none
	epoch int64
}

// readBack reads the marks before the entry. In the other order a call that runs between the two would leave its own marks
// beside a missing entry, which reads as "published by a sweep".
func (s *Stock) readBack(ctx context.Context, a *attempt) (readBack, error) {
	k := a.place().keys()
	users := make([]string, len(a.waiters))
	for i, w := range a.waiters {
		users[i] = w.req.UserID
	}
	type answer struct {
		marks []string
		epoch string
		blob  string
		err   error
	}
	b := s.cfg.Client.B
	commands := []rueidis.Completed{
		b().Hmget().Key(k.buyers).Field(users...).Build(),
		b().Hget().Key(k.meta).Field("epoch").Build(),
		b().Hget().Key(k.pending).Field(a.batch).Build(),
	}
	got, err := apart(ctx, s, func() (out answer) {
		res := s.cfg.Client.DoMulti(ctx, commands...)
		var e1, e2, e3 error
		out.marks, e1 = res[0].AsStrSlice() // a missing mark is ""
		out.epoch, e2 = res[1].ToString()
		out.blob, e3 = res[2].ToString()
		if rueidis.IsRedisNil(e2) {
			e2 = nil
		}
		if rueidis.IsRedisNil(e3) {
			e3 = nil
		}
		out.err = errors.Join(e1, e2, e3)
		return out
	})
	if err := errors.Join(err, got.err); err != nil {
		return readBack{}, fmt.Errorf("read back: %w", err)
	}
	return decodeReadBack(a, got.marks, got.epoch, got.blob)
}

func decodeReadBack(a *attempt, marks []string, epoch, blob string) (readBack, error) {
	back := readBack{marks: make([]sale.Mark, len(marks))}
	if blob != "" {
		entry, err := decodeEntry(a.place(), a.batch, blob)
		if err != nil {
			return readBack{}, err
		}
		back.entry = &entry
		return back, nil
	}
	for i, text := range marks {
		if mark, err := decodeMark(text); err == nil {
			back.marks[i] = mark
		}
	}
	back.epoch, _ = parseCount(epoch) // without a shard there is none
	return back, nil
}

// deliverEntry answers a batch by its outbox entry.
func (s *Stock) deliverEntry(a *attempt, entry *Entry) {
	won := make(map[sale.OrderID]bool, len(entry.Events))
	for _, e := range entry.Events {
		won[e.OrderID] = true
	}
	var acked <-chan struct{}
	if !s.cfg.Now().After(a.deadline) {
		acked = s.publishBatch(a, entry.Events)
	}
	for _, w := range a.waiters {
		if won[w.req.OrderID] {
			w.answer(s.reserved(w.req.OrderID, entry.Epoch, acked))
			continue
		}
		if w.requeue(true) && !s.requests.push(a.lane, w) {
			w.answer(sale.Result{Outcome: sale.QueueFull})
		}
	}
}

// deliverMarks answers a batch without an entry: whose own order id is marked has been published by a sweep.
func (s *Stock) deliverMarks(a *attempt, back readBack, cause error) {
	found := "nothing"
	for i, w := range a.waiters {
		if back.marks[i].OrderID == w.req.OrderID {
			found = "mark"
			w.answer(sale.Result{Outcome: sale.Own, OrderID: w.req.OrderID, Epoch: back.epoch, Acked: closedChannel})
			continue
		}
		w.answer(sale.Result{Outcome: sale.Unknown, OrderID: w.req.OrderID, Err: cause})
	}
	s.metrics.lost.WithLabelValues(found).Inc()
}
