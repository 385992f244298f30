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
	// eventsBatch is how many events are claimed at once that were never told in vain: one round trip to the database, one request to each broker.
	eventsBatch = 1000
	// eventsAgain is how many are claimed with them that were. A quarter: what cannot be told now takes no room from what can.
	eventsAgain = eventsBatch / 4
	// eventsUnderWay is how many may wait for their acknowledgement, and eventsAgainUnderWay how many of them may have failed before. They make four
	// claims, so that a partition without a leader has to have that many new events within one deadline before it holds up the others.
	eventsUnderWay, eventsAgainUnderWay = 4 * eventsBatch, 4 * eventsAgain
	// eventsLinger is how long a claim is waited for before the next one. Brokers that are well acknowledge within it.
	eventsLinger = 100 * time.Millisecond
	// eventsLease is how long nobody else gets them.
	eventsLease = 10 * time.Second
	// eventsDeadline is how long after the beginning of the claim they may still be sent. It lies so far in front of the end of the lease that
	// clocks may differ, and that a broker which was sent an event in the last moment has seen to it.
	eventsDeadline = 3 * time.Second
	// eventsUnwell is the longest wait while the broker or the database is away.
	eventsUnwell = 5 * time.Second
	// eventsLook is how often the waiting ones are counted.
	eventsLook = 5 * time.Second
)

// eventsPause are the waits of an event that failed, from the end of its lease on.
var eventsPause = pause.Steps{First: time.Second, Longest: 30 * time.Second}

// events tells the rest of the shop what became of orders and stock: claim rows of the outbox table, publish, delete. The rows were written by the
// transaction that made them true, and nobody sees them before it is committed. Any number of keepers do this at once. While the broker is away the
// rows wait in the database, and nothing else does. While one partition of the topic has no leader, its events fail at their deadline and are put off,
// each by itself, for longer and longer; what is acknowledged meanwhile is finished at once, and makes room for the next claim.
//
// An event is told at least once, and those of one key in their order. The ledger hands out the earliest row of a key alone, and the next one only
// when that is deleted. What is left to see to is a keeper that was stopped and wakes up:
//
//   - A claims row 1 of an order (created), and is stopped. Its lease runs out; B claims row 1, publishes and deletes it, claims row 2 (paid) and
//     publishes it. A wakes up. Sent now, "created" would come behind "paid". But the deadline that A gives to the producer counts from before its
//     claim and is shorter than the lease, and nothing is sent after it, whether A was stopped in front of the producer or in the middle of it.
//   - A publishes row 1, hears of it, and is stopped in front of the deletion. B claims row 1 and is about to publish it again. If A now deleted the
//     row, row 2 could be claimed by C and be told before B repeats row 1. So A deletes nothing when its lease has run out: B will.
//   - A publishes row 1 and hears nothing; a broker may still have it in its hands. So A does not put the row off to a time before the end of its
//     lease: nobody tells row 1 again, and row 2 after it, before the broker has seen to what it had.
//   - A dies anywhere: the lease runs out, and somebody tells the event once more, under the same id.
//
// Two things remain that no clock of ours prevents: a broker that was frozen with a request of A in its hands may append it when it wakes up, and a
// deletion may be on its way for longer than it was given. What then comes late is a repetition, of an id that is not above the last one of its
// key: that is how consumers tell.
type events struct {
	cfg     *Config
	metrics *metrics
	seldom  *seldom

	lease, deadline, linger time.Duration
	pause                   pause.Steps

	// answers has room for everything under way: whoever reports does not wait, even when nobody listens any more.
	answers chan eventAnswer

	// Of the loop, which is one goroutine.
	claims   int       // so far
	underWay int       // claimed, and not yet answered
	again    int       // those of them that failed before
	vain     int       // answers in a row that said no
	failures int       // of the database, or of a whole batch, in a row
	rests    time.Time // nothing is claimed before
}

// eventAnswer is the fate of an event.
type eventAnswer struct {
	event ledger.OutgoingEvent
	claim int
	until time.Time // the end of its lease
	err   error     // nil: the brokers have acknowledged it
}

