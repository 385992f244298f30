package ledger

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"flashgate/internal/sale"
)

// Changes as the audit table names them. Those of wishes, and the snapshots that came to one, are for others, too.
const (
	changeCreate     = "sale.create"
	changeUpdateSale = "sale.update"
	ChangeUpdateItem = "item.update"
	changeRestock    = "item.restock"
	ChangePlanned    = "item.planned"
	changeReload     = "item.reload"
	changeRetire     = "item.retire"
	changePurge      = "item.purge"
	changeAnonymise  = "item.anonymise"
	changeRefunded   = "order.refunded"
	changeReplay     = "dlq.replay"
)

// Subjects of changes.
func subjectSale(id int64) string         { return fmt.Sprintf("sale:%d", id) }
func subjectOrder(id sale.OrderID) string { return "order:" + id.String() }

// SubjectItem is an item as the audit table names it.
func SubjectItem(id int64) string { return fmt.Sprintf("item:%d", id) }

// audit writes the row of one change. before and after are the JSON of the subject, nil for none.
func audit(ctx context.Context, tx Tx, change uuid.UUID, what, subject string, before, after []byte) error {
	_, err := tx.Exec(ctx, `INSERT INTO flash_sale_audit (change_id, what, subject, before, after) VALUES ($1, $2, $3, $4, $5)`,
		[16]byte(change), what, subject, before, after)
	if err != nil {
		return fmt.Errorf("write audit row of %s: %w", subject, err)
	}
	return nil
}

// happened reports whether an earlier attempt of the same change was committed. The caller holds the lock under which every attempt works: an
// attempt whose COMMIT is still under way on the server holds it, too, so by now it is through.
func happened(ctx context.Context, tx Tx, change uuid.UUID) (bool, error) {
	if !tx.Unsure {
		return false, nil
	}
	var found bool
	err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM flash_sale_audit WHERE change_id = $1)`, [16]byte(change)).Scan(&found)
	if err != nil {
		return false, fmt.Errorf("look for audit row: %w", err)
	}
	return found, nil
}
