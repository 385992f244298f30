package shard

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
)

// crowdedBatch has n users ask while the lane is busy with a first one, so that they share the next call. It returns
// their results once the lane was let go.
func (l *lab) crowdedBatch(s *Stock, layout Layout, n int, arm func()) (results []sale.Result, requests []sale.Request) {
	l.Helper()
	at := lane{layout, 0}
	// The lane's own goroutine is held by a run that has no requests of ours.
	busy, free := make(chan struct{}), make(chan struct{})
	run := s.requests.run
	var once sync.Once
	s.requests.run = func(k lane, w []*waiter) {
		once.Do(func() { close(busy); <-free })
		run(k, w)
	}
	s.requests.push(at, &waiter{phase: left, done: make(chan sale.Result, 1)})
	<-busy
	results, requests = make([]sale.Result, n), make([]sale.Request, n)
	var wg sync.WaitGroup
	for i := range n {
		requests[i] = request(layout, "user"+strconv.Itoa(i), 1, "key"+strconv.Itoa(i))
		wg.Go(func() { results[i] = s.Reserve(l.ctx, layout, requests[i]) })
	}
	devtest.Eventually(l, timeout, func() bool { return s.requests.waiting() == n }, "requests do not queue")
	arm()
	close(free)
	wg.Wait()
	return results, requests
}

// The reply of a reserve call is lost on its way: what ran is found in the outbox entry, and nothing runs twice.
func TestLostReply(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 5, Shards: 1}
		kafka := &broker{}
		p := newProxy(t, l.url)
		s := l.stockAt(p.URL(), kafka)
		l.load(s, layout, 1, 100, nil)
		s.warm(l, layout)
		before := l.totals(layout)

		results, requests := l.crowdedBatch(s, layout, 20, func() { p.next(scriptReserve.sha, loseReply, nil) })
		for i, r := range results {
			if r.Outcome != sale.Reserved || r.OrderID != requests[i].OrderID || r.Epoch != 1 {
				t.Errorf("request %d: %+v", i, r)
			}
			<-r.Acked
		}
		l.rest(layout)
		if got := l.totals(layout); got.free != before.free-20 || got.marks != before.marks+20 {
			t.Errorf("after: %+v, before: %+v", got, before)
		}
		if n := len(kafka.seen()); n != 1+20 {
			t.Errorf("%d events published", n)
		}
		// The same key again: the same order, no second unit.
		for i, r := range results {
			again := requests[i]
			again.OrderID = sale.NewOrderID(layout.Item)
			if got := s.Reserve(l.ctx, layout, again); got.Outcome != sale.Own || got.OrderID != r.OrderID {
				t.Errorf("retry %d: %+v", i, got)
			}
		}
		if got := l.totals(layout); got.free != before.free-20 {
			t.Errorf("after the retries: %+v", got)
		}
	})
}

// warm has one user buy, so that the server knows the scripts and connections stand.
func (s *Stock) warm(l *lab, layout Layout) {
	l.Helper()
	if r := s.Reserve(l.ctx, layout, request(layout, "warm", 1, "")); r.Outcome != sale.Reserved {
		l.Fatalf("warm up: %+v", r)
	}
	l.rest(layout)
}

// The reply is lost, and there was not enough for everybody: who is not in the entry got nothing for certain and is asked
// for again, under a fresh order id.
func TestLostReplyOfLosers(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 5, Shards: 1}
		kafka := &broker{}
		p := newProxy(t, l.url)
		s := l.stockAt(p.URL(), kafka)
		l.load(s, layout, 1, 4, nil)
		s.warm(l, layout)

		results, requests := l.crowdedBatch(s, layout, 5, func() { p.next(scriptReserve.sha, loseReply, nil) })
		var counts tally
		for i, r := range results {
			counts[r.Outcome].Add(1)
			if r.Outcome == sale.Reserved && r.OrderID != requests[i].OrderID {
				t.Errorf("request %d won under another order id", i)
			}
		}
		if counts.count(sale.Reserved) != 3 || counts.count(sale.NoStock) != 2 {
			t.Errorf("outcomes: %v", &counts)
		}
	})
}

// A loser of a lost call who wins when he is asked for again must not do so under the order id of the lost call.
func TestLostReplyFreshOrderID(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 5, Shards: 1}
		p := newProxy(t, l.url)
		s := l.stockAt(p.URL(), &broker{})
		l.load(s, layout, 1, 2, nil)
		s.warm(l, layout)
		// One unit for two requests; another one comes before the loser is asked for again.
		restock := func() {
			if got, err := l.reader().Increase(l.ctx, layout, "op", 1, 1); err != nil || got != Done {
				t.Errorf("increase: %v, %v", got, err)
			}
		}
		results, requests := l.crowdedBatch(s, layout, 2, func() { p.next(scriptReserve.sha, loseReply, restock) })
		kept := 0
		for i, r := range results {
			if r.Outcome != sale.Reserved {
				t.Errorf("request %d: %+v", i, r)
			}
			if r.OrderID == requests[i].OrderID {
				kept++
			}
		}
		if kept != 1 {
			t.Errorf("%d of two winners kept the order id of the lost call", kept)
		}
	})
}

