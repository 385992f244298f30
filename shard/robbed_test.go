package shard

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
)

// robberies are the ways in which an outbox loses the entry of a user: the key, or a field, beside others that stand.
var robberies = map[string]func(*lab, Layout, string){
	"the key": func(l *lab, layout Layout, _ string) { l.do("DEL", keysOf(layout.Item, 0).pending) },
	"an entry": func(l *lab, layout Layout, user string) {
		mark, ok, err := l.reader().Mark(l.ctx, layout, user)
		if err != nil || !ok || l.do("HDEL", keysOf(layout.Item, 0).pending, mark.Batch) != "1" {
			l.Fatalf("mark of %s: %+v, %v, %v", user, mark, ok, err)
		}
	},
}

// robbed is an item of one shard of which "old" has an order from before the load, "done" one that is in Kafka, and "gone" one
// whose gateway died before it published, and whose outbox entry Redis has lost. It returns the order of the last.
func robbed(l *lab, s *Stock, layout Layout, rob func(*lab, Layout, string)) sale.OrderID {
	l.Helper()
	l.load(s, layout, 1, 20, map[string]sale.Mark{"old": heldMark(sale.NewOrderID(layout.Item))})
	if r := s.Reserve(l.ctx, layout, request(layout, "done", 1, "k")); r.Outcome != sale.Reserved {
		l.Fatalf("reserve: %+v", r)
	}
	l.rest(layout)
	dead := l.stock(&broker{refuse: context.DeadlineExceeded})
	if r := dead.Reserve(l.ctx, layout, request(layout, "stands", 1, "k")); r.Outcome != sale.Reserved {
		l.Fatalf("reserve: %+v", r)
	}
	r := dead.Reserve(l.ctx, layout, request(layout, "gone", 2, "k"))
	if r.Outcome != sale.Reserved {
		l.Fatalf("reserve: %+v", r)
	}
	rob(l, layout, "gone")
	return r.OrderID
}

// That no entry stands says nothing where Redis has lost entries: whoever asks again publishes the event from his mark, all of
// it, and hears of his order when the broker has it, and not before. The load that is due is reported until it comes.
func TestRetryWithLostEntry(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		for how, rob := range robberies {
			for key, want := range map[string]sale.Outcome{"k": sale.Own, "other": sale.Already, "": sale.Already} {
				t.Run(how+" with key "+key, func(t *testing.T) {
					l := newLab(t, b)
					layout := Layout{Item: 71, Shards: 1}
					kafka := &broker{}
					s := l.stock(kafka)
					order := robbed(l, s, layout, rob)
					before := len(kafka.seen())
					kafka.mu.Lock()
					kafka.hold = true
					kafka.mu.Unlock()
					var acked atomic.Bool
					answer := make(chan sale.Result, 1)
					go func() {
						r := s.Reserve(l.ctx, layout, request(layout, "gone", 2, key))
						if !acked.Load() {
							t.Error("answered before the broker had the event")
						}
						answer <- r
					}()
					devtest.Eventually(t, timeout, func() bool { return len(kafka.seen()) > before }, "nothing is published")
					acked.Store(true)
					kafka.letGo(nil)
					r := <-answer
					if r.Outcome != want || r.OrderID != order || want == sale.Own && (!isClosed(r.Acked) || r.Epoch != 1) {
						t.Errorf("got %+v", r)
					}
					e := kafka.seen()[before]
					if e.OrderID != order || e.UserID != "gone" || e.ItemID != layout.Item || e.Quantity != 2 || e.Shard != 0 || e.Epoch != 1 || e.Price != "1980" ||
						e.Currency != "JPY" || e.KeyHash != sale.HashKey("k") || e.ReservedAt.IsZero() {
						t.Errorf("published %+v", e)
					}
					if readings, err := s.Read(l.ctx, layout); err != nil || !errors.Is(readings[0].Fault, ErrUnreadable) {
						t.Errorf("no load is due: %+v, %v", readings, err)
					}
				})
			}
		}
	})
}

// Without the acknowledgement nobody is told of an order that nothing else brings to Kafka, nor is one who asks too late.
func TestRetryWithLostEntryAndNoBroker(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		for _, key := range []string{"k", "other"} {
			l := newLab(t, b)
			layout := Layout{Item: 72, Shards: 1}
			order := robbed(l, l.stock(&broker{}), layout, robberies["an entry"])
			down := l.stock(&broker{refuse: context.DeadlineExceeded})
			if r := down.Reserve(l.ctx, layout, request(layout, "gone", 2, key)); r.Outcome != sale.Unknown || r.OrderID != order || r.Err == nil {
				t.Errorf("key %q: %+v", key, r)
			}
			p := newProxy(t, l.url)
			var clock ahead
			quiet := &broker{}
			late := l.stockAt(p.URL(), quiet, clock.config)
			p.next(scriptReserve.sha, keepReply, func() { clock.pass(); p.letGo() })
			if r := late.Reserve(l.ctx, layout, request(layout, "gone", 2, key)); r.Outcome != sale.Unknown || r.OrderID != order || len(quiet.seen()) != 0 {
				t.Errorf("key %q, too late: %+v, %d events", key, r, len(quiet.seen()))
			}
		}
	})
}

