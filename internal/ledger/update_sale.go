package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flashgate/internal/sale"
)

// PatchOutcome says how a change of a sale or an item ended.
type PatchOutcome uint8

// The outcomes of UpdateSale and UpdateItem. Only Patched changes anything, and it does all or nothing.
const (
	Patched        PatchOutcome = iota + 1 // it is as the patch says, whether that was a change or not
	NoSuch                                 // there is no sale or item with this id
	AlreadyStarted                         // the start may change only before the sale began, by the clock of the database
	BadWindow                              // the end would not be after the start
	PatchRetired                           // the item, or an item of the sale, is retired
	BelowSold                              // the quantity would become smaller than what is sold of the item
)

// SalePatch is what changes of a sale; what is nil stays.
type SalePatch struct {
	Name     *string
	StartsAt *time.Time
	EndsAt   *time.Time // may be in the past: the sale ends at once; may be moved after the end: the sale goes on
	Paused   *bool
}

// UpdateSale changes a sale and returns it as it is afterwards (zero unless Patched). Other processes learn of it by TopicCatalogue. It may be
// repeated after any error.
func (db *DB) UpdateSale(ctx context.Context, id int64, patch SalePatch) (sale.Sale, PatchOutcome, error) {
	change := uuid.New()
	var s sale.Sale
	var outcome PatchOutcome
	err := db.InTx(ctx, func(ctx context.Context, tx Tx) (err error) {
		s, outcome, err = updateSale(ctx, tx, id, patch, change)
		return err
	})
	if err != nil {
		return sale.Sale{}, 0, fmt.Errorf("update sale %d: %w", id, err)
	}
	return s, outcome, nil
}

func updateSale(ctx context.Context, tx Tx, id int64, patch SalePatch, change uuid.UUID) (sale.Sale, PatchOutcome, error) {
	s, started, err := lockSale(ctx, tx, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return sale.Sale{}, NoSuch, nil
	}
	if err != nil {
		return sale.Sale{}, 0, err
	}
	if done, err := happened(ctx, tx, change); err != nil || done {
		return s, Patched, err
	}
	changed := patch.applied(s)
	switch {
	case anyRetired(s.Items):
		return sale.Sale{}, PatchRetired, nil
	case started && !changed.StartsAt.Equal(s.StartsAt):
		return sale.Sale{}, AlreadyStarted, nil
	case !changed.StartsAt.Before(changed.EndsAt):
		return sale.Sale{}, BadWindow, nil
	case changed.Name == s.Name && changed.StartsAt.Equal(s.StartsAt) && changed.EndsAt.Equal(s.EndsAt) && changed.Paused == s.Paused:
		return s, Patched, nil
	}
	return storeSale(ctx, tx, changed, change)
}

// lockSale locks a sale against changes and against the retirement of its items, and reads it with them. started says whether it has begun by
// the clock of the database, now that nobody can move its start any more.
func lockSale(ctx context.Context, tx Tx, id int64) (s sale.Sale, started bool, err error) {
	if err = tx.QueryRow(ctx, `SELECT id FROM flash_sale WHERE id = $1 FOR NO KEY UPDATE`, id).Scan(&id); err != nil {
		return sale.Sale{}, false, fmt.Errorf("lock sale: %w", err)
	}
	// Statements of their own: the one that waits for the lock looks at the clock, and at the items, before it waits.
	if err = tx.QueryRow(ctx, `SELECT starts_at <= clock_timestamp() FROM flash_sale WHERE id = $1`, id).Scan(&started); err != nil {
		return sale.Sale{}, false, fmt.Errorf("read clock: %w", err)
	}
	sales, err := readSales(ctx, tx, ` WHERE id = $1`, id)
	if err != nil {
		return sale.Sale{}, false, fmt.Errorf("read sale: %w", err)
	}
	return sales[0], started, nil
}

// applied is the sale as it would be.
func (patch SalePatch) applied(s sale.Sale) sale.Sale {
	set(&s.Name, patch.Name)
	set(&s.Paused, patch.Paused)
	set(&s.StartsAt, patch.StartsAt)
	set(&s.EndsAt, patch.EndsAt)
	// What the database keeps of a time: otherwise the same patch would be a change each time.
	s.StartsAt, s.EndsAt = s.StartsAt.Truncate(time.Microsecond), s.EndsAt.Truncate(time.Microsecond)
	return s
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

func anyRetired(items []sale.Item) bool {
	for i := range items {
		if !items[i].RetiredAt.IsZero() {
			return true
		}
	}
	return false
}

// storeSale writes what can be changed of a locked sale, with its audit row, and reads the sale back.
func storeSale(ctx context.Context, tx Tx, s sale.Sale, change uuid.UUID) (sale.Sale, PatchOutcome, error) {
	var before, after []byte
	err := tx.QueryRow(ctx, `
WITH old AS (SELECT to_jsonb(s) AS sale FROM flash_sale s WHERE s.id = $1)
UPDATE flash_sale s SET name = $2, starts_at = $3, ends_at = $4, paused = $5,
    end_moved_at = CASE WHEN s.ends_at <> $4 THEN now() ELSE s.end_moved_at END FROM old WHERE s.id = $1 RETURNING old.sale, to_jsonb(s)`,
		s.ID, s.Name, s.StartsAt, s.EndsAt, s.Paused).Scan(&before, &after)
	if err != nil {
		return sale.Sale{}, 0, fmt.Errorf("change sale: %w", err)
	}
	if err := audit(ctx, tx, change, changeUpdateSale, subjectSale(s.ID), before, after); err != nil {
		return sale.Sale{}, 0, err
	}
	if _, err := tx.Exec(ctx, notify, TopicCatalogue); err != nil {
		return sale.Sale{}, 0, fmt.Errorf("notify: %w", err)
	}
	sales, err := readSales(ctx, tx, ` WHERE id = $1`, s.ID)
	if err != nil {
		return sale.Sale{}, 0, fmt.Errorf("read sale: %w", err)
	}
	return sales[0], Patched, nil
}
