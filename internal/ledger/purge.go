package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flashgate/internal/sale"
)

// PurgeMode says what becomes of old orders.
type PurgeMode uint8

// The modes of Purge.
const (
	// PurgeDelete deletes orders, with their payments. sold of the item goes down by the paid ones: it stays the units of the orders that are
	// there, and the audit table keeps what it was. The item remembers: a record of a deleted order that is read again from Kafka is let go.
	PurgeDelete PurgeMode = iota + 1
	// PurgeAnonymise gives each order a random user id of its own and forgets its Idempotency-Key and trace. Its payments stay: they name no
	// user, and an event that is told again must still be known.
	PurgeAnonymise
)

// PurgeReport is what Purge did, or would do.
type PurgeReport struct {
	Items     int   // with orders that were deleted or made anonymous
	Orders    int64 // deleted or made anonymous
	Units     int64 // of the paid ones among the deleted
	Payments  int64 // deleted
	Conflicts int64 // deleted records of contradicting events: they name the user in either mode
	// Orders that are old enough and stay for now.
	RefundDue int64 // a refund is due
	Unsent    int64 // the rest of the shop has not been told everything about it
}

// purgeBatch is how many orders one transaction looks at. It holds their locks for tens of milliseconds. As a number in the statement it tells the
// planner that few rows are wanted, in the order of the index.
const (
	purgeBatch = 1000
	purgeLimit = ` LIMIT 1000`
)

// purgeable are the states of the orders that may be purged: those that wait for nothing.
var purgeable = []sale.OrderStatus{sale.Paid, sale.Expired, sale.Cancelled, sale.Rejected}

