package ledger

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flashgate/internal/sale"
)

// OutgoingEvent is something that the rest of the shop has to be told because it became true in the ledger. The events of orders are written by
// triggers on their table, whatever changes them; an increase writes its own.
type OutgoingEvent struct {
	ID          int64
	Type        string // order.created, order.paid, order.expired, order.cancelled, order.rejected, order.refund_due, stock.increased
	Key         string // the order's id, or item:N; events of one key are told in the order of their ids
	ItemID      int64
	OrderID     sale.OrderID // order.*
	UserID      string       // order.*
	Quantity    int64        // of the order, or of the item afterwards
	Status      string       // order.*: afterwards
	OperationID string       // stock.increased: a UUID
	Delta       int64        // stock.increased
	At          time.Time    // by the clock of the database; never runs backwards within a key
	Trace       string       // order.*: W3C traceparent of the purchase, or empty
	Attempts    int          // how often it, or one before it of its key, was told in vain
}

// claimEvents goes through two queues, that of the events which never failed and that of the others. An event that is not the first of its key is
// passed over: a row that was written earlier is unfinished, whether somebody has it or not. The comparison with the first one is a subquery on
// purpose: as a join the planner could turn it into one over the whole table.
const claimEvents = `
UPDATE flash_sale_event SET not_before = now() + $3 WHERE id = ANY(ARRAY(
    SELECT e.id FROM flash_sale_event e
    WHERE e.retry_at IS NULL AND e.not_before <= now() AND e.id = (SELECT f.id FROM flash_sale_event f WHERE f.key = e.key ORDER BY f.id LIMIT 1)
    ORDER BY e.id LIMIT $1 FOR UPDATE OF e SKIP LOCKED
) || ARRAY(
    SELECT e.id FROM flash_sale_event e
    WHERE e.retry_at <= now() AND e.not_before <= now() AND e.id = (SELECT f.id FROM flash_sale_event f WHERE f.key = e.key ORDER BY f.id LIMIT 1)
    ORDER BY e.retry_at, e.id LIMIT $2 FOR UPDATE OF e SKIP LOCKED))
RETURNING id, type, key, item_id, order_id, user_id, quantity, status, operation_id, delta, at, trace, attempts`

// ClaimEvents takes events to be told, at most one of each key: the next one of a key comes when the one before is finished. Up to fresh of them
// have never been told in vain, the oldest first; up to again of them have (see PostponeEvents), those first that are due for the longest. Nobody
// else gets them until the lease ran out by the clock of the database; no transaction stays open meanwhile. An event is told again when it was not
// finished in time. Whoever tells events must have stopped before the lease of its claim runs out, counted from before the call: otherwise it could
// tell one after somebody else has told the next one of the same key.
func (db *DB) ClaimEvents(ctx context.Context, fresh, again int, lease time.Duration) ([]OutgoingEvent, error) {
	var claimed []OutgoingEvent
	err := db.InTx(ctx, func(ctx context.Context, tx Tx) (err error) {
		var claim pgx.Batch
		// Each queue has an index in its order. As long as the planner takes the table for empty, to read all of it and to sort seems as good.
		claim.Queue(`SELECT set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true)`)
		claim.Queue(claimEvents, fresh, again, lease).Query(func(rows pgx.Rows) (err error) {
			claimed, err = pgx.CollectRows(rows, scanOutgoing)
			return err
		})
		return tx.SendBatch(ctx, &claim).Close()
	})
	if err != nil {
		return nil, fmt.Errorf("claim outgoing events: %w", err)
	}
	slices.SortFunc(claimed, func(a, b OutgoingEvent) int { return cmp.Compare(a.ID, b.ID) })
	return claimed, nil
}

