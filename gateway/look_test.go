package gateway

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"flashgate/internal/sale"
)

// closedWorlds are the two situations in which a winner is looked for.
func closedWorlds(t *testing.T, f func(t *testing.T, w *world, g *Gateway, plain string)) {
	t.Helper()
	t.Run("sold out", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.buyers = []string{"winner"}
			g := w.start(t)
			flagIt(t, w, g)
			f(t, w, g, do(t, g, purchaseOf("")).want(t, 410, "SOLD_OUT").body)
		})
	})
	t.Run("ended", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.buyers = []string{"winner"}
			w.items[0].EndsAt = time.Now().Add(-time.Minute)
			g := w.start(t)
			synctest.Wait()
			f(t, w, g, do(t, g, purchaseOf("")).want(t, 410, "SALE_ENDED").body)
		})
	})
}

func TestWinnerIsTold(t *testing.T) {
	closedWorlds(t, func(t *testing.T, w *world, g *Gateway, _ string) {
		id := sale.NewOrderID(theItem)
		raw, asked := w.token(t, "winner"), w.askedCount()
		with := func(body string, headers ...string) ask {
			a := purchaseOf(raw, headers...)
			a.body = body
			return a
		}
		held := func(where string) {
			for _, c := range []struct {
				ask    ask
				status int
				code   string
			}{
				{with(""), 409, "ALREADY_PURCHASED"},
				{with(`{"quantity":2}`), 409, "ALREADY_PURCHASED"},
				{with("", "Idempotency-Key: other"), 409, "ALREADY_PURCHASED"},
				{with(`{"quantity":2}`, "Idempotency-Key: key"), 202, ""},
				{with("", "Idempotency-Key: key"), 422, "KEY_REUSED"},
				{with("", "Idempotency-Key:"), 400, "BAD_REQUEST"},
				{with(`{"quantity":0}`, "Idempotency-Key: key"), 400, "BAD_REQUEST"},
				{with(`{"quantity":6}`, "Idempotency-Key: key"), 422, "KEY_REUSED"}, // more than anybody may have
				{with(`{"quantity":6}`), 409, "ALREADY_PURCHASED"},
				{with(`{"QUANTITY":2}`, "Idempotency-Key: key"), 400, "BAD_REQUEST"},
			} {
				r := do(t, g, c.ask).want(t, c.status, c.code)
				switch c.status {
				case 202:
					if want := `{"orderId":"` + id.String() + `","status":"PENDING"}`; r.body != want || r.header("Location") != ordersPath+"/"+id.String() {
						t.Errorf("%s: %s, Location %s", where, r.body, r.header("Location"))
					}
				case 409:
					if want := refusal(kindAlreadyPurchased, "you have an order here already", orderIDMember(id)); r.body != string(want.body) {
						t.Errorf("%s: %s", where, r.body)
					}
				}
			}
		}
		w.change(func() { w.marks["winner"] = sale.Mark{OrderID: id, Quantity: 2, KeyHash: sale.HashKey("key")} })
		held("by the mark")

		row := sale.Order{ID: id, ItemID: theItem, UserID: "winner", Quantity: 2, KeyHash: sale.HashKey("key"), Status: sale.Paid}
		w.change(func() { delete(w.marks, "winner"); w.rows[id] = row })
		held("by the row, without a mark")

		w.change(func() {
			w.mark = func(context.Context, *sale.Item, string) (sale.Mark, bool, error) { return sale.Mark{}, false, errDown }
		})
		held("by the row, without Redis")

		w.change(func() {
			w.mark = func(ctx context.Context, _ *sale.Item, _ string) (sale.Mark, bool, error) {
				<-ctx.Done()
				return sale.Mark{}, false, ctx.Err()
			}
			w.reprove = nil
		})
		do(t, g, with("")).want(t, 409, "ALREADY_PURCHASED") // Redis hangs: a third of the time, then the row
		if n := w.askedCount(); n != asked {
			t.Errorf("%d reservations", n-asked)
		}
	})
}

