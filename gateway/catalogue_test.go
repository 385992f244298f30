package gateway

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"flashgate/internal/sale"
)

// A new sale is known a second later by itself, at once after news, and before Refresh returns.
func TestCatalogueIsReadAgain(t *testing.T) {
	for name, wake := range map[string]func(t *testing.T, w *world, g *Gateway){
		"by the clock": func(*testing.T, *world, *Gateway) { sleep(time.Second) },
		"by news":      func(_ *testing.T, w *world, _ *Gateway) { w.news(); w.news(); synctest.Wait() },
		"by Refresh":   func(t *testing.T, _ *world, g *Gateway) { t.Helper(); must(t, g.Refresh(t.Context())) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				g := w.start(t)
				do(t, g, ask{method: "POST", path: "/api/flash-sales/items/2002/purchase"}).want(t, 404, "NOT_FOUND")
				w.change(func() { w.items = append(w.items, onSale(2002, time.Now())) })
				synctest.Wait()
				wake(t, w, g)
				do(t, g, ask{method: "POST", path: "/api/flash-sales/items/2002/purchase", token: w.token(t, "1")}).want(t, 202, "")
			})
		})
	}
}

// A reading that had begun before Refresh was called may have been too early: Refresh waits for the next one.
func TestRefreshReadsAfterTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := w.start(t)
		var readings atomic.Int64
		goOn := make(chan struct{}, 2)
		w.change(func() {
			w.catalogue = func(context.Context) ([]sale.Item, error) {
				w.mu.Lock()
				items := append([]sale.Item(nil), w.items...) // read, and on its way
				w.mu.Unlock()
				readings.Add(1)
				<-goOn
				return items, nil
			}
		})
		w.news()
		synctest.Wait() // a reading has begun
		w.change(func() { w.items = append(w.items, onSale(2002, time.Now())) })
		done := make(chan error, 2)
		for range 2 {
			go func() { done <- g.Refresh(t.Context()) }()
		}
		synctest.Wait()
		goOn <- struct{}{}
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("Refresh took a reading that had begun before it: %v", err)
		default:
		}
		if g.entryOf(2002) != nil {
			t.Fatal("known too early: the test tests nothing")
		}
		goOn <- struct{}{}
		for range 2 {
			must(t, <-done)
		}
		if g.entryOf(2002) == nil {
			t.Error("the new item is not known")
		}
		if n := readings.Load(); n != 2 {
			t.Errorf("%d readings, want one for both callers", n)
		}
	})
}

func TestRefreshGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.catalogue = func(ctx context.Context) ([]sale.Item, error) { <-ctx.Done(); return nil, ctx.Err() }
		g, err := open(Config{}, w.ports())
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.Refresh(ctx); err == nil { // not started: nobody reads
			t.Error("no error from a gateway that does not run")
		}
		began := time.Now()
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.Start(ctx); err == nil || time.Since(began) != time.Second {
			t.Errorf("Start: %v after %v", err, time.Since(began))
		}
		must(t, g.Shutdown(t.Context()))
		if err := g.Refresh(t.Context()); err == nil || !strings.Contains(err.Error(), "stopped") {
			t.Errorf("Refresh after Shutdown: %v", err)
		}
	})
}

// The database goes away: the last catalogue stays in use, and after a while operators are told. Shoppers are still sent here: units are sold.
func TestCatalogueWithoutDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := w.start(t)
		ready := func() int { return do(t, g, ask{method: "GET", path: "/readyz"}).status }
		if ready() != 200 {
			t.Fatal("not ready")
		}
		w.change(func() { w.catalogue = func(context.Context) ([]sale.Item, error) { return nil, errDown } })
		sleep(10 * time.Second)
		if ready() != 200 {
			t.Error("not ready after ten seconds without the database")
		}
		sleep(10 * time.Second)
		do(t, g, purchaseOf(w.token(t, "1"))).want(t, 202, "")
		if err := g.Check(t.Context()); err == nil || ready() != 200 {
			t.Errorf("Check: %v, ready: %d", err, ready())
		}
		w.change(func() { w.catalogue = nil })
		sleep(2 * time.Second)
		if err := g.Check(t.Context()); err != nil {
			t.Errorf("Check after the database came back: %v", err)
		}
		w.change(func() { w.unready = true })
		if ready() != 503 {
			t.Error("ready although something else is missing")
		}
	})
}

