package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"flashgate/internal/sale"
)

// PayOutcome says how the ledger took an event of the payment provider.
type PayOutcome uint8

// The outcomes of Pay. Only PayDone leaves a row.
const (
	PayDone        PayOutcome = iota + 1 // recorded, now or by an earlier call
	PayNoOrder                           // there is no row with this order id
	PayMismatch                          // the amount or the currency is not that of the whole order
	PayEventReused                       // the id of the event is known with another order, status, amount or currency; that one stands
)

// PaymentEffect says what an event did to its order.
type PaymentEffect string

// The effects of a payment event.
const (
	EffectPaid      PaymentEffect = "paid"       // PENDING → PAID
	EffectFailed    PaymentEffect = "failed"     // nothing: another attempt may follow
	EffectRefundDue PaymentEffect = "refund_due" // money for an order that had ended, or was paid: one more refund is due
)

// Pay records what the payment provider says about an order. A success makes a PENDING order PAID, also after the end of its payment window as
// long as it has not expired; for an order in any other state it makes a refund due. A failure changes no order. An event that is known gets the
// answer that it got the first time, and changes nothing. It may be repeated after any error. An event id that is none is an error of kind
// Permanent.
func (db *DB) Pay(ctx context.Context, p sale.Payment) (sale.PaymentResult, PayOutcome, error) {
	if err := sale.CheckEventID(p.EventID); err != nil {
		return sale.PaymentResult{}, 0, fmt.Errorf("record payment of order %s: %w", p.OrderID, permanentAt(fmt.Errorf("event id %w", err), nil))
	}
	var result sale.PaymentResult
	var outcome PayOutcome
	err := db.InTx(ctx, func(ctx context.Context, tx Tx) (err error) {
		result, outcome, err = pay(ctx, tx, p)
		return err
	})
	if err != nil {
		return sale.PaymentResult{}, 0, fmt.Errorf("record payment of order %s: %w", p.OrderID, err)
	}
	return result, outcome, nil
}

// pay locks the row of the order, and not that of its item: sold stays as it is. Expiry, cancellation and another payment wait for the order here,
// or have decided it already.
//
// The same event may arrive twice at once. For the same order, the second one waits for the row and then finds the payment of the first. For two
// orders, each holds its own row; the second one waits for the first at the primary key of the payments, where nobody waits for an order any more.
// The payment is therefore written before the order changes. A COMMIT whose reply was lost needs no care: the payment tells.
func pay(ctx context.Context, tx Tx, p sale.Payment) (sale.PaymentResult, PayOutcome, error) {
	o, ok, err := lockOrder(ctx, tx, p.OrderID)
	if err != nil || !ok {
		return sale.PaymentResult{}, PayNoOrder, err
	}
	if earlier, known, err := earlierPayment(ctx, tx, p); known || err != nil {
		return earlier.result, earlier.outcome, err
	}
	if !p.Amount.Equal(sale.Total(o.Price, o.Quantity)) || p.Currency != o.Currency {
		return sale.PaymentResult{}, PayMismatch, nil
	}
	effect, result := effectOf(p, o)
	fresh, err := insertPayment(ctx, tx, p, effect, result)
	if err != nil {
		return sale.PaymentResult{}, 0, err
	}
	if !fresh {
		earlier, known, err := earlierPayment(ctx, tx, p)
		if err == nil && !known {
			err = errRaced // it has been purged since
		}
		return earlier.result, earlier.outcome, err
	}
	if err := apply(ctx, tx, p.OrderID, effect); err != nil {
		return sale.PaymentResult{}, 0, err
	}
	return result, PayDone, nil
}