// Nobody but a winner who proves who he is gets other bytes than everybody else.
func TestNobodyElseLearns(t *testing.T) {
	id := sale.NewOrderID(theItem)
	for name, c := range map[string]struct {
		spoil func(w *world)
		token func(t *testing.T, w *world) string
	}{
		"forged":           {token: func(t *testing.T, w *world) string { t.Helper(); return w.forged(t, "winner") }},
		"garbage":          {token: func(*testing.T, *world) string { return "a.eyJzdWIiOiJ3aW5uZXIifQ.c" }}, // {"sub":"winner"}
		"expired":          {token: func(t *testing.T, w *world) string { t.Helper(); return w.expired(t, "winner") }},
		"loser":            {token: func(t *testing.T, w *world) string { t.Helper(); return w.token(t, "loser") }},
		"limited":          {spoil: func(w *world) { w.limited["look"] = time.Second }},
		"ended order":      {spoil: func(w *world) { delete(w.marks, "winner") }},
		"not yet released": {}, // the order has ended, and its mark stands
		"forged, and nothing answers": {token: func(t *testing.T, w *world) string {
			t.Helper()
			w.change(nothingAnswers(w))
			return w.forged(t, "winner")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			closedWorlds(t, func(t *testing.T, w *world, g *Gateway, plain string) {
				w.change(func() {
					w.marks["winner"] = sale.Mark{OrderID: id, Quantity: 1}
					w.rows[id] = sale.Order{ID: id, ItemID: theItem, UserID: "winner", Status: sale.Expired}
					if c.spoil != nil {
						c.spoil(w)
					}
				})
				raw := w.token(t, "winner")
				if c.token != nil {
					raw = c.token(t, w)
				}
				a := purchaseOf(raw, "Idempotency-Key:") // malformed: only a winner is told
				a.body = "]"
				r := do(t, g, a)
				crowd := do(t, g, purchaseOf(""))
				if r.body != plain || r.status != 410 {
					t.Errorf("%d %s, everybody else gets 410 %s", r.status, r.body, plain)
				}
				for _, h := range []string{"Cache-Control", "Retry-After", "WWW-Authenticate", "Content-Type", "Location"} {
					if r.header(h) != crowd.header(h) {
						t.Errorf("%s: %q, everybody else gets %q", h, r.header(h), crowd.header(h))
					}
				}
			})
		})
	}
}

// Too many at once: a winner is told to come again, and the crowd does not pile up. A stranger takes no place and sees nothing of it.
func TestLooksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.buyers = []string{"winner"}
		goOn := make(chan struct{})
		w.mark = func(context.Context, *sale.Item, string) (sale.Mark, bool, error) {
			<-goOn
			return sale.Mark{OrderID: sale.NewOrderID(theItem), Quantity: 1}, true, nil
		}
		g := w.start(t, func(c *Config) { c.MaxLooks = 1 })
		flagIt(t, w, g)
		first := make(chan reply)
		raw := w.token(t, "winner")
		go func() { first <- do(t, g, purchaseOf(raw)) }()
		synctest.Wait()
		checkHeaders(t, do(t, g, purchaseOf(raw)).want(t, 503, "UNAVAILABLE"))
		do(t, g, purchaseOf(w.forged(t, "winner"))).want(t, 410, "SOLD_OUT")
		close(goOn)
		(<-first).want(t, 409, "ALREADY_PURCHASED")
		do(t, g, purchaseOf(raw)).want(t, 409, "ALREADY_PURCHASED")
	})
}

// The layout changed while the flag stood: the mark is read where it is now.
func TestLookFollowsLayout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.buyers = []string{"winner"}
		w.mark = func(_ context.Context, it *sale.Item, _ string) (sale.Mark, bool, error) {
			if it.Shards != 8 {
				return sale.Mark{}, false, ErrWrongLayout
			}
			return sale.Mark{OrderID: sale.NewOrderID(theItem), Quantity: 1}, true, nil
		}
		g := w.start(t)
		flagIt(t, w, g)
		w.set(func(it *sale.Item) { it.Shards = 8 })
		do(t, g, purchaseOf(w.token(t, "winner"))).want(t, 409, "ALREADY_PURCHASED")
	})
}

