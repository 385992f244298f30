package gateway

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"flashgate/internal/sale"
)

// rush sends n purchases at once and waits for their answers.
func (w *world) rush(t *testing.T, g *Gateway, n int) []reply {
	t.Helper()
	replies := make([]reply, n)
	raw := w.token(t, "u")
	var all sync.WaitGroup
	for i := range replies {
		all.Go(func() { replies[i] = do(t, g, purchaseOf(raw)) })
	}
	all.Wait()
	return replies
}

// Redis stands still while purchases come in. Calls that end with their context leave nothing behind: there are never more of them than
// requests under way.
func TestFrozenRedisLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.reserve = func(ctx context.Context, _ *sale.Item, q sale.Request) sale.Result {
			<-ctx.Done()
			return sale.Result{Outcome: sale.Unknown, OrderID: q.OrderID, Err: ctx.Err()}
		}
		g := w.start(t)
		const wave, waves = 50, 40
		var all sync.WaitGroup
		for range waves { // 500 a second
			all.Go(func() {
				began := time.Now()
				for _, r := range w.rush(t, g, wave) {
					r.want(t, 503, "OUTCOME_UNKNOWN")
				}
				if took := time.Since(began); took > g.cfg.RequestTimeout {
					t.Errorf("took %v", took)
				}
			})
			sleep(100 * time.Millisecond)
			if n, most := g.redis.calls.Load(), int64(wave*30); n > most {
				t.Fatalf("%d calls, want at most those of the last three seconds, %d", n, most)
			}
		}
		all.Wait()
		synctest.Wait()
		if n := g.redis.calls.Load(); n != 0 {
			t.Errorf("%d calls are left behind", n)
		}
	})
}

// Calls that do not end even with their context are left behind, so many and no more. Then a purchase is refused at once, and is not in
// doubt, because nothing was asked; what needs others goes on; and so does all of it when the calls end.
func TestAbandonedCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		id := sale.NewOrderID(theItem)
		w.rows[id] = pendingRow(id, "u")
		goOn := make(chan struct{})
		w.reserve = func(_ context.Context, _ *sale.Item, q sale.Request) sale.Result {
			<-goOn
			return sale.Result{Outcome: sale.Reserved, OrderID: q.OrderID, Acked: closedChannel()}
		}
		g := w.start(t)
		const wave = 512
		for range maxAbandoned / wave {
			for _, r := range w.rush(t, g, wave) {
				r.want(t, 503, "OUTCOME_UNKNOWN")
			}
		}
		began := time.Now()
		for _, r := range w.rush(t, g, wave) {
			if r.want(t, 503, "UNAVAILABLE"); strings.Contains(r.body, "orderId") {
				t.Fatalf("in doubt: %s", r.body)
			}
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("refused after %v", took)
		}
		if n := w.askedCount(); n != maxAbandoned {
			t.Errorf("%d calls, want %d", n, maxAbandoned)
		}
		do(t, g, ask{method: "GET", path: orderPath(id), token: w.token(t, "u")}).want(t, 200, "") // the database has nothing to do with it
		close(goOn)
		synctest.Wait()
		do(t, g, purchaseOf(w.token(t, "u"))).want(t, 202, "")
		synctest.Wait() // a call is counted until its goroutine has ended, a moment after its answer
		if n := g.redis.calls.Load() + g.database.calls.Load(); n != 0 {
			t.Errorf("%d calls are left behind", n)
		}
	})
}

// With connections open there is room for their calls beside those that were abandoned.
func TestAbandonedCallsTakeNobodysPlace(t *testing.T) {
	g, err := New(Config{})
	must(t, err)
	g.redis.calls.Store(maxAbandoned)
	call := func() int { return 1 }
	if c := begin(g, &g.redis, call); !c.never {
		t.Error("one more than there may be")
	}
	g.openConns.Add(1)
	if n, ok := begin(g, &g.redis, call).wait(t.Context()); n != 1 || !ok {
		t.Error("a connection has no room for its call")
	}
	if _, ok := begin(g, &g.database, call).wait(t.Context()); !ok {
		t.Error("what was abandoned of one takes the room of the other")
	}
}