// The call itself is lost. Nobody can know that, so the answer is Unknown, and nothing is done a second time.
func TestLostCall(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 5, Shards: 1}
		kafka := &broker{}
		p := newProxy(t, l.url)
		s := l.stockAt(p.URL(), kafka)
		l.load(s, layout, 1, 10, nil)
		s.warm(l, layout)
		p.next(scriptReserve.sha, loseCall, nil)
		req := request(layout, "7", 1, "k")
		r := s.Reserve(l.ctx, layout, req)
		if r.Outcome != sale.Unknown || r.OrderID != req.OrderID || r.Err == nil {
			t.Fatalf("got %+v", r)
		}
		if got := l.totals(layout); got.free != 9 {
			t.Errorf("Redis holds %+v", got)
		}
		again := request(layout, "7", 1, "k")
		if got := s.Reserve(l.ctx, layout, again); got.Outcome != sale.Reserved || got.OrderID != again.OrderID {
			t.Errorf("retry: %+v", got)
		}
		if n := len(kafka.seen()); n != 2 {
			t.Errorf("%d events", n)
		}
	})
}

// While the reply was lost a sweep published the entry and removed it: the mark with the request's own order id tells.
func TestLostReplySwept(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 5, Shards: 1}
		kafka := &broker{}
		p := newProxy(t, l.url)
		s := l.stockAt(p.URL(), kafka)
		l.load(s, layout, 1, 10, nil)
		s.warm(l, layout)
		sweep := func() {
			keeper := l.reader()
			outbox, err := keeper.Outbox(l.ctx, layout, 0)
			if err != nil || len(outbox.Entries) != 1 {
				t.Errorf("outbox: %+v, %v", outbox, err)
				return
			}
			if err := keeper.Forget(l.ctx, layout.Item, 0, outbox.Entries[0].Batch); err != nil {
				t.Error(err)
			}
		}
		p.next(scriptReserve.sha, loseReply, sweep)
		req := request(layout, "7", 1, "k")
		r := s.Reserve(l.ctx, layout, req)
		if r.Outcome != sale.Own || r.OrderID != req.OrderID || r.Epoch != 1 {
			t.Fatalf("got %+v", r)
		}
		<-r.Acked
		if n := len(kafka.seen()); n != 1 {
			t.Errorf("%d events: the gateway published what the sweep had", n)
		}
		if got := l.totals(layout); got.free != 8 {
			t.Errorf("Redis holds %+v", got)
		}
	})
}

// The caller's time is up before a slow Redis answers: he is told Unknown with his order id, and the reservation is
// published under it all the same.
func TestCallerLeavesBeforeTheAnswer(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 5, Shards: 1}
		kafka := &broker{}
		p := newProxy(t, l.url)
		s := l.stockAt(p.URL(), kafka)
		l.load(s, layout, 1, 10, nil)
		s.warm(l, layout)

		ctx, leave := context.WithCancel(l.ctx)
		defer leave()
		p.next(scriptReserve.sha, keepReply, leave) // Redis has run it when he leaves
		req := request(layout, "7", 1, "k")
		r := s.Reserve(ctx, layout, req)
		if r.Outcome != sale.Unknown || r.OrderID != req.OrderID {
			t.Fatalf("got %+v", r)
		}
		p.letGo()
		devtest.Eventually(t, timeout, func() bool { return len(kafka.seen()) == 2 && l.totals(layout).waiting == 0 },
			"the reservation of a caller who left is not published")
		if got := kafka.seen()[1]; got.OrderID != req.OrderID || got.UserID != "7" {
			t.Errorf("published %+v", got)
		}
		again := request(layout, "7", 1, "k")
		if got := s.Reserve(l.ctx, layout, again); got.Outcome != sale.Own || got.OrderID != req.OrderID {
			t.Errorf("retry: %+v", got)
		}
	})
}

