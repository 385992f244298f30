package shard

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/pause"
	"flashgate/internal/sale"
)

// ahead is a clock that can be put forward, as a process that was stopped finds it.
type ahead struct{ by atomic.Int64 }

func (a *ahead) config(c *Config) { c.Now = a.now }
func (a *ahead) now() time.Time   { return time.Now().Add(time.Duration(a.by.Load())) }

// pass lets the record deadline pass.
func (a *ahead) pass() { a.by.Add(int64(2 * timeout)) }

// rest lets time pass in a bubble.
func rest(d time.Duration) { pause.For(context.Background(), d) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A gateway that was stopped sees the broker's acknowledgement behind the record deadline. A load may have written the
// reservation off by then, so it is a yes to nobody, however the reservation came to be published. One in time is.
func TestAcknowledgementBehindTheDeadline(t *testing.T) {
	for name, reserve := range map[string]func(*lab, *Stock, *proxy, Layout) sale.Result{
		"won": func(l *lab, s *Stock, _ *proxy, layout Layout) sale.Result {
			return s.Reserve(l.ctx, layout, request(layout, "7", 1, "k"))
		},
		"repeated with its key": func(l *lab, s *Stock, _ *proxy, layout Layout) sale.Result {
			left := l.stock(&broker{refuse: context.DeadlineExceeded})
			if r := left.Reserve(l.ctx, layout, request(layout, "7", 1, "k")); r.Outcome != sale.Reserved {
				l.Fatalf("first: %+v", r)
			}
			r := s.Reserve(l.ctx, layout, request(layout, "7", 1, "k"))
			if r.Outcome != sale.Own {
				l.Fatalf("got %+v", r)
			}
			return r
		},
		"found after a lost reply": func(l *lab, s *Stock, p *proxy, layout Layout) sale.Result {
			p.next(scriptReserve.sha, loseReply, nil)
			return s.Reserve(l.ctx, layout, request(layout, "7", 1, "k"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, b backend) {
				l := newLab(t, b)
				layout := Layout{Item: 60, Shards: 1}
				p := newProxy(t, l.url)
				for _, late := range []bool{false, true} {
					var clock ahead
					kafka := &broker{}
					s := l.stockAt(p.URL(), kafka, clock.config)
					l.do("FLUSHALL")
					l.load(s, layout, 1, 10, nil)
					s.warm(l, layout)
					kafka.mu.Lock()
					kafka.hold = true
					kafka.mu.Unlock()
					r := reserve(l, s, p, layout)
					if r.Acked == nil || isClosed(r.Acked) {
						t.Fatalf("before the acknowledgement: %+v", r)
					}
					if late {
						clock.pass()
					}
					kafka.letGo(nil)
					if isClosed(r.Acked) == late {
						t.Errorf("late %v, and a yes %v", late, isClosed(r.Acked))
					}
					if n := testutil.ToFloat64(s.metrics.publications.WithLabelValues("late")); (n == 1) != late {
						t.Errorf("late %v, and %v are counted", late, n)
					}
					if name != "repeated with its key" { // others' events may be in the entry
						devtest.Eventually(t, timeout, func() bool { return l.totals(layout).waiting == 0 }, "the entry stands, though its events are in Kafka")
					}
				}
			})
		})
	}
}

