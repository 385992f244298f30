package ledger

import (
	"context"
	"fmt"

	"github.com/google/uuid"
)

// auditedLoad is what the audit table keeps of an item i that is loaded. The lease ends with the load.
const auditedLoad = `to_jsonb(i) - 'lease_until'`

// BeginReload writes the audit row of a load that somebody has asked for, with the item as it is before, and returns the id of the change for EndReload.
// It is refused for an item that does not exist (*NotFoundError). It may be repeated after any error, which may leave a row of a load that was not begun.
func (db *DB) BeginReload(ctx context.Context, item int64) (change uuid.UUID, err error) {
	change = uuid.New()
	err = db.InTx(ctx, func(ctx context.Context, tx Tx) error {
		// No lock: an earlier attempt whose COMMIT is still under way is waited for at the unique id.
		tag, err := tx.Exec(ctx, `
INSERT INTO flash_sale_audit (change_id, what, subject, before)
SELECT $1, $2, $3, `+auditedLoad+` FROM flash_sale_item i WHERE i.id = $4
ON CONFLICT (change_id) DO NOTHING`, [16]byte(change), changeReload, SubjectItem(item), item)
		switch {
		case err != nil:
			return fmt.Errorf("write audit row of %s: %w", SubjectItem(item), err)
		case tag.RowsAffected() == 0 && !tx.Unsure:
			return &NotFoundError{What: "item", ID: item}
		}
		return nil
	})
	if err != nil {
		return uuid.UUID{}, fmt.Errorf("begin reload of item %d: %w", item, err)
	}
	return change, nil
}

// EndReload adds the item as it is now to the audit row of a load. The row of a load that failed, or whose process ended, has nothing there. It may be
// repeated after any error.
func (db *DB) EndReload(ctx context.Context, item int64, change uuid.UUID) error {
	err := db.InTx(ctx, func(ctx context.Context, tx Tx) error {
		_, err := tx.Exec(ctx, `
UPDATE flash_sale_audit a SET after = `+auditedLoad+` FROM flash_sale_item i
WHERE a.change_id = $1 AND a.after IS NULL AND i.id = $2`, [16]byte(change), item)
		return err
	})
	if err != nil {
		return fmt.Errorf("end reload of item %d: %w", item, err)
	}
	return nil
}
