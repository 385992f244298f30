package gateway

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"flashgate/internal/sale"
)

// answersAfter lets the database answer every look-up of an order after d.
func (w *world) answersAfter(d time.Duration) {
	wait := func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	plain := &world{rows: w.rows}
	w.change(func() {
		w.row = func(ctx context.Context, id sale.OrderID) (sale.Order, bool, error) {
			if err := wait(ctx); err != nil {
				return sale.Order{}, false, err
			}
			return plain.Order(ctx, id)
		}
		w.live = func(ctx context.Context, item int64, user string) (sale.Order, bool, error) {
			if err := wait(ctx); err != nil {
				return sale.Order{}, false, err
			}
			return plain.LiveOrder(ctx, item, user)
		}
	})
}

// freezes lets the database say nothing any more.
func (w *world) freezes() {
	w.answersAfter(time.Hour)
	w.change(func() {
		w.catalogue = func(ctx context.Context) ([]sale.Item, error) { <-ctx.Done(); return nil, ctx.Err() }
	})
}

// A frozen database is one that is away: the mark is what is known, and it is said while the client still waits. A slow one is waited for:
// by its row the order may be paid or have ended, which a mark does not say.
func TestDatabaseThatTakesLong(t *testing.T) {
	id := sale.NewOrderID(theItem)
	frozen := func(w *world) { w.freezes() }
	takes := func(d time.Duration) func(*world) { return func(w *world) { w.answersAfter(d) } }
	row := func(status sale.OrderStatus) func(*world) {
		return func(w *world) {
			o := pendingRow(id, "u")
			o.Status = status
			w.rows[id] = o
		}
	}
	nothing := func(*world) {}
	const third, silence = time.Second, 2 * time.Second
	for name, c := range map[string]struct {
		database func(*world)
		marked   bool
		row      func(*world)
		says     string // of the order by its id: its status, or an error code
		byItem   string // of the order of the item; "" for the same
		within   time.Duration
	}{
		"frozen, a mark":                      {frozen, true, nothing, "PENDING", "", silence},
		"frozen, a mark of an order with row": {frozen, true, row(sale.Paid), "PENDING", "", silence}, // as without a database: nobody can know
		"frozen, no mark":                     {frozen, false, nothing, "UNAVAILABLE", "", 3 * time.Second},
		"slow, paid":                          {takes(1500 * time.Millisecond), true, row(sale.Paid), "PAID", "", 1500 * time.Millisecond},
		"slow, cancelled":                     {takes(1200 * time.Millisecond), true, row(sale.Cancelled), "CANCELLED", "NOT_FOUND", 3 * time.Second},
		"slow, not yet written":               {takes(1200 * time.Millisecond), true, nothing, "PENDING", "", 3 * time.Second},
		"slow, nothing there":                 {takes(1200 * time.Millisecond), false, nothing, "NOT_FOUND", "", 3 * time.Second},
		"slow, paid and released":             {takes(1500 * time.Millisecond), false, row(sale.Paid), "PAID", "", 1500 * time.Millisecond},
		"too slow":                            {takes(4 * time.Second), true, row(sale.Paid), "UNAVAILABLE", "", 3 * time.Second},
		"nearly too slow for one":             {takes(999 * time.Millisecond), true, row(sale.Paid), "PAID", "", third},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				if c.marked {
					w.marks["u"] = markOf(id)
				}
				c.row(w)
				g := w.start(t)
				sleep(300 * time.Millisecond) // not in step with the readings of the catalogue
				c.database(w)
				if c.byItem == "" {
					c.byItem = c.says
				}
				for path, says := range map[string]string{orderPath(id): c.says, ordersPath + "?itemId=1001": c.byItem} {
					began := time.Now()
					r := do(t, g, ask{method: "GET", path: path, token: w.token(t, "u")})
					if !strings.Contains(r.body, `"status":"`+says+`"`) && !strings.HasPrefix(r.body, `{"error":"`+says+`"`) {
						t.Errorf("%s: %d %s, want %s", path, r.status, r.body, says)
					}
					if says == "PENDING" && !strings.Contains(r.body, `"payable":false`) {
						t.Errorf("%s: payable: %s", path, r.body)
					}
					if took := time.Since(began); took > c.within {
						t.Errorf("%s: took %v, want at most %v", path, took, c.within)
					}
				}
			})
		})
	}
}

