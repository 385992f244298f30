// Package invariant checks what must hold for an item, whatever happened to it: that its units add up over the database and Redis, that nobody
// holds two orders, that everybody who was told yes has an order, and that what came back came back once. Tests, the load generator and people
// who reconcile use it; it changes nothing.
//
//	invariant.go  Check, Await and what they report
//	ledger.go     what the database holds
//	redis.go      what the shards hold
//	rules.go      the rules themselves, on what was read
package invariant

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"flashgate/internal/pause"
	"flashgate/internal/sale"
	"flashgate/shard"
)

// Database runs queries: a *pgxpool.Pool, *pgx.Conn or pgx.Tx.
type Database interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Stock reads shards. It must be safe for concurrent use.
type Stock interface {
	Read(ctx context.Context, layout shard.Layout) ([]shard.ShardReading, error)
	Holdings(ctx context.Context, layout shard.Layout) ([]shard.Holdings, error)
}

var _ Stock = (*shard.Stock)(nil)

// Rule names an invariant.
type Rule string

// The invariants.
const (
	// NotOversold (I1): the units of live orders are what the item says is sold, and not more than its quantity.
	NotOversold Rule = "I1"
	// Balance (I2): free units, units in transfer and units of live orders make up the quantity, and Redis knows as buyers exactly those
	// who have a live order. It holds at rest.
	Balance Rule = "I2"
	// OneOrder (I3): nobody has two live orders.
	OneOrder Rule = "I3"
	// Kept (I4): whoever was told yes has a row with the id that he was told, and so has everybody who holds a mark at rest.
	Kept Rule = "I4"
	// Returned (I5): what ended has returned, once. At rest no mark names an order that has ended; that nothing returned twice is
	// part of the balance.
	Returned Rule = "I5"
)

// Violation is something that must not be.
type Violation struct {
	Rule Rule
	Text string
}

func (v Violation) String() string { return string(v.Rule) + ": " + v.Text }

// Report is what was found about an item. All numbers are units.
type Report struct {
	Item     int64
	Quantity int64
	Sold     int64 // as the item says
	Live     int64 // of live orders
	Free     int64 // in the shards
	Moving   int64 // in transfer between them
	Open     int64 // of marks whose order has no row yet
	Orders   map[sale.OrderStatus]int64

	// Unsettled says what is still on its way; empty: the item is at rest. Rules that hold at rest alone were not judged otherwise.
	Unsettled  []string
	Violations []Violation

	missing []string // orders without a row: on their way, or lost
}

// OK reports whether the item is at rest and all is as it must be.
func (r *Report) OK() bool { return len(r.Unsettled) == 0 && len(r.Violations) == 0 }

// String is a text of several lines for people.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "item %d: quantity %d = free %d + moving %d + live %d + open %d; sold %d", r.Item, r.Quantity, r.Free, r.Moving, r.Live, r.Open, r.Sold)
	for _, v := range r.Violations {
		b.WriteString("\n  violated " + v.String())
	}
	for _, u := range r.Unsettled {
		b.WriteString("\n  not at rest: " + u)
	}
	return b.String()
}

// listed bounds how many cases of one violation are spelled out.
const listed = 5

// Check reads an item from the database and Redis and judges it. answered are the order ids for which somebody got a yes; one without a row
// may be on its way, so it makes the item unsettled here, and only Await says when it is overdue. What moves while it is read can make an
// item look out of balance that is not: where Check finds that, look again. The error says that something could not be read.
func Check(ctx context.Context, db Database, stock Stock, item int64, answered ...sale.OrderID) (*Report, error) {
	fail := func(err error) (*Report, error) { return nil, fmt.Errorf("check item %d: %w", item, err) }
	// Redis first: an order that ends in between then shows as a mark of an ended order, with a correction that waits or has just been
	// carried out, and a second look settles it.
	shards, err := layoutOf(ctx, db, item)
	if err != nil {
		return fail(err)
	}
	redis, err := readRedis(ctx, stock, shard.Layout{Item: item, Shards: shards})
	if err != nil {
		return fail(err)
	}
	books, err := readLedger(ctx, db, item)
	if err != nil {
		return fail(err)
	}
	if books.shards != shards {
		redis.unsettled = append(redis.unsettled, "the number of shards has just changed")
	}
	return judge(books, redis, answered), nil
}

// Await checks until the item is at rest and all is as it must be, or ctx ends, and returns the last report; orders that have no row by then are
// violations. A violation of what must hold at any time ends it at once. The error says that the item could never be read.
func Await(ctx context.Context, db Database, stock Stock, item int64, answered ...sale.OrderID) (*Report, error) {
	const first, longest = 5 * time.Millisecond, 200 * time.Millisecond
	var last *Report
	for wait := first; ; wait = min(2*wait, longest) {
		report, err := Check(ctx, db, stock, item, answered...)
		if err == nil {
			last = report
			if report.OK() || report.broken() {
				return report, nil
			}
		}
		if !pause.For(ctx, wait) {
			if last == nil {
				return nil, err
			}
			last.violateEach(Kept, last.missing)
			return last, nil
		}
	}
}

// broken reports whether a rule is violated that holds at any time.
func (r *Report) broken() bool {
	for _, v := range r.Violations {
		if v.Rule == NotOversold || v.Rule == OneOrder {
			return true
		}
	}
	return false
}