// Winners of an ended item are known from shortly before the end on, and kept up to date.
func TestLateWinners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.items[0].EndsAt = time.Now().Add(time.Minute - winnersSoon/2)
		var fetches atomic.Int64
		w.fetch = func(_ context.Context, yield func(string)) error {
			fetches.Add(1)
			w.change(func() {
				for user := range w.marks {
					yield(user)
				}
			})
			return nil
		}
		g := w.start(t)
		sleep(30 * time.Second)
		if n := fetches.Load(); n != 0 {
			t.Fatalf("%d fetches half a minute before the end", n)
		}
		win := func(user string) {
			w.change(func() { w.marks[user] = sale.Mark{OrderID: sale.NewOrderID(theItem), Quantity: 1} })
		}
		win("early")
		sleep(30*time.Second - winnersSoon/2)
		if known, _ := g.entryOf(theItem).endedWinners(); known == nil {
			t.Error("at the end nobody knows the winners: a crowd beyond what can be looked at would be told nothing")
		}
		do(t, g, purchaseOf(w.token(t, "early"))).want(t, 409, "ALREADY_PURCHASED")
		win("late") // reserved before the end, written down after it
		do(t, g, purchaseOf(w.token(t, "late"))).want(t, 409, "ALREADY_PURCHASED")
		do(t, g, purchaseOf(w.token(t, "loser"))).want(t, 410, "SALE_ENDED")
		// A crowd fills every place. Who is not known to have won is told what is right for nearly everybody.
		for range cap(g.looks) {
			g.looks <- struct{}{}
		}
		do(t, g, purchaseOf(w.token(t, "loser"))).want(t, 410, "SALE_ENDED")
		do(t, g, purchaseOf(w.token(t, "early"))).want(t, 503, "UNAVAILABLE")
		for range cap(g.looks) {
			<-g.looks
		}
		sleep(winnersSoon)
		do(t, g, purchaseOf(w.token(t, "late"))).want(t, 409, "ALREADY_PURCHASED")
		do(t, g, purchaseOf(w.token(t, "loser"))).want(t, 410, "SALE_ENDED")
		sleep(winnersSettle)
		sleep(2 * winnersSoon)
		before := fetches.Load()
		sleep(5 * time.Minute)
		if n := fetches.Load() - before; n != 0 {
			t.Errorf("%d fetches in five minutes long after the end, when nobody can win any more", n)
		}
		// The sale is extended, and ends again: those who won in between are winners.
		w.set(func(it *sale.Item) { it.EndsAt = time.Now().Add(time.Minute) })
		must(t, g.Refresh(t.Context()))
		win("extended")
		sleep(time.Minute - time.Second)
		win("last")
		sleep(time.Second)
		do(t, g, purchaseOf(w.token(t, "extended"))).want(t, 409, "ALREADY_PURCHASED")
		do(t, g, purchaseOf(w.token(t, "last"))).want(t, 409, "ALREADY_PURCHASED")
		// It goes on and is ended at once, and the winners of this end cannot be fetched: those of the end before are not all of them.
		w.set(func(it *sale.Item) { it.EndsAt = time.Now().Add(time.Minute) })
		must(t, g.Refresh(t.Context()))
		w.change(func() { w.fetch = func(context.Context, func(string)) error { return errors.New("away") } })
		win("again")
		w.set(func(it *sale.Item) { it.EndsAt = time.Now() })
		must(t, g.Refresh(t.Context()))
		for range 10 {
			do(t, g, purchaseOf(w.token(t, "again"))).want(t, 409, "ALREADY_PURCHASED")
			sleep(winnersSoon)
		}
		w.set(func(it *sale.Item) { it.RetiredAt = time.Now() })
		must(t, g.Refresh(t.Context()))
		do(t, g, purchaseOf(w.token(t, "early"))).want(t, 410, "SALE_ENDED")
		before = fetches.Load()
		sleep(5 * time.Minute)
		if fetches.Load() != before {
			t.Error("fetched the winners of a retired item")
		}
	})
}

