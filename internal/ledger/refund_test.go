package ledger

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"flashgate/internal/sale"
)

// refundable is an order that has ended and was paid for n times since.
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

// TestRefundedAsSeen walks through what whoever says that refunds were paid may have seen.
func TestRefundedAsSeen(t *testing.T) {
	l := newLab(t)
	e := l.refundable(l.item(1), "u", 0)
	say := func(word Refund, want RefundOutcome, due int64) {
		t.Helper()
		rows := l.changes()
		o, outcome, err := l.Refunded(t.Context(), e.OrderID, word)
		if outcome != want || o.RefundsDue != due || err != nil {
			t.Fatalf("refunded: %v with %d due, want %v with %d; %v", outcome, o.RefundsDue, want, due, err)
		}
		changed := int64(0)
		if want == RefundDone {
			changed = 1
		}
		if n := l.changes() - rows; n != changed {
			t.Fatalf("%d audit rows, want %d", n, changed)
		}
		l.balance()
	}
	seen := func(n int64) Refund { return Refund{Seen: &n} }
	keyed := func(n int64, key string) Refund { return Refund{Seen: &n, Key: key} }
	say(seen(1), RefundNotDue, 0)
	say(keyed(1, "early"), RefundNotDue, 0)
	l.pay(success(e, "1"))
	l.pay(success(e, "2"))
	// One was seen, then the second came.
	say(seen(1), RefundsChanged, 2)
	say(seen(0), RefundsChanged, 2)
	say(seen(2), RefundDone, 0)
	say(seen(2), RefundBefore, 0) // the reply was lost
	say(Refund{}, RefundBefore, 0)
	say(seen(0), RefundBefore, 0)
	say(seen(1), RefundsChanged, 0) // somebody else marked more than was seen here
	l.pay(success(e, "3"))
	say(seen(2), RefundsChanged, 1)
	// A word with a key is not taken for another one, whatever came in since.
	say(keyed(1, "a"), RefundDone, 0)
	l.pay(success(e, "4"))
	say(keyed(1, "a"), RefundBefore, 1)
	say(Refund{Key: "a"}, RefundBefore, 1)
	say(keyed(2, "a"), RefundKeyReused, 1)
	say(keyed(1, "b"), RefundDone, 0)
	say(keyed(1, "a"), RefundBefore, 0)
	// The key is that of the order.
	e = l.refundable(l.item(1), "v", 1)
	say(keyed(1, "a"), RefundDone, 0)
}

// TestALatePaymentIsNeverMarkedUnseen has a payment arrive at the instant in which somebody, who saw one, says that it was paid back.
func TestALatePaymentIsNeverMarkedUnseen(t *testing.T) {
	const rounds = 200
	l := newLab(t)
	item := l.item(rounds)
	paid := lookupPayments(l)
	var first [2]int
	for n := range rounds {
		e := l.refundable(item, fmt.Sprint("u", n), 1)
		seen := int64(1)
		var outcome RefundOutcome
		var failed [2]error
		start := make(chan struct{})
		var both sync.WaitGroup
		both.Go(func() {
			<-start
			_, _, failed[0] = l.DB.Pay(t.Context(), success(e, fmt.Sprint("late-", n)))
		})
		both.Go(func() {
			<-start
			_, outcome, failed[1] = l.Refunded(t.Context(), e.OrderID, Refund{Seen: &seen})
		})
		close(start)
		both.Wait()
		if err := errors.Join(failed[:]...); err != nil {
			t.Fatal(err)
		}
		o, marked := l.row(e.OrderID), paid(e.OrderID)
		switch {
		case outcome == RefundDone && o.RefundsDue == 1 && marked == 1:
			first[0]++
		case outcome == RefundsChanged && o.RefundsDue == 2 && marked == 0:
			first[1]++
		default:
			t.Fatalf("round %d: %v, %d refunds are due and %d marked", n, outcome, o.RefundsDue, marked)
		}
	}
	t.Logf("the mark came first %d times, the payment %d times", first[0], first[1])
	l.balance()
}

// lookupPayments counts the payments of an order that are marked as paid back.
func lookupPayments(l *lab) func(sale.OrderID) int64 {
	return func(id sale.OrderID) int64 {
		return lookup[int64](l, `SELECT count(*) FROM flash_sale_payment WHERE order_id = $1 AND refunded_at IS NOT NULL`, [16]byte(id))
	}
}
