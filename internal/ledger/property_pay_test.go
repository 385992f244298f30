package ledger

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"flashgate/internal/sale"
)

// modelPayment is a payment event as it was told the first time, and the answer that it got.
type modelPayment struct {
	payment sale.Payment
	result  sale.PaymentResult
}

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
	switch {
	case !p.Succeeded:
	case o.status == sale.Pending:
		o.status = sale.Paid
		o.tell("paid")
	default:
		o.refunds++
		o.tell("refund_due")
	}
	result := sale.PaymentResult{Status: o.status, RefundDue: o.refunds > 0}
	m.payments[p.EventID] = modelPayment{p, result}
	return result, PayDone
}

// pay tells an event of the provider: a new one or an old one, of an order that there is or is not, with what it says right or wrong.
func (tr *trial) pay(t *rapid.T) {
	e := tr.draw(t)
	p := success(e, rapid.SampledFrom([]string{"1", "2", "3", "4", "5", "6", "7", "8", "9"}).Draw(t, "payment"))
	if earlier, ok := tr.m.payments[p.EventID]; ok && rapid.Bool().Draw(t, "told again") {
		p = earlier.payment
	}
	switch rapid.SampledFrom([]string{"", "", "", "failed", "amount", "currency"}).Draw(t, "says") {
	case "failed":
		p.Succeeded = false
	case "amount":
		p.Amount = "0.5"
	case "currency":
		p.Currency = "XXX"
	}
	result, outcome, err := tr.faulty(t).Pay(context.Background(), p)
	if want, how := tr.m.pay(p); err != nil || outcome != how || result != want {
		t.Fatalf("pay %+v: %v %+v, want %v %+v; %v", p, outcome, result, how, want, err)
	}
}

// refund is what the word that refunds have been paid does, in the model.
func (o *modelOrder) refund(word Refund) RefundOutcome {
	if o == nil {
		return RefundNoOrder
	}
	if marked, known := o.words[word.Key]; known && word.Key != "" {
		if word.Seen != nil && *word.Seen != marked {
			return RefundKeyReused
		}
		return RefundBefore
	}
	switch {
	case o.refunds == 0 && !o.refunded:
		return RefundNotDue
	case o.refunds == 0 && word.Seen != nil && *word.Seen != 0 && *word.Seen != o.last:
		return RefundsChanged
	case o.refunds == 0:
		return RefundBefore
	case word.Seen != nil && *word.Seen != o.refunds:
		return RefundsChanged
	}
	if word.Key != "" {
		if o.words == nil {
			o.words = make(map[string]int64)
		}
		o.words[word.Key] = o.refunds
	}
	o.refunds, o.refunded, o.last = 0, true, o.refunds
	return RefundDone
}

// refunded says that refunds have been paid: those that are due, or a number that may be wrong, once or again.
func (tr *trial) refunded(t *rapid.T) {
	e := tr.draw(t)
	word := Refund{Key: rapid.SampledFrom([]string{"", "", "k", "l"}).Draw(t, "key")}
	if seen := rapid.Int64Range(-1, 3).Draw(t, "seen"); seen >= 0 {
		word.Seen = &seen
	}
	got, outcome, err := tr.faulty(t).Refunded(context.Background(), e.OrderID, word)
	o := tr.m.orders[e.OrderID]
	want := o.refund(word)
	if err != nil || outcome != want || o != nil && (got.Status != o.status || got.RefundsDue != o.refunds) {
		t.Fatalf("refunded: %v %+v, want %v %+v; %v", outcome, got, want, o, err)
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
