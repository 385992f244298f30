package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"flashgate/internal/sale"
)

// orderColumns are what scanOrder reads.
const orderColumns = `id, item_id, user_id, quantity, price::text, currency, status, refunds_due, key_hash, shard, epoch,
reserved_at, created_at, expires_at, paid_at, ended_at, refunded_at, coalesce(reject_reason, ''), trace`

func scanOrder(row pgx.CollectableRow) (sale.Order, error) {
	var o sale.Order
	var expires, paid, ended, refunded *time.Time
	err := row.Scan((*[16]byte)(&o.ID), &o.ItemID, &o.UserID, &o.Quantity, &o.Price, &o.Currency, &o.Status, &o.RefundsDue, &o.KeyHash, &o.Shard,
		&o.Epoch, &o.ReservedAt, &o.CreatedAt, &expires, &paid, &ended, &refunded, &o.RejectReason, &o.Trace)
	o.ExpiresAt, o.PaidAt, o.EndedAt, o.RefundedAt = value(expires), value(paid), value(ended), value(refunded)
	return o, err
}

// Order returns an order, whatever its state; false when it has no row. ExpiresAt is zero for an order that never was live.
func (db *DB) Order(ctx context.Context, id sale.OrderID) (sale.Order, bool, error) {
	o, ok, err := db.order(ctx, `SELECT `+orderColumns+` FROM flash_sale_order WHERE id = $1`, [16]byte(id))
	if err != nil {
		return sale.Order{}, false, fmt.Errorf("read order %s: %w", id, err)
	}
	return o, ok, nil
}

// LiveOrder returns the live order of a user for an item; false when there is none.
func (db *DB) LiveOrder(ctx context.Context, item int64, user string) (sale.Order, bool, error) {
	o, ok, err := db.order(ctx, `SELECT `+orderColumns+` FROM flash_sale_order
WHERE limit_key = (SELECT limit_key FROM flash_sale_item WHERE id = $1) AND user_id = $2 AND status IN ('PENDING', 'PAID') AND item_id = $1`,
		item, user)
	if err != nil {
		return sale.Order{}, false, fmt.Errorf("read live order for item %d: %w", item, err)
	}
	return o, ok, nil
}

// order reads the one order that a query selects.
func (db *DB) order(ctx context.Context, query string, args ...any) (sale.Order, bool, error) {
	var orders []sale.Order
	err := db.read(ctx, func(ctx context.Context) (err error) {
		rows, _ := db.pool.Query(ctx, query, args...)
		orders, err = pgx.CollectRows(rows, scanOrder)
		return err
	})
	if err != nil || len(orders) == 0 {
		return sale.Order{}, false, err
	}
	return orders[0], true, nil
}

func scanOrderID(row pgx.CollectableRow) (id sale.OrderID, err error) {
	err = row.Scan((*[16]byte)(&id))
	return id, err
}

// uuids are order ids as pgx sends them.
func uuids(ids []sale.OrderID) [][16]byte {
	out := make([][16]byte, len(ids))
	for i := range ids {
		out[i] = ids[i]
	}
	return out
}
