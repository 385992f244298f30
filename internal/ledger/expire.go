package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Expire ends up to limit PENDING orders whose payment window is over, gives their units back, and returns how many it ended; as many as
// limit means that there may be more. Any number of processes may do it at once: each order expires once. An item that cannot be done does
// not keep the others waiting; its error is among those returned, and the number counts all the same.
func (db *DB) Expire(ctx context.Context, limit int) (int, error) {
	var items []int64
	err := db.read(ctx, func(ctx context.Context) (err error) {
		rows, _ := db.pool.Query(ctx, `
SELECT i.id FROM flash_sale_item i CROSS JOIN LATERAL (
    SELECT FROM flash_sale_order o WHERE o.item_id = i.id AND o.status = 'PENDING' AND o.expires_at <= now() LIMIT 1) due
WHERE i.retired_at IS NULL ORDER BY i.id`)
		items, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("look for due orders: %w", err)
	}
	total := 0
	var errs []error
	for _, item := range items {
		if total >= limit || ctx.Err() != nil {
			break
		}
		n, err := db.expireItem(ctx, item, limit-total)
		total += n
		if err != nil {
			errs = append(errs, fmt.Errorf("expire orders of item %d: %w", item, err))
		}
	}
	return total, errors.Join(errs...)
}

// expireItem ends up to limit due orders of one item, in one transaction.
func (db *DB) expireItem(ctx context.Context, item int64, limit int) (n int, err error) {
	err = db.InTx(ctx, func(ctx context.Context, tx Tx) error {
		it, err := lockItem(ctx, tx, item)
		if err != nil {
			return err
		}
		// A payment holds its order without the item's lock. It is not waited for here, where a whole item would wait along: it pays the
		// order, or the next call expires it.
		// The guard is where the row is locked. Said twice, it would let the planner look for the rows in all that are PENDING.
		rows, _ := tx.Query(ctx, `
UPDATE flash_sale_order SET status = 'EXPIRED', ended_at = now() WHERE id = ANY(ARRAY(
    SELECT id FROM flash_sale_order WHERE item_id = $1 AND status = 'PENDING' AND expires_at <= now()
    ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED))
RETURNING `+orderColumns, item, limit)
		ended, err := pgx.CollectRows(rows, scanOrder)
		if err != nil {
			return fmt.Errorf("end orders: %w", err)
		}
		if len(ended) == 0 && tx.Unsure {
			// The attempt whose reply was lost ended them, and n says how many.
			return nil
		}
		n = len(ended)
		if n == 0 {
			return nil
		}
		return giveBack(ctx, tx, it, ended)
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}
