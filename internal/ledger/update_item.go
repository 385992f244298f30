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
	Shards     *int        // another number than today's is a wish; today's withdraws it
	Quantity   *int64      // a larger one is a restock, with its correction and its event; a smaller one is a wish, which any other withdraws
	Price      *sale.Price // orders keep the price with which they were reserved
	MaxPerUser *int64
	Paused     *bool
}

// ItemUpdate is an item behind its change.
type ItemUpdate struct {
	sale.Item
	Wish int64 // number of the wish (see Wish) that a load has yet to carry out for this patch; 0: the item is as the patch says
}

// UpdateItem changes an item and returns it as it is afterwards: after BelowSold as it is now, zero after another refusal. Other processes learn
// of it by TopicCatalogue. Shards and a smaller quantity are written down as a wish, which the next load carries out. A quantity above
// sale.MaxQuantity is ErrTooMany; what else the schema refuses is an error of kind Permanent, too. It may be repeated after any error.
func (db *DB) UpdateItem(ctx context.Context, id int64, patch ItemPatch) (ItemUpdate, PatchOutcome, error) {
	change := uuid.New()
	var done ItemUpdate
	var outcome PatchOutcome
	err := db.InTx(ctx, func(ctx context.Context, tx Tx) (err error) {
		done = ItemUpdate{}
		done.Wish, outcome, err = updateItem(ctx, tx, id, patch, change)
		if err != nil || outcome != Patched && outcome != BelowSold {
			return err
		}
		rows, _ := tx.Query(ctx, selectItems+` WHERE i.id = $1`, id)
		done.Item, err = pgx.CollectExactlyOneRow(rows, scanItem)
		return err
	})
	if err != nil {
		return ItemUpdate{}, 0, fmt.Errorf("update item %d: %w", id, err)
	}
	return done, outcome, nil
}

func updateItem(ctx context.Context, tx Tx, id int64, patch ItemPatch, change uuid.UUID) (wish int64, outcome PatchOutcome, err error) {
	it, err := lockItem(ctx, tx, id)
	if errors.As(err, new(*NotFoundError)) {
		return 0, NoSuch, nil
	}
	if err != nil {
		return 0, 0, err
	}
	switch {
	case it.retired:
		return 0, PatchRetired, nil
	case patch.Quantity != nil && *patch.Quantity > sale.MaxQuantity:
		return 0, 0, ErrTooMany
	}
	if done, err := happened(ctx, tx, change); err != nil || done {
		if err == nil {
			wish, err = patch.wished(ctx, tx, change)
		}
		return wish, Patched, err
	}
	want, err := patch.wish(ctx, tx, it)
	if err != nil {
		return 0, 0, err
	}
	if patch.Shards != nil && want.Shards != 0 || patch.Quantity != nil && want.Reduction != 0 {
		wish = want.Number
	}
	if patch.Quantity != nil && *patch.Quantity < it.sold {
		return 0, BelowSold, nil
	}
	raised := patch.Quantity
	if raised != nil && *raised < it.quantity {
		raised = nil
	}
	var before, after []byte
	err = tx.QueryRow(ctx, `
WITH old AS (SELECT to_jsonb(i) AS item FROM flash_sale_item i WHERE i.id = $1), new AS (
    SELECT coalesce($2, i.quantity) AS quantity, coalesce($3::text::numeric, i.price) AS price, coalesce($4, i.max_per_user) AS max_per_user,
        coalesce($5, i.paused) AS paused
    FROM flash_sale_item i WHERE i.id = $1)
UPDATE flash_sale_item i SET quantity = new.quantity, price = new.price, max_per_user = new.max_per_user, paused = new.paused,
    wish = $6, wanted_shards = nullif($7, 0), wanted_reduction = nullif($8, 0::bigint)
FROM old, new WHERE i.id = $1
    AND ($6 <> i.wish OR (i.quantity, i.price, i.max_per_user, i.paused) IS DISTINCT FROM (new.quantity, new.price, new.max_per_user, new.paused))
RETURNING old.item, to_jsonb(i)`, id, raised, (*string)(patch.Price), patch.MaxPerUser, patch.Paused, want.Number, want.Shards, want.Reduction).
		Scan(&before, &after)
	if errors.Is(err, pgx.ErrNoRows) {
		return wish, Patched, nil // it is like that already, or wished for
	}
	if err != nil {
		return 0, 0, fmt.Errorf("change item: %w", err)
	}
	if raised != nil && *raised > it.quantity {
		if _, err := increase(ctx, tx, it, *raised-it.quantity, change); err != nil {
			return 0, 0, err
		}
	}
	if err := audit(ctx, tx, change, ChangeUpdateItem, SubjectItem(id), before, after); err != nil {
		return 0, 0, err
	}
	if _, err := tx.Exec(ctx, notify, TopicCatalogue); err != nil {
		return 0, 0, fmt.Errorf("notify: %w", err)
	}
	return wish, Patched, nil
}

// wish is what is wished of a locked item with the patch. It has a number of its own if it is not what was wished before.
func (p ItemPatch) wish(ctx context.Context, tx Tx, it lockedItem) (Wish, error) {
	var shards int
	var had Wish
	err := tx.QueryRow(ctx, `SELECT `+wishColumns+`, shards FROM flash_sale_item WHERE id = $1`, it.id).Scan(append(had.fields(), &shards)...)
	if err != nil {
		return Wish{}, fmt.Errorf("read wish: %w", err)
	}
	want := had
	if p.Shards != nil {
		want.Shards = *p.Shards
		if want.Shards == shards {
			want.Shards = 0
		}
	}
	if p.Quantity != nil {
		want.Reduction = max(0, it.quantity-*p.Quantity)
	}
	if want != had {
		want.Number++
	}
	return want, nil
}

// wished is the number of the wish that an earlier attempt of the change wrote down for the patch, 0 for none. The item may have changed since.
func (p ItemPatch) wished(ctx context.Context, tx Tx, change uuid.UUID) (wish int64, err error) {
	err = tx.QueryRow(ctx, `
SELECT CASE WHEN $2 AND after->>'wanted_shards' IS NOT NULL OR $3 AND after->>'wanted_reduction' IS NOT NULL THEN (after->>'wish')::bigint ELSE 0 END
FROM flash_sale_audit WHERE change_id = $1 AND what = $4`, [16]byte(change), p.Shards != nil, p.Quantity != nil, ChangeUpdateItem).Scan(&wish)
	if err != nil {
		return 0, fmt.Errorf("read the wish of an earlier attempt: %w", err)
	}
	return wish, nil
}
