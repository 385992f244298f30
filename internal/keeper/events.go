package keeper

import (
	"context"
	"fmt"
	"time"

	"flashgate/internal/broker"
	"flashgate/internal/ledger"
	"flashgate/internal/pause"
)

const (
	// eventsBatch is how many events are claimed at once: one round trip to the database, one request to each broker.
	eventsBatch = 1000
	// eventsLease is how long nobody else gets them, and how long an event waits that could not be told.
	eventsLease = 10 * time.Second
	// eventsDeadline is how long after the beginning of the claim they may still be sent. It lies so far in front of the end of the lease that
	// clocks may differ, and that a broker which was sent an event in the last moment has seen to it.
	eventsDeadline = 3 * time.Second
	// eventsUnwell is the longest wait while the broker or the database is away.
	eventsUnwell = 5 * time.Second
	// eventsLook is how often the waiting ones are counted.
	eventsLook = 5 * time.Second
)

// events tells the rest of the shop what became of orders and stock: claim rows of the outbox table, publish, delete. The rows were written by the
// transaction that made them true, and nobody sees them before it is committed. Any number of keepers do this at once. While the broker is away the
// rows wait in the database, and nothing else does.
//
// An event is told at least once, and those of one key in their order. The ledger hands out the earliest row of a key alone, and the next one only
// when that is deleted. What is left to see to is a keeper that was stopped and wakes up:
//
//   - A claims row 1 of an order (created), and is stopped. Its lease runs out; B claims row 1, publishes and deletes it, claims row 2 (paid) and
//     publishes it. A wakes up. Sent now, "created" would come behind "paid". But the deadline that A gives to the producer counts from before its
//     claim and is shorter than the lease, and nothing is sent after it, whether A was stopped in front of the producer or in the middle of it.
//   - A publishes row 1, hears of it, and is stopped in front of the deletion. B claims row 1 and is about to publish it again. If A now deleted the
//     row, row 2 could be claimed by C and be told before B repeats row 1. So A deletes nothing when its lease has run out: B will.
//   - A dies anywhere: the lease runs out, and somebody tells the event once more, under the same id.
//
// Two things remain that no clock of ours prevents: a broker that was frozen with a request of A in its hands may append it when it wakes up, and a
// deletion may be on its way for longer than it was given. What then comes late is a repetition, of an id that is not above the last one of its
// key: that is how consumers tell.
type events struct {
	cfg     *Config
	metrics *metrics
	seldom  *seldom

	lease, deadline time.Duration

	// Of the loop, which is one goroutine.
	failures int
	rests    time.Time // nothing is claimed before
}

func newEvents(cfg *Config, m *metrics) *events {
	return &events{cfg: cfg, metrics: m, seldom: newSeldom(cfg.Now), lease: eventsLease, deadline: eventsDeadline}
}

// round tells what waits. A batch that is not full was all there is.
func (e *events) round(ctx context.Context) {
	for ctx.Err() == nil && !e.cfg.Now().Before(e.rests) {
		claimed, told := e.batch(ctx)
		switch {
		case claimed < 0 || claimed > 0 && told == 0:
			e.rests = e.cfg.Now().Add(pause.Jitter(doubled(2*e.cfg.EventsEvery, e.failures, eventsUnwell)))
			e.failures++
			return
		case claimed < eventsBatch:
			e.failures = 0
			return
		}
		e.failures = 0
	}
}

// batch claims, publishes and finishes once. It returns how many events were claimed, -1 where that failed, and how many are in Kafka now.
func (e *events) batch(ctx context.Context) (claimed, told int) {
	began := e.cfg.Now()
	rows, err := e.claim(ctx)
	if err != nil {
		e.complain(ctx, "claim", err)
		return -1, 0
	}
	if len(rows) == 0 {
		return 0, 0
	}
	acked, err := e.publish(ctx, began.Add(e.deadline), rows)
	e.metrics.events.WithLabelValues("published").Add(float64(len(acked)))
	e.metrics.events.WithLabelValues("failed").Add(float64(len(rows) - len(acked)))
	if err != nil {
		e.complain(ctx, "publish", fmt.Errorf("publish order events: %w", err))
	}
	if err := e.finish(ctx, began.Add(e.lease), acked); err != nil {
		e.complain(ctx, "finish", err)
		return len(rows), 0 // they are told again: no reason to hurry
	}
	return len(rows), len(acked)
}

func (e *events) complain(ctx context.Context, at string, err error) {
	if ctx.Err() == nil && e.seldom.say(at) {
		e.cfg.Logger.WarnContext(ctx, "keeper: order events wait in the database", "error", err)
	}
}

func (e *events) claim(ctx context.Context) ([]ledger.OutgoingEvent, error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.databaseTimeout())
	defer cancel()
	return e.cfg.Ledger.ClaimEvents(ctx, eventsBatch, e.lease)
}

// publish returns the ids of what the brokers have acknowledged. A keeper that is stopping waits a moment longer, so that what they are just about
// to acknowledge is not told twice.
func (e *events) publish(ctx context.Context, deadline time.Time, rows []ledger.OutgoingEvent) ([]int64, error) {
	records := make([]broker.OrderEvent, len(rows))
	for i, row := range rows {
		records[i] = recordOf(row)
	}
	type answer struct {
		acked []int64
		err   error
	}
	// With room: whoever reports does not wait, even when nobody listens any more.
	answers := make(chan answer, 1)
	e.cfg.Publisher.PublishOrderEvents(deadline, records, func(acked []int64, err error) { answers <- answer{acked, err} })
	select {
	case a := <-answers:
		return a.acked, a.err
	case <-ctx.Done():
	}
	last := time.NewTimer(e.cfg.CallTimeout)
	defer last.Stop()
	select {
	case a := <-answers:
		return a.acked, a.err
	case <-last.C:
		return nil, ctx.Err()
	}
}

// recordOf is an event of the ledger as it is told.
func recordOf(row ledger.OutgoingEvent) broker.OrderEvent {
	return broker.OrderEvent{
		ID: row.ID, Type: row.Type, Key: row.Key, ItemID: row.ItemID, OrderID: row.OrderID, UserID: row.UserID, Status: row.Status,
		OperationID: row.OperationID, Delta: row.Delta, Quantity: row.Quantity, At: row.At, Trace: row.Trace,
	}
}

// finish deletes the rows of what has been told, as long as they are ours. It runs to its end when the keeper stops: what it would leave is told twice.
func (e *events) finish(ctx context.Context, until time.Time, ids []int64) error {
	left := until.Sub(e.cfg.Now())
	if len(ids) == 0 {
		return nil
	}
	if left <= 0 {
		return fmt.Errorf("finish order events: the lease of %v has run out", e.lease)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(left, e.cfg.databaseTimeout()))
	defer cancel()
	return e.cfg.Ledger.FinishEvents(ctx, ids...)
}

// look counts what waits, for the metrics. While the database is away they stay as they were.
func (e *events) look(ctx context.Context) {
	counting, cancel := context.WithTimeout(ctx, e.cfg.databaseTimeout())
	defer cancel()
	waiting, oldest, err := e.cfg.Ledger.WaitingEvents(counting)
	if err != nil {
		e.complain(ctx, "count", err)
		return
	}
	e.metrics.eventsWaiting.Set(float64(waiting))
	e.metrics.eventsOldest.Set(oldest.Seconds())
}
