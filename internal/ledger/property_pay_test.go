package ledger

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"flashgate/internal/sale"
)

// modelPayment is a payment event as it was told the first time, and the answer that it got.
type modelPayment struct {
	payment  sale.Payment
	result   sale.PaymentResult
	due      bool // it was to be paid back, and
	refunded bool // somebody said that it was
}

// eventIDs are those of all payments.
var eventIDs = []string{"1", "2", "3", "4", "5", "6", "7", "8", "9"}

// pay is what an event of the provider does, in the model.
func (m *model) pay(p sale.Payment) (sale.PaymentResult, PayOutcome) {
	o := m.orders[p.OrderID]
	if o == nil {
		return sale.PaymentResult{}, PayNoOrder
	}
	if earlier, ok := m.payments[p.EventID]; ok {
		if earlier.payment != p {
			return sale.PaymentResult{}, PayEventReused
		}
		return earlier.result, PayDone
	}
	if p.Amount != sale.Total(o.event.Price, o.event.Quantity) || p.Currency != o.event.Currency {
		return sale.PaymentResult{}, PayMismatch
	}
	due := false
	switch {
	case !p.Succeeded:
	case o.status == sale.Pending:
		o.status = sale.Paid
		o.tell("paid")
	default:
		due = true
		o.refunds++
		o.tell("refund_due")
	}
	result := sale.PaymentResult{Status: o.status, RefundDue: o.refunds > 0}
	m.payments[p.EventID] = &modelPayment{payment: p, result: result, due: due}
	return result, PayDone
}

// pay tells an event of the provider: a new one or an old one, of an order that there is or is not, with what it says right or wrong.
func (tr *trial) pay(t *rapid.T) {
	e := tr.draw(t)
	p := success(e, rapid.SampledFrom(eventIDs).Draw(t, "payment"))
	if earlier, ok := tr.m.payments[p.EventID]; ok && rapid.Bool().Draw(t, "told again") {
		p = earlier.payment
	}
	switch rapid.SampledFrom([]string{"", "", "", "failed", "amount", "currency"}).Draw(t, "says") {
	case "failed":
		p.Succeeded = false
	case "amount":
		p.Amount = "0.5"
	case "currency":
		p.Currency = "CHF"
	}
	result, outcome, err := tr.faulty(t).Pay(context.Background(), p)
	if want, how := tr.m.pay(p); err != nil || outcome != how || result != want {
		t.Fatalf("pay %+v: %v %+v, want %v %+v; %v", p, outcome, result, how, want, err)
	}
}

// refund is what the word that payments have been paid back does, in the model: to those that are named, or for nil to all.
func (m *model) refund(id sale.OrderID, events []string) (how RefundOutcome, refused string) {
	o := m.orders[id]
	if o == nil {
		return RefundNoOrder, ""
	}
	for _, event := range events {
		if p := m.payments[event]; p == nil || p.payment.OrderID != id || !p.due {
			return RefundNotDue, event
		}
	}
	if events == nil {
		if o.refunds == 0 && !o.refunded {
			return RefundNotDue, ""
		}
		events = slices.Collect(maps.Keys(m.payments))
	}
	how = RefundBefore
	for _, event := range events {
		if p := m.payments[event]; p.payment.OrderID == id && p.due && !p.refunded {
			p.refunded, o.refunded, how = true, true, RefundDone
			o.refunds--
		}
	}
	return how, ""
}

// refunded says that payments have been paid back: all that are due, or some that are due, or are not, or are another order's, once or again.
func (tr *trial) refunded(t *rapid.T) {
	e := tr.draw(t)
	var events []string
	switch rapid.SampledFrom([]string{"all", "its own", "its own", "any"}).Draw(t, "meant") {
	case "its own":
		events = []string{}
		for _, event := range slices.Sorted(maps.Keys(tr.m.payments)) {
			if p := tr.m.payments[event]; p.payment.OrderID == e.OrderID && p.due && rapid.Bool().Draw(t, "paid back "+event) {
				events = append(events, event)
			}
		}
	case "any":
		events = rapid.SliceOfN(rapid.SampledFrom(eventIDs), 1, 3).Draw(t, "paid back")
	}
	got, err := tr.faulty(t).Refunded(context.Background(), e.OrderID, events)
	how, refused := tr.m.refund(e.OrderID, events)
	o := tr.m.orders[e.OrderID]
	if err != nil || got.Outcome != how || got.Event != refused || o != nil && (got.Order.Status != o.status || got.Order.RefundsDue != o.refunds) {
		t.Fatalf("refunded %q: %+v, want %v %q %+v; %v", events, got, how, refused, o, err)
	}
}

// checkRefunded compares which payments are due, and which are marked as paid back, with the model.
func (tr *trial) checkRefunded(t *rapid.T) {
	rows, _ := tr.sql.Query(context.Background(), `SELECT event_id, effect = 'refund_due', refunded_at IS NOT NULL FROM flash_sale_payment`)
	var event string
	var due, marked bool
	n := 0
	_, err := pgx.ForEachRow(rows, []any{&event, &due, &marked}, func() error {
		n++
		if p := tr.m.payments[event]; p == nil || p.due != due || p.refunded != marked {
			return fmt.Errorf("payment %s is due: %v, paid back: %v, want %+v", event, due, marked, p)
		}
		return nil
	})
	if err != nil || n != len(tr.m.payments) {
		t.Fatalf("%d payments, want %d, %v", n, len(tr.m.payments), err)
	}
}

// checkTold compares the outgoing events with what the model has told, order by order and item by item.
func (tr *trial) checkTold(t *rapid.T) {
	told := make(map[string][]string)
	rows, _ := tr.sql.Query(context.Background(), `
SELECT key, CASE type WHEN 'stock.increased' THEN type || ' ' || delta || ' ' || quantity ELSE replace(type, 'order.', '') END
FROM flash_sale_event ORDER BY id`)
	var key, what string
	n := 0
	if _, err := pgx.ForEachRow(rows, []any{&key, &what}, func() error {
		told[key] = append(told[key], what)
		n++
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for id, o := range tr.m.orders {
		if got := told[id.String()]; !slices.Equal(got, o.told) {
			t.Fatalf("order %s: told %q, want %q", id, got, o.told)
		}
		n -= len(o.told)
	}
	for id, it := range tr.m.items {
		if got := told[fmt.Sprint("item:", id)]; !slices.Equal(got, it.told) {
			t.Fatalf("item %d: told %q, want %q", id, got, it.told)
		}
		n -= len(it.told)
	}
	if n != 0 {
		t.Fatalf("%d events of nothing", n)
	}
}
