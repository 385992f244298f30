package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"flashgate/internal/sale"
)

// selectItems reads items with what sale.Item has of their sale.
const selectItems = `
SELECT i.id, i.sale_id, i.product_id, i.sku, i.quantity, i.sold, i.price::text, i.currency, i.shards, i.max_per_user, i.stock_model,
       i.epoch, i.claim, i.paused, i.retired_at,
       s.starts_at, s.ends_at, s.paused, s.purchase_limit, s.payment_window
FROM flash_sale_item i JOIN flash_sale s ON s.id = i.sale_id`

func scanItem(row pgx.CollectableRow) (sale.Item, error) {
	var it sale.Item
	var retired *time.Time
	err := row.Scan(&it.ID, &it.SaleID, &it.ProductID, &it.SKU, &it.Quantity, &it.Sold, &it.Price, &it.Currency, &it.Shards, &it.MaxPerUser,
		&it.Model, &it.Epoch, &it.Claim, &it.Paused, &retired,
		&it.StartsAt, &it.EndsAt, &it.SalePaused, &it.PurchaseLimit, &it.PaymentWindow)
	if retired != nil {
		it.RetiredAt = *retired
	}
	return it, err
}

// Catalogue returns every item, retired ones too, in the order of their ids. The numbers of all items are of one instant.
func (db *DB) Catalogue(ctx context.Context) ([]sale.Item, error) {
	var items []sale.Item
	err := db.read(ctx, func(ctx context.Context) error {
		rows, _ := db.pool.Query(ctx, selectItems+` ORDER BY i.id`) // the error comes with the rows
		var err error
		items, err = pgx.CollectRows(rows, scanItem)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read catalogue: %w", err)
	}
	return items, nil
}

// Item returns one item; false when there is none with this id.
func (db *DB) Item(ctx context.Context, id int64) (sale.Item, bool, error) {
	var items []sale.Item
	err := db.read(ctx, func(ctx context.Context) error {
		rows, _ := db.pool.Query(ctx, selectItems+` WHERE i.id = $1`, id)
		var err error
		items, err = pgx.CollectRows(rows, scanItem)
		return err
	})
	if err != nil {
		return sale.Item{}, false, fmt.Errorf("read item %d: %w", id, err)
	}
	if len(items) == 0 {
		return sale.Item{}, false, nil
	}
	return items[0], true, nil
}
