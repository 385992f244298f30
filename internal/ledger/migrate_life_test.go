package ledger

import (
	"context"
	"slices"
	"testing"

	"flashgate/internal/sale"
)

// A database of version 2 in the middle of a sale becomes one of this version.
func TestMigrateFromVersion2(t *testing.T) {
	l := olderDatabase(t, 2)
	pending, expired, paid := reserved(7, "pending"), reserved(7, "expired"), reserved(7, "paid")
	for _, e := range []sale.Event{pending, expired, paid} {
		l.exec(`
INSERT INTO flash_sale_order (id, item_id, user_id, quantity, status, limit_key, sku, price, currency, shard, epoch, reserved_at, expires_at, refund_due)
VALUES ($1, 7, $2, 1, upper($2), 'item:7', '', 1980, 'JPY', 0, 0, $3, now() + interval '10 minutes', $2 = 'expired')`,
			[16]byte(e.OrderID), e.UserID, e.ReservedAt)
	}
	l.exec(`UPDATE flash_sale_order SET ended_at = now() WHERE status = 'EXPIRED'`)
	l.exec(`
INSERT INTO flash_sale_correction (item_id, op, order_id, user_id, units, epoch) SELECT 7, 'release', id, user_id, 1, 0 FROM flash_sale_order WHERE status = 'EXPIRED'`)

	if err := Migrate(t.Context(), l.dsn); err != nil {
		t.Fatal(err)
	}
	l.DB = l.open()
	if err := l.CheckSchema(t.Context()); err != nil {
		t.Error(err)
	}
	if o := l.row(expired.OrderID); o.Status != sale.Expired || !o.RefundDue() || o.EndedAt.IsZero() {
		t.Errorf("expired: %+v", o)
	}
	if o := l.row(paid.OrderID); o.Status != sale.Paid || o.RefundDue() || !o.PaidAt.IsZero() {
		t.Errorf("paid: %+v", o)
	}
	// What happened before is not told, what happens from now on is.
	if n, _, err := l.WaitingEvents(t.Context()); n != 0 || err != nil {
		t.Errorf("%d events, %v", n, err)
	}
	l.pay(success(pending, "1"))
	if got := l.told(pending.OrderID.String()); !slices.Equal(got, []string{"paid"}) {
		t.Errorf("told: %v", got)
	}
	// What is due from before payments were stored has no event to name.
	l.pay(success(expired, "late"))
	if r, err := l.Refunded(t.Context(), expired.OrderID, []string{"late"}); r.Outcome != RefundDone || r.Order.RefundsDue != 1 || err != nil {
		t.Errorf("refunded: %+v, %v", r, err)
	}
	if r, err := l.Refunded(t.Context(), expired.OrderID, []string{"late"}); r.Outcome != RefundBefore || r.Order.RefundsDue != 1 || err != nil {
		t.Errorf("refunded again: %+v, %v", r, err)
	}
	if r, err := l.Refunded(t.Context(), expired.OrderID, nil); r.Outcome != RefundDone || r.Order != l.row(expired.OrderID) || r.Order.RefundDue() || err != nil {
		t.Errorf("refunded: %+v, %v", r, err)
	}
	if o, ok, err := l.LiveOrder(t.Context(), 7, "pending"); !ok || o.Status != sale.Paid || err != nil {
		t.Errorf("live order: %+v, %v, %v", o, ok, err)
	}
	// A binary of version 2 goes on working: what it reads is there, and what it writes is told.
	due := func(e sale.Event) bool {
		return lookup[bool](l, `SELECT refund_due FROM flash_sale_order WHERE id = $1`, [16]byte(e.OrderID))
	}
	if due(expired) || due(pending) {
		t.Errorf("a binary of version 2 sees refunds: %v, %v", due(expired), due(pending))
	}
	l.pay(success(pending, "2"))
	if !due(pending) {
		t.Error("a binary of version 2 does not see that a refund is due")
	}
	l.balance()
}

// Whoever changes an order tells it, wherever he looks for tables.
func TestEventsAreWrittenFromAnywhere(t *testing.T) {
	l := newLab(t)
	e := reserved(l.item(1), "a")
	l.expect(l.write(e), Stored)
	tx, err := l.sql.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background()) //nolint:errcheck // of a transaction that has been committed
	if _, err := tx.Exec(t.Context(), `SET LOCAL search_path = pg_catalog`); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `UPDATE public.flash_sale_order SET status = 'EXPIRED'`); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := l.told(e.OrderID.String()); !slices.Equal(got, []string{"created", "expired"}) {
		t.Errorf("told: %v", got)
	}
}
