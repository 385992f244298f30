package ledger

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"flashgate/internal/sale"
)

func TestPay(t *testing.T) {
	l := newLab(t)
	e := reserved(l.item(10), "alice")
	e.Quantity, e.Price = 3, "19.80"
	l.expect(l.write(e), Stored)

	// An attempt that failed says nothing about the next one.
	for range 2 {
		if got := l.pay(failure(e, "e1")); got != (sale.PaymentResult{Status: sale.Pending}) {
			t.Errorf("failed: %+v", got)
		}
	}
	if o := l.row(e.OrderID); o.Status != sale.Pending || !o.PaidAt.IsZero() {
		t.Errorf("after a failure: %+v", o)
	}
	// Amounts are numbers: 59.40 is 59.4.
	p := success(e, "e2")
	p.Amount = "59.4"
	for range 2 {
		if got := l.pay(p); got != (sale.PaymentResult{Status: sale.Paid}) {
			t.Errorf("paid: %+v", got)
		}
		p.Amount = "59.400"
	}
	paid := l.row(e.OrderID)
	if paid.Status != sale.Paid || paid.RefundDue() || paid.PaidAt.Before(paid.CreatedAt) || !paid.EndedAt.IsZero() {
		t.Errorf("after the payment: %+v", paid)
	}
	// A failure that comes late changes nothing.
	if got := l.pay(failure(e, "e3")); got != (sale.PaymentResult{Status: sale.Paid}) {
		t.Errorf("failed after it was paid: %+v", got)
	}
	if o := l.row(e.OrderID); o != paid {
		t.Errorf("after a late failure: %+v", o)
	}
	l.balance()
	if got := l.told(e.OrderID.String()); !slices.Equal(got, []string{"created", "paid"}) {
		t.Errorf("told: %v", got)
	}
	// What has been paid for is nobody's to end any more.
	l.exec(`UPDATE flash_sale_order SET expires_at = now() - interval '1 hour'`)
	if n, err := l.Expire(t.Context(), 10); n != 0 || err != nil {
		t.Errorf("expired %d, %v", n, err)
	}
	if o, outcome, err := l.Cancel(t.Context(), e.OrderID, e.UserID); outcome != CancelRefused || o.Status != sale.Paid || err != nil {
		t.Errorf("cancel: %v, %+v, %v", outcome, o, err)
	}
	if _, outcome, err := l.CancelUnwritten(t.Context(), e); outcome != CancelRefused || err != nil {
		t.Errorf("cancel: %v, %v", outcome, err)
	}
	if err := l.GiveUp(t.Context(), []sale.Event{e}); err != nil || l.row(e.OrderID).Status != sale.Paid {
		t.Errorf("give up: %v", err)
	}
	l.balance()
}

