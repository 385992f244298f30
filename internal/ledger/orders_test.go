package ledger

import (
	"testing"

	"flashgate/internal/sale"
)

func TestOrdersAreFound(t *testing.T) {
	l := newLab(t)
	ctx := t.Context()
	item := l.item(10)
	e, other := reserved(item, "a"), reserved(item, "b")
	if _, ok, err := l.Order(ctx, e.OrderID); ok || err != nil {
		t.Errorf("before: %v, %v", ok, err)
	}
	l.expect(l.write(e, other), Stored, Stored)
	live, ok, err := l.LiveOrder(ctx, item, "a")
	if !ok || err != nil || live != l.row(e.OrderID) {
		t.Errorf("live order %+v, %v, %v", live, ok, err)
	}
	for _, c := range []struct {
		item int64
		user string
	}{{item, "c"}, {item + 1, "a"}} {
		if _, ok, err := l.LiveOrder(ctx, c.item, c.user); ok || err != nil {
			t.Errorf("%+v: %v, %v", c, ok, err)
		}
	}
	l.exec(`UPDATE flash_sale_order SET status = 'PAID'`)
	if o, ok, err := l.LiveOrder(ctx, item, "a"); !ok || err != nil || o.Status != sale.Paid {
		t.Errorf("paid: %+v, %v, %v", o, ok, err)
	}
	l.exec(`UPDATE flash_sale_order SET status = 'EXPIRED'`)
	if _, ok, err := l.LiveOrder(ctx, item, "a"); ok || err != nil {
		t.Errorf("expired: %v, %v", ok, err)
	}
	if o, ok, err := l.Order(ctx, e.OrderID); !ok || err != nil || o.Status != sale.Expired {
		t.Errorf("expired: %+v, %v, %v", o, ok, err)
	}
}

func TestStandingCountsTheLiveOrdersOfTheItem(t *testing.T) {
	l := newLab(t)
	sold := l.create(aSale(10, 10))
	item := sold.Items[0].ID
	events := []sale.Event{reserved(item, "pending"), reserved(item, "paid"), reserved(item, "ended"), reserved(sold.Items[1].ID, "elsewhere")}
	events[0].Quantity, events[1].Quantity = 2, 3
	l.expect(l.write(events...), Stored, Stored, Stored, Stored)
	l.expect(l.write(reserved(item, "not asked for")), Stored)
	l.exec(`UPDATE flash_sale_order SET status = 'PAID' WHERE user_id = 'paid'`)
	if _, outcome, err := l.Cancel(t.Context(), events[2].OrderID, "ended"); outcome != CancelDone || err != nil {
		t.Fatal(outcome, err)
	}
	ids := []sale.OrderID{sale.NewOrderID(item)}
	for _, e := range events {
		ids = append(ids, e.OrderID)
	}
	it, held, ok, err := l.Standing(t.Context(), item, ids)
	if !ok || err != nil || held != 5 || it.ID != item || it.Quantity != 10 || it.Sold != 6 {
		t.Errorf("%d held of %+v, %v, %v", held, it, ok, err)
	}
	if _, held, ok, err := l.Standing(t.Context(), item, nil); !ok || err != nil || held != 0 {
		t.Errorf("no orders: %d, %v, %v", held, ok, err)
	}
	if _, _, ok, err := l.Standing(t.Context(), 999, ids); ok || err != nil {
		t.Errorf("no item: %v, %v", ok, err)
	}
}
