package ledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"flashgate/internal/sale"
)

// LiveOrder is an order that holds units.
type LiveOrder struct {
	ID       sale.OrderID
	UserID   string
	Quantity int64
}

// Books are what the ledger knows of an item at one instant, for whoever compares it with Redis.
type Books struct {
	Item   sale.Item
	Leased bool        // somebody is loading the item
	Live   []LiveOrder // in no order
	// Ended are those of the orders asked for that are over. Those in neither have no row.
	Ended map[sale.OrderID]sale.OrderStatus
	// What Redis has yet to be told, as far as the ledger knows: the relay may have told it already.
	Releases map[sale.OrderID]bool // units that come back
	Voids    map[sale.OrderID]bool // marks that go, whose units never existed
	Increase int64                 // units of restocks
}

// Books reads an item with its live orders, what has become of those of asked that are not among them, and its corrections; false when there is no
// such item. It reads every live order.
func (db *DB) Books(ctx context.Context, item int64, asked []sale.OrderID) (b Books, ok bool, err error) {
	ok, err = db.atOneInstant(ctx, item, func(ctx context.Context, tx pgx.Tx, it sale.Item) (err error) {
		b, err = readBooks(ctx, tx, it, asked)
		return err
	})
	if err != nil {
		return Books{}, false, fmt.Errorf("read the books of item %d: %w", item, err)
	}
	return b, ok, nil
}

func readBooks(ctx context.Context, tx pgx.Tx, it sale.Item, asked []sale.OrderID) (Books, error) {
	b := Books{
		Item: it, Ended: make(map[sale.OrderID]sale.OrderStatus), Releases: make(map[sale.OrderID]bool), Voids: make(map[sale.OrderID]bool),
	}
	err := tx.QueryRow(ctx, `SELECT coalesce(lease_until > clock_timestamp(), false) FROM flash_sale_item WHERE id = $1`, it.ID).Scan(&b.Leased)
	if err != nil {
		return Books{}, err
	}
	rows, _ := tx.Query(ctx, `SELECT id, user_id, quantity FROM flash_sale_order WHERE `+liveOf, it.ID)
	b.Live, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (o LiveOrder, err error) {
		err = row.Scan((*[16]byte)(&o.ID), &o.UserID, &o.Quantity)
		return o, err
	})
	if err != nil {
		return Books{}, err
	}
	if err := readEnded(ctx, tx, &b, asked); err != nil {
		return Books{}, err
	}
	return b, readWaiting(ctx, tx, &b)
}

// readEnded looks up the orders that were asked for and are not live.
func readEnded(ctx context.Context, tx pgx.Tx, b *Books, asked []sale.OrderID) error {
	live := make(map[sale.OrderID]bool, len(b.Live))
	for _, o := range b.Live {
		live[o.ID] = true
	}
	var rest []sale.OrderID
	for _, id := range asked {
		if !live[id] {
			rest = append(rest, id)
		}
	}
	if len(rest) == 0 {
		return nil
	}
	rows, _ := tx.Query(ctx, `
SELECT e.id, o.status FROM (SELECT DISTINCT unnest($1::uuid[])) AS e(id)
CROSS JOIN LATERAL (SELECT status FROM flash_sale_order o WHERE o.id = e.id LIMIT 1) o`, uuids(rest))
	var id sale.OrderID
	var status sale.OrderStatus
	_, err := pgx.ForEachRow(rows, []any{(*[16]byte)(&id), &status}, func() error {
		b.Ended[id] = status
		return nil
	})
	return err
}

// readWaiting reads the corrections of the item.
func readWaiting(ctx context.Context, tx pgx.Tx, b *Books) error {
	rows, _ := tx.Query(ctx, `
SELECT op, coalesce(order_id, '00000000-0000-0000-0000-000000000000'), units FROM flash_sale_correction WHERE item_id = $1`, b.Item.ID)
	var op CorrectionOp
	var id sale.OrderID
	var units int64
	_, err := pgx.ForEachRow(rows, []any{&op, (*[16]byte)(&id), &units}, func() error {
		switch op {
		case OpRelease:
			b.Releases[id] = true
		case OpVoid:
			b.Voids[id] = true
		case OpIncrease:
			b.Increase += units
		}
		return nil
	})
	return err
}

// Totals are the sums of an item's books.
type Totals struct {
	Item  sale.Item
	Live  int64 // number of live orders
	Owing int64 // number of corrections that wait
}

// Totals counts what Books lists; false when there is no such item.
func (db *DB) Totals(ctx context.Context, item int64) (t Totals, ok bool, err error) {
	ok, err = db.atOneInstant(ctx, item, func(ctx context.Context, tx pgx.Tx, it sale.Item) error {
		t.Item = it
		return tx.QueryRow(ctx, `
SELECT (SELECT count(*) FROM flash_sale_order WHERE `+liveOf+`),
       (SELECT count(*) FROM flash_sale_correction WHERE item_id = $1)`, item).Scan(&t.Live, &t.Owing)
	})
	if err != nil {
		return Totals{}, false, fmt.Errorf("count the orders of item %d: %w", item, err)
	}
	return t, ok, nil
}
