package ledger

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"flashgate/internal/sale"
)

func TestPaymentsAreListed(t *testing.T) {
	l := newLab(t)
	e := reserved(l.item(5), "alice")
	e.Price = "19.80"
	l.expect(l.write(e), Stored)
	if got, err := l.Payments(t.Context(), e.OrderID); len(got) != 0 || err != nil {
		t.Errorf("before: %v, %v", got, err)
	}
	l.pay(failure(e, "z"))
	l.pay(success(e, "y"))
	l.pay(success(e, "x"))
	want := []PaymentRow{
		{EventID: "z", Effect: EffectFailed, Status: sale.Pending},
		{EventID: "y", Effect: EffectPaid, Status: sale.Paid, Succeeded: true},
		{EventID: "x", Effect: EffectRefundDue, Status: sale.Paid, Succeeded: true, RefundDue: true},
	}
	check := func() {
		t.Helper()
		got, err := l.Payments(t.Context(), e.OrderID)
		if err != nil || len(got) != len(want) {
			t.Fatalf("payments %+v, %v", got, err)
		}
		for i := range want {
			want[i].OrderID, want[i].Amount, want[i].Currency, want[i].ReceivedAt = e.OrderID, "19.80", "JPY", got[i].ReceivedAt
			if i == 2 {
				want[i].RefundedAt = l.row(e.OrderID).RefundedAt
			}
		}
		if !slices.Equal(got, want) || !slices.IsSortedFunc(got, func(a, b PaymentRow) int { return a.ReceivedAt.Compare(b.ReceivedAt) }) {
			t.Errorf("payments are\n%+v, want\n%+v", got, want)
		}
	}
	check()
	if r, err := l.Refunded(t.Context(), e.OrderID, nil); r.Outcome != RefundDone || err != nil {
		t.Fatal(r, err)
	}
	check()
	if want[2].RefundedAt.IsZero() {
		t.Error("the refund has no time")
	}
}

func TestRefunded(t *testing.T) {
	l := newLab(t)
	item := l.item(5)
	e, other := reserved(item, "alice"), reserved(item, "bob")
	e.KeyHash, e.Trace = "key of alice", "trace of alice"
	l.expect(l.write(e, other), Stored, Stored)
	refund := func(id sale.OrderID, want RefundOutcome) sale.Order {
		t.Helper()
		r, err := l.Refunded(t.Context(), id, nil)
		if r.Outcome != want || r.Event != "" || err != nil {
			t.Fatalf("refunded: %+v, want %v; %v", r, want, err)
		}
		return r.Order
	}
	refund(sale.NewOrderID(item), RefundNoOrder)
	refund(e.OrderID, RefundNotDue)
	if _, _, err := l.Cancel(t.Context(), e.OrderID, e.UserID); err != nil {
		t.Fatal(err)
	}
	refund(e.OrderID, RefundNotDue)
	due := sale.PaymentResult{Status: sale.Cancelled, RefundDue: true}
	l.pay(success(e, "1"))
	l.pay(success(e, "2"))
	l.pay(success(other, "3"))
	if o := refund(e.OrderID, RefundDone); o.RefundDue() || o.RefundedAt.IsZero() || o.Status != sale.Cancelled || o != l.row(e.OrderID) {
		t.Errorf("refunded: %+v", o)
	}
	refund(other.OrderID, RefundNotDue)
	done := l.row(e.OrderID)
	// Said again, by anybody.
	if o := refund(e.OrderID, RefundBefore); o != done {
		t.Errorf("refunded again: %+v", o)
	}
	for _, event := range []string{"1", "2"} {
		if got := l.pay(success(e, event)); got != due {
			t.Errorf("the same event after the refund: %+v", got)
		}
	}
	if o := l.row(e.OrderID); o != done {
		t.Errorf("the same event after the refund: %+v", o)
	}
	l.balance()
	// Money that comes in after the refund is one more.
	if got := l.pay(success(e, "4")); got != due || l.row(e.OrderID).RefundsDue != 1 {
		t.Errorf("another event after the refund: %+v", got)
	}
	l.balance()
	if o := refund(e.OrderID, RefundDone); o.RefundDue() || o.RefundedAt.Before(done.RefundedAt) {
		t.Errorf("refunded: %+v", o)
	}
	l.balance()
	if got := l.told(e.OrderID.String()); !slices.Equal(got, []string{"created", "cancelled", "refund_due", "refund_due", "refund_due"}) {
		t.Errorf("told: %v", got)
	}

	changes, err := l.Audit(t.Context(), AuditFilter{Subject: "order:" + e.OrderID.String(), Limit: 10})
	if err != nil || len(changes) != 2 {
		t.Fatalf("audit: %v, %v", changes, err)
	}
	for _, c := range changes {
		before, after := string(c.Before), string(c.After)
		if c.What != "order.refunded" || !strings.Contains(before, `"refund_due": true`) || !strings.Contains(after, `"refunds_due": 0`) {
			t.Errorf("audit: %s\n%s\n%s", c.What, before, after)
		}
		if strings.Contains(before+after, "alice") {
			t.Errorf("the audit table says who bought: %s\n%s", before, after)
		}
	}
	if !strings.Contains(string(changes[1].Before), `"refunds_due": 2`) || !strings.Contains(string(changes[1].After), `"event_ids": ["1", "2"]`) {
		t.Errorf("the first refund: %s\n%s", changes[1].Before, changes[1].After)
	}
}

// The reply to COMMIT is lost, and before the next attempt another payment comes in: nobody has said that this one was paid back.
func TestARefundThatWasNotMeantStaysDue(t *testing.T) {
	l := newLab(t)
	e := reserved(l.item(1), "a")
	l.expect(l.write(e), Stored)
	l.pay(success(e, "1"))
	l.pay(success(e, "2"))
	db := l.open()
	breakWith(db, faults{commit: func(ctx context.Context, n int, tx pgx.Tx) error {
		err := tx.Commit(ctx)
		if n > 1 || err != nil {
			return err
		}
		l.pay(success(e, "3"))
		return io.ErrUnexpectedEOF
	}})
	r, err := db.Refunded(t.Context(), e.OrderID, nil)
	// What is answered is what is true afterwards.
	if r.Outcome != RefundDone || !r.Order.RefundDue() || r.Order.RefundedAt.IsZero() || err != nil {
		t.Errorf("refunded: %+v, %v", r, err)
	}
	if n := lookup[int64](l, `SELECT count(*) FROM flash_sale_payment WHERE refunded_at IS NOT NULL`); n != 1 {
		t.Errorf("%d payments are paid back", n)
	}
	l.balance()
}
