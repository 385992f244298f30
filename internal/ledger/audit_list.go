package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
)

// AuditRow is one change.
type AuditRow struct {
	ID      int64
	At      time.Time // by the clock of the database
	What    string    // such as sale.update
	Subject string    // sale:S, item:N or order:ID
	// The subject as it was and as it became; nil where there is nothing to say. No user id is in them.
	Before, After json.RawMessage
}

// AuditFilter selects changes.
type AuditFilter struct {
	Subject string // of one subject alone; empty: of every one
	After   int64  // the id that the page before ended with; 0: from the newest
	Limit   int    // of the page; below 1 it counts as 1
}

// Audit returns a page of changes, newest first. The id of its last row is where the next page goes on.
func (db *DB) Audit(ctx context.Context, f AuditFilter) ([]AuditRow, error) {
	var changes []AuditRow
	after := f.After
	if after == 0 {
		after = math.MaxInt64
	}
	query, args := `SELECT id, at, what, subject, before, after FROM flash_sale_audit WHERE id < $1`, []any{after, max(f.Limit, 1)}
	if f.Subject != "" {
		query, args = query+` AND subject = $3`, append(args, f.Subject)
	}
	err := db.read(ctx, func(ctx context.Context) (err error) {
		rows, _ := db.pool.Query(ctx, query+` ORDER BY id DESC LIMIT $2`, args...)
		changes, err = pgx.CollectRows(rows, pgx.RowToStructByPos[AuditRow])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read audit: %w", err)
	}
	return changes, nil
}
