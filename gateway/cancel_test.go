package gateway

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"flashgate/internal/sale"
)

func TestCancel(t *testing.T) {
	id := sale.NewOrderID(theItem)
	row := func(status sale.OrderStatus, user string) func(*world) {
		return func(w *world) {
			o := pendingRow(id, user)
			o.Status = status
			w.rows[id] = o
		}
	}
	for name, c := range map[string]struct {
		prepare func(*world)
		status  int
		code    string
		says    string
		calls   []string
	}{
		"pending":         {row(sale.Pending, "u"), 200, "", `"status":"CANCELLED","payable":false`, []string{"row"}},
		"again":           {row(sale.Cancelled, "u"), 200, "", `"status":"CANCELLED","payable":false`, []string{"row"}},
		"paid":            {row(sale.Paid, "u"), 409, "NOT_CANCELLABLE", `"status":"PAID"`, []string{"row"}},
		"expired":         {row(sale.Expired, "u"), 409, "NOT_CANCELLABLE", `"status":"EXPIRED"`, []string{"row"}},
		"rejected":        {row(sale.Rejected, "u"), 409, "NOT_CANCELLABLE", `"status":"REJECTED"`, []string{"row"}},
		"somebody else's": {row(sale.Pending, "v"), 404, "NOT_FOUND", "", []string{"row", "row"}},
		"unknown":         {func(*world) {}, 404, "NOT_FOUND", "", []string{"row", "row"}},
		"not yet written": {func(w *world) { w.marks["u"] = markOf(id) }, 200, "", `"status":"CANCELLED"`, []string{"row", "unwritten"}},
		"another reservation": {func(w *world) { w.marks["u"] = markOf(sale.NewOrderID(theItem)) }, 404, "NOT_FOUND", "",
			[]string{"row", "row"}},
		"no database": {func(w *world) {
			w.cancel = func(context.Context, sale.OrderID, string) (sale.Order, Cancellation, error) {
				return sale.Order{}, CancelMissing, errDown
			}
		}, 503, "UNAVAILABLE", "", []string{"row"}},
		"database lost in between": {func(w *world) {
			w.marks["u"] = markOf(id)
			w.cancelUnwritten = func(context.Context, sale.Event) (sale.Order, Cancellation, error) {
				return sale.Order{}, CancelMissing, errDown
			}
		}, 503, "UNAVAILABLE", "", []string{"row", "unwritten"}},
		"no Redis, no row": {func(w *world) {
			w.mark = func(context.Context, *sale.Item, string) (sale.Mark, bool, error) { return sale.Mark{}, false, errDown }
		}, 503, "UNAVAILABLE", "", []string{"row"}},
		// The consumer was faster: there is a row by now, which is cancelled.
		"written in between": {func(w *world) {
			w.marks["u"] = markOf(id)
			w.cancelUnwritten = func(context.Context, sale.Event) (sale.Order, Cancellation, error) {
				w.change(func() { row(sale.Pending, "u")(w) })
				return sale.Order{}, CancelMissing, nil
			}
		}, 200, "", `"status":"CANCELLED"`, []string{"row", "unwritten", "row"}},
		// Written, expired and released between the first two steps.
		"ended in between": {func(w *world) {
			w.mark = func(context.Context, *sale.Item, string) (sale.Mark, bool, error) {
				w.change(func() { row(sale.Expired, "u")(w) })
				return sale.Mark{}, false, nil
			}
		}, 409, "NOT_CANCELLABLE", `"status":"EXPIRED"`, []string{"row", "row"}},
		"never settles": {func(w *world) {
			w.marks["u"] = markOf(id)
			w.cancelUnwritten = func(context.Context, sale.Event) (sale.Order, Cancellation, error) {
				return sale.Order{}, CancelMissing, nil
			}
		}, 503, "UNAVAILABLE", "", []string{"row", "unwritten", "row", "unwritten", "row", "unwritten"}},
		"hangs": {func(w *world) {
			w.cancel = func(ctx context.Context, _ sale.OrderID, _ string) (sale.Order, Cancellation, error) {
				<-ctx.Done()
				time.Sleep(time.Minute) // and longer than its context
				return sale.Order{}, Cancelled, nil
			}
		}, 503, "UNAVAILABLE", "", []string{"row"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				c.prepare(w)
				g := w.start(t)
				began := time.Now()
				r := do(t, g, ask{method: "DELETE", path: orderPath(id), token: w.token(t, "u")}).want(t, c.status, c.code)
				if time.Since(began) > 3*time.Second {
					t.Errorf("took %v", time.Since(began))
				}
				sleep(time.Minute) // what hangs comes to its end
				if !strings.Contains(r.body, c.says) {
					t.Errorf("body %s, want %s in it", r.body, c.says)
				}
				if c.code != "" {
					checkHeaders(t, r)
				}
				w.mu.Lock()
				defer w.mu.Unlock()
				if !slices.Equal(w.cancelled, c.calls) {
					t.Errorf("calls %v, want %v", w.cancelled, c.calls)
				}
			})
		})
	}
}

// The event that is written in the consumer's stead is the one that the consumer would have written.
func TestCancelUnwrittenEvent(t *testing.T) {
	w := newWorld(t)
	id := sale.NewOrderID(theItem)
	w.marks["77"] = markOf(id)
	var got sale.Event
	w.cancelUnwritten = func(_ context.Context, event sale.Event) (sale.Order, Cancellation, error) {
		got = event
		return sale.Order{ID: event.OrderID, Status: sale.Cancelled}, Cancelled, nil
	}
	do(t, w.start(t), ask{method: "DELETE", path: orderPath(id), token: w.token(t, "77")}).want(t, 200, "")
	want := sale.Event{
		OrderID: id, ItemID: theItem, UserID: "77", Quantity: 2, Shard: 1, Epoch: 7, ReservedAt: reservedAt, Price: "19.80", Currency: "EUR", KeyHash: "abc",
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A buyer who has cancelled can buy again at once: the answer waits for his mark to go, but not for ever.
func TestCancelAwaitsRelease(t *testing.T) {
	for name, c := range map[string]struct{ released, most time.Duration }{
		"released":   {30 * time.Millisecond, 100 * time.Millisecond},
		"hanging on": {time.Hour, releaseWait},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				id := sale.NewOrderID(theItem)
				w.rows[id], w.marks["u"] = pendingRow(id, "u"), markOf(id)
				g := w.start(t)
				began := time.Now()
				time.AfterFunc(c.released, func() { w.change(func() { delete(w.marks, "u") }) })
				do(t, g, ask{method: "DELETE", path: orderPath(id), token: w.token(t, "u")}).want(t, 200, "")
				if took := time.Since(began); took < min(c.released, c.most) || took > c.most {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

// Of a retired item Redis holds nothing, which reads like stock that is being loaded. An order that has no row does not exist.
func TestCancelOfARetiredItem(t *testing.T) {
	w := newWorld(t)
	w.items[0].RetiredAt = time.Now()
	w.mark = func(context.Context, *sale.Item, string) (sale.Mark, bool, error) {
		return sale.Mark{}, false, errNotLoaded
	}
	do(t, w.start(t), ask{method: "DELETE", path: orderPath(sale.NewOrderID(theItem)), token: w.token(t, "u")}).want(t, 404, "NOT_FOUND")
}