// Who holds units and asks without his key is told of his order after its event has been published, by whoever is asked: the
// process that made the reservation may be gone.
func TestAlreadyIsPublishedBeforeItIsSaid(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 61, Shards: 1}
		gone := l.stock(&broker{refuse: context.DeadlineExceeded})
		l.load(gone, layout, 1, 10, nil)
		first := gone.Reserve(l.ctx, layout, request(layout, "u", 2, "k"))
		if first.Outcome != sale.Reserved {
			t.Fatalf("first: %+v", first)
		}
		for i, key := range []string{"", "other"} {
			var acked atomic.Bool
			kafka := &broker{hold: true}
			s := l.stock(kafka)
			answer := make(chan sale.Result, 1)
			go func() {
				r := s.Reserve(l.ctx, layout, request(layout, "u", int64(1+i), key))
				if !acked.Load() {
					t.Errorf("key %q: answered before the broker had the event", key)
				}
				answer <- r
			}()
			devtest.Eventually(t, timeout, func() bool { return len(kafka.seen()) > 0 }, "nothing is published")
			acked.Store(true)
			kafka.letGo(nil)
			if r := <-answer; r.Outcome != sale.Already || r.OrderID != first.OrderID || r.Err != nil {
				t.Errorf("key %q: %+v", key, r)
			}
			if e := kafka.seen(); len(e) != 1 || e[0].OrderID != first.OrderID || e[0].UserID != "u" || e[0].Quantity != 2 || e[0].Epoch != 1 || e[0].ReservedAt.IsZero() {
				t.Errorf("key %q: published %+v", key, e)
			}
		}
		if got := l.totals(layout); got.waiting != 1 {
			t.Errorf("the entry is gone, though its other events were not published: %+v", got)
		}
		// Known to be in Kafka: nothing is published.
		outbox, err := gone.Outbox(l.ctx, layout, 0)
		if err != nil || len(outbox.Entries) != 1 {
			t.Fatalf("outbox %+v, %v", outbox, err)
		}
		if err := gone.Forget(l.ctx, layout.Item, 0, outbox.Entries[0].Batch); err != nil {
			t.Fatal(err)
		}
		kafka := &broker{hold: true}
		if r := l.stock(kafka).Reserve(l.ctx, layout, request(layout, "u", 1, "")); r.Outcome != sale.Already || len(kafka.seen()) != 0 {
			t.Errorf("got %+v and %d events", r, len(kafka.seen()))
		}
	})
}

// A broker that fails does not keep the answer back, and behind the deadline nobody knows.
func TestAlreadyWithoutTheBroker(t *testing.T) {
	l := newLab(t, onMini)
	layout := Layout{Item: 61, Shards: 1}
	gone := l.stock(&broker{refuse: context.DeadlineExceeded})
	l.load(gone, layout, 1, 10, nil)
	first := gone.Reserve(l.ctx, layout, request(layout, "u", 2, "k"))
	if r := gone.Reserve(l.ctx, layout, request(layout, "u", 2, "")); r.Outcome != sale.Already || r.OrderID != first.OrderID {
		t.Errorf("with a broker that fails: %+v", r)
	}

	kafka := &broker{hold: true}
	ctx, leave := context.WithCancel(l.ctx)
	answers := make(chan sale.Result, 1)
	s := l.stock(kafka)
	go func() { answers <- s.Reserve(ctx, layout, request(layout, "u", 2, "")) }()
	devtest.Eventually(t, timeout, func() bool { return len(kafka.seen()) > 0 }, "nothing is published")
	leave()
	if r := <-answers; r.Outcome != sale.Already || r.OrderID != first.OrderID {
		t.Errorf("when time was up: %+v", r)
	}
	kafka.letGo(nil)

	// The reply comes too late: nothing is published any more.
	var clock ahead
	p := newProxy(t, l.url)
	quiet := &broker{}
	s = l.stockAt(p.URL(), quiet, clock.config)
	if r := s.Reserve(l.ctx, layout, request(layout, "warm", 1, "")); r.Outcome != sale.Reserved {
		t.Fatalf("warm up: %+v", r)
	}
	p.next(scriptReserve.sha, keepReply, func() { clock.pass(); p.letGo() })
	if r := s.Reserve(l.ctx, layout, request(layout, "u", 2, "")); r.Outcome != sale.Unknown || r.OrderID != first.OrderID || !errors.Is(r.Err, errLate) {
		t.Errorf("behind the deadline: %+v", r)
	}
	if n := len(quiet.seen()); n != 1 { // of the warm-up
		t.Errorf("%d events", n)
	}
}

