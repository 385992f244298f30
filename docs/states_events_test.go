package docs_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/ledger"
	"flashgate/internal/sale"
)

const noRow = "no row"

// happen lets something happen to an order and returns what whoever caused it is told.
type happen func(t *testing.T, d *desk, o *anOrder) string

// state is one in which an order may be, and how it gets there.
type state struct {
	name    string
	overdue bool
	paid    bool // a payment has succeeded
	steps   []happen
}

// event is something that may happen.
type event struct {
	name    string
	onlyIn  func(s state) bool // nil: in every state
	prepare happen
	happen  happen
}

var states = []state{
	{name: noRow},
	{name: "PENDING", steps: []happen{arrive}},
	{name: "PENDING, overdue", overdue: true, steps: []happen{arrive, awaitOverdue}},
	{name: "PAID", paid: true, steps: []happen{arrive, succeed}},
	{name: "PAID, refund due", paid: true, steps: []happen{arrive, succeed, succeed}},
	{name: "PAID, refunded", paid: true, steps: []happen{arrive, succeed, succeed, refund}},
	{name: "EXPIRED", overdue: true, steps: []happen{arrive, awaitOverdue, sweep}},
	{name: "EXPIRED, refund due", overdue: true, paid: true, steps: []happen{arrive, awaitOverdue, sweep, succeed}},
	{name: "EXPIRED, refunded", overdue: true, paid: true, steps: []happen{arrive, awaitOverdue, sweep, succeed, refund}},
	{name: "CANCELLED", steps: []happen{arrive, cancel}},
	{name: "CANCELLED, refund due", paid: true, steps: []happen{arrive, cancel, succeed}},
	{name: "CANCELLED, refunded", paid: true, steps: []happen{arrive, cancel, succeed, refund}},
	{name: "REJECTED", steps: []happen{haveAnother, arrive}},
	{name: "REJECTED, refund due", paid: true, steps: []happen{haveAnother, arrive, succeed}},
	{name: "REJECTED, refunded", paid: true, steps: []happen{haveAnother, arrive, succeed, refund}},
}

func unwritten(s state) bool { return s.name == noRow }
func written(s state) bool   { return s.name != noRow }
func wasPaid(s state) bool   { return s.paid }

var events = []event{
	{name: "its record arrives", happen: arrive},
	{name: "its record arrives; its buyer has another live order", onlyIn: unwritten, prepare: haveAnother, happen: arrive},
	{name: "its record arrives; there is no room for it", onlyIn: unwritten, prepare: sellOut, happen: arrive},
	{name: "its record arrives; its item has been loaded since", onlyIn: unwritten, prepare: loadAnew, happen: arrive},
	{name: "its record arrives; its item is retired", onlyIn: unwritten, prepare: retire, happen: arrive},
	{name: "its record cannot be published for too long", happen: giveUp},
	{name: "the provider reports a success", happen: succeed},
	{name: "the provider repeats its last success", onlyIn: wasPaid, happen: succeedAgain},
	{name: "the provider reports a failure", happen: fail},
	{name: "the provider reports another amount", happen: pay(true, "1")},
	{name: "the provider uses the name of another event", onlyIn: written, happen: reuse},
	{name: "the buyer cancels", happen: cancel},
	{name: "somebody else cancels", happen: cancelOther},
	{name: "the sweep of overdue orders", happen: sweep},
	{name: "an operator says that it was paid back", happen: refund},
	{name: "an operator says so of its last success", onlyIn: wasPaid, happen: refundLast},
	{name: "an operator says so of a payment that it never had", happen: refundOther},
}

func arrive(t *testing.T, d *desk, o *anOrder) string {
	_, err := d.Write(t.Context(), []sale.Event{o.event})
	must(t, err)
	return ""
}

func haveAnother(t *testing.T, d *desk, o *anOrder) string {
	other := o.event
	other.OrderID, other.Quantity = sale.NewOrderID(other.ItemID), 1
	_, err := d.Write(t.Context(), []sale.Event{other})
	must(t, err)
	return ""
}

func sellOut(t *testing.T, d *desk, o *anOrder) string {
	for i := range 5 {
		other := o.event
		other.OrderID, other.UserID = sale.NewOrderID(other.ItemID), "buyer "+strconv.Itoa(i)
		_, err := d.Write(t.Context(), []sale.Event{other})
		must(t, err)
	}
	return ""
}

func loadAnew(t *testing.T, d *desk, o *anOrder) string {
	token, ok, err := d.ClaimLoad(t.Context(), o.event.ItemID, 0)
	must(t, err)
	if ok {
		_, ok, err = d.Snapshot(t.Context(), o.event.ItemID, token)
		must(t, err)
	}
	if !ok {
		t.Fatal("the item was not loaded")
	}
	return ""
}

