package shard

import (
	"context"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
)

// SCRIPT FLUSH at any time, as a restart or a promotion does to the script cache, reaches no caller.
func TestScriptFlush(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 21, Shards: 4}
		kafka := &broker{}
		s := l.stock(kafka)
		l.load(s, layout, 1, 600, nil)
		stop := make(chan struct{})
		var flushing sync.WaitGroup
		flushing.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					l.do("SCRIPT", "FLUSH")
				}
			}
		})
		counts, results := l.buyers(layout, numbered(1, 1000, 1), 1, s, l.stock(kafka))
		released := 0
		for user, r := range results {
			if r.Outcome != sale.Reserved || released == 50 {
				continue
			}
			released++
			if got, err := s.Release(l.ctx, layout, Correction{User: user, OrderID: r.OrderID, Epoch: 1}); err != nil || got != Done {
				t.Errorf("release: %v, %v", got, err)
			}
		}
		if _, err := s.Prove(l.ctx, layout); err != nil {
			t.Error(err)
		}
		if got, err := s.Increase(l.ctx, layout, "op", 10, 1); err != nil || got != Done {
			t.Errorf("increase: %v, %v", got, err)
		}
		close(stop)
		flushing.Wait()
		if err := soldExactly(counts, 600, 400); err != nil {
			t.Error(err)
		}
		l.rest(layout)
		if got := l.totals(layout); got.free != 60 || got.marks != 550 {
			t.Errorf("Redis holds %+v", got)
		}
	})
}

// A full Redis refuses and nothing is half done; with memory it sells again.
func TestFullMemory(t *testing.T) {
	l := newLab(t, onReal)
	layout := Layout{Item: 18, Shards: 1}
	kafka := &broker{}
	s := l.stock(kafka)
	l.load(s, layout, 1, 10, nil)
	s.warm(l, layout)
	if r := s.Reserve(l.ctx, layout, request(layout, "held", 1, "")); r.Outcome != sale.Reserved {
		t.Fatalf("reserve: %+v", r)
	}
	l.rest(layout)
	l.do("CONFIG", "SET", "maxmemory-policy", "noeviction")
	l.do("CONFIG", "SET", "maxmemory", "1mb")
	before := l.dump()
	if r := s.Reserve(l.ctx, layout, request(layout, "7", 1, "")); r.Outcome != sale.Failed || !strings.Contains(r.Err.Error(), "OOM") {
		t.Errorf("reserve: %+v", r)
	}
	if got, err := s.Increase(l.ctx, layout, "op", 1, 1); err == nil {
		t.Errorf("increase: %v", got)
	}
	if ok, err := s.Fence(l.ctx, layout.Item, 1, 2); err == nil {
		t.Errorf("fence: %v", ok)
	}
	if after := l.dump(); after != before {
		t.Errorf("changed from\n%s\nto\n%s", before, after)
	}
	// What frees memory works.
	mark, ok, err := s.Mark(l.ctx, layout, "held")
	if err != nil || !ok {
		t.Fatalf("mark: %v, %v", ok, err)
	}
	if got, err := s.Release(l.ctx, layout, Correction{User: "held", OrderID: mark.OrderID, Epoch: 1}); err != nil || got != Done {
		t.Errorf("release: %v, %v", got, err)
	}
	l.do("CONFIG", "SET", "maxmemory", "0")
	if r := s.Reserve(l.ctx, layout, request(layout, "7", 1, "")); r.Outcome != sale.Reserved {
		t.Errorf("reserve with memory: %+v", r)
	}
	if got := l.totals(layout); got.free != 8 {
		t.Errorf("Redis holds %+v", got)
	}
}

// A load on a full Redis is refused before it deletes anything.
func TestFullMemoryLoad(t *testing.T) {
	l := newLab(t, onReal)
	layout := Layout{Item: 18, Shards: 1}
	s := l.stock(&broker{})
	l.load(s, layout, 1, 10, nil)
	s.warm(l, layout)
	if ok, err := s.Fence(l.ctx, layout.Item, 1, 2); err != nil || !ok {
		t.Fatalf("fence: %v, %v", ok, err)
	}
	l.do("CONFIG", "SET", "maxmemory", "1mb")
	before := l.dump()
	if ok, err := s.Load(l.ctx, layout, Image{Token: 2, Free: 9}); err == nil {
		t.Errorf("load: %v", ok)
	}
	if after := l.dump(); after != before {
		t.Errorf("changed from\n%s\nto\n%s", before, after)
	}
}

