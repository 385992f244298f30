package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flashgate/internal/sale"
)

// creationLock is the advisory lock under which sales are created, one at a time, so that a free id stays free until it is used.
const creationLock int64 = 0x666c61736873616c // "flashsal" in ASCII

// CreateSale stores a sale with its items and returns it as it is stored, items in the given order. Ids that are 0 are filled in with free
// ones; an id that is taken, or given twice, is an *ExistsError. Every other value is taken as it is: what is missing is not filled in, and
// what the schema refuses is an error of kind Permanent. After an error of kind Unknown the sale may exist.
func (db *DB) CreateSale(ctx context.Context, s sale.Sale) (sale.Sale, error) {
	change := uuid.New()
	var created sale.Sale
	err := db.InTx(ctx, func(ctx context.Context, tx Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, creationLock); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		if done, err := happened(ctx, tx, change); done || err != nil {
			return err
		}
		id, err := insertSale(ctx, tx, s)
		if err != nil {
			return err
		}
		ids, err := insertItems(ctx, tx, id, s)
		if err != nil {
			return err
		}
		if created, err = readBack(ctx, tx, id, ids); err != nil {
			return err
		}
		return announceSale(ctx, tx, change, id)
	})
	if err != nil {
		return sale.Sale{}, fmt.Errorf("create sale: %w", err)
	}
	return created, nil
}

func insertSale(ctx context.Context, tx Tx, s sale.Sale) (id int64, err error) {
	id = s.ID
	if id == 0 {
		if id, err = freeID(ctx, tx, saleIDs); err != nil {
			return 0, err
		}
	}
	tag, err := tx.Exec(ctx, `
INSERT INTO flash_sale (id, name, starts_at, ends_at, paused, purchase_limit, payment_window, time_zone)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (id) DO NOTHING`, id, s.Name, s.StartsAt, s.EndsAt, s.Paused, string(s.PurchaseLimit), s.PaymentWindow, s.TimeZone)
	if err != nil {
		return 0, fmt.Errorf("insert sale: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return 0, &ExistsError{What: "sale", ID: id}
	}
	return id, nil
}

// insertItems stores the items of a sale and returns their ids in the given order. The chosen ids come first: they are free for nobody else.
func insertItems(ctx context.Context, tx Tx, saleID int64, s sale.Sale) ([]int64, error) {
	ids := make([]int64, len(s.Items))
	for _, chosen := range []bool{true, false} {
		for at := range s.Items {
			it := s.Items[at]
			if (it.ID != 0) != chosen {
				continue
			}
			if !chosen {
				var err error
				if it.ID, err = freeID(ctx, tx, itemIDs); err != nil {
					return nil, err
				}
			}
			it.SaleID, it.PurchaseLimit = saleID, s.PurchaseLimit
			if err := insertItem(ctx, tx, &it); err != nil {
				return nil, err
			}
			ids[at] = it.ID
		}
	}
	return ids, nil
}

func insertItem(ctx context.Context, tx Tx, it *sale.Item) error {
	tag, err := tx.Exec(ctx, `
INSERT INTO flash_sale_item (id, sale_id, product_id, sku, quantity, price, currency, shards, max_per_user, stock_model, limit_key, paused)
VALUES ($1, $2, $3, $4, $5, $6::text::numeric, $7, $8, $9, $10, $11, $12)
ON CONFLICT (id) DO NOTHING`, it.ID, it.SaleID, it.ProductID, it.SKU, it.Quantity, string(it.Price), it.Currency, it.Shards, it.MaxPerUser,
		string(it.Model), it.LimitKey(), it.Paused)
	if err != nil {
		return fmt.Errorf("insert item %d: %w", it.ID, err)
	}
	if tag.RowsAffected() == 0 {
		return &ExistsError{What: "item", ID: it.ID}
	}
	return nil
}

// idSource says where free ids come from. Its strings become part of statements.
type idSource struct{ table, sequence string }

var (
	saleIDs = idSource{table: "flash_sale", sequence: "flash_sale_id_seq"}
	itemIDs = idSource{table: "flash_sale_item", sequence: "flash_sale_item_id_seq"}
)

// freeID draws the next id that nobody has. Where people have chosen ids themselves the sequence runs into them; it is then moved behind the
// whole run of taken ids at once. The caller holds creationLock.
func freeID(ctx context.Context, tx Tx, from idSource) (int64, error) {
	var id int64
	var taken bool
	err := tx.QueryRow(ctx, `SELECT n.id, EXISTS (SELECT FROM `+from.table+` t WHERE t.id = n.id) FROM nextval('`+from.sequence+`') AS n(id)`).
		Scan(&id, &taken)
	if err != nil {
		return 0, fmt.Errorf("draw id: %w", err)
	}
	if !taken {
		return id, nil
	}
	err = tx.QueryRow(ctx, `
SELECT setval('`+from.sequence+`', (
    SELECT t.id + 1 FROM `+from.table+` t
    WHERE t.id >= $1 AND NOT EXISTS (SELECT FROM `+from.table+` n WHERE n.id = t.id + 1)
    ORDER BY t.id LIMIT 1))`, id).Scan(&id)
	if err != nil {
		return 0, fmt.Errorf("draw id: %w", err)
	}
	return id, nil
}

// readBack reads a sale that the transaction has just stored, with its items in the order of ids.
func readBack(ctx context.Context, tx Tx, id int64, ids []int64) (sale.Sale, error) {
	sales, err := readSales(ctx, tx, ` WHERE id = $1`, id)
	if err != nil {
		return sale.Sale{}, err
	}
	if len(sales) != 1 || len(sales[0].Items) != len(ids) {
		return sale.Sale{}, errors.New("read sale back: it is not what was stored")
	}
	s := sales[0]
	at := make(map[int64]int, len(ids))
	for i := range ids {
		at[ids[i]] = i
	}
	items := make([]sale.Item, len(ids))
	for _, it := range s.Items {
		items[at[it.ID]] = it
	}
	s.Items = items
	return s, nil
}

// announceSale writes the audit row of a new sale and tells the gateways.
func announceSale(ctx context.Context, tx Tx, change uuid.UUID, id int64) error {
	subject := subjectSale(id)
	var after []byte
	err := tx.QueryRow(ctx, `
SELECT to_jsonb(s) || jsonb_build_object('items',
    (SELECT coalesce(jsonb_agg(to_jsonb(i) ORDER BY i.id), '[]') FROM flash_sale_item i WHERE i.sale_id = s.id))
FROM flash_sale s WHERE s.id = $1`, id).Scan(&after)
	if err != nil {
		return fmt.Errorf("read %s for audit: %w", subject, err)
	}
	if err := audit(ctx, tx, change, changeCreate, subject, nil, after); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, notify, TopicCatalogue); err != nil {
		return fmt.Errorf("notify: %w", err)
	}
	return nil
}

