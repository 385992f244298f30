package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"flashgate/internal/sale"
)

// refundable is an order that has ended and was paid for n times since, by the events USER-0, USER-1, …
func (l *lab) refundable(item int64, user string, n int) sale.Event {
	l.tb.Helper()
	e := reserved(item, user)
	l.expect(l.write(e), Stored)
	if _, outcome, err := l.Cancel(l.tb.Context(), e.OrderID, user); outcome != CancelDone || err != nil {
		l.tb.Fatal(outcome, err)
	}
	for i := range n {
		l.pay(success(e, fmt.Sprint(user, "-", i)))
	}
	return e
}

// marked are the payments of an order that are marked as paid back, in the order in which they came in.
func (l *lab) marked(id sale.OrderID) []string {
	l.tb.Helper()
	return all[string](l, `
SELECT event_id FROM flash_sale_payment WHERE order_id = $1 AND refunded_at >= received_at ORDER BY received_at, event_id`, [16]byte(id))
}

// audited are the payments that were marked as paid back, as the audit table has them.
func (l *lab) audited(id sale.OrderID) []string {
	l.tb.Helper()
	return all[string](l, `
SELECT event FROM flash_sale_audit a, jsonb_array_elements_text(a.after->'event_ids') WITH ORDINALITY AS e (event, n)
WHERE a.subject = $1 AND a.what = 'order.refunded' ORDER BY a.id, n`, "order:"+id.String())
}

// TestRefundedByName walks through what whoever says that payments were paid back may name.
func TestRefundedByName(t *testing.T) {
	l := newLab(t)
	item := l.item(3)
	paid, other := reserved(item, "paid"), l.refundable(item, "other", 1)
	l.expect(l.write(paid), Stored)
	var marked []string
	say := func(id sale.OrderID, want RefundOutcome, refused string, due int64, events ...string) {
		t.Helper()
		rows, before := l.changes(), len(l.marked(paid.OrderID))
		r, err := l.Refunded(t.Context(), id, events)
		if r.Outcome != want || r.Event != refused || r.Order.RefundsDue != due || err != nil {
			t.Fatalf("refunded %q: %+v, want %v %q with %d due; %v", events, r, want, refused, due, err)
		}
		if want != RefundNoOrder && r.Order != l.row(id) {
			t.Fatalf("refunded %q: %+v is answered, and it is %+v", events, r.Order, l.row(id))
		}
		marked = l.marked(paid.OrderID)
		changed := 0
		if want == RefundDone {
			changed = 1
		}
		if n := int(l.changes() - rows); n != changed || (len(marked) > before) != (changed == 1) {
			t.Fatalf("refunded %q: %d audit rows, %d payments more are marked", events, n, len(marked)-before)
		}
		l.balance()
	}
	l.pay(failure(paid, "failed"))
	l.pay(success(paid, "paid"))
	say(paid.OrderID, RefundNotDue, "e1", 0, "e1")
	say(sale.NewOrderID(item), RefundNoOrder, "", 0, "e1")
	for _, event := range []string{"e1", "e2", "e3", "e4"} {
		l.pay(success(paid, event))
	}
	// One that is wrong, and nothing is marked.
	say(paid.OrderID, RefundNotDue, "failed", 4, "e1", "failed")
	say(paid.OrderID, RefundNotDue, "paid", 4, "paid", "failed", "e1")
	say(paid.OrderID, RefundNotDue, "other-0", 4, "e1", "other-0")
	say(paid.OrderID, RefundNotDue, "E1", 4, "e1", "E1", "e2")
	say(paid.OrderID, RefundNotDue, "", 4, "")
	// In any order, twice, and together with what is marked already.
	say(paid.OrderID, RefundDone, "", 3, "e2", "e2")
	say(paid.OrderID, RefundBefore, "", 3, "e2")
	say(paid.OrderID, RefundNotDue, "nobody's", 3, "e2", "nobody's")
	say(paid.OrderID, RefundDone, "", 1, "e4", "e2", "e1")
	say(paid.OrderID, RefundBefore, "", 1, "e1", "e2", "e4")
	if !slices.Equal(marked, []string{"e1", "e2", "e4"}) {
		t.Errorf("marked are %q", marked)
	}
	// Nothing named is nothing said.
	if r, err := l.Refunded(t.Context(), paid.OrderID, []string{}); r.Outcome != RefundBefore || r.Order.RefundsDue != 1 || err != nil {
		t.Errorf("none was named: %+v, %v", r, err)
	}
	// Without names it is all that is due.
	if r, err := l.Refunded(t.Context(), paid.OrderID, nil); r.Outcome != RefundDone || r.Order.RefundDue() || err != nil {
		t.Errorf("all: %+v, %v", r, err)
	}
	say(paid.OrderID, RefundBefore, "", 0, "e3")
	if got := l.audited(paid.OrderID); !slices.Equal(got, []string{"e2", "e1", "e4", "e3"}) {
		t.Errorf("the audit table says that %q were marked", got)
	}
	if got := l.audited(other.OrderID); len(got) != 0 || l.row(other.OrderID).RefundsDue != 1 {
		t.Errorf("of another order %q were marked", got)
	}
}

