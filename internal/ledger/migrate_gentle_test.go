package ledger

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
)

// newLabOf is a database of an older version with an item that two users have ordered.
func newLabOf(t *testing.T, version int64) *lab {
	t.Helper()
	l := olderDatabase(t, version)
	for _, user := range []string{"a", "b"} {
		l.oldOrder(reserved(7, user))
	}
	return l
}

// olderDatabase is a database of an older version with item 7, of which two units are sold.
func olderDatabase(t *testing.T, version int64) *lab {
	t.Helper()
	l := &lab{tb: t, dsn: devtest.Database(t)}
	var err error
	if l.sql, err = pgxpool.New(t.Context(), l.dsn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.sql.Close)
	if err := migrate(t.Context(), l.dsn, version); err != nil {
		t.Fatal(err)
	}
	l.exec(`
INSERT INTO flash_sale (id, name, starts_at, ends_at, purchase_limit, payment_window)
VALUES (1, 'rush', now() - interval '1 hour', now() + interval '1 hour', 'per_item', '10 minutes')`)
	l.exec(`
INSERT INTO flash_sale_item (id, sale_id, quantity, sold, price, currency, shards, limit_key) VALUES (7, 1, 100, 2, 1980, 'JPY', 13, 'item:7')`)
	return l
}

// oldOrder stores an order as a binary of version 2 does.
func (l *lab) oldOrder(e sale.Event) {
	l.tb.Helper()
	l.exec(`
INSERT INTO flash_sale_order (id, item_id, user_id, quantity, status, limit_key, sku, price, currency, shard, epoch, reserved_at, expires_at)
VALUES ($1, 7, $2, 1, 'PENDING', 'item:7', '', 1980, 'JPY', 0, 0, $3, now() + interval '10 minutes')`, [16]byte(e.OrderID), e.UserID, e.ReservedAt)
}

// badIndexes are the indexes and constraints that hold for less than the whole table.
func (l *lab) badIndexes() []string {
	return all[string](l, `
SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid
UNION ALL SELECT conname FROM pg_constraint WHERE NOT convalidated`)
}

// Somebody is in a transaction for long. The indexes wait for him; orders are written meanwhile.
func TestOrdersAreWrittenWhileIndexesAreBuilt(t *testing.T) {
	l := newLabOf(t, 3)
	tx, err := l.sql.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background()) //nolint:errcheck // of a transaction that is over
	if _, err := tx.Exec(t.Context(), `SELECT FROM flash_sale`); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- Migrate(t.Context(), l.dsn) }()
	// A constraint that is not validated yet says nothing: it is there before the first index.
	devtest.Eventually(t, patience, func() bool {
		return lookup[int64](l, `SELECT count(*) FROM pg_index WHERE NOT indisvalid`) > 0
	}, "an index is being built")
	e := reserved(7, "meanwhile")
	l.oldOrder(e)
	l.exec(`UPDATE flash_sale_order SET status = 'EXPIRED', ended_at = now() WHERE id = $1`, [16]byte(e.OrderID))
	l.exec(`UPDATE flash_sale_item SET sold = sold + 1`)
	select {
	case err := <-done:
		t.Fatalf("the migration did not wait: %v", err)
	default:
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if bad := l.badIndexes(); len(bad) > 0 {
		t.Errorf("not whole: %v", bad)
	}
}

// A migration was stopped anywhere in the middle of the indexes, and is run again.
func TestMigrateAfterOneThatWasStopped(t *testing.T) {
	l := newLabOf(t, 3)
	l.exec(`ALTER TABLE flash_sale_order ADD CONSTRAINT chk_order_refunds CHECK (refunds_due >= 0) NOT VALID`)
	for _, index := range []string{"ix_flash_sale_order_list", "ix_flash_sale_order_refund"} {
		// Two rows have the same: what is left is an index that nobody uses.
		if _, err := l.sql.Exec(t.Context(), `CREATE UNIQUE INDEX CONCURRENTLY `+index+` ON flash_sale_order (quantity)`); err == nil {
			t.Fatal("the index was built")
		}
	}
	if bad := l.badIndexes(); len(bad) != 3 {
		t.Fatalf("not whole: %v", bad)
	}
	if err := Migrate(t.Context(), l.dsn); err != nil {
		t.Fatal(err)
	}
	if bad := l.badIndexes(); len(bad) > 0 {
		t.Errorf("not whole: %v", bad)
	}
	if n := lookup[int64](l, `
SELECT count(*) FROM pg_indexes WHERE tablename = 'flash_sale_order' AND indexdef NOT LIKE '%UNIQUE%'
    AND indexname IN ('ix_flash_sale_order_list', 'ix_flash_sale_order_refund')`); n != 2 {
		t.Errorf("%d of the indexes are there", n)
	}
	if n := lookup[int64](l, `SELECT count(*) FROM pg_constraint WHERE conname = 'chk_order_refunds' AND pg_get_constraintdef(oid) LIKE '%refund_due =%'`); n != 1 {
		t.Error("the constraint is the old one")
	}
}
