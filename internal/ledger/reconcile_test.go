package ledger

import (
	"testing"

	"flashgate/internal/sale"
)

func TestBooks(t *testing.T) {
	l := newLab(t)
	ctx := t.Context()
	item, other := l.item(5), l.item(5)
	live, paid, ended, released := reserved(item, "live"), reserved(item, "paid"), reserved(item, "ended"), reserved(item, "released")
	paid.Quantity = 2
	elsewhere, nowhere := reserved(other, "live"), sale.NewOrderID(item)
	l.expect(l.write(live, paid, ended, released, elsewhere), Stored, Stored, Stored, Stored, Stored)
	l.exec(`UPDATE flash_sale_order SET status = 'PAID' WHERE user_id = 'paid'`)
	for _, e := range []sale.Event{ended, released} {
		if _, outcome, err := l.Cancel(ctx, e.OrderID, e.UserID); outcome != CancelDone || err != nil {
			t.Fatal(outcome, err)
		}
	}
	l.exec(`DELETE FROM flash_sale_correction WHERE order_id = $1`, [16]byte(released.OrderID))
	// Room for 2 is left: what does not fit is refused, and its mark goes without its units.
	voided := reserved(item, "voided")
	voided.Quantity = 3
	l.write(voided)
	if _, err := l.DB.Restock(ctx, item, 7, ""); err != nil {
		t.Fatal(err)
	}
	b, ok, err := l.Books(ctx, item, []sale.OrderID{live.OrderID, ended.OrderID, released.OrderID, voided.OrderID, nowhere, nowhere})
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if b.Item.Quantity != 12 || b.Item.Sold != 3 || b.Leased || b.Increase != 7 {
		t.Errorf("%+v", b)
	}
	units := map[sale.OrderID]int64{}
	for _, o := range b.Live {
		units[o.ID] = o.Quantity
	}
	if len(b.Live) != 2 || units[live.OrderID] != 1 || units[paid.OrderID] != 2 {
		t.Errorf("live: %v", b.Live)
	}
	if len(b.Ended) != 3 || b.Ended[ended.OrderID] != sale.Cancelled || b.Ended[released.OrderID] != sale.Cancelled || b.Ended[voided.OrderID] != sale.Rejected {
		t.Errorf("ended: %v", b.Ended)
	}
	if len(b.Releases) != 1 || !b.Releases[ended.OrderID] || len(b.Voids) != 1 || !b.Voids[voided.OrderID] {
		t.Errorf("releases %v, voids %v", b.Releases, b.Voids)
	}
	totals, ok, err := l.Totals(ctx, item)
	if err != nil || !ok || totals.Live != 2 || totals.Owing != 3 || totals.Item.Sold != 3 {
		t.Errorf("%+v, %v, %v", totals, ok, err)
	}

	if token, ok, err := l.ClaimLoad(ctx, item, 0); err != nil || !ok {
		t.Fatal(token, ok, err)
	}
	if b, _, err = l.Books(ctx, item, nil); err != nil || !b.Leased || len(b.Ended) != 0 {
		t.Errorf("while it is loaded: %+v, %v", b, err)
	}
	if _, ok, err := l.Books(ctx, 999, nil); ok || err != nil {
		t.Errorf("no such item: %v, %v", ok, err)
	}
	if _, ok, err := l.Totals(ctx, 999); ok || err != nil {
		t.Errorf("no such item: %v, %v", ok, err)
	}
}
