package gateway

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"flashgate/internal/sale"
)

// lost is a Redis without the item, and a load that gives it back with another epoch.
func (w *world) lost() func() {
	return func() {
		unknown := errors.Join(ErrUnknownStock, errDown)
		w.fetch = func(context.Context, func(string)) error { return unknown }
		w.mark = func(context.Context, *sale.Item, string) (sale.Mark, bool, error) { return sale.Mark{}, false, unknown }
	}
}

func (w *world) found() func() { return func() { w.fetch, w.mark = nil, nil } }

// win gives a user a mark, of the load that Redis has.
func (w *world) win(user string) {
	w.change(func() {
		w.buyers = append(w.buyers, user)
		w.marks[user] = sale.Mark{OrderID: sale.NewOrderID(theItem), Quantity: 1}
	})
}

// A gateway that starts while Redis has lost an ended item learns nothing from that: nobody's order is denied, before the load and behind it.
func TestLateWinnersOfALostStock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.items[0].EndsAt = time.Now().Add(-time.Hour)
		w.change(w.lost())
		g := w.start(t, func(c *Config) { c.CatalogueEvery = 30 * time.Second })
		synctest.Wait()
		as := func(user string, status int, code string) {
			t.Helper()
			do(t, g, purchaseOf(w.token(t, user))).want(t, status, code)
		}
		for range 3 {
			as("winner", 503, "UNAVAILABLE") // his order may have no row yet
			as("loser", 503, "UNAVAILABLE")  // nobody can tell him from a winner
			do(t, g, purchaseOf("")).want(t, 410, "SALE_ENDED")
			do(t, g, purchaseOf(w.forged(t, "winner"))).want(t, 410, "SALE_ENDED")
			sleep(winnersSoon)
		}
		// The load is through, and this gateway has not read of it: it is another load than the item's, as far as it knows.
		w.win("winner")
		w.set(func(it *sale.Item) { it.Epoch = 8 })
		w.change(func() { w.found()(); w.loaded = 8 })
		sleep(winnersSoon)
		if set, complete := g.entryOf(theItem).endedWinners(); set != nil || complete {
			t.Error("took the buyers of a load that it does not know of")
		}
		as("winner", 409, "ALREADY_PURCHASED")
		must(t, g.Refresh(t.Context()))
		sleep(winnersSoon)
		if _, complete := g.entryOf(theItem).endedWinners(); !complete {
			t.Error("the winners are still unknown")
		}
		as("winner", 409, "ALREADY_PURCHASED")
		as("loser", 410, "SALE_ENDED")
	})
}

// A load may bring back who was lost before the winners were fetched: whoever repaired the item did so for their sake.
func TestLateWinnersOfAnEarlierLoad(t *testing.T) {
	for name, c := range map[string]struct {
		load   func(*sale.Item)
		loaded int64
	}{
		"repaired":         {func(it *sale.Item) { it.Epoch = 8 }, 8},
		"another layout":   {func(it *sale.Item) { it.Epoch, it.Shards = 8, 5 }, 8},
		"the layout alone": {func(it *sale.Item) { it.Shards = 5 }, 7},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.items[0].EndsAt = time.Now().Add(-time.Hour)
				w.win("winner")
				g := w.start(t)
				synctest.Wait()
				as := func(user string, status int, code string) {
					t.Helper()
					do(t, g, purchaseOf(w.token(t, user))).want(t, status, code)
				}
				as("winner", 409, "ALREADY_PURCHASED")
				as("repaired", 410, "SALE_ENDED")
				// The snapshot is taken, and its marks are yet to be written.
				w.set(c.load)
				w.change(w.lost())
				must(t, g.Refresh(t.Context()))
				for range 3 {
					as("winner", 503, "UNAVAILABLE")
					as("repaired", 503, "UNAVAILABLE")
					sleep(winnersSoon)
				}
				w.win("repaired")
				w.change(func() { w.found()(); w.loaded = c.loaded })
				as("repaired", 409, "ALREADY_PURCHASED") // not fetched yet
				sleep(winnersSoon)
				as("repaired", 409, "ALREADY_PURCHASED")
				as("winner", 409, "ALREADY_PURCHASED")
				as("loser", 410, "SALE_ENDED")
				if set, complete := g.entryOf(theItem).endedWinners(); !complete || !set.has(sale.HashUser("repaired")) {
					t.Error("the winners of the last load are not known")
				}
			})
		})
	}
}
