package keeper

import (
	"context"
	"errors"
	"sync"
	"time"

	"flashgate/internal/broker"
	"flashgate/internal/ledger"
	"flashgate/internal/sale"
)

// errDown is what everybody hears while the tape is down.
var errDown = errors.New("the broker is away")

// tape stands in the place of Kafka at the network: a topic of one partition, its consumer group, and what can go wrong with them.
type tape struct {
	mu     sync.Mutex
	topic  []sale.Event
	stored int // of topic, written and committed
	down   bool
	hold   bool            // publications stay on the wire
	wire   []publication   // held
	refuse map[string]bool // users whose events are never taken
	told   []broker.OrderEvent
	woken  chan struct{}
}

type publication struct {
	events []sale.Event
	done   func(error)
}

// Publish is heard of by the deadline, as from the real producer. What is on the wire then stays there.
func (t *tape) Publish(deadline time.Time, events []sale.Event, done func(error)) {
	var once sync.Once
	report := func(err error) { once.Do(func() { done(err) }) }
	err := t.publish(events, report)
	if !errors.Is(err, errHeld) {
		report(err)
		return
	}
	time.AfterFunc(time.Until(deadline), func() { report(errDown) })
}

// PublishOrderEvent has no wire: what is held is lost.
func (t *tape) PublishOrderEvent(deadline time.Time, event broker.OrderEvent, done func(error)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.down || t.hold:
		go done(errDown)
		return
	case !time.Now().Before(deadline):
		go done(broker.ErrDeadline)
		return
	}
	t.told = append(t.told, event)
	go done(nil)
}

var errHeld = errors.New("on the wire")

func (t *tape) publish(events []sale.Event, report func(error)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.hold:
		t.wire = append(t.wire, publication{events, report})
		return errHeld
	case t.down:
		return errDown
	}
	for _, e := range events {
		if t.refuse[e.UserID] {
			return errors.New("the broker does not take this record")
		}
	}
	t.append(events)
	return nil
}

// append is called with mu held.
func (t *tape) append(events []sale.Event) {
	t.topic = append(t.topic, events...)
	if t.woken != nil {
		close(t.woken)
		t.woken = nil
	}
}

// set changes something.
func (t *tape) set(change func(*tape)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(t)
}

// arrive lets what is on the wire arrive; acknowledged says whether its senders hear of it.
func (t *tape) arrive(acknowledged bool) {
	t.mu.Lock()
	wire := t.wire
	t.wire, t.hold = nil, false
	for _, p := range wire {
		t.append(p.events)
	}
	t.mu.Unlock()
	for _, p := range wire {
		if acknowledged {
			p.done(nil)
		} else {
			p.done(errDown)
		}
	}
}

func (t *tape) End(context.Context, string) (broker.Ends, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.down {
		return broker.Ends{}, errDown
	}
	return broker.Ends{Topic: broker.Orders, Offsets: map[int32]int64{0: int64(len(t.topic))}}, nil
}

func (t *tape) Passed(_ context.Context, _ string, ends broker.Ends) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.down {
		return false, errDown
	}
	return int64(t.stored) >= ends.Offsets[0], nil
}

// wait returns true when there is something to consume, false when ctx has ended.
func (t *tape) wait(ctx context.Context) bool {
	t.mu.Lock()
	if t.stored < len(t.topic) && !t.down {
		t.mu.Unlock()
		return ctx.Err() == nil
	}
	if t.woken == nil {
		t.woken = make(chan struct{})
	}
	woken := t.woken
	t.mu.Unlock()
	select {
	case <-woken:
		return true
	case <-ctx.Done():
		return false
	}
}

// consume stores what is on the tape and commits it.
func (t *tape) consume(ctx context.Context, db *ledger.DB) ([]ledger.Written, error) {
	t.mu.Lock()
	upTo := len(t.topic)
	events := t.topic[t.stored:upTo]
	t.mu.Unlock()
	written, err := db.Write(ctx, events)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stored = max(t.stored, upTo)
	return written, nil
}

// published is how often an order's event is on the tape.
func (t *tape) published(id sale.OrderID) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.topic {
		if e.OrderID == id {
			n++
		}
	}
	return n
}

// dead is the publisher of a gateway that dies between reserve and publish: nothing is sent, nobody hears of it.
type dead struct{}

func (dead) Publish(time.Time, []sale.Event, func(error)) {}

// PublishOrderEvent fails: a gateway has none to publish.
func (dead) PublishOrderEvent(_ time.Time, _ broker.OrderEvent, done func(error)) { go done(errDown) }
