package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flashgate/internal/sale"
)

// Restocked is the answer of Restock.
type Restocked struct {
	Quantity     int64  // of the item right after this restock
	OperationID  string // of the increase, a UUID
	CorrectionID int64  // of the correction that adds the units in Redis; see CorrectionDone
	Repeated     bool   // the same key and quantity had been used before: nothing was added now
}

// Restock adds units, 1 or more, to the quantity of an item, and writes the correction that adds them in Redis and the event stock.increased. With
// a key (not "") it happens once: a repetition with the same key gets the same answer, with another quantity ErrKeyReused. Refused are an item
// that does not exist (*NotFoundError) or is retired (ErrRetired) and a quantity above sale.MaxQuantity (ErrTooMany). After an error of kind
// Unknown the units may have been added; only a call with a key may be repeated then.
func (db *DB) Restock(ctx context.Context, item, units int64, key string) (Restocked, error) {
	change := uuid.New()
	var done Restocked
	err := db.InTx(ctx, func(ctx context.Context, tx Tx) error {
		it, err := lockItem(ctx, tx, item)
		if err != nil {
			return err
		}
		if ok, err := happened(ctx, tx, change); ok || err != nil {
			return err
		}
		if key != "" {
			var found bool
			if done, found, err = earlierRestock(ctx, tx, item, units, key); found || err != nil {
				return err
			}
		}
		done, err = restock(ctx, tx, it, units, key, change)
		return err
	})
	if err != nil {
		return Restocked{}, fmt.Errorf("restock item %d: %w", item, err)
	}
	return done, nil
}

// earlierRestock looks for the restock that used the key.
func earlierRestock(ctx context.Context, tx Tx, item, units int64, key string) (Restocked, bool, error) {
	var before int64
	var op [16]byte
	done := Restocked{Repeated: true}
	err := tx.QueryRow(ctx, `
SELECT units, quantity, operation_id, correction_id FROM flash_sale_restock WHERE item_id = $1 AND idempotency_key = $2`, item, key).
		Scan(&before, &done.Quantity, &op, &done.CorrectionID)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Restocked{}, false, nil
	case err != nil:
		return Restocked{}, false, fmt.Errorf("look for idempotency key: %w", err)
	case before != units:
		return Restocked{}, false, ErrKeyReused
	}
	done.OperationID = uuid.UUID(op).String()
	return done, true, nil
}

// restock writes a restock. The item is locked.
func restock(ctx context.Context, tx Tx, it lockedItem, units int64, key string, change uuid.UUID) (Restocked, error) {
	switch {
	case it.retired:
		return Restocked{}, ErrRetired
	case units > sale.MaxQuantity-it.quantity:
		return Restocked{}, ErrTooMany
	case units < 1:
		return Restocked{}, refusal("the number of units must be 1 or more")
	}
	var before, after []byte
	err := tx.QueryRow(ctx, `
WITH old AS (SELECT to_jsonb(i) AS item FROM flash_sale_item i WHERE i.id = $1)
UPDATE flash_sale_item i SET quantity = i.quantity + $2 FROM old WHERE i.id = $1 RETURNING old.item, to_jsonb(i)`, it.id, units).
		Scan(&before, &after)
	if err != nil {
		return Restocked{}, fmt.Errorf("raise quantity: %w", err)
	}
	done := Restocked{Quantity: it.quantity + units, OperationID: change.String()}
	if done.CorrectionID, err = increase(ctx, tx, it, units, change); err != nil {
		return Restocked{}, err
	}
	if err := audit(ctx, tx, change, changeRestock, SubjectItem(it.id), before, after); err != nil {
		return Restocked{}, err
	}
	if key == "" {
		return done, nil
	}
	_, err = tx.Exec(ctx, `
INSERT INTO flash_sale_restock (item_id, idempotency_key, units, quantity, operation_id, correction_id) VALUES ($1, $2, $3, $4, $5, $6)`,
		it.id, key, units, done.Quantity, [16]byte(change), done.CorrectionID)
	if err != nil {
		return Restocked{}, fmt.Errorf("remember idempotency key: %w", err)
	}
	return done, nil
}

// increase writes what follows from units that have been added to a locked item: the correction that adds them in Redis, whose id it returns, and
// the event stock.increased; and sends word of both. it is the item as it was before.
func increase(ctx context.Context, tx Tx, it lockedItem, units int64, operation uuid.UUID) (correction int64, err error) {
	err = tx.QueryRow(ctx, `
INSERT INTO flash_sale_correction (item_id, op, units, operation_id, epoch) VALUES ($1, $2, $3, $4, $5) RETURNING id`,
		it.id, string(OpIncrease), units, [16]byte(operation), it.epoch).Scan(&correction)
	if err != nil {
		return 0, fmt.Errorf("write correction: %w", err)
	}
	var writes pgx.Batch
	// Behind an event that is put off, as those of orders are. Of the first one there is a row or none.
	writes.Queue(`
INSERT INTO flash_sale_event (key, type, item_id, operation_id, delta, quantity, attempts, retry_at)
SELECT $1, 'stock.increased', $2, $3, $4, $5, coalesce(max(f.attempts), 0), max(f.retry_at)
FROM (SELECT attempts, retry_at FROM flash_sale_event WHERE key = $1 ORDER BY id LIMIT 1) f`,
		SubjectItem(it.id), it.id, [16]byte(operation), units, it.quantity+units)
	writes.Queue(notify, TopicCatalogue)
	writes.Queue(notify, TopicCorrections)
	if err := tx.SendBatch(ctx, &writes).Close(); err != nil {
		return 0, fmt.Errorf("write event: %w", err)
	}
	return correction, nil
}