// TestTwoOperatorsAndALatePayment has two people pay back the same payment, and another one come in between their words.
func TestTwoOperatorsAndALatePayment(t *testing.T) {
	l := newLab(t)
	e := l.refundable(l.item(1), "u", 1)
	seen := []string{"u-0"} // by both
	if r, err := l.Refunded(t.Context(), e.OrderID, seen); r.Outcome != RefundDone || r.Order.RefundDue() || err != nil {
		t.Fatalf("the first one: %+v, %v", r, err)
	}
	first := l.row(e.OrderID)
	l.pay(success(e, "u-1"))
	for range 2 { // and he repeats it, as after a lost reply
		r, err := l.Refunded(t.Context(), e.OrderID, seen)
		if r.Outcome != RefundBefore || r.Order.RefundsDue != 1 || !r.Order.RefundedAt.Equal(first.RefundedAt) || err != nil {
			t.Fatalf("the second one: %+v, %v", r, err)
		}
	}
	if marked := l.marked(e.OrderID); !slices.Equal(marked, seen) {
		t.Errorf("marked are %q", marked)
	}
	if due, _, err := l.Orders(t.Context(), OrderFilter{Status: StatusRefundDue, Limit: 1}); len(due) != 1 || err != nil {
		t.Errorf("%d orders with refunds due are listed, %v", len(due), err)
	}
	l.balance()
}

// TestMarksAgainstLatePayments has payments arrive while operators look, each by himself, and say that what they saw was paid back.
func TestMarksAgainstLatePayments(t *testing.T) {
	const rounds, late, operators = 200, 3, 2
	l := newLab(t, "pool_max_conns=8")
	item := l.item(rounds)
	var left int64
	for n := range rounds {
		user := fmt.Sprint("u", n)
		e := l.refundable(item, user, 1)
		var named [operators][]string
		var failed [late + operators]error
		start := make(chan struct{})
		var all sync.WaitGroup
		for i := range late {
			all.Go(func() {
				<-start
				_, _, failed[i] = l.DB.Pay(t.Context(), success(e, fmt.Sprint(user, "-late-", i)))
			})
		}
		for i := range operators {
			all.Go(func() {
				<-start
				named[i], failed[late+i] = l.payBack(t.Context(), e.OrderID)
			})
		}
		close(start)
		all.Wait()
		if err := errors.Join(failed[:]...); err != nil {
			t.Fatal(err)
		}
		want := slices.Concat(named[:]...)
		slices.Sort(want)
		want = slices.Compact(want)
		marked, audited, o := l.marked(e.OrderID), l.audited(e.OrderID), l.row(e.OrderID)
		slices.Sort(marked)
		slices.Sort(audited)
		if !slices.Equal(marked, want) || !slices.Equal(audited, want) || o.RefundsDue != int64(1+late-len(marked)) {
			t.Fatalf("round %d: named were %q, marked are %q, audited %q, and %d are due", n, named, marked, audited, o.RefundsDue)
		}
		left += o.RefundsDue
	}
	t.Logf("%d of %d payments came too late to be seen", left, rounds*(1+late))
	l.balance()
}

// payBack is an operator: he looks at what is due, pays it back, and says so, until he sees nothing more. It returns what he has named.
func (l *lab) payBack(ctx context.Context, id sale.OrderID) (named []string, err error) {
	for {
		payments, err := l.Payments(ctx, id)
		if err != nil {
			return nil, err
		}
		var seen []string
		for _, p := range payments {
			if p.Effect == EffectRefundDue && p.RefundedAt.IsZero() {
				seen = append(seen, p.EventID)
			}
		}
		if len(seen) == 0 {
			return named, nil
		}
		named = append(named, seen...)
		r, err := l.Refunded(ctx, id, seen)
		if err != nil || r.Outcome != RefundDone && r.Outcome != RefundBefore {
			return nil, fmt.Errorf("refunded %s: %+v, %w", strings.Join(seen, ", "), r, err)
		}
	}
}
