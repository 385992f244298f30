package shard

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"flashgate/internal/pause"
	"flashgate/internal/sale"
)

const (
	// maxAcks is the most outbox entries that one ack script removes; it hands them to unpack.
	maxAcks = 500
	// ackTries and ackWait bound how long a gateway tries to remove outbox entries whose events are in Kafka: three times
	// within 300 ms. The sweep removes what is left, at the price of publishing it once more.
	ackTries = 3
	ackWait  = 50 * time.Millisecond
)

var (
	errLate  = errors.New("reserve: the record deadline passed before the event was known to be with the broker; the sweep publishes it")
	errAlone = errors.New("reserve: Redis has lost outbox entries, and the broker did not acknowledge the event of this order in time; no sweep will publish it")
)

// closedChannel is the Acked of reservations whose mark stands without an outbox entry, in a shard that has all entries that
// were counted. Such an entry went when its events were acknowledged, when a database row had settled it, or with a load, which
// writes marks from rows. So in the instant in which the script looked, the event was in Kafka or its row in the database, and
// a load that came later stored what was in Kafka before it counted. Nothing that happens between that instant and the answer
// changes this: it is a yes however late it comes, unlike one about an entry that stands.
//
// Where entries are missing that no script removed, Redis has lost some, and nothing of this holds: the scripts say so, and the
// event is published by whoever asks, before he is answered (answerOnceAcked).
var closedChannel = func() <-chan struct{} { c := make(chan struct{}); close(c); return c }()

// publication is what becomes of events that were handed to the publisher.
type publication struct {
	deadline time.Time
	acked    chan struct{} // closed when the broker has acknowledged all of them, and this process knew before the deadline
	over     chan struct{} // closed when nothing more will be heard of them
}

// late reports whether a record deadline has passed.
func (s *Stock) late(deadline time.Time) bool { return !s.cfg.Now().Before(deadline) }

// publishBatch hands the events of a batch to the publisher. When all are acknowledged the outbox entry goes.
func (s *Stock) publishBatch(a *attempt, events []sale.Event) *publication {
	at, batch := a.place(), a.batch
	return s.publish(a.deadline, events, func() { s.acks.push(at, batch) })
}

// publishAgain publishes the event of a reservation that the same user made before, and whose outbox entry still stands: the
// process that made it may be gone, and with the entry the last trace of what its user is about to be told (rule R2). The
// entry holds others' events too, so it stays for whoever publishes all.
func (s *Stock) publishAgain(a *attempt, w *waiter, mark sale.Mark, epoch int64) *publication {
	// A load empties the outbox, so an entry that stands is of the shard's epoch.
	event := markEvent(a.place(), w.req.UserID, mark, epoch, w.req.Trace)
	return s.publish(a.deadline, []sale.Event{event}, func() {})
}

// publish hands events to the publisher; then is called when the broker has acknowledged all of them.
//
// An acknowledgement is a yes only if this process has it before the deadline. The broker's own word is not enough:
//
//	this process                            loader
//	reserve: unit, mark, entry
//	stopped, the record not yet written
//	                                        the shard is lost: fence, deadline passed, drain,
//	                                        snapshot without this order, load
//	wakes up, the record goes out
//	                                        its epoch is old: refused, the unit is sold to somebody else
//	acknowledged
//
// One that came before the deadline was in Kafka when the drain began, and has a row.
func (s *Stock) publish(deadline time.Time, events []sale.Event, then func()) *publication {
	p := &publication{deadline: deadline, acked: make(chan struct{}), over: make(chan struct{})}
	s.track.add()
	s.cfg.Publisher.Publish(deadline, events, func(err error) {
		defer s.track.leave()
		defer close(p.over)
		result := "acked"
		switch {
		case err != nil:
			// Nothing is undone: what the broker did not acknowledge may be there all the same, and the entry stands.
			result = "failed"
		case s.late(deadline):
			result, err = "late", errLate
			then() // the events are in Kafka, whatever becomes of them: the sweep need not publish them, too
		default:
			close(p.acked)
			then()
		}
		s.metrics.publications.WithLabelValues(result).Inc()
		if err != nil {
			s.cfg.Logger.Warn("events were not acknowledged in time", slog.Int64("item", events[0].ItemID),
				slog.Int("shard", events[0].Shard), slog.Int("events", len(events)), slog.Any("error", err))
		}
	})
	return p
}

// afterPublishing holds the answer to a user who holds units until the event of his order is with the broker, or half the
// record deadline is left, or his time is up: a broker that is slow must not make this slower than buying. The entry stood
// when the script looked, and no load that it did not take part in can end before the deadline; so until then he can be told
// of his order as those are told whose 202 does not wait for the broker any longer. Behind the deadline nobody knows.
//
// Who is alone with his publication, because the entry may be lost, waits for it as long as it can bring a yes, and gets none
// without: the load that is due would take his unit back.
//
//	this process                            the shard
//	                                        the entry is lost, its gateway is gone; `entries` says so
//	a retry: mark, no entry
//	publishes from the mark
//	acknowledged before the deadline        fenced behind the script's look; the drain begins a deadline later
//	Own, Already: the drain stores it       snapshot with this order
//	not acknowledged: Unknown               snapshot without it; if it arrives now, its epoch is old (rule R8)
func (s *Stock) afterPublishing(ctx context.Context, w *waiter, held sale.Result) sale.Result {
	p := w.before
	left := p.deadline.Sub(s.cfg.Now())
	if !w.alone {
		left -= s.cfg.RecordDeadline / 2
	}
	patience, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	select {
	case <-p.over:
	case <-patience.Done():
	}
	select {
	case <-p.acked:
		return held
	default:
	}
	unknown := sale.Result{Outcome: sale.Unknown, OrderID: held.OrderID, Shard: held.Shard, Err: errLate}
	switch {
	case w.alone:
		unknown.Err = errAlone
		return unknown
	case s.late(p.deadline):
		return unknown
	}
	return held
}

// ackBatches removes outbox entries of one shard.
func (s *Stock) ackBatches(at place, batches []string) {
	ctx := context.Background()
	var err error
	for try, wait := 0, ackWait; try < ackTries; try, wait = try+1, wait*4 {
		if try > 0 {
			pause.For(ctx, wait/4)
		}
		if err = s.forget(ctx, at, batches); err == nil {
			return
		}
	}
	s.metrics.unacked.Add(float64(len(batches)))
	s.cfg.Logger.Warn("outbox entries are left to the sweep", slog.Int64("item", at.item), slog.Int("shard", at.shard),
		slog.Int("entries", len(batches)), slog.Any("error", err))
}

// Forget removes entries from the outbox of a shard: their events are in Kafka, or settled in the database. Entries that
// are gone are passed over. A load does not stand in its way.
func (s *Stock) Forget(ctx context.Context, item int64, shard int, batches ...string) error {
	at := place{item, shard}
	for len(batches) > 0 {
		n := min(len(batches), maxAcks)
		if err := s.forget(ctx, at, batches[:n]); err != nil {
			return err
		}
		batches = batches[n:]
	}
	return nil
}

func (s *Stock) forget(ctx context.Context, at place, batches []string) error {
	k := at.keys()
	r, err := s.run(ctx, call{scriptAck, []string{k.pending, k.meta}, batches})
	if err == nil {
		err = r.fault()
	}
	if err != nil {
		return at.wrap("remove outbox entries", err)
	}
	return nil
}
