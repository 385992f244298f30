package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flashgate/internal/sale"
)

// RefundOutcome says how the word that payments have been paid back was taken.
type RefundOutcome uint8

// The outcomes of Refunded. Only RefundDone changes anything.
const (
	RefundDone    RefundOutcome = iota + 1 // what was meant is marked now
	RefundBefore                           // all of what was meant had been marked before
	RefundNotDue                           // one of what was named has not to be paid back; or none was named, nothing is due, and nothing ever was paid back
	RefundNoOrder                          // there is no row with this id
)

// Refund is what became of the word that payments have been paid back.
type Refund struct {
	Outcome RefundOutcome
	Order   sale.Order // as it is afterwards; zero for RefundNoOrder
	Event   string     // RefundNotDue: the first one of those named that is no payment of the order which has to be paid back; empty: none was named
}

// Refunded marks payments of an order as paid back: those whose event ids are given, all of them or none; or, for nil, all that is due at that moment.
// It moves no money. It may be repeated after any error, and with event ids at any time: what is marked already stays as it is.
//
// The refunds due of an order from before payments were stored have no event. They can be marked by nil alone, and stay due when others are named.
func (db *DB) Refunded(ctx context.Context, id sale.OrderID, events []string) (Refund, error) {
	change := uuid.New()
	var refund Refund
	err := db.InTx(ctx, func(ctx context.Context, tx Tx) (err error) {
		refund, err = refunded(ctx, tx, id, events, change)
		return err
	})
	if err != nil {
		return Refund{}, fmt.Errorf("mark refunds of order %s: %w", id, err)
	}
	return refund, nil
}

// refunded decides under the lock of the order, which a payment takes as well. Whoever names what he has paid back marks nothing else, whatever comes
// in between:
//
//	operator A             operator B             late payment
//	sees e1                sees e1
//	pays e1 back
//	names e1: marked
//	                                              e2 is due
//	                       names e1: it is marked; e2 stays due
//
// To a number of refunds B's word would have been right again.
func refunded(ctx context.Context, tx Tx, id sale.OrderID, events []string, change uuid.UUID) (Refund, error) {
	o, ok, err := lockOrder(ctx, tx, id)
	if err != nil || !ok {
		return Refund{Outcome: RefundNoOrder}, err
	}
	// Without names, an attempt whose reply was lost may have marked what was due, and another payment have come since: that one is not marked.
	if done, err := happened(ctx, tx, change); done || err != nil {
		return Refund{Outcome: RefundDone, Order: o}, err
	}
	meant, err := meantRefunds(ctx, tx, id, events)
	if err != nil {
		return Refund{}, err
	}
	due := int64(len(meant.open))
	if events == nil {
		due = o.RefundsDue // those without an event, too
	}
	switch {
	case len(meant.refused) > 0:
		return Refund{RefundNotDue, o, meant.refused[0]}, nil
	case due == 0 && events == nil && o.RefundedAt.IsZero():
		return Refund{Outcome: RefundNotDue, Order: o}, nil
	case due == 0:
		return Refund{Outcome: RefundBefore, Order: o}, nil
	}
	o.RefundedAt, err = markRefunds(ctx, tx, id, due, meant.open, change)
	if err != nil {
		return Refund{}, err
	}
	o.RefundsDue -= due
	return Refund{Outcome: RefundDone, Order: o}, nil
}

// refunds are payments of an order, as the word about them finds them.
type refunds struct {
	open    []string // have to be marked, in the order in which they came in
	refused []string // were named, and have not to be paid back
}

// meantRefunds reads the payments of a locked order that are named; all of them for nil.
func meantRefunds(ctx context.Context, tx Tx, id sale.OrderID, events []string) (refunds, error) {
	var meant refunds
	known := make(map[string]bool, len(events))
	var event string
	var due, marked bool
	rows, _ := tx.Query(ctx, `
SELECT event_id, effect = 'refund_due', refunded_at IS NOT NULL FROM flash_sale_payment
WHERE order_id = $1 AND ($2::text[] IS NULL OR event_id = ANY($2)) ORDER BY received_at, event_id`, [16]byte(id), events)
	_, err := pgx.ForEachRow(rows, []any{&event, &due, &marked}, func() error {
		known[event] = due
		if due && !marked {
			meant.open = append(meant.open, event)
		}
		return nil
	})
	if err != nil {
		return refunds{}, fmt.Errorf("read payments: %w", err)
	}
	for _, event := range events {
		if !known[event] {
			meant.refused = append(meant.refused, event)
		}
	}
	return meant, nil
}

// markRefunds marks payments of a locked order, which are as many as it has refunds less from now on, or fewer: those from before payments were
// stored have none. The guards say the same as the lock did: if they differ, nothing happens.
func markRefunds(ctx context.Context, tx Tx, id sale.OrderID, due int64, events []string, change uuid.UUID) (at time.Time, err error) {
	var before, after []byte
	// The clock is read under the lock, so that no payment is paid back before it came in.
	err = tx.QueryRow(ctx, `
WITH old AS (SELECT `+auditedOrder+` AS before FROM flash_sale_order o WHERE o.id = $1)
UPDATE flash_sale_order o SET refunds_due = o.refunds_due - $2, refund_due = o.refunds_due > $2, refunded_at = clock_timestamp() FROM old
WHERE o.id = $1 AND o.refunds_due >= $2
RETURNING old.before, `+auditedOrder+` || jsonb_build_object('event_ids', coalesce($3::text[], '{}')), o.refunded_at`,
		[16]byte(id), due, events).Scan(&before, &after, &at)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return time.Time{}, errRaced
	case err != nil:
		return time.Time{}, fmt.Errorf("change order: %w", err)
	}
	tag, err := tx.Exec(ctx, `
UPDATE flash_sale_payment SET refunded_at = $3
WHERE order_id = $1 AND event_id = ANY($2) AND effect = 'refund_due' AND refunded_at IS NULL`, [16]byte(id), events, at)
	switch {
	case err != nil:
		return time.Time{}, fmt.Errorf("mark payments: %w", err)
	case tag.RowsAffected() != int64(len(events)):
		return time.Time{}, errRaced
	}
	return at, audit(ctx, tx, change, changeRefunded, subjectOrder(id), before, after)
}

// auditedOrder is what the audit table keeps of an order o: nothing that says who bought.
const auditedOrder = `to_jsonb(o) - 'user_id' - 'key_hash' - 'trace'`