// Purge deletes orders of retired items, or makes them anonymous, if the last thing that happened to them (stored, paid, ended, refunded) was before
// the given time by the clock of the database. Orders with a refund due, or with outgoing events that have not been told, stay until that is
// settled. A dry run changes nothing and reports what would be done.
//
// It works in many short transactions and leaves one audit row per item. After an error the report says what was done so far, and Purge may be
// called again. Several at once do no harm.
func (db *DB) Purge(ctx context.Context, before time.Time, mode PurgeMode, dryRun bool) (PurgeReport, error) {
	var report PurgeReport
	var items []int64
	err := db.read(ctx, func(ctx context.Context) (err error) {
		rows, _ := db.pool.Query(ctx, `SELECT id FROM flash_sale_item WHERE retired_at IS NOT NULL ORDER BY id`)
		items, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	if err != nil {
		return PurgeReport{}, fmt.Errorf("purge orders: look for retired items: %w", err)
	}
	for _, item := range items {
		p := &purge{db: db, item: item, before: before, mode: mode, dryRun: dryRun, change: uuid.New()}
		err := p.run(ctx)
		report.Items += min(1, int(p.done.Orders))
		report.add(p.done)
		if err != nil {
			return report, fmt.Errorf("purge orders of item %d: %w", item, err)
		}
	}
	return report, nil
}

func (r *PurgeReport) add(more PurgeReport) {
	r.Orders += more.Orders
	r.Units += more.Units
	r.Payments += more.Payments
	r.Conflicts += more.Conflicts
	r.RefundDue += more.RefundDue
	r.Unsent += more.Unsent
}

// purge is the purge of one item.
type purge struct {
	db     *DB
	item   int64
	before time.Time
	mode   PurgeMode
	dryRun bool
	change uuid.UUID // of its one audit row

	done PurgeReport
}

// run walks through the orders, one state after another, in the order in which they were reserved.
func (p *purge) run(ctx context.Context) error {
	for _, status := range purgeable {
		at := cursor{reservedAt: earliest.AddDate(-1, 0, 0)}
		for full := true; full; {
			if err := ctx.Err(); err != nil {
				return err
			}
			step := p.purgeNext
			if p.dryRun {
				step = p.countNext
			}
			seen, err := step(ctx, status, at)
			if err != nil {
				return err
			}
			if full = len(seen) == purgeBatch; full {
				at = seen[len(seen)-1]
			}
		}
	}
	return nil
}

// countNext counts what purgeNext would do with the orders behind the given place. It returns the places that it looked at.
func (p *purge) countNext(ctx context.Context, status sale.OrderStatus, at cursor) (seen []cursor, err error) {
	var b batchToPurge
	err = p.db.read(ctx, func(ctx context.Context) error {
		if seen, err = p.walk(ctx, p.db.pool, status, at, ``); err == nil {
			b, err = p.examine(ctx, p.db.pool, seen)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	p.done.add(b.counts)
	return seen, nil
}

// purgeNext purges the orders behind the given place, and returns the places that it looked at.
func (p *purge) purgeNext(ctx context.Context, status sale.OrderStatus, at cursor) (seen []cursor, err error) {
	var b batchToPurge
	var soFar PurgeReport
	err = p.db.InTx(ctx, func(ctx context.Context, tx Tx) error {
		if _, err := lockItem(ctx, tx, p.item); err != nil {
			return err
		}
		if seen, err = p.walk(ctx, tx, status, at, ` FOR UPDATE`); err != nil {
			return err
		}
		// A statement of its own, now that the orders are locked: no payment changes them, so nothing new has to be told of them.
		if b, err = p.examine(ctx, tx, seen); err != nil {
			return err
		}
		if err := p.remove(ctx, tx, b); err != nil {
			return err
		}
		soFar, err = p.record(ctx, tx, b.counts)
		return err
	})
	if err != nil {
		return nil, err
	}
	soFar.RefundDue, soFar.Unsent = p.done.RefundDue+b.counts.RefundDue, p.done.Unsent+b.counts.Unsent
	p.done = soFar
	return seen, nil
}

// walk returns the places of the next orders that are old enough.
func (p *purge) walk(ctx context.Context, from querier, status sale.OrderStatus, at cursor, lock string) ([]cursor, error) {
	rows, _ := from.Query(ctx, `
SELECT reserved_at, id FROM flash_sale_order
WHERE item_id + 0 = $1 AND lower(status) = $2 AND (reserved_at, id) > ($3, $4) AND greatest(created_at, paid_at, ended_at, refunded_at) < $5
    AND NOT ($6 AND anonymised_at IS NOT NULL)
ORDER BY reserved_at, id`+purgeLimit+lock, p.item, indexed(status)[0], at.reservedAt, [16]byte(at.id), p.before, p.mode == PurgeAnonymise)
	seen, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c cursor, err error) {
		err = row.Scan(&c.reservedAt, (*[16]byte)(&c.id))
		return c, err
	})
	if err != nil {
		return nil, fmt.Errorf("look for old orders: %w", err)
	}
	return seen, nil
}

// batchToPurge are the orders of a batch that do not have to stay.
type batchToPurge struct {
	ids    []sale.OrderID
	counts PurgeReport
}

// examine says which orders have to stay, and what goes along with the others.
func (p *purge) examine(ctx context.Context, from querier, seen []cursor) (batchToPurge, error) {
	var b batchToPurge
	ids := make([]sale.OrderID, len(seen))
	for i := range seen {
		ids[i] = seen[i].id
	}
	rows, _ := from.Query(ctx, `
SELECT o.id, o.refunds_due > 0, CASE WHEN o.status = 'PAID' THEN o.quantity ELSE 0 END,
    (SELECT count(*) FROM flash_sale_event e WHERE e.key = o.id::text),
    (SELECT count(*) FROM flash_sale_payment p WHERE p.order_id = o.id),
    (SELECT count(*) FROM flash_sale_conflict c WHERE c.order_id = o.id)
FROM flash_sale_order o WHERE o.id = ANY($1)`, uuids(ids))
	var id sale.OrderID
	var refundDue bool
	var units, unsent, payments, conflicts int64
	_, err := pgx.ForEachRow(rows, []any{(*[16]byte)(&id), &refundDue, &units, &unsent, &payments, &conflicts}, func() error {
		switch {
		case refundDue:
			b.counts.RefundDue++
			return nil
		case unsent > 0:
			b.counts.Unsent++
			return nil
		}
		b.ids = append(b.ids, id)
		b.counts.Orders++
		b.counts.Conflicts += conflicts
		if p.mode == PurgeDelete {
			b.counts.Units += units
			b.counts.Payments += payments
		}
		return nil
	})
	if err != nil {
		return batchToPurge{}, fmt.Errorf("examine old orders: %w", err)
	}
	return b, nil
}

// remove deletes orders, or what in them says who bought.
func (p *purge) remove(ctx context.Context, tx Tx, b batchToPurge) error {
	if len(b.ids) == 0 {
		return nil
	}
	var writes pgx.Batch
	if p.mode == PurgeDelete {
		writes.Queue(`DELETE FROM flash_sale_payment WHERE order_id = ANY($1)`, uuids(b.ids))
		writes.Queue(`DELETE FROM flash_sale_order WHERE id = ANY($1)`, uuids(b.ids))
		writes.Queue(`UPDATE flash_sale_item SET sold = sold - $2, purged_at = coalesce(purged_at, now()) WHERE id = $1`, p.item, b.counts.Units)
	} else {
		writes.Queue(`
UPDATE flash_sale_order SET user_id = 'anonymous-' || gen_random_uuid(), key_hash = '', trace = '', anonymised_at = now()
WHERE id = ANY($1)`, uuids(b.ids))
	}
	writes.Queue(`DELETE FROM flash_sale_conflict WHERE order_id = ANY($1)`, uuids(b.ids))
	if err := tx.SendBatch(ctx, &writes).Close(); err != nil {
		return fmt.Errorf("remove old orders: %w", err)
	}
	return nil
}

// record adds a batch to the audit row of this purge, and returns what the row says then. A batch whose COMMIT lost its reply is in it or not, as it
// happened or not; that is why the row counts, and not this process.
func (p *purge) record(ctx context.Context, tx Tx, batch PurgeReport) (PurgeReport, error) {
	what := changePurge
	if p.mode == PurgeAnonymise {
		what = changeAnonymise
	}
	var soFar PurgeReport
	rows, _ := tx.Query(ctx, `
WITH written AS (
    INSERT INTO flash_sale_audit AS a (change_id, what, subject, before, after)
    SELECT $1, $2, $3, jsonb_build_object('sold', i.sold + $5), jsonb_build_object('sold', i.sold, 'olderThan', $9::timestamptz,
        'orders', $4::bigint, 'units', $5::bigint, 'payments', $6::bigint, 'conflicts', $7::bigint)
    FROM flash_sale_item i WHERE i.id = $8 AND $4::bigint > 0
    ON CONFLICT (change_id) DO UPDATE SET after = a.after || jsonb_build_object('sold', excluded.after->'sold',
        'orders', (a.after->>'orders')::bigint + $4, 'units', (a.after->>'units')::bigint + $5,
        'payments', (a.after->>'payments')::bigint + $6, 'conflicts', (a.after->>'conflicts')::bigint + $7)
    RETURNING after)
SELECT (after->>'orders')::bigint, (after->>'units')::bigint, (after->>'payments')::bigint, (after->>'conflicts')::bigint
FROM (SELECT after FROM written UNION ALL SELECT after FROM flash_sale_audit WHERE change_id = $1 AND $4::bigint = 0) a`,
		[16]byte(p.change), what, SubjectItem(p.item), batch.Orders, batch.Units, batch.Payments, batch.Conflicts, p.item, p.before)
	_, err := pgx.ForEachRow(rows, []any{&soFar.Orders, &soFar.Units, &soFar.Payments, &soFar.Conflicts}, func() error { return nil })
	if err != nil {
		return PurgeReport{}, fmt.Errorf("write audit row: %w", err)
	}
	return soFar, nil
}
