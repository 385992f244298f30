package ledger

import (
	"context"
	"fmt"
	"time"

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