// How long the answer waits, and what it is then.
func TestAfterPublishing(t *testing.T) {
	order := sale.NewOrderID(62)
	for name, c := range map[string]struct {
		happens func(p *publication, leave func())
		after   time.Duration
		want    sale.Outcome
		alone   bool // nothing but the publication can bring the event to Kafka
	}{
		"acknowledged": {func(p *publication, _ func()) { rest(time.Second); close(p.acked); close(p.over) }, time.Second, sale.Already, false},
		"acknowledged, and the process stopped then": {func(p *publication, _ func()) { close(p.acked); rest(time.Hour); close(p.over) }, 5 * time.Second, sale.Already, false},
		"failed":              {func(p *publication, _ func()) { rest(time.Second); close(p.over) }, time.Second, sale.Already, false},
		"left":                {func(_ *publication, leave func()) { rest(time.Second); leave() }, time.Second, sale.Already, false},
		"no answer":           {func(*publication, func()) {}, 5 * time.Second, sale.Already, false},
		"alone, acknowledged": {func(p *publication, _ func()) { rest(8 * time.Second); close(p.acked); close(p.over) }, 8 * time.Second, sale.Already, true},
		"alone, failed":       {func(p *publication, _ func()) { rest(time.Second); close(p.over) }, time.Second, sale.Unknown, true},
		"alone, left":         {func(_ *publication, leave func()) { rest(time.Second); leave() }, time.Second, sale.Unknown, true},
		"alone, no answer":    {func(*publication, func()) {}, 10 * time.Second, sale.Unknown, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Stock{cfg: Config{Now: time.Now, RecordDeadline: 10 * time.Second}}
				p := &publication{deadline: time.Now().Add(10 * time.Second), acked: make(chan struct{}), over: make(chan struct{})}
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				start := time.Now()
				go c.happens(p, leave)
				r := s.afterPublishing(ctx, &waiter{before: p, alone: c.alone}, sale.Result{Outcome: sale.Already, OrderID: order, Shard: 3})
				if r.Outcome != c.want || r.OrderID != order || r.Shard != 3 || time.Since(start) != c.after {
					t.Errorf("%+v after %v, want %v after %v", r, time.Since(start), c.want, c.after)
				}
				rest(2 * time.Hour) // everything that happens has happened
			})
		})
	}
	// Stopped while it waited: the clock says so, and nothing else does.
	var clock ahead
	s := &Stock{cfg: Config{Now: clock.now, RecordDeadline: timeout}}
	for _, acked := range []bool{false, true} {
		p := &publication{deadline: clock.now().Add(timeout), acked: make(chan struct{}), over: make(chan struct{})}
		want := sale.Unknown
		if acked {
			close(p.acked)
			want = sale.Already
		}
		close(p.over)
		clock.pass()
		if r := s.afterPublishing(t.Context(), &waiter{before: p}, sale.Result{Outcome: sale.Already, OrderID: order, Shard: 3}); r.Outcome != want || r.OrderID != order || r.Shard != 3 {
			t.Errorf("acknowledged %v: %+v", acked, r)
		}
	}
}

// The same user twice in one call: the second answer waits for the publication of the first, and makes none of its own.
func TestTwiceInOneBatchIsPublishedOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 63, Shards: 1}
		kafka := &broker{}
		s := l.stock(kafka)
		l.load(s, layout, 1, 10, nil)
		var waiters []*waiter
		for _, key := range []string{"k", "k", ""} {
			waiters = append(waiters, &waiter{req: request(layout, "u", 1, key), done: make(chan sale.Result, 1)})
		}
		s.reserveBatch(lane{layout, 0}, waiters)
		first, own, already := <-waiters[0].done, <-waiters[1].done, <-waiters[2].done
		if first.Outcome != sale.Reserved || own.Outcome != sale.Own || own.Acked != first.Acked || already.Outcome != sale.Already || already.OrderID != first.OrderID {
			t.Errorf("got %+v, %+v, %+v", first, own, already)
		}
		if before := waiters[2].before; before == nil || before.acked == nil || (<-chan struct{})(before.acked) != first.Acked {
			t.Error("the last one waits for something else")
		}
		if n := len(kafka.seen()); n != 1 {
			t.Errorf("%d events", n)
		}
	})
}
