package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flashgate/internal/sale"
)

// Refund is the word that the refunds of an order have been paid. The zero value says it of all that are due, however many these are.
type Refund struct {
	// Seen is how many were due when whoever says it looked; another number now is RefundsChanged. Nil: it does not matter.
	Seen *int64
	// Key makes the word one that counts once, however often it is given, whatever becomes due in between; empty: none. With the same Seen, or
	// none, it is the same word; with another one it is RefundKeyReused.
	Key string
}

// RefundOutcome says how the word that refunds have been paid was taken.
type RefundOutcome uint8

// The outcomes of Refunded. Only RefundDone changes anything.
const (
	RefundDone      RefundOutcome = iota + 1 // what was due is marked now
	RefundBefore                             // an earlier call has marked it
	RefundsChanged                           // another number is due than was seen
	RefundKeyReused                          // the key was used for this order with another number
	RefundNotDue                             // nothing was due, and nothing ever has been paid back
	RefundNoOrder                            // there is no row with this id
)

// Refunded marks all refunds that are due for an order as paid back and returns the order as it is afterwards (zero for RefundNoOrder). It moves no
// money. It may be repeated after any error; where another payment may have come in since, only with a key: two payments that became due one after
// the other look the same to a number.
func (db *DB) Refunded(ctx context.Context, id sale.OrderID, word Refund) (sale.Order, RefundOutcome, error) {
	change := uuid.New()
	if word.Key != "" {
		// The key of an order names one change. The audit table has each change once, and so remembers the key.
		change = uuid.NewSHA1(uuid.UUID(id), []byte(changeRefunded+" "+word.Key))
	}
	var o sale.Order
	var outcome RefundOutcome
	tried := false // an attempt has marked, whether that was committed or not
	err := db.InTx(ctx, func(ctx context.Context, tx Tx) (err error) {
		o, outcome, err = refunded(ctx, tx, id, word, change)
		if outcome == RefundBefore && tried && tx.Unsure {
			outcome = RefundDone
		}
		tried = tried || outcome == RefundDone
		return err
	})
	if err != nil {
		return sale.Order{}, 0, fmt.Errorf("mark refunds of order %s: %w", id, err)
	}
	return o, outcome, nil
}

// refunded decides under the lock of the order, which a payment takes as well: a late one is either among those that are counted here, or comes
// after the mark and is due again.
//
//	operator                   late payment
//	looks: 1 is due
//	                           locks the order: 2 are due
//	says that 1 was paid
//	locks the order: 2 are due; nothing is marked
//
// Had the mark the lock first, the payment would find 0 due and make it 1.
func refunded(ctx context.Context, tx Tx, id sale.OrderID, word Refund, change uuid.UUID) (sale.Order, RefundOutcome, error) {
	o, ok, err := lockOrder(ctx, tx, id)
	if err != nil || !ok {
		return sale.Order{}, RefundNoOrder, err
	}
	// An attempt whose reply was lost may have marked what was due, and another payment have come since: that one is not marked.
	if tx.Unsure || word.Key != "" {
		marked, done, err := earlierRefund(ctx, tx, ` WHERE change_id = $1`, [16]byte(change))
		switch {
		case err != nil:
			return sale.Order{}, 0, err
		case done && word.Seen != nil && *word.Seen != marked:
			return o, RefundKeyReused, nil
		case done:
			return o, RefundBefore, nil
		}
	}
	if outcome, err := word.refused(ctx, tx, o); outcome != 0 || err != nil {
		return o, outcome, err
	}
	var before, after []byte
	err = tx.QueryRow(ctx, `
WITH old AS (SELECT `+auditedOrder+` AS before FROM flash_sale_order o WHERE o.id = $1)
UPDATE flash_sale_order o SET refunds_due = 0, refund_due = false, refunded_at = now() FROM old
WHERE o.id = $1 RETURNING old.before, `+auditedOrder+`, o.refunded_at`, [16]byte(id)).Scan(&before, &after, &o.RefundedAt)
	if err != nil {
		return sale.Order{}, 0, fmt.Errorf("change order: %w", err)
	}
	o.RefundsDue = 0
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

// refused says why the word changes nothing of the locked order; 0 when it does. Where nothing is due any more, a word without a number, or with the
// number that was marked last, is one that was given before.
func (word Refund) refused(ctx context.Context, tx Tx, o sale.Order) (RefundOutcome, error) {
	switch due := o.RefundsDue; {
	case due == 0 && o.RefundedAt.IsZero():
		return RefundNotDue, nil
	case due > 0 && (word.Seen == nil || *word.Seen == due):
		return 0, nil
	case due > 0:
		return RefundsChanged, nil
	case word.Seen == nil || *word.Seen == 0:
		return RefundBefore, nil
	}
	marked, ok, err := earlierRefund(ctx, tx, ` WHERE subject = $1 AND what = $2 ORDER BY id DESC LIMIT 1`, subjectOrder(o.ID), changeRefunded)
	if ok && marked == *word.Seen {
		return RefundBefore, err
	}
	return RefundsChanged, err
}

// earlierRefund looks into the audit table for how many refunds a change has marked.
func earlierRefund(ctx context.Context, tx Tx, where string, args ...any) (marked int64, ok bool, err error) {
	err = tx.QueryRow(ctx, `SELECT (before->>'refunds_due')::bigint FROM flash_sale_audit`+where, args...).Scan(&marked)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, false, nil
	case err != nil:
		return 0, false, fmt.Errorf("look for audit row: %w", err)
	}
	return marked, true, nil
}

// auditedOrder is what the audit table keeps of an order o: nothing that says who bought.
const auditedOrder = `to_jsonb(o) - 'user_id' - 'key_hash' - 'trace'`