// Redis is frozen: every request is answered by the end of its time, and nothing piles up. When it wakes, what it had in
// its sockets runs, and every unit is free, in the outbox or published.
func TestFrozenRedis(t *testing.T) {
	server := devtest.Redis(t)
	l := labAt(t, onReal, server.URL())
	layout := Layout{Item: 23, Shards: 4}
	kafka := &broker{}
	s := l.stock(kafka, func(c *Config) { c.CallTimeout = time.Second; c.RecordDeadline = 2 * time.Second })
	const units = 5000
	l.load(s, layout, 1, units, nil)
	for _, u := range numbered(1_000_000, 8, 1) { // every shard's lane and scripts are warm
		s.Reserve(l.ctx, layout, request(layout, u, 1, ""))
	}
	idle := runtime.NumGoroutine()
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	var counts tally
	var wg sync.WaitGroup
	for i := range 2000 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(l.ctx, 200*time.Millisecond)
			defer cancel()
			r := s.Reserve(ctx, layout, request(layout, strconv.Itoa(i), 1, ""))
			counts[r.Outcome].Add(1)
		})
	}
	wg.Wait() // with the server still frozen
	t.Logf("outcomes: %v", &counts)
	for o := range counts {
		switch sale.Outcome(o) {
		case sale.Failed, sale.Unknown, sale.QueueFull:
		default:
			if n := counts[o].Load(); n > 0 {
				t.Errorf("%d requests were told %v by a frozen Redis", n, sale.Outcome(o))
			}
		}
	}
	if counts.count(sale.Failed) == 0 || counts.count(sale.Unknown) == 0 {
		t.Errorf("outcomes: %v", &counts)
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, timeout, func() bool { return runtime.NumGoroutine() <= idle }, "goroutines pile up")
	// The sweep's part: what stands in the outbox is published.
	settled := map[sale.OrderID]bool{}
	for _, e := range kafka.seen() {
		settled[e.OrderID] = true
	}
	for n := range layout.Shards {
		outbox, err := s.Outbox(l.ctx, layout, n)
		if err != nil || len(outbox.Bad) > 0 {
			t.Fatalf("outbox: %+v, %v", outbox, err)
		}
		for _, entry := range outbox.Entries {
			for _, e := range entry.Events {
				settled[e.OrderID] = true
			}
		}
	}
	if got := l.totals(layout); got.free+int64(len(settled)) != units || got.marks != int64(len(settled)) {
		t.Errorf("%d units are accounted for, Redis holds %+v", len(settled), got)
	}
}

// A request that leaves while it is queued is certainly never sent.
func TestLeavingTheQueue(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 23, Shards: 1}
		p := newProxy(t, l.url)
		s := l.stockAt(p.URL(), &broker{}, func(c *Config) { c.QueueLimit = 2 })
		l.load(s, layout, 1, 10, nil)
		s.warm(l, layout)
		held := make(chan struct{})
		p.next(scriptReserve.sha, keepReply, func() { close(held) })
		var wg sync.WaitGroup
		wg.Go(func() {
			if r := s.Reserve(l.ctx, layout, request(layout, "first", 1, "")); r.Outcome != sale.Reserved {
				t.Errorf("first: %+v", r)
			}
		})
		<-held
		ctx, leave := context.WithCancel(l.ctx)
		wg.Go(func() {
			if r := s.Reserve(ctx, layout, request(layout, "leaver", 1, "")); r.Outcome != sale.Failed {
				t.Errorf("who left the queue: %+v", r)
			}
		})
		wg.Go(func() {
			if r := s.Reserve(l.ctx, layout, request(layout, "stayer", 1, "")); r.Outcome != sale.Reserved {
				t.Errorf("who stayed: %+v", r)
			}
		})
		devtest.Eventually(t, timeout, func() bool { return s.requests.waiting() == 2 }, "requests do not queue")
		if r := s.Reserve(l.ctx, layout, request(layout, "late", 1, "")); r.Outcome != sale.QueueFull {
			t.Errorf("beyond the queue: %+v", r)
		}
		leave()
		devtest.Eventually(t, timeout, func() bool { return leftOne(s, lane{layout, 0}) }, "nobody left")
		p.letGo()
		wg.Wait()
		if _, ok, err := s.Mark(l.ctx, layout, "leaver"); ok || err != nil {
			t.Errorf("who left the queue has a mark: %v, %v", ok, err)
		}
		if got := l.totals(layout); got.free != 7 || got.marks != 3 {
			t.Errorf("Redis holds %+v", got)
		}
	})
}