func newEvents(cfg *Config, m *metrics) *events {
	return &events{
		cfg: cfg, metrics: m, seldom: newSeldom(cfg.Now), lease: eventsLease, deadline: eventsDeadline, linger: eventsLinger,
		pause: eventsPause, answers: make(chan eventAnswer, eventsUnderWay),
	}
}

// round tells what waits.
func (e *events) round(ctx context.Context) {
	e.settle(ctx, e.arrived())
	for ctx.Err() == nil && !e.cfg.Now().Before(e.rests) {
		if _, _, more := e.batch(ctx); !more {
			return
		}
	}
}

// end comes after the last round, when ctx has ended. It waits a moment for what is under way, of whatever claim, and finishes what the brokers are
// just about to acknowledge: what it leaves is told twice.
func (e *events) end(ctx context.Context) {
	e.settle(ctx, e.await(e.underWay, e.cfg.CallTimeout, nil, func(eventAnswer) bool { return true }))
}

// batch claims, publishes and finishes once. It returns how many events were claimed, -1 where that failed; how many were finished, of this claim or of
// earlier ones; and whether there may be more to claim now.
func (e *events) batch(ctx context.Context) (claimed, told int, more bool) {
	room := eventsUnderWay - e.underWay
	again := min(eventsAgain, eventsAgainUnderWay-e.again, room/4)
	fresh := min(eventsBatch, room-again)
	if fresh < eventsBatch/4 {
		return 0, 0, false // the next round comes soon, and with it room
	}
	began := e.cfg.Now()
	rows, err := e.claim(ctx, fresh, again)
	if err != nil {
		e.complain(ctx, "claim", err)
		e.rest()
		return -1, 0, false
	}
	if len(rows) == 0 {
		if e.underWay == 0 {
			e.failures = 0
		}
		return 0, 0, false
	}
	e.publish(began, rows)
	told = e.settle(ctx, e.await(len(rows), e.linger, ctx.Done(), func(a eventAnswer) bool { return a.claim == e.claims }))
	retried := countAgain(rows)
	return len(rows), told, len(rows)-retried == fresh || retried > 0 && retried == again
}

// countAgain counts the events that failed before.
func countAgain(rows []ledger.OutgoingEvent) (n int) {
	for i := range rows {
		if rows[i].Attempts > 0 {
			n++
		}
	}
	return n
}

// rest has the loop wait before the next claim, the longer the oftener it had to.
func (e *events) rest() {
	e.rests = e.cfg.Now().Add(pause.Jitter(doubled(2*e.cfg.EventsEvery, e.failures, eventsUnwell)))
	e.failures++
}

func (e *events) complain(ctx context.Context, at string, err error) {
	if ctx.Err() == nil && e.seldom.say(at) {
		e.cfg.Logger.WarnContext(ctx, "keeper: order events wait in the database", "error", err)
	}
}

func (e *events) claim(ctx context.Context, fresh, again int) ([]ledger.OutgoingEvent, error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.databaseTimeout())
	defer cancel()
	return e.cfg.Ledger.ClaimEvents(ctx, fresh, again, e.lease)
}

// publish hands events over, each with an answer of its own.
func (e *events) publish(began time.Time, rows []ledger.OutgoingEvent) {
	e.claims++
	e.underWay += len(rows)
	e.again += countAgain(rows)
	for _, row := range rows {
		a := eventAnswer{event: row, claim: e.claims, until: began.Add(e.lease)}
		e.cfg.Publisher.PublishOrderEvent(began.Add(e.deadline), recordOf(row), func(err error) {
			a.err = err
			e.answers <- a
		})
	}
}

// await returns the answers that have come when as many of those that count are there as are missing; when the time is up; or when the keeper stops.
func (e *events) await(missing int, atMost time.Duration, stopping <-chan struct{}, counts func(eventAnswer) bool) []eventAnswer {
	var known []eventAnswer
	last := time.NewTimer(atMost)
	defer last.Stop()
	for over := false; missing > 0 && !over; {
		select {
		case a := <-e.answers:
			known = append(known, e.take(a))
			if counts(a) {
				missing--
			}
		case <-stopping:
			over = true
		case <-last.C:
			over = true
		}
	}
	return append(known, e.arrived()...)
}