// The others of such a shard: who has a row is told so as ever, whose entry stands has it published, whose event was in Kafka
// has it published once more, and who is new buys.
func TestOthersBesideALostEntry(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 73, Shards: 1}
		robbed(l, l.stock(&broker{}), layout, robberies["an entry"])
		for user, c := range map[string]struct {
			want   sale.Outcome
			events int
		}{"old": {sale.Already, 0}, "done": {sale.Own, 1}, "stands": {sale.Own, 1}, "new": {sale.Reserved, 1}} {
			kafka := &broker{}
			r := l.stock(kafka).Reserve(l.ctx, layout, request(layout, user, 1, "k"))
			if r.Outcome != c.want || len(kafka.seen()) != c.events {
				t.Errorf("user %s: %+v and %d events, want %v and %d", user, r, len(kafka.seen()), c.want, c.events)
			}
		}
	})
}

// A mark is good as long as something stands behind it: its entry, a row, or an outbox that has lost nothing.
func TestMarkWithLostEntry(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		for _, fenced := range []bool{false, true} {
			l := newLab(t, b)
			layout := Layout{Item: 74, Shards: 1}
			s := l.stock(&broker{})
			order := robbed(l, s, layout, robberies["an entry"])
			if fenced {
				if ok, err := s.Fence(l.ctx, layout.Item, 1, 2); err != nil || !ok {
					t.Fatalf("fence: %v, %v", ok, err)
				}
			}
			for user, good := range map[string]bool{"old": true, "stands": true, "done": false, "gone": false} {
				if mark, ok, err := s.Mark(l.ctx, layout, user); ok != good || !good && !errors.Is(err, ErrUnreadable) {
					t.Errorf("fenced %v, user %s: %+v, %v, %v", fenced, user, mark, ok, err)
				}
			}
			if !fenced {
				continue
			}
			if ok, err := s.Load(l.ctx, layout, Image{Token: 2, Free: 16, Marks: map[string]sale.Mark{"gone": heldMark(order)}}); err != nil || !ok {
				t.Fatalf("load: %v, %v", ok, err)
			}
			if mark, ok, err := s.Mark(l.ctx, layout, "gone"); err != nil || !ok || mark.OrderID != order {
				t.Errorf("after a load: %+v, %v, %v", mark, ok, err)
			}
		}
	})
}

// The reply of a call is lost, and then its entry: the mark is no proof that somebody has published it.
func TestLostReplyAndLostEntry(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		for name, c := range map[string]struct {
			broker *broker
			late   bool
			spoil  []string // in addition
			want   sale.Outcome
			events int
		}{
			"published":      {&broker{}, false, nil, sale.Own, 1},
			"not taken":      {&broker{refuse: context.DeadlineExceeded}, false, nil, sale.Unknown, 1},
			"too late":       {&broker{}, true, nil, sale.Unknown, 0},
			"epoch is lost":  {&broker{}, false, []string{"HDEL", keysOf(75, 0).meta, "epoch"}, sale.Unknown, 0},
			"counts is lost": {&broker{}, false, []string{"HDEL", keysOf(75, 0).meta, "entries"}, sale.Own, 1},
		} {
			t.Run(name, func(t *testing.T) {
				l := newLab(t, b)
				layout := Layout{Item: 75, Shards: 1}
				p := newProxy(t, l.url)
				var clock ahead
				s := l.stockAt(p.URL(), c.broker, clock.config)
				l.load(l.stock(&broker{}), layout, 1, 10, nil)
				l.stock(&broker{}).warm(l, layout)
				p.next(scriptReserve.sha, loseReply, func() {
					l.do("DEL", keysOf(layout.Item, 0).pending)
					if c.spoil != nil {
						l.do(c.spoil...)
					}
					if c.late {
						clock.pass()
					}
				})
				req := request(layout, "7", 1, "k")
				r := s.Reserve(l.ctx, layout, req)
				if r.Outcome != c.want || r.OrderID != req.OrderID || c.want == sale.Own && !isClosed(r.Acked) {
					t.Errorf("got %+v", r)
				}
				events := c.broker.seen()
				if len(events) != c.events {
					t.Fatalf("%d events, want %d", len(events), c.events)
				}
				if c.events > 0 && (events[0].OrderID != req.OrderID || events[0].Epoch != 1 || events[0].Trace != req.Trace || !events[0].ReservedAt.After(time.Unix(0, 0))) {
					t.Errorf("published %+v", events[0])
				}
			})
		}
	})
}
