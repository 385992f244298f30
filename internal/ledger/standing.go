package ledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"flashgate/internal/sale"
)

// Standing returns an item together with the units of those of the given orders that are live orders of it, both of one instant; false when
// there is no such item. Ids without a row count for nothing.
func (db *DB) Standing(ctx context.Context, item int64, orders []sale.OrderID) (it sale.Item, held int64, ok bool, err error) {
	ok, err = db.atOneInstant(ctx, item, func(ctx context.Context, tx pgx.Tx, found sale.Item) error {
		it = found
		return tx.QueryRow(ctx, `
SELECT coalesce(sum(o.quantity), 0)::bigint FROM (SELECT DISTINCT unnest($2::uuid[])) AS e(id)
CROSS JOIN LATERAL (SELECT quantity, item_id, status FROM flash_sale_order o WHERE o.id = e.id LIMIT 1) o
WHERE o.item_id = $1 AND o.status IN ('PENDING', 'PAID')`, item, uuids(orders)).Scan(&held)
	})
	if err != nil {
		return sale.Item{}, 0, false, fmt.Errorf("read the standing of item %d: %w", item, err)
	}
	return it, held, ok, nil
}

// atOneInstant reads an item and hands it to more, which reads what else there is of the same instant; false when there is no such item. A snapshot of
// its own for all statements: between two, an order could be written and its item read without it. more may be called again after an error.
func (db *DB) atOneInstant(ctx context.Context, item int64, more func(context.Context, pgx.Tx, sale.Item) error) (ok bool, err error) {
	err = db.read(ctx, func(ctx context.Context) error {
		return pgx.BeginTxFunc(ctx, db.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			rows, _ := tx.Query(ctx, selectItems+` WHERE i.id = $1`, item) // the error comes with the rows
			items, err := pgx.CollectRows(rows, scanItem)
			if ok = len(items) > 0; err != nil || !ok {
				return err
			}
			return more(ctx, tx, items[0])
		})
	})
	return ok, err
}
