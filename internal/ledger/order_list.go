package ledger

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"flashgate/internal/sale"
)

// StatusRefundDue is what OrderFilter.Status is for the orders for which a refund is due, whatever state they are in.
const StatusRefundDue = "REFUND_DUE"

// statuses are all states of an order.
var statuses = []sale.OrderStatus{sale.Pending, sale.Paid, sale.Expired, sale.Cancelled, sale.Rejected}

// indexed are states as the indexes of lists have them.
func indexed(statuses ...sale.OrderStatus) []string {
	out := make([]string, len(statuses))
	for i := range statuses {
		out[i] = strings.ToLower(string(statuses[i]))
	}
	return out
}

// OrderFilter selects orders.
type OrderFilter struct {
	Item   int64  // 0: of every item
	Status string // a sale.OrderStatus or StatusRefundDue; empty: in any state
	After  string // what the page before ended with; empty: from the newest
	Limit  int    // of the page; below 1 it counts as 1
}

// Refusals of Orders.
const (
	// ErrBadCursor: After is nothing that an earlier page returned.
	ErrBadCursor = refusal("the cursor is not one of an earlier page")
	// ErrBadStatus: Status is no state of an order.
	ErrBadStatus = refusal("the status is not PENDING, PAID, EXPIRED, CANCELLED, REJECTED or REFUND_DUE")
)

// Pages of orders. The index has the orders of one item in one state in the order of the list. Each of these runs is read no further than the page is
// long: what a page costs grows with the number of items, and not with the number of orders, nor with how rare a state is.
const (
	page = `(o.reserved_at, o.id) < ($2, $3) ORDER BY o.reserved_at DESC, o.id DESC LIMIT $4`

	ordersByStatus = `
SELECT o.* FROM flash_sale_item i CROSS JOIN unnest($5::text[]) AS s(status) CROSS JOIN LATERAL (
    SELECT ` + orderColumns + ` FROM flash_sale_order o WHERE o.item_id + 0 = i.id AND lower(o.status) = s.status AND ` + page + `) o
WHERE $1::bigint = 0 OR i.id = $1
ORDER BY o.reserved_at DESC, o.id DESC LIMIT $4`

	ordersToRefund = `
SELECT ` + orderColumns + ` FROM flash_sale_order o WHERE ($1::bigint = 0 OR o.item_id = $1) AND o.refunds_due > 0 AND ` + page
)

// Orders returns a page of orders, those reserved last first, and the cursor of the next page, empty when there is none. Orders that come or change
// while pages are read are on no page twice; one that changes its state may be missed by a list of one state.
func (db *DB) Orders(ctx context.Context, f OrderFilter) ([]sale.Order, string, error) {
	after, err := parseCursor(f.After)
	if err != nil {
		return nil, "", fmt.Errorf("list orders: %w", err)
	}
	limit := max(f.Limit, 1)
	args := []any{f.Item, after.reservedAt, [16]byte(after.id), limit + 1} // one more tells whether there is another page
	query := ordersByStatus
	switch {
	case f.Status == StatusRefundDue:
		query = ordersToRefund
	case f.Status != "" && !slices.Contains(statuses, sale.OrderStatus(f.Status)):
		return nil, "", fmt.Errorf("list orders: %w", ErrBadStatus)
	default:
		in := statuses
		if f.Status != "" {
			in = []sale.OrderStatus{sale.OrderStatus(f.Status)}
		}
		args = append(args, indexed(in...))
	}
	orders, err := db.ordered(ctx, query, args...)
	if err != nil {
		return nil, "", fmt.Errorf("list orders: %w", err)
	}
	if len(orders) <= limit {
		return orders, "", nil
	}
	orders = orders[:limit]
	last := orders[limit-1]
	return orders, cursor{last.ReservedAt, last.ID}.String(), nil
}

// ordered runs a query whose order an index has. Without statistics of a table that has just been filled the planner takes it for empty, where reading
// everything and sorting it costs nothing.
func (db *DB) ordered(ctx context.Context, query string, args ...any) (orders []sale.Order, err error) {
	err = db.read(ctx, func(ctx context.Context) error {
		return pgx.BeginTxFunc(ctx, db.pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `SET LOCAL enable_sort = off`); err != nil {
				return err
			}
			rows, _ := tx.Query(ctx, query, args...) // the error comes with the rows
			orders, err = pgx.CollectRows(rows, scanOrder)
			return err
		})
	})
	return orders, err
}

// cursor is a place in the list of orders: behind the order with this time and id.
type cursor struct {
	reservedAt time.Time // microseconds, as the database keeps it
	id         sale.OrderID
}

// newest is in front of every order.
var newest = cursor{reservedAt: latest.AddDate(1, 0, 0)}

func (c cursor) String() string {
	text := binary.BigEndian.AppendUint64(nil, uint64(c.reservedAt.UnixMicro()))
	return base64.RawURLEncoding.EncodeToString(append(text, c.id[:]...))
}

func parseCursor(text string) (cursor, error) {
	if text == "" {
		return newest, nil
	}
	bytes, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(bytes) != 24 {
		return cursor{}, ErrBadCursor
	}
	c := cursor{reservedAt: time.UnixMicro(int64(binary.BigEndian.Uint64(bytes))).UTC(), id: sale.OrderID(bytes[8:])}
	if c.reservedAt.Before(earliest) || c.reservedAt.After(latest) {
		return cursor{}, ErrBadCursor
	}
	return c, nil
}
