package ledger

import (
	"testing"

	"flashgate/internal/sale"
)

func TestOrdersAreFound(t *testing.T) {
	l := newLab(t)
	ctx := t.Context()
	item := l.item(10)
	e, other, missing := reserved(item, "a"), reserved(item, "b"), sale.NewOrderID(item)
	if _, ok, err := l.Order(ctx, e.OrderID); ok || err != nil {
		t.Errorf("before: %v, %v", ok, err)
	}
	l.expect(l.write(e, other), Stored, Stored)
	live, ok, err := l.LiveOrder(ctx, item, "a")
	if !ok || err != nil || live != l.row(e.OrderID) {
		t.Errorf("live order %+v, %v, %v", live, ok, err)
	}
	if unwritten, err := l.Unwritten(ctx, []sale.OrderID{e.OrderID, missing, other.OrderID}); err != nil || len(unwritten) != 1 || unwritten[0] != missing {
		t.Errorf("unwritten %v, %v", unwritten, err)
	}
	if unwritten, err := l.Unwritten(ctx, nil); err != nil || len(unwritten) != 0 {
		t.Errorf("unwritten %v, %v", unwritten, err)
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
