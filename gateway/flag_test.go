package gateway

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"flashgate/internal/sale"
)

// noStock makes the world empty.
func (w *world) noStock() {
	w.change(func() {
		w.reserve = func(context.Context, *sale.Item, sale.Request) sale.Result { return sale.Result{Outcome: sale.NoStock} }
	})
}

// flagIt makes the gateway set the flag of the item, by a purchase in vain.
func flagIt(t *testing.T, w *world, g *Gateway) {
	t.Helper()
	w.noStock()
	do(t, g, purchaseOf(w.token(t, "loser"))).want(t, 410, "SOLD_OUT")
	synctest.Wait()
	if !g.SoldOut(theItem) {
		t.Fatal("the flag is not set")
	}
}

func sleep(d time.Duration) { time.Sleep(d); synctest.Wait() } // within a bubble: virtual

func TestFlagIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := w.start(t)
		if g.SoldOut(theItem) || g.SoldOut(4711) {
			t.Fatal("set without a reason")
		}
		flagIt(t, w, g)
		asked := w.askedCount()
		for range 3 {
			do(t, g, purchaseOf("")).want(t, 410, "SOLD_OUT")
			do(t, g, purchaseOf(w.token(t, "loser"))).want(t, 410, "SOLD_OUT")
			do(t, g, purchaseOf("garbage")).want(t, 410, "SOLD_OUT")
		}
		if n := w.askedCount(); n != asked {
			t.Errorf("%d reservations while the flag stood", n-asked)
		}
		if got := w.announced(); len(got) != 1 || got[0] != (Notice{Item: theItem, Flagged: true}) {
			t.Errorf("announced %v", got)
		}
		for range 20 { // renewed as long as nothing changes
			sleep(500 * time.Millisecond)
			if !g.SoldOut(theItem) {
				t.Fatal("the flag was not renewed")
			}
		}
		if n := g.flagged(); n != 1 {
			t.Errorf("%d flagged items", n)
		}
	})
}

// Without a proof of its own the gateway sets nothing, whatever a reservation or another gateway says.
func TestFlagNeedsProof(t *testing.T) {
	for name, prove := range map[string]func(context.Context, *sale.Item) (Proof, error){
		"units are left": func(context.Context, *sale.Item) (Proof, error) { return proof{at: time.Now()}, nil },
		"no answer":      func(context.Context, *sale.Item) (Proof, error) { return nil, errDown },
		"hangs":          func(ctx context.Context, _ *sale.Item) (Proof, error) { <-ctx.Done(); return nil, ctx.Err() },
		"too old": func(context.Context, *sale.Item) (Proof, error) {
			return proof{empty: true, at: time.Now().Add(-flagAge)}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.prove = prove
				g := w.start(t)
				w.noStock()
				do(t, g, purchaseOf(w.token(t, "1"))).want(t, 410, "SOLD_OUT")
				w.say(Notice{Item: theItem, Flagged: true})
				for range 30 {
					if g.SoldOut(theItem) {
						t.Fatal("set")
					}
					sleep(100 * time.Millisecond)
				}
				if n := w.announced(); len(n) != 0 {
					t.Errorf("announced %v", n)
				}
			})
		})
	}
}

// V8: whoever sees the flag sees the winners with it. While they are being fetched, nothing is set, and a winner's retry goes to the stock.
func TestFlagComesWithWinners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		fetched := make(chan struct{})
		w.fetch = func(_ context.Context, yield func(string)) error {
			<-fetched
			yield("winner")
			return nil
		}
		id := sale.NewOrderID(theItem)
		w.marks["winner"] = sale.Mark{OrderID: id, Quantity: 1}
		g := w.start(t)
		w.noStock()
		do(t, g, purchaseOf(w.token(t, "loser"))).want(t, 410, "SOLD_OUT")
		synctest.Wait() // proven, and waiting for the buyers
		w.change(func() {
			w.reserve = func(context.Context, *sale.Item, sale.Request) sale.Result {
				return sale.Result{Outcome: sale.Already, OrderID: id}
			}
		})
		do(t, g, purchaseOf(w.token(t, "winner"))).want(t, 409, "ALREADY_PURCHASED")
		if n := w.askedCount(); n != 2 {
			t.Fatalf("%d reservations, want the winner's too", n)
		}
		close(fetched)
		synctest.Wait()
		if !g.SoldOut(theItem) {
			t.Fatal("not set")
		}
		do(t, g, purchaseOf(w.token(t, "winner"))).want(t, 409, "ALREADY_PURCHASED")
		if n := w.askedCount(); n != 2 {
			t.Errorf("%d reservations: the flag did not stand", n)
		}
	})
}

// R15: units come back after the proof and before the flag is set. The notice finds no flag, and still nobody may set one on the old proof.
func TestNoticeDuringProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		fetched := make(chan struct{})
		w.fetch = func(context.Context, func(string)) error { <-fetched; return nil }
		g := w.start(t)
		w.noStock()
		do(t, g, purchaseOf(w.token(t, "1"))).want(t, 410, "SOLD_OUT")
		synctest.Wait() // proven
		w.say(Notice{Item: theItem})
		close(fetched)
		synctest.Wait()
		if g.SoldOut(theItem) {
			t.Fatal("set on a proof that was overtaken")
		}
		sleep(proofPause)
		flagIt(t, w, g) // and it can be set by a new one
	})
}

