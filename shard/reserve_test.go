package shard

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"flashgate/internal/sale"
)

// soldExactly is the check of a crowd.
func soldExactly(counts *tally, reserved, noStock int64) error {
	if counts.count(sale.Reserved) != reserved || counts.count(sale.NoStock) != noStock {
		return fmt.Errorf("outcomes %v, want reserved %d, no_stock %d", counts, reserved, noStock)
	}
	return nil
}

// One user with a hundred requests and a hundred keys gets one unit, and takes nobody else's.
func TestOneUserManyRequests(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 2, Shards: 4}
		kafka := &broker{}
		one, two := l.stock(kafka), l.stock(kafka)
		l.load(one, layout, 1, 100, nil)
		results := make([]sale.Result, 100)
		var wg sync.WaitGroup
		for i := range results {
			wg.Go(func() {
				req := request(layout, "a", 1, "key"+strconv.Itoa(i))
				results[i] = []*Stock{one, two}[i%2].Reserve(l.ctx, layout, req)
			})
		}
		wg.Wait()
		var won sale.OrderID
		var counts tally
		for _, r := range results {
			counts[r.Outcome].Add(1)
			if r.Outcome == sale.Reserved {
				won = r.OrderID
			}
		}
		if counts.count(sale.Reserved) != 1 || counts.count(sale.Already) != 99 {
			t.Fatalf("outcomes: %v", &counts)
		}
		for i, r := range results {
			if r.OrderID != won {
				t.Errorf("request %d was told order %s, not %s", i, r.OrderID, won)
			}
		}
		if got := l.totals(layout); got.free != 99 || got.marks != 1 {
			t.Errorf("Redis holds %+v", got)
		}
		if r := one.Reserve(l.ctx, layout, request(layout, "b", 1, "")); r.Outcome != sale.Reserved {
			t.Errorf("another user: %+v", r)
		}
	})
}

// Two items do not touch each other.
func TestItemsAreIndependent(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		a, z := Layout{Item: 1, Shards: 4}, Layout{Item: 11, Shards: 4}
		s := l.stock(&broker{})
		l.load(s, a, 1, 3, nil)
		l.load(s, z, 1, 2, nil)
		counts, _ := l.buyers(z, numbered(1, 10, 1), 1, s)
		if err := soldExactly(counts, 2, 8); err != nil {
			t.Fatal(err)
		}
		if got := l.totals(a); got.free != 3 || got.marks != 0 {
			t.Errorf("the other item holds %+v", got)
		}
		if p, err := s.Prove(l.ctx, a); err != nil || p.Empty || p.Free != 3 {
			t.Errorf("the other item: %+v, %v", p, err)
		}
		if got, err := s.Increase(l.ctx, z, "restock", 5, 1); err != nil || got != Done {
			t.Fatalf("restock: %v, %v", got, err)
		}
		counts, _ = l.buyers(z, numbered(100, 20, 1), 1, s, l.stock(&broker{}))
		if err := soldExactly(counts, 5, 15); err != nil {
			t.Error(err)
		}
	})
}

// What a user who holds units is told: by key, by quantity, before and after the broker has the event.
func TestRepeatedRequests(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 3, Shards: 2}
		kafka := &broker{hold: true}
		s := l.stock(kafka)
		l.load(s, layout, 1, 10, nil)
		first := s.Reserve(l.ctx, layout, request(layout, "u", 2, "k"))
		if first.Outcome != sale.Reserved || first.Epoch != 1 || first.Shard != sale.Home("u", 2) {
			t.Fatalf("first: %+v", first)
		}
		same := s.Reserve(l.ctx, layout, request(layout, "u", 2, "k"))
		if same.Outcome != sale.Own || same.OrderID != first.OrderID || same.Epoch != 1 {
			t.Errorf("same key and quantity: %+v", same)
		}
		for _, acked := range []<-chan struct{}{first.Acked, same.Acked} {
			select {
			case <-acked:
				t.Error("acknowledged before the broker was")
			default:
			}
		}
		// The retry published the very same event, should the first process be gone (rule R2).
		events := kafka.seen()
		if len(events) != 2 || events[0] != events[1] || events[0].OrderID != first.OrderID || events[0].Quantity != 2 {
			t.Errorf("published %+v", events)
		}
		kafka.letGo(nil)
		<-first.Acked
		<-same.Acked
		l.rest(layout)
		for _, c := range []struct {
			quantity int64
			key      string
			want     sale.Outcome
		}{
			{2, "k", sale.Own}, {1, "k", sale.KeyReused}, {2, "other", sale.Already}, {2, "", sale.Already},
		} {
			r := s.Reserve(l.ctx, layout, request(layout, "u", c.quantity, c.key))
			if r.Outcome != c.want || r.OrderID != first.OrderID {
				t.Errorf("quantity %d, key %q: %+v, want %v of %s", c.quantity, c.key, r, c.want, first.OrderID)
			}
			if r.Outcome == sale.Own {
				<-r.Acked // closed: the event is known to be in Kafka
			}
		}
		if n := len(kafka.seen()); n != 2 {
			t.Errorf("%d events after the outbox was empty", n)
		}
		if got := l.totals(layout); got.free != 8 {
			t.Errorf("Redis holds %+v", got)
		}
	})
}

