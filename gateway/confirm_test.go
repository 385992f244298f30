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

// After the record deadline an acknowledgement is worth nothing: a load may have counted the unit as free by then, and the event that has arrived is
// rejected. An own reservation that was in Kafka when it was met has nothing to fear from the time that this request takes.
func TestAcknowledgedTooLate(t *testing.T) {
	for name, c := range map[string]struct {
		outcome sale.Outcome
		known   bool          // acknowledged when the reservation returns
		late    time.Duration // the process stands still for so long after the reservation, and the acknowledgement is there when it goes on
		status  int
	}{
		"in time":                             {sale.Reserved, true, 0, 202},
		"in time, in the end":                 {sale.Reserved, true, 1900 * time.Millisecond, 202},
		"too late":                            {sale.Reserved, true, 2100 * time.Millisecond, 503},
		"seen too late":                       {sale.Reserved, false, time.Minute, 503},
		"own, published again, in time":       {sale.Own, false, time.Second, 202},
		"own, published again, seen too late": {sale.Own, false, time.Minute, 503},
		"own, in Kafka before":                {sale.Own, true, time.Minute, 202},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var still atomic.Int64
				w.reserve = func(_ context.Context, _ *sale.Item, q sale.Request) sale.Result {
					acked := make(chan struct{})
					stand := func() {
						still.Store(int64(c.late))
						close(acked)
					}
					if c.known {
						stand()
					} else {
						time.AfterFunc(50*time.Millisecond, stand)
					}
					return sale.Result{Outcome: c.outcome, OrderID: q.OrderID, Acked: acked}
				}
				g := w.start(t, func(cfg *Config) {
					cfg.Now = func() time.Time { return time.Now().Add(time.Duration(still.Load())) }
				})
				r, _ := buyIn(t, w, g)
				if r.status != c.status || (c.status == 503) != strings.HasPrefix(r.body, `{"error":"OUTCOME_UNKNOWN"`) || !strings.Contains(r.body, w.asked()[0].OrderID.String()) {
					t.Errorf("%d %s, want %d", r.status, r.body, c.status)
				}
			})
		})
	}
}

// A buyer whose order has ended and whose mark still stands is not told of that order: a repetition works once the keeper has released it. What the
// database cannot say within a moment is left as the mark has it.
func TestEndedOrderIsMet(t *testing.T) {
	id := sale.NewOrderID(theItem)
	hangs := func(ctx context.Context, _ sale.OrderID) (sale.Order, bool, error) {
		<-ctx.Done()
		return sale.Order{}, false, ctx.Err()
	}
	row := func(status sale.OrderStatus) func(w *world) {
		return func(w *world) { w.rows[id] = sale.Order{ID: id, ItemID: theItem, UserID: "1", Status: status} }
	}
	for outcome, usual := range map[sale.Outcome]struct {
		status int
		code   string
	}{
		sale.Own: {202, ""}, sale.Already: {409, "ALREADY_PURCHASED"}, sale.KeyReused: {422, "KEY_REUSED"},
	} {
		for name, c := range map[string]struct {
			spoil func(w *world)
			ended bool
		}{
			"cancelled":       {row(sale.Cancelled), true},
			"expired":         {row(sale.Expired), true},
			"rejected":        {row(sale.Rejected), true},
			"pending":         {row(sale.Pending), false},
			"paid":            {row(sale.Paid), false},
			"not yet written": {func(*world) {}, false},
			"no database": {func(w *world) {
				w.row = func(context.Context, sale.OrderID) (sale.Order, bool, error) { return sale.Order{}, false, errDown }
			}, false},
			"database hangs": {func(w *world) { w.row = hangs }, false},
		} {
			t.Run(outcome.String()+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					w.reserve = func(context.Context, *sale.Item, sale.Request) sale.Result {
						return sale.Result{Outcome: outcome, OrderID: id, Acked: closedChannel()}
					}
					c.spoil(w)
					r, took := buyIn(t, w, w.start(t))
					if took > endedTime {
						t.Errorf("took %v", took)
					}
					if !c.ended {
						r.want(t, usual.status, usual.code)
						return
					}
					checkHeaders(t, r.want(t, 503, "UNAVAILABLE"))
					if r.header("Retry-After") != "1" || strings.Contains(r.body, id.String()) {
						t.Errorf("%s, Retry-After %q", r.body, r.header("Retry-After"))
					}
				})
			})
		}
	}
}

// While as many wait for the database as may, nobody else does.
func TestChecksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.reserve = after(0, sale.Result{Outcome: sale.Already})
		w.row = func(context.Context, sale.OrderID) (sale.Order, bool, error) {
			t.Error("the database is asked")
			return sale.Order{}, false, errDown
		}
		g := w.start(t)
		for range maxChecks {
			g.checks <- struct{}{}
		}
		r, took := buyIn(t, w, g)
		if r.want(t, 409, "ALREADY_PURCHASED"); took != 0 {
			t.Errorf("waited for %v", took)
		}
	})
}
