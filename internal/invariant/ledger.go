package invariant

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"flashgate/internal/sale"
)

// order is a row, as far as the rules need it.
type order struct {
	id       sale.OrderID
	user     string
	limit    string
	quantity int64
	status   sale.OrderStatus
}

// books is what the database holds of an item.
type books struct {
	item        int64
	shards      int
	quantity    int64
	sold        int64
	orders      map[sale.OrderID]order
	corrections int64
	loading     bool
}

func layoutOf(ctx context.Context, db Database, item int64) (int, error) {
	rows, _ := db.Query(ctx, `SELECT shards FROM flash_sale_item WHERE id = $1`, item)
	shards, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
	if err != nil {
		return 0, fmt.Errorf("read item: %w", err)
	}
	return shards, nil
}

// readLedger reads everything by one statement, which sees one instant.
func readLedger(ctx context.Context, db Database, item int64) (*books, error) {
	b := &books{item: item, orders: make(map[sale.OrderID]order)}
	rows, err := db.Query(ctx, `
SELECT i.shards, i.quantity, i.sold, i.claim > i.epoch OR coalesce(i.lease_until > clock_timestamp(), false) OR i.load_due_at IS NOT NULL,
       (SELECT count(*) FROM flash_sale_correction c WHERE c.item_id = i.id),
       o.id, coalesce(o.user_id, ''), coalesce(o.limit_key, ''), coalesce(o.quantity, 0), coalesce(o.status, '')
FROM flash_sale_item i LEFT JOIN flash_sale_order o ON o.item_id = i.id
WHERE i.id = $1`, item)
	if err != nil {
		return nil, fmt.Errorf("read orders: %w", err)
	}
	var id *[16]byte
	var o order
	_, err = pgx.ForEachRow(rows, []any{&b.shards, &b.quantity, &b.sold, &b.loading, &b.corrections, &id, &o.user, &o.limit, &o.quantity, &o.status}, func() error {
		if id != nil {
			o.id = *id
			b.orders[o.id] = o
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read orders: %w", err)
	}
	return b, nil
}