// arrived returns the answers that are there.
func (e *events) arrived() (known []eventAnswer) {
	for {
		select {
		case a := <-e.answers:
			known = append(known, e.take(a))
		default:
			return known
		}
	}
}

// take counts an answer as given.
func (e *events) take(a eventAnswer) eventAnswer {
	e.underWay--
	if a.event.Attempts > 0 {
		e.again--
	}
	return a
}

// settle finishes what the brokers have acknowledged and puts off what failed. It returns how many events were finished.
func (e *events) settle(ctx context.Context, known []eventAnswer) (told int) {
	var acked, failed []eventAnswer
	for _, a := range known {
		if a.err == nil {
			acked = append(acked, a)
			e.vain = 0
			continue
		}
		failed = append(failed, a)
		e.vain++
	}
	e.metrics.events.WithLabelValues("published").Add(float64(len(acked)))
	e.metrics.events.WithLabelValues("failed").Add(float64(len(failed)))
	// What is acknowledged comes first: its time runs.
	told, err := e.finish(ctx, acked)
	if len(failed) > 0 {
		e.complain(ctx, "publish", fmt.Errorf("publish order events: %w", failed[0].err))
		if err := e.postpone(ctx, failed); err != nil {
			e.complain(ctx, "postpone", err)
		}
	}
	switch {
	case err != nil:
		e.complain(ctx, "finish", err)
		e.rest() // they are told again: no reason to hurry
	case told > 0:
		e.failures = 0
	case e.vain >= eventsBatch:
		// Nobody is answered: the broker is away. Each event waits by itself, but there may be very many.
		e.vain = 0
		e.rest()
	}
	return told
}

// recordOf is an event of the ledger as it is told.
func recordOf(row ledger.OutgoingEvent) broker.OrderEvent {
	return broker.OrderEvent{
		ID: row.ID, Type: row.Type, Key: row.Key, ItemID: row.ItemID, OrderID: row.OrderID, UserID: row.UserID, Status: row.Status,
		OperationID: row.OperationID, Delta: row.Delta, Quantity: row.Quantity, At: row.At, Trace: row.Trace,
	}
}

// finish deletes the rows of what has been told, as long as they are ours. It runs to its end when the keeper stops: what it would leave is told twice.
func (e *events) finish(ctx context.Context, acked []eventAnswer) (int, error) {
	ours, left := e.ours(acked)
	if len(ours) > 0 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(left, e.cfg.databaseTimeout()))
		defer cancel()
		if err := e.cfg.Ledger.FinishEvents(ctx, idsOf(ours)...); err != nil {
			return 0, err
		}
	}
	if late := len(acked) - len(ours); late > 0 {
		return len(ours), fmt.Errorf("finish order events: the lease of %v has run out for %d of them", e.lease, late)
	}
	return len(ours), nil
}

// ours returns those events whose lease has not run out, and how long it has not for all of them.
func (e *events) ours(answers []eventAnswer) (ours []eventAnswer, left time.Duration) {
	now := e.cfg.Now()
	left = e.lease
	for _, a := range answers {
		if more := a.until.Sub(now); more > 0 {
			ours, left = append(ours, a), min(left, more)
		}
	}
	return ours, left
}

func idsOf(answers []eventAnswer) []int64 {
	ids := make([]int64, len(answers))
	for i, a := range answers {
		ids[i] = a.event.ID
	}
	return ids
}

// postpone puts events off that failed, as long as they are ours: each after the end of its lease, the longer the oftener it failed. A keeper that is
// stopping leaves them: they come back when their lease has run out.
func (e *events) postpone(ctx context.Context, failed []eventAnswer) error {
	ours, left := e.ours(failed)
	if len(ours) == 0 || ctx.Err() != nil {
		return nil
	}
	now := e.cfg.Now()
	waits := make([]time.Duration, len(ours))
	for i, a := range ours {
		waits[i] = a.until.Sub(now) + e.pause.After(a.event.Attempts+1)
	}
	ctx, cancel := context.WithTimeout(ctx, min(left, e.cfg.databaseTimeout()))
	defer cancel()
	return e.cfg.Ledger.PostponeEvents(ctx, idsOf(ours), waits)
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
