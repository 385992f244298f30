package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// longOver says of a sale s that it ended at least $1 ago, and that nobody has moved its end since then: whoever ends it early has as long to
// think again.
const longOver = `greatest(s.ends_at, s.end_moved_at) <= now() - $1::interval`

// Retirable returns the items that may be retired, in the order of their ids: the sale ended at least so long ago by the clock of the database,
// and there is no PENDING order, no correction to carry out and no loader at work. What Redis still holds of them is for the caller to look at.
func (db *DB) Retirable(ctx context.Context, after time.Duration) ([]int64, error) {
	var items []int64
	err := db.read(ctx, func(ctx context.Context) (err error) {
		rows, _ := db.pool.Query(ctx, `
SELECT i.id FROM flash_sale_item i JOIN flash_sale s ON s.id = i.sale_id
LEFT JOIN LATERAL (SELECT true AS found FROM flash_sale_order o WHERE o.item_id = i.id AND o.status = 'PENDING' LIMIT 1) pending ON true
LEFT JOIN LATERAL (SELECT true AS found FROM flash_sale_correction c WHERE c.item_id = i.id LIMIT 1) correction ON true
WHERE i.retired_at IS NULL AND `+longOver+` AND pending.found IS NULL AND correction.found IS NULL
    AND (i.lease_until IS NULL OR i.lease_until <= clock_timestamp())
ORDER BY i.id`, after)
		items, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for items to retire: %w", err)
	}
	return items, nil
}

// Retire retires an item and reports whether it is retired, now or since an earlier call; false when the item does not exist or may not be
// retired (see Retirable, whose conditions are looked at once more, now under locks; a sale that has been extended meanwhile is one reason). From then on nothing of the item is sold, loaded or
// corrected, a wish that no load has carried out is dropped, its events are stored as refused, and its sale cannot be changed. It may be repeated after any error.
func (db *DB) Retire(ctx context.Context, item int64, after time.Duration) (bool, error) {
	change := uuid.New()
	var done bool
	err := db.InTx(ctx, func(ctx context.Context, tx Tx) (err error) {
		done, err = retire(ctx, tx, item, after, change)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("retire item %d: %w", item, err)
	}
	return done, nil
}

func retire(ctx context.Context, tx Tx, item int64, after time.Duration, change uuid.UUID) (bool, error) {
	// Sales are locked before items. Whoever moves the end of the sale waits here, or has done it.
	var ended bool
	err := tx.QueryRow(ctx, `
SELECT `+longOver+` FROM flash_sale s WHERE s.id = (SELECT sale_id FROM flash_sale_item WHERE id = $2) FOR SHARE`, after, item).Scan(&ended)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("lock sale: %w", err)
	}
	it, err := lockItem(ctx, tx, item)
	if err != nil {
		return false, err
	}
	if it.retired || !ended {
		return it.retired, nil
	}
	// Under the item's lock no order becomes PENDING, no correction is written and no load is claimed.
	var before, now []byte
	err = tx.QueryRow(ctx, `
WITH old AS (SELECT to_jsonb(i) AS item FROM flash_sale_item i WHERE i.id = $1)
UPDATE flash_sale_item i SET retired_at = now(), wanted_shards = NULL, wanted_reduction = NULL FROM old
WHERE i.id = $1 AND i.retired_at IS NULL AND (i.lease_until IS NULL OR i.lease_until <= clock_timestamp())
    AND NOT EXISTS (SELECT FROM flash_sale_order o WHERE o.item_id = $1 AND o.status = 'PENDING')
    AND NOT EXISTS (SELECT FROM flash_sale_correction c WHERE c.item_id = $1)
RETURNING old.item, to_jsonb(i)`, item).Scan(&before, &now)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("set retired: %w", err)
	}
	if err := audit(ctx, tx, change, changeRetire, SubjectItem(item), before, now); err != nil {
		return false, err
	}
	if _, err := tx.Exec(ctx, notify, TopicCatalogue); err != nil {
		return false, fmt.Errorf("notify: %w", err)
	}
	return true, nil
}