// Two reservations without a key are not the same one.
func TestNoKeyIsNotAKey(t *testing.T) {
	l := newLab(t, onMini)
	layout := Layout{Item: 3, Shards: 1}
	s := l.stock(&broker{})
	l.load(s, layout, 1, 10, nil)
	first := s.Reserve(l.ctx, layout, request(layout, "u", 1, ""))
	if r := s.Reserve(l.ctx, layout, request(layout, "u", 1, "")); r.Outcome != sale.Already || r.OrderID != first.OrderID {
		t.Errorf("got %+v", r)
	}
}

// The same user several times in one call: the second meets the mark of the first.
func TestSameUserTwiceInOneBatch(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 3, Shards: 1}
		s := l.stock(&broker{})
		l.load(s, layout, 1, 10, nil)
		at := lane{layout, 0}
		var waiters []*waiter
		for _, c := range []struct {
			quantity int64
			key      string
		}{{1, "k"}, {1, "k"}, {2, "k"}, {1, "other"}} {
			w := &waiter{req: request(layout, "u", c.quantity, c.key), done: make(chan sale.Result, 1)}
			waiters = append(waiters, w)
		}
		s.reserveBatch(at, waiters)
		first := <-waiters[0].done
		if first.Outcome != sale.Reserved {
			t.Fatalf("first: %+v", first)
		}
		for i, want := range []sale.Outcome{sale.Own, sale.KeyReused, sale.Already} {
			if r := <-waiters[i+1].done; r.Outcome != want || r.OrderID != first.OrderID {
				t.Errorf("request %d: %+v, want %v", i+1, r, want)
			}
		}
		if got := l.totals(layout); got.free != 9 {
			t.Errorf("Redis holds %+v", got)
		}
	})
}

// Quantities above one: the units are gathered from other shards, what is too much is told with what is left, and one
// that does not fit does not flag the item as empty.
func TestQuantities(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 4, Shards: 5}
		kafka := &broker{}
		s := l.stock(kafka)
		l.load(s, layout, 1, 10, nil) // two in each shard
		if r := s.Reserve(l.ctx, layout, request(layout, "1", 7, "")); r.Outcome != sale.Reserved {
			t.Fatalf("7 of 10: %+v", r)
		}
		r := s.Reserve(l.ctx, layout, request(layout, "2", 4, ""))
		if r.Outcome != sale.Insufficient || r.Available != 3 {
			t.Fatalf("4 of 3: %+v", r)
		}
		if r := s.Reserve(l.ctx, layout, request(layout, "3", 3, "")); r.Outcome != sale.Reserved {
			t.Fatalf("3 of 3: %+v", r)
		}
		if r := s.Reserve(l.ctx, layout, request(layout, "4", 2, "")); r.Outcome != sale.NoStock {
			t.Fatalf("2 of 0: %+v", r)
		}
		if got := l.rest(layout); got.free != 0 || got.marks != 2 {
			t.Errorf("Redis holds %+v", got)
		}
	})
}

