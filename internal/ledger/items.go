package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// lockedItem is what a transaction needs of an item whose row it has locked.
type lockedItem struct {
	id       int64
	quantity int64
	sold     int64
	epoch    int64
	limitKey string
	retired  bool
	purged   bool // orders of it have been deleted
}

// lockItems locks the rows of items in the order of their ids: the first thing that any transaction does which changes orders, quantities or
// epochs. Rows that are locked in another order than everybody's are a deadlock sooner or later. Retired items are locked, too; an id
// without a row is not in the answer.
const lockItems = `
SELECT id, quantity, sold, epoch, limit_key, retired_at IS NOT NULL, purged_at IS NOT NULL FROM flash_sale_item WHERE id = ANY($1) ORDER BY id FOR UPDATE`

func scanLockedItem(row pgx.CollectableRow) (it lockedItem, err error) {
	err = row.Scan(&it.id, &it.quantity, &it.sold, &it.epoch, &it.limitKey, &it.retired, &it.purged)
	return it, err
}

// lockItem locks one item, or returns a *NotFoundError.
func lockItem(ctx context.Context, tx Tx, id int64) (lockedItem, error) {
	rows, _ := tx.Query(ctx, lockItems, []int64{id})
	it, err := pgx.CollectExactlyOneRow(rows, scanLockedItem)
	if errors.Is(err, pgx.ErrNoRows) {
		return lockedItem{}, &NotFoundError{What: "item", ID: id}
	}
	if err != nil {
		return lockedItem{}, fmt.Errorf("lock item %d: %w", id, err)
	}
	return it, nil
}
