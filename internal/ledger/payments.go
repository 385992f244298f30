package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flashgate/internal/sale"
)

// What the provider said, as the payments keep it.
const (
	paymentSucceeded = "SUCCEEDED"
	paymentFailed    = "FAILED"
)

// PaymentRow is an event of the payment provider as the ledger took it.
type PaymentRow struct {
	EventID    string
	OrderID    sale.OrderID
	Succeeded  bool
	Amount     sale.Amount
	Currency   string
	Effect     PaymentEffect
	Status     sale.OrderStatus // of the order afterwards, as it was answered
	RefundDue  bool             // as it was answered
	ReceivedAt time.Time        // by the clock of the database
	RefundedAt time.Time        // EffectRefundDue: when somebody said that it has been paid back; zero if nobody did
}

const paymentColumns = `event_id, order_id, status, amount::text, currency, effect, order_status, refund_due, received_at, refunded_at`

func scanPayment(row pgx.CollectableRow) (PaymentRow, error) {
	var p PaymentRow
	var status string
	var refunded *time.Time
	err := row.Scan(&p.EventID, (*[16]byte)(&p.OrderID), &status, &p.Amount, &p.Currency, &p.Effect, &p.Status, &p.RefundDue, &p.ReceivedAt, &refunded)
	p.Succeeded, p.RefundedAt = status == paymentSucceeded, value(refunded)
	return p, err
}

// Payments returns what the payment provider told about an order, oldest first; nothing for an order that does not exist.
func (db *DB) Payments(ctx context.Context, id sale.OrderID) ([]PaymentRow, error) {
	var payments []PaymentRow
	err := db.read(ctx, func(ctx context.Context) (err error) {
		rows, _ := db.pool.Query(ctx, `SELECT `+paymentColumns+` FROM flash_sale_payment WHERE order_id = $1 ORDER BY received_at, event_id`, [16]byte(id))
		payments, err = pgx.CollectRows(rows, scanPayment)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read payments of order %s: %w", id, err)
	}
	return payments, nil
}

// RefundOutcome says how the word that refunds have been paid was taken.
type RefundOutcome uint8

// The outcomes of Refunded.
const (
	RefundDone    RefundOutcome = iota + 1 // nothing is due any more, since now or since an earlier call
	RefundNotDue                           // nothing was due, and nothing ever has been paid back
	RefundNoOrder                          // there is no row with this id
)

// Refunded marks all refunds that are due for an order as paid back and returns the order as it is afterwards (zero for RefundNoOrder). It moves no
// money. It may be repeated after any error.
func (db *DB) Refunded(ctx context.Context, id sale.OrderID) (sale.Order, RefundOutcome, error) {
	change := uuid.New()
	var o sale.Order
	var outcome RefundOutcome
	err := db.InTx(ctx, func(ctx context.Context, tx Tx) (err error) {
		o, outcome, err = refunded(ctx, tx, id, change)
		return err
	})
	if err != nil {
		return sale.Order{}, 0, fmt.Errorf("mark refunds of order %s: %w", id, err)
	}
	return o, outcome, nil
}

// auditedOrder is what the audit table keeps of an order o: nothing that says who bought.
const auditedOrder = `to_jsonb(o) - 'user_id' - 'key_hash' - 'trace'`

func refunded(ctx context.Context, tx Tx, id sale.OrderID, change uuid.UUID) (sale.Order, RefundOutcome, error) {
	o, ok, err := lockOrder(ctx, tx, id)
	if err != nil || !ok {
		return sale.Order{}, RefundNoOrder, err
	}
	// An attempt whose reply was lost may have marked what was due, and another payment have come since: that one is not marked.
	done, err := happened(ctx, tx, change)
	if err != nil || done {
		return o, RefundDone, err
	}
	if !o.RefundDue {
		if o.RefundedAt.IsZero() {
			return o, RefundNotDue, nil
		}
		return o, RefundDone, nil
	}
	var before, after []byte
	err = tx.QueryRow(ctx, `
WITH old AS (SELECT `+auditedOrder+` AS before FROM flash_sale_order o WHERE o.id = $1)
UPDATE flash_sale_order o SET refunds_due = 0, refund_due = false, refunded_at = now() FROM old
WHERE o.id = $1 RETURNING old.before, `+auditedOrder+`, o.refunded_at`, [16]byte(id)).Scan(&before, &after, &o.RefundedAt)
	if err != nil {
		return sale.Order{}, 0, fmt.Errorf("change order: %w", err)
	}
	o.RefundDue = false
	if err := audit(ctx, tx, change, changeRefunded, subjectOrder(id), before, after); err != nil {
		return sale.Order{}, 0, err
	}
	_, err = tx.Exec(ctx, `
UPDATE flash_sale_payment SET refunded_at = now() WHERE order_id = $1 AND effect = 'refund_due' AND refunded_at IS NULL`, [16]byte(id))
	if err != nil {
		return sale.Order{}, 0, fmt.Errorf("mark payments: %w", err)
	}
	return o, RefundDone, nil
}
