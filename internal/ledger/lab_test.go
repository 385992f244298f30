package ledger

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/pause"
	"flashgate/internal/sale"
)

func TestMain(m *testing.M) {
	if dsn := os.Getenv(zoneVariable); dsn != "" {
		os.Exit(printSaleInZone(dsn))
	}
	devtest.Main(m)
}

// patience is for a machine under load; nothing here takes that long.
const patience = 30 * time.Second

// lab is a ledger on a fresh database, and a second way into that database for looking and meddling.
type lab struct {
	*DB
	tb  testing.TB
	dsn string
	sql *pgxpool.Pool
}

// newLab makes a migrated ledger. params are added to the connection string of the ledger, such as "pool_max_conns=1".
func newLab(tb testing.TB, params ...string) *lab {
	tb.Helper()
	dsn := devtest.DatabaseLike(tb, "ledger", Migrate)
	sql, err := pgxpool.New(tb.Context(), dsn)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(sql.Close)
	l := &lab{tb: tb, dsn: dsn, sql: sql}
	l.DB = l.open(params...)
	return l
}

// open makes another ledger on the same database, as another process would.
func (l *lab) open(params ...string) *DB {
	l.tb.Helper()
	db, err := Open(l.tb.Context(), Config{URL: withParams(l.tb, l.dsn, params...)})
	if err != nil {
		l.tb.Fatal(err)
	}
	l.tb.Cleanup(db.Close)
	return db
}

func withParams(tb testing.TB, dsn string, params ...string) string {
	tb.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		tb.Fatal(err)
	}
	for _, p := range params {
		u.RawQuery += "&" + p
	}
	return u.String()
}

// exec runs a statement behind the ledger's back.
func (l *lab) exec(sql string, args ...any) {
	l.tb.Helper()
	if _, err := l.sql.Exec(context.Background(), sql, args...); err != nil {
		l.tb.Fatalf("%s: %v", sql, err)
	}
}

// lookup reads one value behind the ledger's back.
func lookup[T any](l *lab, sql string, args ...any) T {
	l.tb.Helper()
	var v T
	if err := l.sql.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		l.tb.Fatalf("%s: %v", sql, err)
	}
	return v
}

// all reads one column behind the ledger's back.
func all[T any](l *lab, sql string, args ...any) []T {
	l.tb.Helper()
	rows, _ := l.sql.Query(context.Background(), sql, args...)
	values, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		l.tb.Fatalf("%s: %v", sql, err)
	}
	return values
}

// aSale is a sale that is open, with items of the given quantities.
func aSale(quantities ...int64) sale.Sale {
	now := time.Now().Truncate(time.Millisecond)
	s := sale.Sale{
		Name: "rush", StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour), PurchaseLimit: sale.PerItem,
		PaymentWindow: 10 * time.Minute, TimeZone: "UTC",
	}
	for i, q := range quantities {
		s.Items = append(s.Items, sale.Item{
			ProductID: int64(5001 + i), SKU: fmt.Sprintf("SKU-%d", i), Quantity: q, Price: "1980", Currency: "JPY", Shards: 13,
			MaxPerUser: 10, Model: sale.Counter,
		})
	}
	return s
}

// create stores a sale.
func (l *lab) create(s sale.Sale) sale.Sale {
	l.tb.Helper()
	s, err := l.CreateSale(l.tb.Context(), s)
	if err != nil {
		l.tb.Fatal(err)
	}
	return s
}

// item stores a sale of one item and returns the item's id.
func (l *lab) item(quantity int64) int64 {
	l.tb.Helper()
	return l.create(aSale(quantity)).Items[0].ID
}

// reserved is the event of a reservation of one unit, made at the moment.
func reserved(item int64, user string) sale.Event {
	return sale.Event{
		OrderID: sale.NewOrderID(item), ItemID: item, UserID: user, Quantity: 1, Shard: sale.Home(user, 13),
		ReservedAt: time.Now().UTC().Truncate(time.Millisecond), Price: "1980", Currency: "JPY",
	}
}

// write writes events that must not be refused.
func (l *lab) write(events ...sale.Event) []Written {
	l.tb.Helper()
	w, err := l.Write(l.tb.Context(), events)
	if err != nil {
		l.tb.Fatal(err)
	}
	return w
}

// expect fails unless a call of Write did this.
func (l *lab) expect(got []Written, want ...Written) {
	l.tb.Helper()
	if !slices.Equal(got, want) {
		l.tb.Fatalf("written: %v, want %v", got, want)
	}
}