// With little time for a request, a database that is merely slow, and that nobody else happens to ask meanwhile, is waited for; one that
// has been silent for two readings of the catalogue is away, and from then on the mark is said in the time that there is.
func TestLittleTimeForTheDatabase(t *testing.T) {
	const timeout = 600 * time.Millisecond
	id := sale.NewOrderID(theItem)
	start := func(t *testing.T) (*world, func(says string, within time.Duration)) {
		t.Helper()
		w := newWorld(t)
		o := pendingRow(id, "u")
		o.Status = sale.Paid
		w.marks["u"], w.rows[id] = markOf(id), o
		g := w.start(t, func(c *Config) { c.RequestTimeout = timeout })
		return w, func(says string, within time.Duration) {
			t.Helper()
			for _, path := range []string{orderPath(id), ordersPath + "?itemId=1001"} {
				began := time.Now()
				r := do(t, g, ask{method: "GET", path: path, token: w.token(t, "u")})
				if !strings.Contains(r.body, `"status":"`+says+`"`) && !strings.HasPrefix(r.body, `{"error":"`+says+`"`) {
					t.Errorf("%s: %d %s, want %s", path, r.status, r.body, says)
				}
				if took := time.Since(began); took > within {
					t.Errorf("%s: took %v, want at most %v", path, took, within)
				}
			}
		}
	}
	t.Run("slow", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, look := start(t)
			w.answersAfter(400 * time.Millisecond)
			for range 5 { // at every distance from the readings of the catalogue
				look("PAID", 400*time.Millisecond)
				sleep(330 * time.Millisecond)
			}
		})
	})
	t.Run("slow, and its catalogue as well", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, look := start(t)
			w.answersAfter(400 * time.Millisecond)
			items := w.items
			w.change(func() {
				w.catalogue = func(context.Context) ([]sale.Item, error) { time.Sleep(900 * time.Millisecond); return items, nil }
			})
			for range 5 {
				sleep(930 * time.Millisecond)
				look("PAID", 400*time.Millisecond)
			}
		})
	})
	t.Run("frozen", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, look := start(t)
			w.freezes()
			look("UNAVAILABLE", timeout)
			sleep(2 * time.Second)
			look("PENDING", timeout/3)
			w.change(func() { w.row, w.live, w.catalogue = nil, nil, nil })
			look("PAID", 0)
		})
	})
	t.Run("slow, and given up by itself", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, look := start(t)
			gaveUp := func(ctx context.Context) error {
				ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
				defer cancel()
				<-ctx.Done()
				return ctx.Err()
			}
			w.change(func() {
				w.row = func(ctx context.Context, _ sale.OrderID) (sale.Order, bool, error) {
					return sale.Order{}, false, gaveUp(ctx)
				}
				w.live = func(ctx context.Context, _ int64, _ string) (sale.Order, bool, error) {
					return sale.Order{}, false, gaveUp(ctx)
				}
			})
			look("UNAVAILABLE", timeout)
		})
	})
	t.Run("down", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, look := start(t)
			w.change(nothingAnswers(w))
			w.change(func() { w.mark = nil })
			look("PENDING", 0) // it has said so
		})
	})
}

// The database thaws while a look-up is under way: the row is there, and nobody has to do with the mark.
func TestDatabaseThaws(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		id := sale.NewOrderID(theItem)
		o := pendingRow(id, "u")
		o.Status = sale.Paid
		w.marks["u"], w.rows[id] = markOf(id), o
		g := w.start(t)
		w.freezes()
		w.change(func() {
			w.mark = func(context.Context, *sale.Item, string) (sale.Mark, bool, error) {
				time.Sleep(600 * time.Millisecond)
				return markOf(id), true, nil
			}
			w.row = func(ctx context.Context, _ sale.OrderID) (sale.Order, bool, error) {
				time.Sleep(1500 * time.Millisecond)
				return o, true, nil
			}
		})
		r := do(t, g, ask{method: "GET", path: orderPath(id), token: w.token(t, "u")}).want(t, 200, "")
		if !strings.Contains(r.body, `"status":"PAID"`) {
			t.Errorf("body %s", r.body)
		}
	})
}

// The item is in no catalogue, and the database slow: its row alone can tell.
func TestSlowDatabaseAndNoSuchItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		id := sale.NewOrderID(4711)
		w.rows[id] = pendingRow(id, "u")
		g := w.start(t)
		w.answersAfter(1500 * time.Millisecond)
		do(t, g, ask{method: "GET", path: orderPath(id), token: w.token(t, "u")}).want(t, 200, "")
	})
}
