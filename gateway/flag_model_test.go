package gateway

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"flashgate/internal/sale"
)

// shelf is a stock whose truth is known: it checks invariant I6 against a gateway, while units come and go and messages are lost.
type shelf struct {
	mu       sync.Mutex
	free     int
	adds     int
	wasEmpty time.Time // the last instant at which nothing was free
}

type shelfProof struct {
	proof
	adds int
}

func (s *shelf) take() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free == 0 {
		return false
	}
	s.free--
	return true
}

func (s *shelf) put() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free == 0 {
		s.wasEmpty = time.Now()
	}
	s.free++
	s.adds++
}

// read is one reading of a shard, at one instant.
func (s *shelf) read() shelfProof {
	s.mu.Lock()
	defer s.mu.Unlock()
	return shelfProof{proof{empty: s.free == 0, at: time.Now()}, s.adds}
}

// emptyLately returns an error unless nothing was free at some instant in the last second.
func (s *shelf) emptyLately() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free > 0 && time.Since(s.wasEmpty) > flagAge {
		return fmt.Errorf("%d free, and something was free since %v ago", s.free, time.Since(s.wasEmpty))
	}
	return nil
}

func TestSoldOutOnlyWhenEmpty(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { soldOutOnlyWhenEmpty(t, rand.New(rand.NewPCG(seed, 7))) })
		})
	}
}

func soldOutOnlyWhenEmpty(t *testing.T, r *rand.Rand) {
	w := newWorld(t)
	s := &shelf{wasEmpty: time.Now()}
	var lag sync.Mutex // rand is not for several goroutines
	wait := func(most time.Duration) {
		lag.Lock()
		d := time.Duration(r.Int64N(int64(most)))
		lag.Unlock()
		time.Sleep(d)
	}
	w.reserve = func(_ context.Context, _ *sale.Item, q sale.Request) sale.Result {
		if s.take() {
			return sale.Result{Outcome: sale.Reserved, OrderID: q.OrderID, Acked: closedChannel()}
		}
		return sale.Result{Outcome: sale.NoStock}
	}
	w.prove = func(context.Context, *sale.Item) (Proof, error) {
		first := s.read()
		wait(300 * time.Millisecond)
		second := s.read()
		first.empty = first.empty && first.adds == second.adds
		wait(900 * time.Millisecond) // a stalled process
		return first, nil
	}
	w.reprove = func(_ context.Context, _ *sale.Item, last Proof) (Reproof, error) {
		next := s.read()
		wait(900 * time.Millisecond)
		return Reproof{Same: next.adds == last.(shelfProof).adds, Next: next}, nil
	}
	w.fetch = func(context.Context, func(string)) error { wait(200 * time.Millisecond); return nil }
	g := w.start(t)
	stop := time.Now().Add(20 * time.Second)
	var all sync.WaitGroup
	all.Go(func() { // the keeper, whose messages get lost
		for time.Now().Before(stop) {
			wait(3 * time.Second)
			s.put()
			wait(100 * time.Millisecond)
			lag.Lock()
			heard := r.IntN(3) > 0
			lag.Unlock()
			if heard {
				w.say(Notice{Item: theItem})
			}
		}
	})
	soldOut := 0
	raw := w.token(t, "1")
	for time.Now().Before(stop) {
		wait(40 * time.Millisecond)
		asked := w.askedCount()
		if a := do(t, g, purchaseOf(raw)); a.status == 410 && w.askedCount() == asked {
			soldOut++
			if err := s.emptyLately(); err != nil {
				t.Fatal(err)
			}
		}
	}
	all.Wait()
	if soldOut == 0 {
		t.Error("the flag was never set")
	}
}