// What the gateway knows of an item survives a new reading; what the reading says is new.
func TestRuntimeSurvives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := w.start(t)
		flagIt(t, w, g)
		w.set(func(it *sale.Item) { it.MaxPerUser = 2 })
		must(t, g.Refresh(t.Context()))
		if !g.SoldOut(theItem) || g.entryOf(theItem).item.MaxPerUser != 2 {
			t.Error("lost the flag, or did not see the change")
		}
		w.change(func() { w.items = nil })
		must(t, g.Refresh(t.Context()))
		do(t, g, purchaseOf("")).want(t, 404, "NOT_FOUND")
	})
}

// A watch or a subscription that gives up is made again.
func TestBrokenWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.ports()
		broken := &brokenWatches{world: w}
		p.Source, p.Notices = broken, broken
		g, err := open(Config{}, p)
		must(t, err)
		must(t, g.Start(t.Context()))
		sleep(3 * resubscribe)
		if broken.watches.Load() < 3 || broken.subscriptions.Load() < 3 {
			t.Errorf("%d watches, %d subscriptions", broken.watches.Load(), broken.subscriptions.Load())
		}
		must(t, g.Shutdown(t.Context()))
	})
}

type brokenWatches struct {
	*world
	watches, subscriptions atomic.Int64
}

func (b *brokenWatches) Watch(context.Context, func()) error { b.watches.Add(1); return errDown }
func (b *brokenWatches) Subscribe(context.Context, func(Notice)) error {
	b.subscriptions.Add(1)
	return errDown
}

func TestReadItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock starts at midnight UTC 2000-01-01
		w := newWorld(t)
		g := w.start(t)
		get := func() reply { return do(t, g, ask{method: "GET", path: "/api/flash-sales/items/1001"}) }
		body := func(status, now string) string {
			return `{"itemId":1001,"saleId":1,"status":"` + status + `","startsAt":"1999-12-31T23:00:00.000Z","endsAt":"2000-01-01T01:00:00.000Z",` +
				`"price":"1980","currency":"JPY","maxPerUser":5,"serverTime":"` + now + `"}`
		}
		r := get().want(t, 200, "")
		if want := body("ON_SALE", "2000-01-01T00:00:00.000Z"); r.body != want {
			t.Errorf("got %s, want %s", r.body, want)
		}
		if r.header("Cache-Control") != "public, max-age=1" || r.header("Content-Type") != "application/json" {
			t.Errorf("Cache-Control %q, Content-Type %q", r.header("Cache-Control"), r.header("Content-Type"))
		}
		flagIt(t, w, g)
		sleep(1500 * time.Millisecond)
		if r := get(); r.body != body("SOLD_OUT", "2000-01-01T00:00:01.500Z") {
			t.Errorf("got %s", r.body)
		}
		w.set(func(it *sale.Item) { it.Paused = true })
		must(t, g.Refresh(t.Context()))
		if r := get(); r.body != body("PAUSED", "2000-01-01T00:00:01.500Z") {
			t.Errorf("got %s", r.body)
		}
		w.set(func(it *sale.Item) { it.Paused = false })
		sleep(time.Hour)
		if r := get(); r.body != body("ENDED", "2000-01-01T01:00:01.500Z") {
			t.Errorf("got %s", r.body)
		}
		w.set(func(it *sale.Item) { it.StartsAt, it.EndsAt = it.StartsAt.AddDate(1, 0, 0), it.EndsAt.AddDate(1, 0, 0) })
		must(t, g.Refresh(t.Context()))
		if r := get(); !strings.Contains(r.body, `"status":"UPCOMING"`) {
			t.Errorf("got %s", r.body)
		}
		checkHeaders(t, do(t, g, ask{method: "GET", path: "/api/flash-sales/items/0"}).want(t, 400, "BAD_REQUEST"))
		checkHeaders(t, do(t, g, ask{method: "GET", path: "/api/flash-sales/items/2"}).want(t, 404, "NOT_FOUND"))
		checkHeaders(t, do(t, g, ask{method: "GET", path: "/api/flash-sales/items/9007199254740992"}).want(t, 400, "BAD_REQUEST"))
		if r := do(t, g, ask{method: "HEAD", path: "/api/flash-sales/items/1001"}); r.status != 200 {
			t.Errorf("HEAD: %d", r.status)
		}
	})
}