// Buyers of two and three units at all homes, through two Stocks: never more than there is, and nobody hangs.
func TestQuantitiesCrowd(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 4, Shards: 5}
		kafka := &broker{}
		one, two := l.stock(kafka), l.stock(kafka)
		l.load(one, layout, 1, 60, nil)
		var wg sync.WaitGroup
		var counts tally
		for i, user := range numbered(1, 60, 1) {
			wg.Go(func() {
				r := []*Stock{one, two}[i%2].Reserve(l.ctx, layout, request(layout, user, int64(2+i%2), ""))
				counts[r.Outcome].Add(1)
			})
		}
		wg.Wait()
		l.rest(layout)
		var units int64
		for _, e := range kafka.seen() {
			units += e.Quantity
		}
		got := l.totals(layout)
		if units+got.free != 60 || got.moving != 0 || got.marks != counts.count(sale.Reserved) {
			t.Errorf("%d units sold, Redis holds %+v, outcomes %v", units, got, &counts)
		}
		for _, o := range []sale.Outcome{sale.Reserved, sale.Insufficient, sale.NoStock, sale.Busy} {
			counts[o].Store(0)
		}
		if text := counts.String(); text != "" {
			t.Errorf("other outcomes: %s", text)
		}
	})
}

// The outbox has a bound: beyond it nothing is taken, whoever knows of stock or not.
func TestOutboxLimit(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 6, Shards: 1}
		kafka := &broker{refuse: context.DeadlineExceeded}
		s := l.stock(kafka, func(c *Config) { c.OutboxLimit = 3 })
		l.load(s, layout, 1, 4, nil)
		counts, _ := l.buyers(layout, numbered(1, 10, 1), 1, s)
		if counts.count(sale.Reserved) != 3 || counts.count(sale.OutboxFull) != 7 {
			t.Fatalf("outcomes: %v", counts)
		}
		if got := l.totals(layout); got.free != 1 || got.waiting != 3 || got.pending != 3 {
			t.Errorf("Redis holds %+v", got)
		}
	})
}

func TestRefusedArguments(t *testing.T) {
	l := newLab(t, onMini)
	layout := Layout{Item: 6, Shards: 1}
	s := l.stock(&broker{})
	l.load(s, layout, 1, 4, nil)
	for name, spoil := range map[string]func(*Layout, *sale.Request){
		"user":      func(_ *Layout, r *sale.Request) { r.UserID = "a\tb" },
		"quantity":  func(_ *Layout, r *sale.Request) { r.Quantity = 0 },
		"too many":  func(_ *Layout, r *sale.Request) { r.Quantity = sale.MaxQuantity + 1 },
		"order id":  func(_ *Layout, r *sale.Request) { r.OrderID = sale.NewOrderID(7) },
		"separator": func(_ *Layout, r *sale.Request) { r.Trace = "a\nb" },
		"shards":    func(y *Layout, _ *sale.Request) { y.Shards = 0 },
		"item":      func(y *Layout, _ *sale.Request) { y.Item = -1 },
	} {
		y, r := layout, request(layout, "u", 1, "")
		spoil(&y, &r)
		if got := s.Reserve(l.ctx, y, r); got.Outcome != sale.Failed || got.Err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := l.totals(layout); got.free != 4 {
		t.Errorf("Redis holds %+v", got)
	}
}

// Close refuses what is new and waits for what was handed to the publisher.
func TestClose(t *testing.T) {
	l := newLab(t, onMini)
	layout := Layout{Item: 6, Shards: 1}
	kafka := &broker{hold: true}
	s := l.stock(kafka)
	l.load(s, layout, 1, 4, nil)
	if r := s.Reserve(l.ctx, layout, request(layout, "u", 1, "")); r.Outcome != sale.Reserved {
		t.Fatalf("reserve: %+v", r)
	}
	ended, end := context.WithCancel(l.ctx)
	end()
	if err := s.Close(ended); err == nil {
		t.Error("closed while an event was with the publisher")
	}
	if r := s.Reserve(l.ctx, layout, request(layout, "v", 1, "")); r.Outcome != sale.Failed {
		t.Errorf("reserve after close: %+v", r)
	}
	kafka.letGo(nil)
	if err := s.Close(l.ctx); err != nil {
		t.Error(err)
	}
	if got := l.totals(layout); got.waiting != 0 || got.free != 3 {
		t.Errorf("Redis holds %+v", got)
	}
}