func retire(t *testing.T, d *desk, o *anOrder) string {
	d.exec(t, `UPDATE flash_sale SET ends_at = now() - interval '1 minute' WHERE id = (SELECT sale_id FROM flash_sale_item WHERE id = $1)`, o.event.ItemID)
	ok, err := d.Retire(t.Context(), o.event.ItemID, 0)
	must(t, err)
	if !ok {
		t.Fatal("the item was not retired")
	}
	return ""
}

func giveUp(t *testing.T, d *desk, o *anOrder) string {
	must(t, d.GiveUp(t.Context(), []sale.Event{o.event}))
	return ""
}

func awaitOverdue(t *testing.T, d *desk, o *anOrder) string {
	devtest.Eventually(t, time.Minute, func() bool {
		return len(d.column(t, `SELECT 'yes' FROM flash_sale_order WHERE id = $1 AND expires_at <= now()`, [16]byte(o.event.OrderID))) == 1
	}, "the order does not become overdue")
	return ""
}

func sweep(t *testing.T, d *desk, _ *anOrder) string {
	_, err := d.Expire(t.Context(), 1000)
	must(t, err)
	return ""
}

// tell sends an event of the provider and returns the answer to it.
func (d *desk) tell(t *testing.T, p sale.Payment) string {
	result, outcome, err := d.Pay(t.Context(), p)
	must(t, err)
	switch outcome {
	case ledger.PayDone:
		return fmt.Sprintf("200 %s, refundDue %v", result.Status, result.RefundDue)
	case ledger.PayNoOrder:
		return "503 while the item's orders are on their way, else 404"
	case ledger.PayMismatch:
		return "422 AMOUNT_MISMATCH"
	case ledger.PayEventReused:
		return "422 EVENT_REUSED"
	}
	t.Fatalf("the ledger takes a payment in a way that nobody knows: %d", outcome)
	return ""
}

// pay is a new event of the provider.
func pay(succeeded bool, amount sale.Amount) happen {
	return func(t *testing.T, d *desk, o *anOrder) string {
		o.number++
		p := sale.Payment{EventID: fmt.Sprintf("%v-%d", o.event.OrderID, o.number), OrderID: o.event.OrderID, Succeeded: succeeded, Amount: amount, Currency: "JPY"}
		if succeeded {
			o.payment = p
		}
		return d.tell(t, p)
	}
}

var (
	succeed = pay(true, "3960")
	fail    = pay(false, "3960")
)

func succeedAgain(t *testing.T, d *desk, o *anOrder) string { return d.tell(t, o.payment) }

// reuse tells of a success under the name of a failure that was told before.
func reuse(t *testing.T, d *desk, o *anOrder) string {
	fail(t, d, o)
	return d.tell(t, sale.Payment{EventID: fmt.Sprintf("%v-%d", o.event.OrderID, o.number), OrderID: o.event.OrderID, Succeeded: true, Amount: "3960", Currency: "JPY"})
}

func cancel(t *testing.T, d *desk, o *anOrder) string { return d.cancelAs(t, o, o.event.UserID, true) }

// cancelOther is a stranger who has learned of the id. He has no mark that names the order, so that nothing is written where there is no row.
func cancelOther(t *testing.T, d *desk, o *anOrder) string {
	return d.cancelAs(t, o, "somebody else", false)
}

// cancelAs does what the gateway does: where there is no row yet, and the caller has the mark, it is written as CANCELLED.
func (d *desk) cancelAs(t *testing.T, o *anOrder, user string, marked bool) string {
	row, outcome, err := d.Cancel(t.Context(), o.event.OrderID, user)
	must(t, err)
	if outcome == ledger.CancelNotFound && marked {
		row, outcome, err = d.CancelUnwritten(t.Context(), o.event)
		must(t, err)
	}
	switch outcome {
	case ledger.CancelDone:
		return "200 " + string(row.Status)
	case ledger.CancelRefused:
		return "409 NOT_CANCELLABLE"
	case ledger.CancelNotFound:
		return "404"
	}
	t.Fatalf("the ledger takes a cancellation in a way that nobody knows: %d", outcome)
	return ""
}

func refund(t *testing.T, d *desk, o *anOrder) string {
	return d.refund(t, o, nil)
}

func refundLast(t *testing.T, d *desk, o *anOrder) string {
	return d.refund(t, o, []string{o.payment.EventID})
}

func refundOther(t *testing.T, d *desk, o *anOrder) string {
	return d.refund(t, o, []string{"another"})
}

func (d *desk) refund(t *testing.T, o *anOrder, events []string) string {
	r, err := d.Refunded(t.Context(), o.event.OrderID, events)
	must(t, err)
	switch r.Outcome {
	case ledger.RefundDone, ledger.RefundBefore:
		return "200"
	case ledger.RefundNotDue:
		return "409 NOT_DUE"
	case ledger.RefundNoOrder:
		return "404"
	}
	t.Fatalf("the ledger takes a refund in a way that nobody knows: %d", r.Outcome)
	return ""
}
