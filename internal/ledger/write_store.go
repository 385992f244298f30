package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"flashgate/internal/sale"
)

// store writes the decision: all of it in one round trip, its order being items (locked before), orders, corrections.
func (d *decision) store(ctx context.Context, tx Tx) error {
	var writes pgx.Batch
	var rows orderRows
	var fixes corrections
	for _, i := range d.inserts {
		e, w := &d.batch.events[i], d.written[i]
		rows.add(e, w.status(), w.reason())
		if op := w.correction(); op != "" {
			fixes.add(op, e, d.items[e.ItemID].epoch)
		}
	}
	rows.queue(&writes)
	d.queueRaise(&writes)
	fixes.queue(&writes)
	if err := d.queueConflicts(&writes); err != nil {
		return err
	}
	if writes.Len() == 0 {
		return nil
	}
	if err := tx.SendBatch(ctx, &writes).Close(); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if rows.inserted != len(d.inserts) {
		// Another transaction stored one of the ids, or a live order of one of the users, between our reading and our writing. It can only
		// have held the lock of another item: a limit that spans items. Now its rows can be seen.
		return errRaced
	}
	return nil
}

// queueRaise raises sold and remembers where a load is due.
func (d *decision) queueRaise(writes *pgx.Batch) {
	var ids, units []int64
	var noRoom []bool
	for id, r := range d.raise {
		if r.units > 0 || r.noRoom {
			ids, units, noRoom = append(ids, id), append(units, r.units), append(noRoom, r.noRoom)
		}
	}
	if len(ids) == 0 {
		return
	}
	writes.Queue(`
UPDATE flash_sale_item i SET sold = i.sold + d.units,
    load_due_at = CASE WHEN d.no_room THEN coalesce(i.load_due_at, now()) ELSE i.load_due_at END,
    load_due_reason = CASE WHEN d.no_room THEN coalesce(i.load_due_reason, 'no_room') ELSE i.load_due_reason END
FROM unnest($1::bigint[], $2::bigint[], $3::boolean[]) AS d(id, units, no_room) WHERE i.id = d.id`, ids, units, noRoom)
}

// queueConflicts records the events whose id belongs to another payload, each payload once.
func (d *decision) queueConflicts(writes *pgx.Batch) error {
	for _, i := range d.conflicts {
		e := &d.batch.events[i]
		text, err := json.Marshal(map[string]any{
			"itemId": e.ItemID, "userId": e.UserID, "quantity": e.Quantity, "price": e.Price, "currency": e.Currency, "keyHash": e.KeyHash,
			"reservedAt": e.ReservedAt.UnixMilli(), "shard": e.Shard, "epoch": e.Epoch,
		})
		if err != nil {
			return fmt.Errorf("record conflict of order %s: %w", e.OrderID, err)
		}
		writes.Queue(`INSERT INTO flash_sale_conflict (order_id, payload) VALUES ($1, $2) ON CONFLICT DO NOTHING`, [16]byte(e.OrderID), text)
	}
	return nil
}

// orderRows are rows to be inserted, by columns.
type orderRows struct {
	ids                                                       []sale.OrderID
	items, quantities, epochs                                 []int64
	users, statuses, prices, currencies, keys, traces, reason []string
	shards                                                    []int32
	reserved                                                  []time.Time

	inserted int // how many got a row, once the batch was sent
	fresh    map[sale.OrderID]bool
}

func (r *orderRows) add(e *sale.Event, status sale.OrderStatus, reason string) {
	r.ids = append(r.ids, e.OrderID)
	r.items = append(r.items, e.ItemID)
	r.users = append(r.users, e.UserID)
	r.quantities = append(r.quantities, e.Quantity)
	r.statuses = append(r.statuses, string(status))
	r.prices = append(r.prices, string(e.Price))
	r.currencies = append(r.currencies, e.Currency)
	r.shards = append(r.shards, int32(e.Shard)) // checked: below sale.MaxShards
	r.epochs = append(r.epochs, e.Epoch)
	r.keys = append(r.keys, e.KeyHash)
	r.traces = append(r.traces, e.Trace)
	r.reserved = append(r.reserved, e.ReservedAt)
	r.reason = append(r.reason, reason)
}

// insertOrders stores rows in the order of their limits: two transactions that hold different items of one sale wait for each other's users
// in the same order. A row whose id or limit is taken is left out; who is in, is in the answer. Price and currency are the item's where
// the event has none.
const insertOrders = `
INSERT INTO flash_sale_order (id, item_id, user_id, quantity, status, limit_key, sku, price, currency, shard, epoch, key_hash, trace, reserved_at,
    expires_at, ended_at, reject_reason)
SELECT e.id, e.item_id, e.user_id, e.quantity, e.status, i.limit_key, i.sku,
    coalesce(nullif(e.price, '')::numeric, i.price), coalesce(nullif(e.currency, ''), i.currency), e.shard, e.epoch, e.key_hash, e.trace, e.reserved_at,
    CASE WHEN e.status = 'PENDING' THEN now() + s.payment_window END,
    CASE WHEN e.status <> 'PENDING' THEN now() END,
    nullif(e.reason, '')
FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::integer[], $9::bigint[], $10::text[],
    $11::text[], $12::timestamptz[], $13::text[])
    AS e(id, item_id, user_id, quantity, status, price, currency, shard, epoch, key_hash, trace, reserved_at, reason)
JOIN flash_sale_item i ON i.id = e.item_id
JOIN flash_sale s ON s.id = i.sale_id
ORDER BY i.limit_key, e.user_id, e.id
ON CONFLICT DO NOTHING
RETURNING id`

// queue adds the statement to a batch; sending it fills in inserted and fresh.
func (r *orderRows) queue(writes *pgx.Batch) {
	if len(r.ids) == 0 {
		return
	}
	writes.Queue(insertOrders, uuids(r.ids), r.items, r.users, r.quantities, r.statuses, r.prices, r.currencies, r.shards, r.epochs, r.keys,
		r.traces, r.reserved, r.reason).Query(func(rows pgx.Rows) error {
		ids, err := pgx.CollectRows(rows, scanOrderID)
		r.inserted = len(ids)
		r.fresh = make(map[sale.OrderID]bool, len(ids))
		for _, id := range ids {
			r.fresh[id] = true
		}
		return err
	})
}

// corrections are rows for the relay, by columns.
type corrections struct {
	ops, users           []string
	ids                  []sale.OrderID
	items, units, epochs []int64
}

// add a correction for the order of an event. epoch is the item's, read under its lock.
func (c *corrections) add(op CorrectionOp, e *sale.Event, epoch int64) {
	c.ops = append(c.ops, string(op))
	c.items = append(c.items, e.ItemID)
	c.ids = append(c.ids, e.OrderID)
	c.users = append(c.users, e.UserID)
	c.units = append(c.units, e.Quantity)
	c.epochs = append(c.epochs, epoch)
}

// queue adds the rows, and word to the relays, to a batch.
func (c *corrections) queue(writes *pgx.Batch) {
	if len(c.ids) == 0 {
		return
	}
	writes.Queue(`
INSERT INTO flash_sale_correction (item_id, op, order_id, user_id, units, epoch)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::uuid[], $4::text[], $5::bigint[], $6::bigint[])`,
		c.items, c.ops, uuids(c.ids), c.users, c.units, c.epochs)
	writes.Queue(notify, TopicCorrections)
}
