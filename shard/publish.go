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

var errLate = errors.New("reserve: the answer came after the record deadline; the sweep publishes the event")

// closedChannel is the Acked of reservations whose event is known to be in Kafka.
var closedChannel = func() <-chan struct{} { c := make(chan struct{}); close(c); return c }()

// publishBatch hands the events of a batch to the publisher. When all are acknowledged the returned channel is closed and
// the outbox entry goes.
func (s *Stock) publishBatch(a *attempt, events []sale.Event) <-chan struct{} {
	at, batch := a.place(), a.batch
	return s.publish(a.deadline, events, func() { s.acks.push(at, batch) })
}

// publishOwn publishes the event of a reservation that the same user made before, and whose outbox entry still stands: the
// process that made it may be gone (rule R2). The entry holds others' events too, so it stays for whoever publishes all.
func (s *Stock) publishOwn(a *attempt, w *waiter, mark sale.Mark, epoch int64, late bool) sale.Result {
	if late {
		return sale.Result{Outcome: sale.Unknown, OrderID: mark.OrderID, Epoch: epoch, Err: errLate}
	}
	// A load empties the outbox, so an entry that stands is of the shard's epoch.
	event := markEvent(a.place(), w.req.UserID, mark, epoch, w.req.Trace)
	acked := s.publish(a.deadline, []sale.Event{event}, func() {})
	return sale.Result{Outcome: sale.Own, OrderID: mark.OrderID, Epoch: epoch, Acked: acked}
}

func (s *Stock) publish(deadline time.Time, events []sale.Event, then func()) <-chan struct{} {
	acked := make(chan struct{})
	s.track.add()
	s.cfg.Publisher.Publish(deadline, events, func(err error) {
		defer s.track.leave()
		if err != nil {
			// Nothing is undone: what the broker did not acknowledge may be there all the same, and the entry stands.
			s.metrics.publications.WithLabelValues("failed").Inc()
			s.cfg.Logger.Warn("events are left to the sweep", slog.Int64("item", events[0].ItemID),
				slog.Int("shard", events[0].Shard), slog.Int("events", len(events)), slog.Any("error", err))
			return
		}
		s.metrics.publications.WithLabelValues("acked").Inc()
		close(acked)
		then()
	})
	return acked
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