func leftOne(s *Stock, at lane) bool {
	s.requests.mu.Lock()
	defer s.requests.mu.Unlock()
	for _, w := range *s.requests.queues[at] {
		if !w.here() {
			return true
		}
	}
	return false
}

// Redis is gone: that nothing was reserved is certain, because no connection was made.
func TestNoRedis(t *testing.T) {
	server := devtest.Redis(t)
	l := labAt(t, onReal, server.URL())
	layout := Layout{Item: 23, Shards: 2}
	s := l.stock(&broker{}, func(c *Config) { c.CallTimeout = 200 * time.Millisecond })
	l.load(s, layout, 1, 10, nil)
	s.warm(l, layout)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, timeout, func() bool {
		r := s.Reserve(l.ctx, layout, request(layout, "7", 1, ""))
		return r.Outcome == sale.Failed && r.Err != nil
	}, "a Redis that is gone is not told from one that may have run the call")
	if err := s.Ping(l.ctx); err == nil {
		t.Error("ping of nothing")
	}
	if _, err := s.Read(l.ctx, layout); err == nil {
		t.Error("read of nothing")
	}
	if err := server.Restart(l.ctx); err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, timeout, func() bool {
		return s.Reserve(l.ctx, layout, request(layout, "7", 1, "")).Outcome == sale.NotLoaded
	}, "an empty Redis is not recognised")
}

// During a failover the server says READONLY, which means that nothing ran: the call is sent again until it is over.
func TestReadOnlyForAWhile(t *testing.T) {
	l := newLab(t, onReal)
	layout := Layout{Item: 24, Shards: 1}
	registry := prometheus.NewRegistry()
	s := l.stock(&broker{}, func(c *Config) { c.Registerer = registry })
	l.load(s, layout, 1, 10, nil)
	s.warm(l, layout)
	l.do("REPLICAOF", "127.0.0.1", "1")
	var wg sync.WaitGroup
	wg.Go(func() {
		if r := s.Reserve(l.ctx, layout, request(layout, "7", 1, "")); r.Outcome != sale.Reserved {
			t.Errorf("got %+v", r)
		}
	})
	refused := s.metrics.calls.WithLabelValues("refused")
	devtest.Eventually(t, timeout, func() bool { return testutil.ToFloat64(refused) > 0 }, "nothing is refused")
	l.do("REPLICAOF", "NO", "ONE")
	wg.Wait()
	if got := l.rest(layout); got.free != 8 || got.marks != 2 {
		t.Errorf("Redis holds %+v", got)
	}
}

// A refusal that does not pass by itself is told at once.
func TestRefusalThatStays(t *testing.T) {
	l := newLab(t, onReal)
	layout := Layout{Item: 24, Shards: 1}
	s := l.stock(&broker{})
	l.load(s, layout, 1, 10, nil)
	s.warm(l, layout)
	l.do("CONFIG", "SET", "min-replicas-to-write", "1")
	if r := s.Reserve(l.ctx, layout, request(layout, "7", 1, "")); r.Outcome != sale.Failed || !strings.Contains(r.Err.Error(), "NOREPLICAS") {
		t.Errorf("got %+v", r)
	}
	l.do("CONFIG", "SET", "min-replicas-to-write", "0")
	if got := l.totals(layout); got.free != 9 || got.waiting != 0 {
		t.Errorf("Redis holds %+v", got)
	}
}
