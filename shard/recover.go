package shard

import (
	"context"
	"errors"
	"fmt"

	"flashgate/internal/pause"
	"flashgate/internal/sale"
)

// recoverBatch answers the requests of a call whose reply is missing: it may have run, it may run later, or never. It is
// not repeated. A second run would find marks that were made, ended and released in between, and take units under order
// ids that have ended; or it would write its outbox entry over the first one's (trace V11).
//
// The entry of the batch is written in the same instant as everything else of the call. So when it stands, it names all
// winners, and the others certainly got nothing and may try again. When it does not stand, either the call has not run
// yet, or the entry was published and removed by a sweep; a mark with the request's own order id tells the latter, unless
// Redis has lost entries: then that one may be among them.
func (s *Stock) recoverBatch(a *attempt, cause error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.CallTimeout)
	defer cancel()
	back, err := s.readBack(ctx, a)
	for wait := retryWait; err != nil && pause.For(ctx, wait); wait *= 2 {
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
	lost  bool // entries are gone that nobody removed: that this one does not stand says nothing
}

// readBack asks for all of it in one instant. Marks from before a wipe of the server beside an entry from after it would read as "published by a
// sweep", and so would a missing entry beside marks of a call that runs between the two.
func (s *Stock) readBack(ctx context.Context, a *attempt) (readBack, error) {
	k := a.place().keys()
	args := make([]string, 1, 1+len(a.waiters))
	args[0] = a.batch
	for _, w := range a.waiters {
		args = append(args, w.req.UserID)
	}
	r := s.runAll(ctx, []call{{scriptReadBack, []string{k.buyers, k.pending, k.meta}, args}})[0]
	if err := r.failure(len(r.values) == 3+len(a.waiters)); err != nil {
		return readBack{}, fmt.Errorf("read back: %w", err)
	}
	return decodeReadBack(a, r.values)
}

func decodeReadBack(a *attempt, values []string) (readBack, error) {
	blob, epoch, marks := values[0], values[1], values[3:]
	back := readBack{marks: make([]sale.Mark, len(marks)), lost: values[2] != ""}
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
	var err error
	if back.epoch, err = parseCount(epoch); err != nil {
		// There is no shard, or the fence of a damaged one: marks of an epoch that nobody knows can be neither published nor trusted.
		back.marks = make([]sale.Mark, len(marks))
	}
	return back, nil
}

// deliverEntry answers a batch by its outbox entry.
func (s *Stock) deliverEntry(a *attempt, entry *Entry) {
	won := make(map[sale.OrderID]bool, len(entry.Events))
	for _, e := range entry.Events {
		won[e.OrderID] = true
	}
	var p *publication
	if !s.late(a.deadline) {
		p = s.publishBatch(a, entry.Events)
	}
	for _, w := range a.waiters {
		if won[w.req.OrderID] {
			w.answer(standing(sale.Reserved, w.req.OrderID, entry.Epoch, p))
			continue
		}
		if w.requeue(true) && !s.requests.push(a.lane, w) {
			w.answer(sale.Result{Outcome: sale.QueueFull})
		}
	}
}

// deliverMarks answers a batch without an entry: whose own order id is marked has been published by a sweep. That is a yes
// at any time, see closedChannel. Where entries were lost his event is published from the mark, and waited for.
func (s *Stock) deliverMarks(a *attempt, back readBack, cause error) {
	found := "nothing"
	late := s.late(a.deadline)
	for i, w := range a.waiters {
		mark := back.marks[i]
		switch {
		case mark.OrderID != w.req.OrderID:
			w.answer(sale.Result{Outcome: sale.Unknown, OrderID: w.req.OrderID, Err: cause})
			continue
		case back.lost && mark.Batch != "": // one without a batch was written by a load, from a row
			s.answerOnceAcked(a, w, sale.Own, mark, back.epoch, late)
		default:
			w.answer(sale.Result{Outcome: sale.Own, OrderID: mark.OrderID, Epoch: back.epoch, Acked: closedChannel})
		}
		found = "mark"
	}
	s.metrics.lost.WithLabelValues(found).Inc()
}