func TestNoticeClears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := w.start(t)
		flagIt(t, w, g)
		w.change(func() { w.reserve = nil })
		w.say(Notice{Item: 4711})
		if !g.SoldOut(theItem) {
			t.Fatal("cleared by a notice about something else")
		}
		w.say(Notice{Item: theItem})
		if g.SoldOut(theItem) {
			t.Fatal("not cleared")
		}
		do(t, g, purchaseOf(w.token(t, "2"))).want(t, 202, "")
	})
}

// The message is lost: the re-proof finds out within its interval.
func TestReproveClears(t *testing.T) {
	for name, reprove := range map[string]func(context.Context, *sale.Item, Proof) (Reproof, error){
		"units came back": func(context.Context, *sale.Item, Proof) (Reproof, error) { return Reproof{}, nil },
		"no answer":       func(context.Context, *sale.Item, Proof) (Reproof, error) { return Reproof{}, errDown },
		"hangs": func(ctx context.Context, _ *sale.Item, _ Proof) (Reproof, error) {
			<-ctx.Done()
			return Reproof{}, ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				g := w.start(t)
				flagIt(t, w, g)
				sleep(1200 * time.Millisecond)
				var last atomic.Pointer[time.Time]
				w.change(func() {
					w.reprove = func(ctx context.Context, it *sale.Item, p Proof) (Reproof, error) {
						at := p.At()
						last.Store(&at)
						return reprove(ctx, it, p)
					}
				})
				for g.SoldOut(theItem) {
					sleep(time.Millisecond)
				}
				if age := time.Since(*last.Load()); age > flagAge {
					t.Errorf("the flag stood %v after the last proof", age)
				}
			})
		})
	}
}

// Whatever keeps the flag from being renewed, and however long: it does not stand on a proof older than a second.
func TestFlagRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		released := make(chan struct{})
		w.reprove = func(context.Context, *sale.Item, Proof) (Reproof, error) { // does not even listen to its context
			<-released
			return Reproof{Same: true, Next: proof{empty: true, at: time.Now()}}, nil
		}
		g := w.start(t)
		began := time.Now()
		flagIt(t, w, g)
		w.change(func() { w.reserve = nil })
		sleep(flagAge - time.Millisecond - time.Since(began))
		do(t, g, purchaseOf(w.token(t, "1"))).want(t, 410, "SOLD_OUT")
		sleep(time.Millisecond)
		do(t, g, purchaseOf(w.token(t, "1"))).want(t, 202, "")
		close(released)
		synctest.Wait()
		if !g.SoldOut(theItem) { // "nothing was added since" is as good late as early
			t.Error("the late renewal was dropped")
		}
	})
}

// A notice arrives while a re-proof has read its values and not yet renewed the flag.
func TestNoticeDuringReproof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		read, goOn := make(chan struct{}), make(chan struct{})
		w.reprove = func(context.Context, *sale.Item, Proof) (Reproof, error) {
			at := time.Now()
			close(read)
			<-goOn
			return Reproof{Same: true, Next: proof{empty: true, at: at}}, nil
		}
		g := w.start(t)
		flagIt(t, w, g)
		<-read
		w.say(Notice{Item: theItem})
		close(goOn)
		synctest.Wait()
		if g.SoldOut(theItem) {
			t.Fatal("renewed a flag that had been cleared")
		}
	})
}

// Another gateway sold a unit that came back: the re-proof of this one clears its flag, and the new one knows the new winner.
func TestWinnerOfAnotherGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := w.start(t)
		flagIt(t, w, g)
		id := sale.NewOrderID(theItem)
		w.change(func() {
			w.buyers, w.marks["late"] = []string{"late"}, sale.Mark{OrderID: id, Quantity: 1}
			w.reprove = func(context.Context, *sale.Item, Proof) (Reproof, error) { return Reproof{}, nil }
		})
		sleep(reproveEvery)
		if g.SoldOut(theItem) {
			t.Fatal("still set")
		}
		w.change(func() { w.reprove = nil })
		flagIt(t, w, g)
		do(t, g, purchaseOf(w.token(t, "late"))).want(t, 409, "ALREADY_PURCHASED")
	})
}

func TestBuyersChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := w.start(t)
		flagIt(t, w, g)
		fetches := 0
		var compared []Proof
		w.change(func() {
			w.marks["new"] = sale.Mark{OrderID: sale.NewOrderID(theItem), Quantity: 1}
			w.fetch = func(_ context.Context, yield func(string)) error {
				if fetches++; fetches == 1 {
					yield("half")
					return errDown
				}
				yield("new")
				return nil
			}
			changed := true
			w.reprove = func(_ context.Context, _ *sale.Item, p Proof) (Reproof, error) {
				compared = append(compared, p)
				r := Reproof{Same: true, BuyersChanged: changed, Next: proof{empty: true, at: time.Now()}}
				changed = fetches < 2
				return r, nil
			}
		})
		sleep(reproveEvery) // the fetch fails: once more with the old set, and with the old proof, or the change would not be seen again
		if !g.SoldOut(theItem) {
			t.Fatal("cleared at once")
		}
		do(t, g, purchaseOf(w.token(t, "new"))).want(t, 410, "SOLD_OUT")
		sleep(reproveEvery)
		if !g.SoldOut(theItem) || len(compared) != 2 || compared[0] != compared[1] {
			t.Fatalf("compared with %v", compared)
		}
		do(t, g, purchaseOf(w.token(t, "new"))).want(t, 409, "ALREADY_PURCHASED")

		w.change(func() {
			w.fetch = func(context.Context, func(string)) error { return errDown }
			w.reprove = func(context.Context, *sale.Item, Proof) (Reproof, error) {
				return Reproof{Same: true, BuyersChanged: true, Next: proof{empty: true, at: time.Now()}}, nil
			}
		})
		sleep(2 * reproveEvery)
		if g.SoldOut(theItem) {
			t.Error("the flag stands although its winners have not been known for a second")
		}
	})
}

// A gateway that hears of another's flag proves for itself, and does not pass it on.
func TestFlagOfAnotherGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := w.start(t)
		w.say(Notice{Item: theItem, Flagged: true})
		w.say(Notice{Item: 4711, Flagged: true})
		synctest.Wait()
		if !g.SoldOut(theItem) || len(w.announced()) != 0 {
			t.Errorf("set %v, announced %v", g.SoldOut(theItem), w.announced())
		}
	})
}

// The flag of one item never touches another.
func TestFlagsAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.items = append(w.items, onSale(2002, time.Now()), onSale(3003, time.Now()))
		g := w.start(t)
		w.say(Notice{Item: 3003, Flagged: true})
		flagIt(t, w, g)
		if !g.SoldOut(3003) || g.SoldOut(2002) {
			t.Fatalf("3003: %v, 2002: %v", g.SoldOut(3003), g.SoldOut(2002))
		}
		w.say(Notice{Item: 2002})
		w.say(Notice{Item: theItem})
		must(t, g.Refresh(t.Context()))
		if g.SoldOut(theItem) || !g.SoldOut(3003) {
			t.Errorf("1001: %v, 3003: %v", g.SoldOut(theItem), g.SoldOut(3003))
		}
		sleep(2 * reproveEvery)
		if !g.SoldOut(3003) {
			t.Error("3003 was cleared")
		}
	})
}

// Items whose reading hangs do not hold up the others.
func TestSlowItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const good, slow = 40, maxProofs - 1
		w := newWorld(t)
		for id := range int64(slow) {
			w.items = append(w.items, onSale(6000+id, time.Now()))
		}
		for id := range int64(good) {
			w.items = append(w.items, onSale(5000+id, time.Now()))
		}
		w.reprove = func(ctx context.Context, it *sale.Item, _ Proof) (Reproof, error) {
			if it.ID >= 6000 {
				<-ctx.Done()
				return Reproof{}, ctx.Err()
			}
			return Reproof{Same: true, Next: proof{empty: true, at: time.Now()}}, nil
		}
		g := w.start(t)
		for _, it := range w.items {
			w.say(Notice{Item: it.ID, Flagged: true})
		}
		synctest.Wait()
		for range 50 {
			sleep(100 * time.Millisecond)
			for id := range int64(good) {
				if !g.SoldOut(5000 + id) {
					t.Fatalf("item %d lost its flag", 5000+id)
				}
			}
		}
		for id := range int64(slow) {
			if g.SoldOut(6000 + id) {
				t.Errorf("item %d cannot be read and has kept its flag", 6000+id)
			}
		}
	})
}

// Another number of shards: the proof is of a layout that is no more.
func TestLayoutClears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := w.start(t)
		flagIt(t, w, g)
		w.set(func(it *sale.Item) { it.Shards = 8 })
		must(t, g.Refresh(t.Context()))
		sleep(reproveEvery)
		if g.SoldOut(theItem) {
			t.Error("still set")
		}
	})
}

// After a proof in vain there is a pause, however many requests find nothing.
func TestProofsAreSpaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var proofs atomic.Int64
		w.prove = func(context.Context, *sale.Item) (Proof, error) { proofs.Add(1); return proof{at: time.Now()}, nil }
		g := w.start(t)
		w.noStock()
		for range 10 {
			do(t, g, purchaseOf(w.token(t, "1"))).want(t, 410, "SOLD_OUT")
			synctest.Wait()
		}
		if n := proofs.Load(); n != 1 {
			t.Errorf("%d proofs", n)
		}
		sleep(proofPause)
		do(t, g, purchaseOf(w.token(t, "1"))).want(t, 410, "SOLD_OUT")
		synctest.Wait()
		if n := proofs.Load(); n != 2 {
			t.Errorf("%d proofs after the pause", n)
		}
	})
}
