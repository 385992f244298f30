package keeper

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"flashgate/internal/broker"
	"flashgate/internal/devstack/devtest"
	"flashgate/internal/ledger"
)

// A keeper hears from the broker, is stopped in front of the deletion, and wakes up when another one has the same event in its hands. It leaves the
// row to that one: without the row the next event of the order could be told before the repetition.
func TestKeeperStoppedBehindTheBroker(t *testing.T) {
	l := newLab(t, onMini)
	layout := l.sale(10, 1)
	first := &eventSteps{Ledger: l.db, Publisher: l.tape, acked: newHalt()}
	slow := hasty(l.keeper(func(c *Config) { c.Ledger, c.Publisher = first, first }))
	slow.events.deadline = timeout
	id := l.order(layout, "1", 1)
	l.pay(id, 1)
	slowDone := make(chan struct{})
	go func() { defer close(slowDone); slow.events.batch(l.ctx) }()
	<-first.acked.reached

	second := &eventSteps{Ledger: l.db, Publisher: l.tape, claimed: newHalt()}
	other := patient(l.keeper(func(c *Config) { c.Ledger, c.Publisher = second, second }))
	otherDone := make(chan struct{})
	go func() {
		defer close(otherDone)
		for l.ctx.Err() == nil {
			if claimed, _, _ := other.events.batch(l.ctx); claimed > 0 {
				return
			}
		}
	}()
	<-second.claimed.reached // the lease of the first one has run out

	close(first.acked.wake)
	<-slowDone
	third := patient(l.keeper())
	if claimed, _, _ := third.events.batch(l.ctx); claimed != 0 {
		t.Errorf("%d events could be told behind the back of the one who has the first", claimed)
	}
	close(second.claimed.wake)
	<-otherDone
	third.events.round(l.ctx)
	if got := types(l.tape.toldByKey()[id.String()]); got != "created created paid" || l.waiting() != 0 {
		t.Errorf("told %q, %d are left", got, l.waiting())
	}
}

// Nothing is told of what is not committed.
func TestNothingIsToldBeforeTheCommit(t *testing.T) {
	l := newLab(t, onMini)
	layout := l.sale(10, 1)
	id := l.order(layout, "1", 1)
	k := patient(l.keeper())
	k.events.round(l.ctx)
	tx, err := l.pool.Begin(l.ctx)
	l.must(err)
	_, err = tx.Exec(l.ctx, `UPDATE flash_sale_order SET status = 'CANCELLED', ended_at = now() WHERE id = $1`, [16]byte(id))
	l.must(err)
	k.events.round(l.ctx)
	if got := types(l.tape.toldByKey()[id.String()]); got != "created" {
		t.Errorf("told %q while the cancellation is open", got)
	}
	l.must(tx.Rollback(l.ctx))
	k.events.round(l.ctx)
	l.pay(id, 1)
	k.events.round(l.ctx)
	if got := types(l.tape.toldByKey()[id.String()]); got != "created paid" {
		t.Errorf("told %q", got)
	}
}

// countingLedger counts claims, and fails while it is told to.
type countingLedger struct {
	Ledger
	claims int
	err    error
}

func (c *countingLedger) ClaimEvents(ctx ctx, fresh, again int, lease time.Duration) ([]ledger.OutgoingEvent, error) {
	c.claims++
	if c.err != nil {
		return nil, c.err
	}
	return c.Ledger.ClaimEvents(ctx, fresh, again, lease)
}

// Servers that are away are asked more and more seldom, and at once again when one of them has answered.
func TestEventsWaitLongerTheOftenerTheyFail(t *testing.T) {
	l := newLab(t, onMini)
	layout := l.sale(10_000, 1)
	for _, away := range []string{"the database", "the broker"} {
		t.Run(away, func(t *testing.T) {
			l.exec(`DELETE FROM flash_sale_event`)
			asked := &countingLedger{Ledger: l.db}
			now := time.Now()
			k := l.keeper(func(c *Config) {
				c.Ledger, c.Now, c.EventsEvery = asked, func() time.Time { return now }, 200*time.Millisecond
			})
			if away == "the database" {
				asked.err = errDatabase
			} else {
				l.tape.set(func(tape *tape) { tape.down = true })
			}
			k.events.linger = timeout
			// So many that it takes the broker for away, and not a partition.
			l.orders(layout, away, eventsBatch)
			minute := func() int {
				before := asked.claims
				for range 300 {
					if !now.Before(k.events.rests) {
						l.exec(`UPDATE flash_sale_event SET not_before = now(), retry_at = NULL`) // each waits by itself, too
					}
					k.events.round(l.ctx)
					now = now.Add(200 * time.Millisecond)
				}
				return asked.claims - before
			}
			if first, second := minute(), minute(); first < 8 || first > 40 || second < 8 || second > 25 {
				t.Errorf("asked %d times in the first minute, %d times in the second", first, second)
			}
			asked.err = nil
			l.tape.set(func(tape *tape) { tape.down = false })
			if minute(); l.waiting() != 0 {
				t.Errorf("%d events wait when everybody is back", l.waiting())
			}
			before := asked.claims
			for range 10 {
				k.events.round(l.ctx)
				now = now.Add(200 * time.Millisecond)
			}
			if n := asked.claims - before; n != 10 {
				t.Errorf("asked %d times in ten rounds when everybody is back", n)
			}
		})
	}
}