// An answer that comes after the record deadline is neither published nor reported as reserved: a load may have counted
// on that. The entry stands for the sweep.
func TestAnswerAfterTheRecordDeadline(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 5, Shards: 1}
		kafka := &broker{}
		p := newProxy(t, l.url)
		var ahead atomic.Int64
		s := l.stockAt(p.URL(), kafka, func(c *Config) {
			c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		})
		l.load(s, layout, 1, 10, nil)
		s.warm(l, layout)
		late := func() { ahead.Add(int64(2 * timeout)); p.letGo() }
		p.next(scriptReserve.sha, keepReply, late)
		req := request(layout, "7", 1, "k")
		if r := s.Reserve(l.ctx, layout, req); r.Outcome != sale.Unknown || r.OrderID != req.OrderID {
			t.Fatalf("got %+v", r)
		}
		if n := len(kafka.seen()); n != 1 {
			t.Errorf("%d events", n)
		}
		if got := l.totals(layout); got.waiting != 1 || got.free != 8 {
			t.Errorf("Redis holds %+v", got)
		}
		// The same user again, in time: his own reservation, which is published now.
		again := request(layout, "7", 1, "k")
		r := s.Reserve(l.ctx, layout, again)
		if r.Outcome != sale.Own || r.OrderID != req.OrderID {
			t.Fatalf("retry: %+v", r)
		}
		<-r.Acked
		if e := kafka.seen()[1]; e.OrderID != req.OrderID || e.Quantity != 1 || e.Epoch != 1 || e.Price != "1980" || e.ReservedAt.IsZero() {
			t.Errorf("published %+v", e)
		}
		if got := l.totals(layout); got.waiting != 1 {
			t.Errorf("the entry is gone, though its other events were not published: %+v", got)
		}
	})
}

// The reply is lost, and what it said is read back after the record deadline: as late as a late answer.
func TestLostReplyReadBackTooLate(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 5, Shards: 1}
		kafka := &broker{}
		p := newProxy(t, l.url)
		var ahead atomic.Int64
		s := l.stockAt(p.URL(), kafka, func(c *Config) {
			c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		})
		l.load(s, layout, 1, 10, nil)
		s.warm(l, layout)
		p.next(scriptReserve.sha, loseReply, func() { ahead.Add(int64(2 * timeout)) })
		req := request(layout, "7", 1, "k")
		if r := s.Reserve(l.ctx, layout, req); r.Outcome != sale.Unknown || r.OrderID != req.OrderID {
			t.Errorf("got %+v", r)
		}
		if n := len(kafka.seen()); n != 1 {
			t.Errorf("%d events", n)
		}
		if got := l.totals(layout); got.waiting != 1 || got.free != 8 {
			t.Errorf("Redis holds %+v", got)
		}
	})
}

// The reply of any step of a transfer is lost: a take is not repeated, its record is found; give and settle are repeated.
// The unit arrives once.
func TestLostReplyOfTransferSteps(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		for _, step := range []*script{scriptTake, scriptGive, scriptSettle} {
			l := newLab(t, b)
			layout := Layout{Item: 5, Shards: 2}
			p := newProxy(t, l.url)
			s := l.stockAt(p.URL(), &broker{})
			l.load(s, layout, 1, 3, nil) // two in shard 0, one in shard 1
			for _, user := range []string{"1", "3"} {
				if r := s.Reserve(l.ctx, layout, request(layout, user, 1, "")); r.Outcome != sale.Reserved {
					t.Fatalf("%s: warm up: %+v", step.Name, r)
				}
			}
			l.rest(layout)
			p.next(step.sha, loseReply, nil)
			// Settle runs behind the answer: a reserve call may go down with its connection, which is for the buyer to repeat.
			var r sale.Result
			devtest.Eventually(t, timeout, func() bool {
				r = s.Reserve(l.ctx, layout, request(layout, "5", 1, "key"))
				return r.Outcome != sale.Unknown || step != scriptSettle
			}, "the buyer is not served")
			if r.Outcome != sale.Reserved && r.Outcome != sale.Own {
				t.Errorf("%s: %+v", step.Name, r)
			}
			if step == scriptSettle {
				l.sweep(s, layout) // what else went down with that connection is the keeper's
			}
			if got := l.rest(layout); got.free != 0 || got.marks != 3 {
				t.Errorf("%s: Redis holds %+v", step.Name, got)
			}
		}
	})
}

// sweep does what the keeper does with transfers and outbox entries that are left, until there are none.
func (l *lab) sweep(s *Stock, layout Layout) {
	l.Helper()
	devtest.Eventually(l, timeout, func() bool {
		left := s.FinishTransfers(l.ctx, layout, 0) != nil
		for n := range layout.Shards {
			out, err := s.Outbox(l.ctx, layout, n)
			left = left || err != nil || len(out.Entries) > 0
			for _, e := range out.Entries {
				left = s.Forget(l.ctx, layout.Item, n, e.Batch) != nil || left
			}
		}
		return !left
	}, "something is left")
}
