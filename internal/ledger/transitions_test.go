package ledger

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"flashgate/internal/sale"
)

func TestCancel(t *testing.T) {
	l := newLab(t)
	item := l.item(10)
	e := reserved(item, "alice")
	e.Quantity = 3
	l.expect(l.write(e), Stored)
	cancel := func(id sale.OrderID, user string) (sale.Order, CancelOutcome) {
		t.Helper()
		o, outcome, err := l.Cancel(t.Context(), id, user)
		if err != nil {
			t.Fatal(err)
		}
		return o, outcome
	}
	if _, outcome := cancel(e.OrderID, "mallory"); outcome != CancelNotFound {
		t.Errorf("somebody else's order: %v", outcome)
	}
	if _, outcome := cancel(sale.NewOrderID(item), "alice"); outcome != CancelNotFound {
		t.Errorf("no order: %v", outcome)
	}
	for range 3 {
		if o, outcome := cancel(e.OrderID, "alice"); outcome != CancelDone || o.Status != sale.Cancelled || o.ID != e.OrderID {
			t.Errorf("cancel: %v, %+v", outcome, o)
		}
		l.balance()
	}
	if _, outcome := cancel(e.OrderID, "mallory"); outcome != CancelNotFound {
		t.Errorf("somebody else's cancelled order: %v", outcome)
	}
	for _, status := range []sale.OrderStatus{sale.Paid, sale.Expired, sale.Rejected} {
		e := reserved(item, "user of "+string(status))
		l.expect(l.write(e), Stored)
		l.exec(`UPDATE flash_sale_order SET status = $2 WHERE id = $1`, [16]byte(e.OrderID), string(status))
		if o, outcome := cancel(e.OrderID, e.UserID); outcome != CancelRefused || o.Status != status {
			t.Errorf("%s: %v, %+v", status, outcome, o)
		}
	}
}