// order reads an order that must be there.
func (l *lab) row(id sale.OrderID) sale.Order {
	l.tb.Helper()
	o, ok, err := l.Order(l.tb.Context(), id)
	if err != nil || !ok {
		l.tb.Fatalf("order %s: %v, %v", id, ok, err)
	}
	return o
}

// success is the event of a provider that the whole order was paid for.
func success(e sale.Event, event string) sale.Payment {
	return sale.Payment{EventID: event, OrderID: e.OrderID, Succeeded: true, Amount: sale.Total(e.Price, e.Quantity), Currency: e.Currency}
}

// failure is the event of an attempt to pay that failed.
func failure(e sale.Event, event string) sale.Payment {
	p := success(e, event)
	p.Succeeded = false
	return p
}

// pay records a payment that must be taken.
func (l *lab) pay(p sale.Payment) sale.PaymentResult {
	l.tb.Helper()
	result, outcome, err := l.Pay(l.tb.Context(), p)
	if outcome != PayDone || err != nil {
		l.tb.Fatalf("pay: %v, %v", outcome, err)
	}
	return result
}

// told are the types of the outgoing events of a key, none of which has been finished, in the order in which they will be told.
func (l *lab) told(key string) []string {
	l.tb.Helper()
	return all[string](l, `SELECT replace(type, 'order.', '') FROM flash_sale_event WHERE key = $1 ORDER BY id`, key)
}

// makeDue moves the end of the payment window of an item's PENDING orders into the past.
func (l *lab) makeDue(item int64) {
	l.tb.Helper()
	l.exec(`
UPDATE flash_sale_order SET expires_at = now() - interval '1 second' WHERE id = ANY(ARRAY(
    SELECT id FROM flash_sale_order WHERE item_id = $1 AND status = 'PENDING' ORDER BY id FOR UPDATE))`, item)
}

// balance checks what must hold at every moment: no oversell, sold is the live units, one live order per user and limit, and every order has
// the one correction that its state calls for, provided that no correction has been finished yet; and as many refunds are due as its payments
// say.
func (l *lab) balance() {
	l.tb.Helper()
	bad := all[string](l, `
SELECT 'item ' || id || ': oversold, or sold is not the units of its live orders' FROM flash_sale_item i
WHERE sold > quantity OR sold <> (
    SELECT coalesce(sum(quantity), 0) FROM flash_sale_order o WHERE o.item_id = i.id AND o.status IN ('PENDING', 'PAID'))
UNION ALL
SELECT 'user ' || user_id || ': more than one live order for ' || limit_key FROM flash_sale_order
WHERE status IN ('PENDING', 'PAID') GROUP BY limit_key, user_id HAVING count(*) > 1
UNION ALL
SELECT 'order ' || o.id || ' ' || o.status || coalesce(' ' || o.reject_reason, '') || ': its corrections are ' || array_agg(c.op)::text
FROM flash_sale_order o JOIN flash_sale_item i ON i.id = o.item_id LEFT JOIN flash_sale_correction c ON c.order_id = o.id
WHERE i.retired_at IS NULL
GROUP BY o.id, o.status, o.reject_reason
HAVING array_agg(c.op) <> ARRAY[CASE
    WHEN o.status IN ('PENDING', 'PAID') THEN NULL
    WHEN o.reject_reason IN ('stale', 'no_room') THEN 'void'
    ELSE 'release' END]
    OR bool_or(c.units <> o.quantity OR c.user_id <> o.user_id OR c.item_id <> o.item_id)
UNION ALL
SELECT 'order ' || o.id || ': ' || refunds_due || ' refunds due, and its payments say ' || count(p.event_id) FROM flash_sale_order o
LEFT JOIN flash_sale_payment p ON p.order_id = o.id AND p.effect = 'refund_due' AND p.refunded_at IS NULL
GROUP BY o.id HAVING o.refunds_due <> count(p.event_id)
UNION ALL
SELECT 'order ' || o.id || ': was paid ' || count(p.event_id) || ' times and is ' || o.status FROM flash_sale_order o
JOIN flash_sale_payment p ON p.order_id = o.id AND p.effect = 'paid'
GROUP BY o.id HAVING count(p.event_id) <> 1 OR o.status <> 'PAID'`)
	if len(bad) > 0 {
		l.tb.Fatalf("out of balance: %q", bad)
	}
}

// forbidRetries fails the test when a transaction of db is attempted again: nobody may be the victim of a deadlock or wait for too long.
func (l *lab) forbidRetries(db *DB) {
	db.pause = func(ctx context.Context, d time.Duration) bool {
		l.tb.Error("a transaction had to be attempted again")
		return pause.For(ctx, d)
	}
}
