package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flashgate/internal/sale"
)

// ItemPatch is what changes of an item; what is nil stays.
type ItemPatch struct {
	Quantity   *int64      // not smaller; the difference is a restock, with its correction and its event
	Price      *sale.Price // orders keep the price with which they were reserved
	MaxPerUser *int64
	Paused     *bool
}

// UpdateItem changes an item and returns it as it is afterwards (zero unless Patched). Other processes learn of it by TopicCatalogue. A quantity
// above sale.MaxQuantity is ErrTooMany; what else the schema refuses is an error of kind Permanent, too. It may be repeated after any error.
func (db *DB) UpdateItem(ctx context.Context, id int64, patch ItemPatch) (sale.Item, PatchOutcome, error) {
	change := uuid.New()
	var it sale.Item
	var outcome PatchOutcome
	err := db.InTx(ctx, func(ctx context.Context, tx Tx) (err error) {
		if outcome, err = updateItem(ctx, tx, id, patch, change); err != nil || outcome != Patched {
			return err
		}
		rows, _ := tx.Query(ctx, selectItems+` WHERE i.id = $1`, id)
		it, err = pgx.CollectExactlyOneRow(rows, scanItem)
		return err
	})
	if err != nil {
		return sale.Item{}, 0, fmt.Errorf("update item %d: %w", id, err)
	}
	return it, outcome, nil
}

func updateItem(ctx context.Context, tx Tx, id int64, patch ItemPatch, change uuid.UUID) (PatchOutcome, error) {
	it, err := lockItem(ctx, tx, id)
	if errors.As(err, new(*NotFoundError)) {
		return NoSuch, nil
	}
	if err != nil {
		return 0, err
	}
	if done, err := happened(ctx, tx, change); err != nil || done {
		return Patched, err
	}
	switch {
	case it.retired:
		return PatchRetired, nil
	case patch.Quantity != nil && *patch.Quantity < it.quantity:
		return BelowQuantity, nil
	case patch.Quantity != nil && *patch.Quantity > sale.MaxQuantity:
		return 0, ErrTooMany
	}
	var before, after []byte
	err = tx.QueryRow(ctx, `
WITH old AS (SELECT to_jsonb(i) AS item FROM flash_sale_item i WHERE i.id = $1), new AS (
    SELECT coalesce($2, i.quantity) AS quantity, coalesce($3::text::numeric, i.price) AS price, coalesce($4, i.max_per_user) AS max_per_user,
        coalesce($5, i.paused) AS paused
    FROM flash_sale_item i WHERE i.id = $1)
UPDATE flash_sale_item i SET quantity = new.quantity, price = new.price, max_per_user = new.max_per_user, paused = new.paused
FROM old, new WHERE i.id = $1
    AND (i.quantity, i.price, i.max_per_user, i.paused) IS DISTINCT FROM (new.quantity, new.price, new.max_per_user, new.paused)
RETURNING old.item, to_jsonb(i)`, id, patch.Quantity, (*string)(patch.Price), patch.MaxPerUser, patch.Paused).Scan(&before, &after)
	if errors.Is(err, pgx.ErrNoRows) {
		return Patched, nil // it is like that already
	}
	if err != nil {
		return 0, fmt.Errorf("change item: %w", err)
	}
	if patch.Quantity != nil && *patch.Quantity > it.quantity {
		if _, err := increase(ctx, tx, it, *patch.Quantity-it.quantity, change); err != nil {
			return 0, err
		}
	}
	if err := audit(ctx, tx, change, changeUpdateItem, subjectItem(id), before, after); err != nil {
		return 0, err
	}
	if _, err := tx.Exec(ctx, notify, TopicCatalogue); err != nil {
		return 0, fmt.Errorf("notify: %w", err)
	}
	return Patched, nil
}