// After the end a buyer is told of his order until the item is retired; from then on he gets what everybody gets, and finds his order by
// asking for it. A gateway that starts only then says the same. None of it asks Redis, where nothing of the item is left.
func TestRetiredItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.items[0].EndsAt = time.Now().Add(-time.Minute)
		w.buyers = []string{"winner"}
		id := sale.NewOrderID(theItem)
		row := pendingRow(id, "winner")
		row.Status, row.KeyHash = sale.Paid, sale.HashKey("key")
		w.rows[id], w.marks["winner"] = row, sale.Mark{OrderID: id, Quantity: 2, KeyHash: row.KeyHash}
		g := w.start(t)
		synctest.Wait()
		again := purchaseOf(w.token(t, "winner"), "Idempotency-Key: key")
		again.body = `{"quantity":2}`
		do(t, g, again).want(t, 202, "")
		do(t, g, purchaseOf(w.token(t, "winner"))).want(t, 409, "ALREADY_PURCHASED")
		w.set(func(it *sale.Item) { it.RetiredAt = time.Now() })
		w.change(func() {
			delete(w.marks, "winner")
			w.mark = func(context.Context, *sale.Item, string) (sale.Mark, bool, error) {
				t.Error("Redis was asked for a mark of a retired item")
				return sale.Mark{}, false, errNotLoaded
			}
			w.fetch = func(context.Context, func(string)) error {
				t.Error("Redis was asked for the buyers of a retired item")
				return errNotLoaded
			}
		})
		must(t, g.Refresh(t.Context()))
		for _, g := range []*Gateway{g, w.beside(t).start(t)} {
			synctest.Wait()
			plain := do(t, g, purchaseOf("")).want(t, 410, "SALE_ENDED").body
			for _, a := range []ask{again, purchaseOf(w.token(t, "winner")), purchaseOf(w.token(t, "loser"))} {
				if r := do(t, g, a).want(t, 410, "SALE_ENDED"); r.body != plain {
					t.Errorf("%s, everybody else gets %s", r.body, plain)
				}
			}
			for _, path := range []string{orderPath(id), ordersPath + "?itemId=1001"} {
				if r := do(t, g, ask{method: "GET", path: path, token: w.token(t, "winner")}).want(t, 200, ""); !strings.Contains(r.body, `"status":"PAID"`) {
					t.Errorf("%s: %s", path, r.body)
				}
			}
		}
	})
}

// While the winners of an ended item are not known, everybody with a token may be one.
func TestUnknownLateWinners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.items[0].EndsAt = time.Now().Add(-time.Minute)
		w.fetch = func(context.Context, func(string)) error { return errDown }
		id := sale.NewOrderID(theItem)
		w.rows[id] = sale.Order{ID: id, ItemID: theItem, UserID: "winner", Quantity: 1, Status: sale.Pending}
		g := w.start(t)
		synctest.Wait()
		do(t, g, purchaseOf(w.token(t, "winner"))).want(t, 409, "ALREADY_PURCHASED")
		do(t, g, purchaseOf(w.token(t, "loser"))).want(t, 410, "SALE_ENDED")
		do(t, g, purchaseOf(w.forged(t, "winner"))).want(t, 410, "SALE_ENDED")
		do(t, g, purchaseOf("")).want(t, 410, "SALE_ENDED")
	})
}

// The flag of an item that ends is dropped: its winners are the other loop's business.
func TestEndClearsFlag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.items[0].EndsAt = time.Now().Add(10 * time.Second)
		g := w.start(t)
		flagIt(t, w, g)
		sleep(11 * time.Second)
		if g.flagged() != 0 {
			t.Error("still set")
		}
		do(t, g, purchaseOf("")).want(t, 410, "SALE_ENDED")
	})
}

func TestWinnerSet(t *testing.T) {
	g := &Gateway{ports: Ports{Zero: &world{buyers: []string{"b", "a", "c", "a"}}}}
	set, epoch, err := g.fetchWinners(t.Context(), &sale.Item{Epoch: 7})
	must(t, err)
	if len(set.hashes) != 3 || epoch != 7 {
		t.Errorf("%d hashes of epoch %d", len(set.hashes), epoch)
	}
	for _, user := range []string{"a", "b", "c"} {
		if !set.has(sale.HashUser(user)) {
			t.Errorf("%s is missing", user)
		}
	}
	if set.has(sale.HashUser("d")) || noWinners.has(0) || !noWinners.empty() || set.empty() {
		t.Error("somebody is in a set who is not")
	}
	var unknown *winnerSet
	if !unknown.has(1) || unknown.empty() {
		t.Error("a set that is not known excludes somebody")
	}
}