func TestPaymentsThatAreNotTaken(t *testing.T) {
	l := newLab(t)
	s := l.create(aSale(10, 10))
	a, b := reserved(s.Items[0].ID, "alice"), reserved(s.Items[1].ID, "bob")
	a.Quantity = 2
	l.expect(l.write(a, b), Stored, Stored)
	known := failure(a, "known")
	l.pay(known)
	before := []sale.Order{l.row(a.OrderID), l.row(b.OrderID)}
	with := func(p sale.Payment, change func(*sale.Payment)) sale.Payment { change(&p); return p }
	for name, c := range map[string]struct {
		p    sale.Payment
		want PayOutcome
	}{
		"no order":              {success(reserved(a.ItemID, "x"), "e"), PayNoOrder},
		"one unit's amount":     {with(success(a, "e"), func(p *sale.Payment) { p.Amount = "1980" }), PayMismatch},
		"a little more":         {with(success(a, "e"), func(p *sale.Payment) { p.Amount = "3960.0000000001" }), PayMismatch},
		"nothing":               {with(success(a, "e"), func(p *sale.Payment) { p.Amount = "0" }), PayMismatch},
		"no amount":             {with(success(a, "e"), func(p *sale.Payment) { p.Amount = "" }), PayMismatch},
		"currency":              {with(success(a, "e"), func(p *sale.Payment) { p.Currency = "USD" }), PayMismatch},
		"failure, amount":       {with(failure(a, "e"), func(p *sale.Payment) { p.Amount = "1" }), PayMismatch},
		"failure, currency":     {with(failure(a, "e"), func(p *sale.Payment) { p.Currency = "USD" }), PayMismatch},
		"known, other status":   {success(a, "known"), PayEventReused},
		"known, other order":    {failure(b, "known"), PayEventReused},
		"known, other amount":   {with(known, func(p *sale.Payment) { p.Amount = "1980" }), PayEventReused},
		"known, other currency": {with(known, func(p *sale.Payment) { p.Currency = "USD" }), PayEventReused},
		"known, no order":       {failure(reserved(a.ItemID, "x"), "known"), PayNoOrder},
	} {
		if result, outcome, err := l.Pay(t.Context(), c.p); outcome != c.want || err != nil || result != (sale.PaymentResult{}) {
			t.Errorf("%s: %v, want %v; %+v, %v", name, outcome, c.want, result, err)
		}
	}
	for _, id := range []string{"", strings.Repeat("x", 129), "a b", "ä", "\x00", "\xff", "a\n"} {
		if _, _, err := l.Pay(t.Context(), success(a, id)); Kind(err) != Permanent {
			t.Errorf("event id %q: %v", id, err)
		}
	}
	if after := []sale.Order{l.row(a.OrderID), l.row(b.OrderID)}; !slices.Equal(after, before) {
		t.Errorf("orders are\n%+v, were\n%+v", after, before)
	}
	if n := lookup[int64](l, `SELECT count(*) FROM flash_sale_payment`); n != 1 {
		t.Errorf("%d payments", n)
	}
	// An event that was not taken is not known: when it is right, it is the first.
	if got := l.pay(success(a, strings.Repeat("x", 128))); got.Status != sale.Paid {
		t.Errorf("paid: %+v", got)
	}
	if got := l.pay(success(b, "e")); got.Status != sale.Paid {
		t.Errorf("paid: %+v", got)
	}
	l.balance()
}

// A buyer's order ends, its unit goes to the next one, who pays; then the money of the first one comes in.
func TestMoneyForAnOrderThatHasEndedIsARefund(t *testing.T) {
	l := newLab(t)
	ctx := t.Context()
	item := l.item(1)
	first, second := reserved(item, "first"), reserved(item, "second")
	l.expect(l.write(first), Stored)
	l.makeDue(item)
	if n, err := l.Expire(ctx, 10); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	l.expect(l.write(second), Stored)
	l.pay(success(second, "s"))
	untouched := l.row(second.OrderID)

	due := sale.PaymentResult{Status: sale.Expired, RefundDue: true}
	for range 3 {
		if got := l.pay(success(first, "late")); got != due {
			t.Errorf("late: %+v", got)
		}
		if o := l.row(first.OrderID); o.Status != sale.Expired || !o.RefundDue() || !o.PaidAt.IsZero() || !o.RefundedAt.IsZero() {
			t.Errorf("after the late payment: %+v", o)
		}
		l.balance()
	}
	// Even what failed is answered with what is due.
	if got := l.pay(failure(first, "failed")); got != due {
		t.Errorf("failed: %+v", got)
	}
	if o := l.row(second.OrderID); o != untouched {
		t.Errorf("the other buyer's order: %+v", o)
	}
	if sold := lookup[int64](l, `SELECT sold FROM flash_sale_item`); sold != 1 {
		t.Errorf("sold %d", sold)
	}
	if got := l.told(first.OrderID.String()); !slices.Equal(got, []string{"created", "expired", "refund_due"}) {
		t.Errorf("told: %v", got)
	}
	// A second payment of the same order is a second refund.
	if got := l.pay(success(first, "later")); got != due {
		t.Errorf("later: %+v", got)
	}
	if n := lookup[int64](l, `SELECT refunds_due FROM flash_sale_order WHERE id = $1`, [16]byte(first.OrderID)); n != 2 {
		t.Errorf("%d refunds due", n)
	}
	if got := l.told(first.OrderID.String()); !slices.Equal(got, []string{"created", "expired", "refund_due", "refund_due"}) {
		t.Errorf("told: %v", got)
	}
	l.balance()
}