// A keeper that is stopped while the broker is silent ends all the same, and soon.
func TestEventsDoNotHoldUpTheEnd(t *testing.T) {
	l := newLab(t, onMini)
	layout := l.sale(10, 1)
	l.order(layout, "1", 1)
	// It reports when it is told to, and so long after the keeper has gone.
	mute := &eventSteps{Ledger: l.db, Publisher: l.tape, acked: newHalt()}
	defer close(mute.acked.wake)
	k := patient(l.keeper(func(c *Config) { c.Ledger, c.Publisher, c.CallTimeout = mute, mute, time.Second }))
	ctx, cancel := context.WithCancel(l.ctx)
	done := make(chan struct{})
	go func() { defer close(done); k.tell(ctx) }()
	<-mute.acked.reached
	cancel()
	select {
	case <-done:
	case <-time.After(timeout):
		t.Fatal("the loop waits for a broker that says nothing")
	}
	devtest.Eventually(t, timeout, func() bool { return l.waiting() == 1 }, "the event is left to others")
}

// lateKafka has the events and does not say so yet.
type lateKafka struct {
	Publisher
	mu   sync.Mutex
	held []func(error)
}

func (l *lateKafka) PublishOrderEvent(_ time.Time, _ broker.OrderEvent, done func(error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = append(l.held, done)
}

func (l *lateKafka) events() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held)
}

// A keeper is stopped between two rounds, with events of two claims under way. What the broker acknowledges in the next moment is not told again.
func TestEventsOfEveryClaimAreFinishedAtTheEnd(t *testing.T) {
	l := newLab(t, onMini)
	layout := l.sale(10, 1)
	late := &lateKafka{Publisher: l.tape}
	k := patient(l.keeper(func(c *Config) { c.Publisher, c.CallTimeout = late, timeout }))
	k.events.linger = time.Millisecond
	ctx, cancel := context.WithCancel(l.ctx)
	done := make(chan struct{})
	go func() { defer close(done); k.tell(ctx) }()
	for i := range 2 {
		l.order(layout, fmt.Sprint(i), 1)
		devtest.Eventually(t, timeout, func() bool { return late.events() == i+1 }, "the event is handed over")
	}
	cancel()
	for _, acknowledged := range late.held {
		acknowledged(nil)
	}
	<-done
	if n := l.waiting(); n != 0 {
		t.Errorf("%d events are left", n)
	}
}

// recordingLedger remembers what it is told of events.
type recordingLedger struct {
	Ledger
	calls []string
	waits []time.Duration
}

func (r *recordingLedger) FinishEvents(_ ctx, ids ...int64) error {
	r.calls = append(r.calls, fmt.Sprint("finish ", ids))
	return nil
}

func (r *recordingLedger) PostponeEvents(_ ctx, ids []int64, waits []time.Duration) error {
	r.calls, r.waits = append(r.calls, fmt.Sprint("postpone ", ids)), waits
	return nil
}

// What is acknowledged is finished first. What failed is put off with one call, each for as long as its lease lasts and longer the oftener it failed;
// whose lease has run out is left alone.
func TestAcknowledgedEventsAreFinishedBeforeOthersArePutOff(t *testing.T) {
	l := newLab(t, onMini)
	now := time.Now()
	r := &recordingLedger{Ledger: l.db}
	k := l.keeper(func(c *Config) { c.Ledger, c.Now = r, func() time.Time { return now } })
	answer := func(id int64, attempts int, left time.Duration, err error) eventAnswer {
		return eventAnswer{event: ledger.OutgoingEvent{ID: id, Attempts: attempts}, until: now.Add(left), err: err}
	}
	told := k.events.settle(t.Context(), []eventAnswer{
		answer(1, 0, 8*time.Second, errDown), answer(2, 3, 9*time.Second, errDown), answer(3, 0, 0, errDown), answer(4, 0, time.Second, nil),
	})
	if want := []string{"finish [4]", "postpone [1 2]"}; told != 1 || !slices.Equal(r.calls, want) {
		t.Fatalf("%d finished; calls are %q, want %q", told, r.calls, want)
	}
	for i, want := range []struct{ from, to time.Duration }{{8500 * time.Millisecond, 9 * time.Second}, {13 * time.Second, 17 * time.Second}} {
		if wait := r.waits[i]; wait < want.from || wait > want.to {
			t.Errorf("event %d waits for %v, want %v to %v", i+1, wait, want.from, want.to)
		}
	}
}