func TestCancelUnwritten(t *testing.T) {
	l := newLab(t)
	item := l.item(10)
	e := reserved(item, "alice")
	cancel := func(e sale.Event) (sale.Order, CancelOutcome) {
		t.Helper()
		o, outcome, err := l.CancelUnwritten(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		return o, outcome
	}
	for range 2 {
		if o, outcome := cancel(e); outcome != CancelDone || o.Status != sale.Cancelled || !o.ExpiresAt.IsZero() || !o.ReservedAt.Equal(e.ReservedAt) {
			t.Errorf("cancel: %v, %+v", outcome, o)
		}
		l.balance()
	}
	l.expect(l.write(e), Redelivered)
	l.balance()

	// The event was faster.
	e = reserved(item, "bob")
	l.expect(l.write(e), Stored)
	if o, outcome := cancel(e); outcome != CancelDone || o.Status != sale.Cancelled {
		t.Errorf("cancel after the row: %v, %+v", outcome, o)
	}
	l.balance()

	// It was refused, or paid.
	l.exec(`UPDATE flash_sale_item SET quantity = sold`)
	e = reserved(item, "carol")
	l.expect(l.write(e), RejectedNoRoom)
	if o, outcome := cancel(e); outcome != CancelRefused || o.Status != sale.Rejected {
		t.Errorf("cancel of a refused order: %v, %+v", outcome, o)
	}
	// Somebody else has a row under this id.
	l.exec(`UPDATE flash_sale_item SET quantity = quantity + 1`)
	live := reserved(item, "dave")
	l.expect(l.write(live), Stored)
	for _, e := range []sale.Event{e, live} {
		status := l.row(e.OrderID).Status
		e.UserID = "mallory"
		if _, outcome := cancel(e); outcome != CancelNotFound || l.row(e.OrderID).Status != status {
			t.Errorf("cancel of somebody else's order: %v", outcome)
		}
	}
	l.balance()
}

func TestGiveUp(t *testing.T) {
	l := newLab(t)
	s := l.create(aSale(10, 10))
	a, b := s.Items[0].ID, s.Items[1].ID
	written, first, second := reserved(a, "written"), reserved(b, "first"), reserved(a, "second")
	second.Quantity = 4
	l.expect(l.write(written), Stored)
	for range 2 {
		if err := l.GiveUp(t.Context(), []sale.Event{first, written, second, first}); err != nil {
			t.Fatal(err)
		}
		l.balance()
	}
	if got := l.row(written.OrderID).Status; got != sale.Pending {
		t.Errorf("the written order is %s", got)
	}
	for _, e := range []sale.Event{first, second} {
		if o := l.row(e.OrderID); o.Status != sale.Cancelled || o.Quantity != e.Quantity {
			t.Errorf("given up: %+v", o)
		}
	}
	l.expect(l.write(second, first), Redelivered, Redelivered)
	l.balance()
	if err := l.GiveUp(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// One reservation of three units and everything that can end it, each told twice, in each of the 90 orders: one release.
func TestUnitsReturnOnce(t *testing.T) {
	l := newLab(t)
	item := l.item(3)
	ends := map[byte]func(sale.Event) error{
		'x': func(sale.Event) error { _, err := l.Expire(t.Context(), 100); return err },
		'c': func(e sale.Event) error { _, _, err := l.Cancel(t.Context(), e.OrderID, e.UserID); return err },
		'g': func(e sale.Event) error { return l.GiveUp(t.Context(), []sale.Event{e}) },
	}
	orders := arrangements("ccggxx")
	if len(orders) != 90 {
		t.Fatalf("%d arrangements", len(orders))
	}
	for _, order := range orders {
		for _, written := range []bool{true, false} {
			e := reserved(item, fmt.Sprint(order, written))
			e.Quantity = 3
			if written {
				l.expect(l.write(e), Stored)
				l.makeDue(item)
			}
			for i := range len(order) {
				if err := ends[order[i]](e); err != nil {
					t.Fatal(err)
				}
			}
			if got := all[string](l, `SELECT op || ' ' || units FROM flash_sale_correction WHERE order_id = $1`, [16]byte(e.OrderID)); !slices.Equal(got, []string{"release 3"}) {
				t.Fatalf("%s, written %v: corrections %v", order, written, got)
			}
			if sold := lookup[int64](l, `SELECT sold FROM flash_sale_item WHERE id = $1`, item); sold != 0 {
				t.Fatalf("%s, written %v: sold %d", order, written, sold)
			}
			if got := l.row(e.OrderID).Status; got != sale.Cancelled && (got != sale.Expired || order[0] == 'c' || !written) {
				t.Fatalf("%s, written %v: %s", order, written, got)
			}
		}
	}
	l.balance()
}

// arrangements are the different orders of the letters of s, which are sorted.
func arrangements(s string) []string {
	if s == "" {
		return []string{""}
	}
	var out []string
	for i := range len(s) {
		if i > 0 && s[i] == s[i-1] {
			continue
		}
		for _, rest := range arrangements(s[:i] + s[i+1:]) {
			out = append(out, s[i:i+1]+rest)
		}
	}
	return out
}

// Cancel, expiry and a payment meet at the deadline: one of them wins, each time.
func TestTheDeadlineHasOneWinner(t *testing.T) {
	l := newLab(t)
	item := l.item(1)
	for round := range 200 {
		e := reserved(item, fmt.Sprint("u", round))
		l.expect(l.write(e), Stored)
		l.makeDue(item)
		var expired int
		var outcome CancelOutcome
		var wg sync.WaitGroup
		wg.Go(func() {
			var err error
			if expired, err = l.Expire(t.Context(), 1); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			var err error
			if _, outcome, err = l.Cancel(t.Context(), e.OrderID, e.UserID); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		status := l.row(e.OrderID).Status
		if (status == sale.Expired) != (expired == 1) || (status == sale.Cancelled) != (outcome == CancelDone) {
			t.Fatalf("round %d: %s, expired %d, cancel %v", round, status, expired, outcome)
		}
	}
	l.balance()
}