func TestEveryStateTakesMoney(t *testing.T) {
	l := newLab(t)
	s := l.create(aSale(1, 10))
	full, item := s.Items[0].ID, s.Items[1].ID
	paid, cancelled, givenUp, rejected := reserved(item, "paid"), reserved(item, "cancelled"), reserved(item, "given up"), reserved(full, "rejected")
	rejected.Quantity = 2
	l.expect(l.write(paid, cancelled, rejected), Stored, Stored, RejectedNoRoom)
	if _, outcome, err := l.Cancel(t.Context(), cancelled.OrderID, cancelled.UserID); outcome != CancelDone || err != nil {
		t.Fatal(outcome, err)
	}
	if err := l.GiveUp(t.Context(), []sale.Event{givenUp}); err != nil {
		t.Fatal(err)
	}
	l.pay(success(paid, "first"))
	for _, c := range []struct {
		e      sale.Event
		status sale.OrderStatus
		told   []string
	}{
		{paid, sale.Paid, []string{"created", "paid", "refund_due"}},
		{cancelled, sale.Cancelled, []string{"created", "cancelled", "refund_due"}},
		{givenUp, sale.Cancelled, []string{"cancelled", "refund_due"}},
		{rejected, sale.Rejected, []string{"rejected", "refund_due"}},
	} {
		for range 2 {
			if got := l.pay(success(c.e, "to-"+c.e.UserID[:2])); got != (sale.PaymentResult{Status: c.status, RefundDue: true}) {
				t.Errorf("%s: %+v", c.e.UserID, got)
			}
		}
		if o := l.row(c.e.OrderID); o.Status != c.status || !o.RefundDue() {
			t.Errorf("%s: %+v", c.e.UserID, o)
		}
		if got := l.told(c.e.OrderID.String()); !slices.Equal(got, c.told) {
			t.Errorf("%s: told %v", c.e.UserID, got)
		}
	}
	l.balance()
}

// The same event on many connections at once, for one order, and for two.
func TestAnEventHasOneEffect(t *testing.T) {
	const rounds = 100
	l := newLab(t, "pool_max_conns=8")
	item := l.item(2 * rounds)
	var events []sale.Event
	for i := range 2 * rounds {
		events = append(events, reserved(item, fmt.Sprint("u", i)))
	}
	l.write(events...)
	var reused [rounds]int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for n := range rounds {
		for i := range 4 {
			wg.Go(func() {
				e := events[2*n+i%2]
				result, outcome, err := l.Pay(t.Context(), success(e, fmt.Sprint("event-", n)))
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err != nil:
					t.Errorf("round %d: %v", n, err)
				case outcome == PayEventReused:
					reused[n]++
				case outcome != PayDone || result != (sale.PaymentResult{Status: sale.Paid}):
					t.Errorf("round %d: %v, %+v", n, outcome, result)
				}
			})
		}
	}
	wg.Wait()
	for n := range rounds {
		a, b := l.row(events[2*n].OrderID), l.row(events[2*n+1].OrderID)
		if (a.Status == sale.Paid) == (b.Status == sale.Paid) || a.RefundDue() || b.RefundDue() || reused[n] != 2 {
			t.Errorf("round %d: %s and %s, refused %d times", n, a.Status, b.Status, reused[n])
		}
	}
	if n := lookup[int64](l, `SELECT count(*) FROM flash_sale_payment`); n != rounds {
		t.Errorf("%d payments", n)
	}
	if n := lookup[int64](l, `SELECT count(*) FROM flash_sale_event WHERE type = 'order.paid'`); n != rounds {
		t.Errorf("%d orders are told to be paid", n)
	}
	l.balance()
}

// Two events for one order at once: one pays, the other one is a refund.
func TestTwoPaymentsAtOnce(t *testing.T) {
	const rounds = 100
	l := newLab(t, "pool_max_conns=8")
	item := l.item(rounds)
	var events []sale.Event
	for i := range rounds {
		events = append(events, reserved(item, fmt.Sprint("u", i)))
	}
	l.write(events...)
	var wg sync.WaitGroup
	for n, e := range events {
		for i := range 2 {
			wg.Go(func() {
				if _, outcome, err := l.Pay(t.Context(), success(e, fmt.Sprint(n, "-", i))); outcome != PayDone || err != nil {
					t.Errorf("round %d: %v, %v", n, outcome, err)
				}
			})
		}
	}
	wg.Wait()
	for n, e := range events {
		if got := l.told(e.OrderID.String()); !slices.Equal(got, []string{"created", "paid", "refund_due"}) {
			t.Errorf("round %d: told %v", n, got)
		}
	}
	l.balance()
}