// Sale returns one sale with its items in the order of their ids; false when there is none with this id.
func (db *DB) Sale(ctx context.Context, id int64) (sale.Sale, bool, error) {
	var sales []sale.Sale
	err := db.read(ctx, func(ctx context.Context) (err error) {
		sales, err = readSales(ctx, db.pool, ` WHERE id = $1`, id)
		return err
	})
	if err != nil {
		return sale.Sale{}, false, fmt.Errorf("read sale %d: %w", id, err)
	}
	if len(sales) == 0 {
		return sale.Sale{}, false, nil
	}
	return sales[0], true, nil
}

// Sales returns up to limit sales with their items, in the order of ids, from the first one whose id is above after.
func (db *DB) Sales(ctx context.Context, after int64, limit int) ([]sale.Sale, error) {
	var sales []sale.Sale
	err := db.read(ctx, func(ctx context.Context) (err error) {
		sales, err = readSales(ctx, db.pool, ` WHERE id > $1 ORDER BY id LIMIT $2`, after, limit)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list sales: %w", err)
	}
	return sales, nil
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// readSales reads the sales that a condition selects, in its order, and then their items.
func readSales(ctx context.Context, from querier, where string, args ...any) ([]sale.Sale, error) {
	rows, _ := from.Query(ctx, `
SELECT id, name, starts_at, ends_at, paused, purchase_limit, payment_window, time_zone FROM flash_sale`+where, args...)
	sales, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s sale.Sale, err error) {
		err = row.Scan(&s.ID, &s.Name, &s.StartsAt, &s.EndsAt, &s.Paused, &s.PurchaseLimit, &s.PaymentWindow, &s.TimeZone)
		return s, err
	})
	if err != nil || len(sales) == 0 {
		return nil, err
	}
	at := make(map[int64]int, len(sales))
	ids := make([]int64, len(sales))
	for i := range sales {
		ids[i], at[sales[i].ID] = sales[i].ID, i
	}
	rows, _ = from.Query(ctx, selectItems+` WHERE i.sale_id = ANY($1) ORDER BY i.id`, ids)
	items, err := pgx.CollectRows(rows, scanItem)
	if err != nil {
		return nil, err
	}
	for _, it := range items {
		s := &sales[at[it.SaleID]]
		s.Items = append(s.Items, it)
	}
	return sales, nil
}