func scanOutgoing(row pgx.CollectableRow) (OutgoingEvent, error) {
	var e OutgoingEvent
	var order, operation *[16]byte
	var user, status *string
	var delta *int64
	err := row.Scan(&e.ID, &e.Type, &e.Key, &e.ItemID, &order, &user, &e.Quantity, &status, &operation, &delta, &e.At, &e.Trace, &e.Attempts)
	if order != nil {
		e.OrderID = *order
	}
	if operation != nil {
		e.OperationID = uuid.UUID(*operation).String()
	}
	e.UserID, e.Status, e.Delta = value(user), value(status), value(delta)
	return e, err
}

// FinishEvents deletes events that have been told. Ids that are gone are no error.
func (db *DB) FinishEvents(ctx context.Context, ids ...int64) error {
	if len(ids) == 0 {
		return nil
	}
	err := db.InTx(ctx, func(ctx context.Context, tx Tx) error {
		// In the order of ids, like everybody: two relays whose leases overlap may have told the same ones.
		_, err := tx.Exec(ctx, `
DELETE FROM flash_sale_event WHERE id = ANY(ARRAY(
    SELECT id FROM flash_sale_event WHERE id = ANY($1) ORDER BY id FOR UPDATE))`, ids)
		return err
	})
	if err != nil {
		return fmt.Errorf("finish outgoing events: %w", err)
	}
	return nil
}

// postponeEvents locks the first row of a key before those behind it, which nobody else touches as long as there is a first.
const postponeEvents = `
WITH first AS (
    SELECT e.key, p.wait FROM unnest($1::bigint[], $2::interval[]) p (id, wait) JOIN flash_sale_event e ON e.id = p.id ORDER BY e.id FOR UPDATE OF e
)
UPDATE flash_sale_event e SET attempts = least(e.attempts, 1000) + 1,
    retry_at = greatest(e.not_before, now() + f.wait), not_before = greatest(e.not_before, now() + f.wait)
FROM first f WHERE e.key = f.key`

// PostponeEvents puts events off that were told in vain, each for its wait, with all that wait behind them under their keys. Nobody gets them before the
// wait is over, nor before the lease runs out under which somebody has them: what failed may still be in the hands of a broker. There are as many waits
// as ids. Ids that are gone are no error.
func (db *DB) PostponeEvents(ctx context.Context, ids []int64, waits []time.Duration) error {
	if len(ids) == 0 {
		return nil
	}
	err := db.InTx(ctx, func(ctx context.Context, tx Tx) error {
		var postpone pgx.Batch
		// However little the planner knows, rows are found one by one, by their ids and by their keys.
		postpone.Queue(`SELECT set_config(name, 'off', true) FROM unnest(ARRAY['enable_hashjoin', 'enable_mergejoin', 'enable_seqscan', 'enable_bitmapscan']) name`)
		postpone.Queue(postponeEvents, ids, waits)
		return tx.SendBatch(ctx, &postpone).Close()
	})
	if err != nil {
		return fmt.Errorf("postpone outgoing events: %w", err)
	}
	return nil
}

// MaxWaitingEvents is how far WaitingEvents counts: a table of millions is not read from end to end to say that they are too many.
const MaxWaitingEvents = 100_000

// WaitingEvents returns how many events have not been told yet, those under way included, up to MaxWaitingEvents; and the age of the oldest one by
// the clock of the database; 0 and 0 when there is none.
func (db *DB) WaitingEvents(ctx context.Context) (count int64, oldest time.Duration, err error) {
	err = db.read(ctx, func(ctx context.Context) error {
		return db.pool.QueryRow(ctx, `
SELECT (SELECT count(*) FROM (SELECT FROM flash_sale_event LIMIT $1) waiting),
    coalesce((SELECT greatest(clock_timestamp() - at, interval '0') FROM flash_sale_event ORDER BY id LIMIT 1), interval '0')`,
			MaxWaitingEvents).Scan(&count, &oldest)
	})
	if err != nil {
		return 0, 0, fmt.Errorf("count outgoing events: %w", err)
	}
	return count, oldest, nil
}

// value is what a column holds, the zero value for NULL.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