// lockOrder locks the row of an order against every change; false when there is none.
func lockOrder(ctx context.Context, tx Tx, id sale.OrderID) (sale.Order, bool, error) {
	rows, _ := tx.Query(ctx, `SELECT `+orderColumns+` FROM flash_sale_order WHERE id = $1 FOR NO KEY UPDATE`, [16]byte(id))
	o, err := pgx.CollectExactlyOneRow(rows, scanOrder)
	if errors.Is(err, pgx.ErrNoRows) {
		return sale.Order{}, false, nil
	}
	if err != nil {
		return sale.Order{}, false, fmt.Errorf("lock order: %w", err)
	}
	return o, true, nil
}

// effectOf decides what an event does to an order as it stands, and what is answered.
func effectOf(p sale.Payment, o sale.Order) (PaymentEffect, sale.PaymentResult) {
	switch {
	case !p.Succeeded:
		return EffectFailed, sale.PaymentResult{Status: o.Status, RefundDue: o.RefundDue()}
	case o.Status == sale.Pending:
		return EffectPaid, sale.PaymentResult{Status: sale.Paid, RefundDue: o.RefundDue()}
	}
	return EffectRefundDue, sale.PaymentResult{Status: o.Status, RefundDue: true}
}

// earlier is how an event was taken before.
type earlier struct {
	result  sale.PaymentResult
	outcome PayOutcome
}

// earlierPayment looks for a payment with the id of the event. Its amount is compared as a number, like any other.
func earlierPayment(ctx context.Context, tx Tx, p sale.Payment) (earlier, bool, error) {
	var row PaymentRow
	rows, _ := tx.Query(ctx, `SELECT `+paymentColumns+` FROM flash_sale_payment WHERE event_id = $1`, p.EventID)
	row, err := pgx.CollectExactlyOneRow(rows, scanPayment)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return earlier{}, false, nil
	case err != nil:
		return earlier{}, false, fmt.Errorf("look for payment: %w", err)
	case row.OrderID != p.OrderID || row.Succeeded != p.Succeeded || row.Currency != p.Currency || !row.Amount.Equal(p.Amount):
		return earlier{outcome: PayEventReused}, true, nil
	}
	return earlier{sale.PaymentResult{Status: row.Status, RefundDue: row.RefundDue}, PayDone}, true, nil
}

// insertPayment stores an event with its answer; false when another transaction stored its id since we looked.
func insertPayment(ctx context.Context, tx Tx, p sale.Payment, effect PaymentEffect, answer sale.PaymentResult) (bool, error) {
	status := paymentFailed
	if p.Succeeded {
		status = paymentSucceeded
	}
	tag, err := tx.Exec(ctx, `
INSERT INTO flash_sale_payment (event_id, order_id, status, amount, currency, effect, order_status, refund_due)
VALUES ($1, $2, $3, $4::text::numeric, $5, $6, $7, $8)
ON CONFLICT (event_id) DO NOTHING`, p.EventID, [16]byte(p.OrderID), status, string(p.Amount), p.Currency, string(effect),
		string(answer.Status), answer.RefundDue)
	if err != nil {
		return false, fmt.Errorf("write payment: %w", err)
	}
	return tag.RowsAffected() == 1, nil
}

// apply changes the locked order as the effect says. The guard of the statement says the same as the lock did: if they differ, nothing happens.
func apply(ctx context.Context, tx Tx, id sale.OrderID, effect PaymentEffect) error {
	var statement string
	switch effect {
	case EffectPaid:
		statement = `UPDATE flash_sale_order SET status = 'PAID', paid_at = now() WHERE id = $1 AND CASE status WHEN 'PENDING' THEN true ELSE false END`
	case EffectRefundDue:
		statement = `UPDATE flash_sale_order SET refunds_due = refunds_due + 1, refund_due = true WHERE id = $1 AND status <> 'PENDING'`
	default:
		return nil
	}
	tag, err := tx.Exec(ctx, statement, [16]byte(id))
	if err != nil {
		return fmt.Errorf("change order: %w", err)
	}
	if tag.RowsAffected() != 1 {
		return errRaced
	}
	return nil
}
