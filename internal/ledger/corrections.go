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

// CorrectionOp says what a correction does to the stock in Redis.
type CorrectionOp string

// The kinds of corrections.
const (
	OpRelease  CorrectionOp = "release"  // forget the mark of an order that ended and give its units back
	OpVoid     CorrectionOp = "void"     // forget the mark; its units never existed
	OpIncrease CorrectionOp = "increase" // add units of a restock
)

// Correction is something that Redis has to be told because it became true in the ledger.
type Correction struct {
	ID          int64
	ItemID      int64
	Op          CorrectionOp
	OrderID     sale.OrderID // release, void
	UserID      string       // release, void
	Units       int64
	OperationID string // increase: a UUID
	Epoch       int64  // of the item when it became true, read under the item's lock
	CreatedAt   time.Time
}

// ClaimCorrections takes up to n corrections, oldest first, and returns them in the order of items and, within an item, in the order in which
// they became true. Nobody else gets them until the lease ran out by the clock of the database; no transaction stays open meanwhile. A
// correction may be carried out twice when the lease was too short, so carrying it out has to be idempotent.
func (db *DB) ClaimCorrections(ctx context.Context, n int, lease time.Duration) ([]Correction, error) {
	var claimed []Correction
	err := db.InTx(ctx, func(ctx context.Context, tx Tx) (err error) {
		rows, _ := tx.Query(ctx, `
UPDATE flash_sale_correction SET not_before = now() + $2 WHERE id = ANY(ARRAY(
    SELECT id FROM flash_sale_correction WHERE not_before <= now() ORDER BY not_before, id LIMIT $1 FOR UPDATE SKIP LOCKED))
RETURNING id, item_id, op, order_id, user_id, units, operation_id, epoch, created_at`, n, lease)
		claimed, err = pgx.CollectRows(rows, scanCorrection)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim corrections: %w", err)
	}
	slices.SortFunc(claimed, func(a, b Correction) int {
		return cmp.Or(cmp.Compare(a.ItemID, b.ItemID), cmp.Compare(a.ID, b.ID))
	})
	return claimed, nil
}

func scanCorrection(row pgx.CollectableRow) (Correction, error) {
	var c Correction
	var order, operation *[16]byte
	var user *string
	err := row.Scan(&c.ID, &c.ItemID, &c.Op, &order, &user, &c.Units, &operation, &c.Epoch, &c.CreatedAt)
	if order != nil {
		c.OrderID = *order
	}
	if user != nil {
		c.UserID = *user
	}
	if operation != nil {
		c.OperationID = uuid.UUID(*operation).String()
	}
	return c, err
}

// FinishCorrections deletes corrections that have been carried out or that the shard has absorbed. Ids that are gone are no error.
func (db *DB) FinishCorrections(ctx context.Context, ids ...int64) error {
	return db.changeCorrections(ctx, "finish", `
DELETE FROM flash_sale_correction WHERE id = ANY(ARRAY(
    SELECT id FROM flash_sale_correction WHERE id = ANY($1) ORDER BY id FOR UPDATE))`, ids)
}

// PostponeCorrections puts corrections back that could not be carried out, to be claimed again after the given time.
func (db *DB) PostponeCorrections(ctx context.Context, ids []int64, after time.Duration) error {
	return db.changeCorrections(ctx, "postpone", `
UPDATE flash_sale_correction SET not_before = now() + $2 WHERE id = ANY(ARRAY(
    SELECT id FROM flash_sale_correction WHERE id = ANY($1) ORDER BY id FOR UPDATE))`, ids, after)
}

// changeCorrections runs a statement on corrections. It locks them in the order of their ids, like everybody: two relays whose leases
// overlap may hold the same ones.
func (db *DB) changeCorrections(ctx context.Context, what, statement string, ids []int64, args ...any) error {
	if len(ids) == 0 {
		return nil
	}
	err := db.InTx(ctx, func(ctx context.Context, tx Tx) error {
		_, err := tx.Exec(ctx, statement, append([]any{ids}, args...)...)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s corrections: %w", what, err)
	}
	return nil
}

// CorrectionDone reports whether a correction has been finished.
func (db *DB) CorrectionDone(ctx context.Context, id int64) (bool, error) {
	var waiting bool
	err := db.read(ctx, func(ctx context.Context) error {
		return db.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM flash_sale_correction WHERE id = $1)`, id).Scan(&waiting)
	})
	if err != nil {
		return false, fmt.Errorf("look for correction %d: %w", id, err)
	}
	return !waiting, nil
}
