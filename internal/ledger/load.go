package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"flashgate/internal/sale"
)

// loadLease is how long a loader has an item to itself after it claimed or renewed. It renews every second.
const loadLease = 2 * time.Second

// maxToken is above every token that a loader can have had; the fence replaces what is not below it.
const maxToken = 1 << 52

// ClaimLoad claims the load of an item and returns the token of the claim, which fences shards and stamps the epoch. It is refused while
// another loader's lease runs, for a retired item, and for one that does not exist. The lease only saves double work: a claim that is not the
// newest any more is refused by Snapshot and by the shards' fences.
//
// The token is above the newest that a shard has seen: they know newer ones than this database if it was restored from a backup, or is a new one.
//
// After an error of kind Unknown the claim may stand; it is then nobody's, and its lease runs out.
func (db *DB) ClaimLoad(ctx context.Context, item, above int64) (token int64, ok bool, err error) {
	if above >= maxToken {
		above = 0
	}
	err = db.InTx(ctx, func(ctx context.Context, tx Tx) error {
		// After a lost COMMIT the number may be ours or somebody else's by now: no token is taken over, the lease decides.
		//
		// clock_timestamp(), because the statement may have waited for the row behind a batch of orders.
		err := tx.QueryRow(ctx, `
UPDATE flash_sale_item SET claim = greatest(claim, $3) + 1, lease_until = clock_timestamp() + $2
WHERE id = $1 AND retired_at IS NULL AND (lease_until IS NULL OR lease_until <= clock_timestamp())
RETURNING claim`, item, loadLease, above).Scan(&token)
		ok = err == nil
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	if err != nil {
		return 0, false, fmt.Errorf("claim load of item %d: %w", item, err)
	}
	return token, ok, nil
}

// RenewLoad renews the lease of a claim. It returns false when the claim is not the newest any more: somebody took over.
func (db *DB) RenewLoad(ctx context.Context, item, token int64) (bool, error) {
	ok, err := db.setLease(ctx, item, token, loadLease)
	if err != nil {
		return false, fmt.Errorf("renew load of item %d: %w", item, err)
	}
	return ok, nil
}

// EndLoad gives the lease of a claim back, after the load or when it is abandoned, so that the next one need not wait for its end.
func (db *DB) EndLoad(ctx context.Context, item, token int64) error {
	if _, err := db.setLease(ctx, item, token, 0); err != nil {
		return fmt.Errorf("end load of item %d: %w", item, err)
	}
	return nil
}

func (db *DB) setLease(ctx context.Context, item, token int64, lease time.Duration) (held bool, err error) {
	err = db.InTx(ctx, func(ctx context.Context, tx Tx) error {
		tag, err := tx.Exec(ctx, `UPDATE flash_sale_item SET lease_until = clock_timestamp() + $3 WHERE id = $1 AND claim = $2`,
			item, token, lease)
		held = tag.RowsAffected() == 1
		return err
	})
	return held, err
}

// Snapshot is what the ledger knows of an item at one instant: what Redis is loaded from.
type Snapshot struct {
	ItemID   int64
	Token    int64 // the item's epoch from this snapshot on
	Shards   int   // of the layout to load
	Quantity int64
	Sold     int64                // units of the marks
	Marks    map[string]sale.Mark // user → live order; Batch is empty
}

// Free is how many units are to be spread over the shards: those that no live order holds.
func (s Snapshot) Free() int64 { return s.Quantity - s.Sold }

// Snapshot makes token the epoch of the item and reads its live orders, in one transaction. From then on events of older epochs that have no
// row are stale, and what the ledger did before needs no correction in Redis. It also settles that a load was due, and carries out what somebody
// wished of the stock (see Wish): the snapshot has the new number of shards and the smaller quantity. A reduction that would leave fewer units than are
// sold by now is dropped and marked as refused, and the load goes on with the quantity that there is.
//
// It is refused, with false, when the claim is not the newest any more, and also when the snapshot of this token was taken before, as after
// an error of kind Unknown: a restock between two snapshots of one epoch would be in the second one and in its correction. The caller then
// abandons the token and claims anew.
func (db *DB) Snapshot(ctx context.Context, item, token int64) (Snapshot, bool, error) {
	change := uuid.New()
	var snap Snapshot
	var ok bool
	err := db.InTx(ctx, func(ctx context.Context, tx Tx) (err error) {
		snap, ok, err = takeSnapshot(ctx, tx, item, token, change)
		return err
	})
	if err != nil {
		return Snapshot{}, false, fmt.Errorf("take snapshot of item %d: %w", item, err)
	}
	return snap, ok, nil
}

func takeSnapshot(ctx context.Context, tx Tx, item, token int64, change uuid.UUID) (Snapshot, bool, error) {
	// This waits for the item's row. Whoever changes live orders or wishes holds that, so the orders read further down, by a statement which
	// sees all that was committed before it, add up to sold.
	w := Wish{}
	var shards int
	var quantity, sold int64
	err := tx.QueryRow(ctx, `
SELECT `+wishColumns+`, shards, quantity, sold FROM flash_sale_item
WHERE id = $1 AND claim = $2 AND epoch < $2 AND retired_at IS NULL FOR UPDATE`, item, token).
		Scan(append(w.fields(), &shards, &quantity, &sold)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return Snapshot{}, false, nil
	}
	if err != nil {
		return Snapshot{}, false, fmt.Errorf("lock item: %w", err)
	}
	if w.Shards != 0 {
		shards = w.Shards
	}
	if quantity-w.Reduction < sold {
		w.Refused = w.Number
	} else {
		quantity -= w.Reduction
	}
	snap := Snapshot{ItemID: item, Token: token, Shards: shards, Quantity: quantity, Sold: sold}
	var before, after []byte
	err = tx.QueryRow(ctx, `
WITH old AS (SELECT to_jsonb(i) AS item FROM flash_sale_item i WHERE i.id = $1)
UPDATE flash_sale_item i SET epoch = $2, load_due_at = NULL, load_due_reason = NULL,
    shards = $3, quantity = $4, wanted_shards = NULL, wanted_reduction = NULL, wish_refused = $5
FROM old WHERE i.id = $1
RETURNING old.item, to_jsonb(i)`, item, token, shards, quantity, w.Refused).
		Scan(&before, &after)
	if err != nil {
		return Snapshot{}, false, fmt.Errorf("set epoch: %w", err)
	}
	if w.Open() {
		if err := audit(ctx, tx, change, ChangePlanned, SubjectItem(item), before, after); err != nil {
			return Snapshot{}, false, err
		}
	}
	if snap.Marks, err = liveMarks(ctx, tx, item); err != nil {
		return Snapshot{}, false, fmt.Errorf("read live orders: %w", err)
	}
	if _, err := tx.Exec(ctx, notify, TopicCatalogue); err != nil {
		return Snapshot{}, false, fmt.Errorf("notify: %w", err)
	}
	return snap, true, nil
}

// liveOf finds the live orders of item $1. Those of all items are as many as were ever sold and not yet purged; the limit key leads to one item's,
// or one sale's.
const liveOf = `limit_key = (SELECT limit_key FROM flash_sale_item WHERE id = $1) AND item_id = $1 AND status IN ('PENDING', 'PAID')`

func liveMarks(ctx context.Context, tx Tx, item int64) (map[string]sale.Mark, error) {
	rows, err := tx.Query(ctx, `
SELECT user_id, id, quantity, price::text, currency, reserved_at, key_hash FROM flash_sale_order WHERE `+liveOf, item)
	if err != nil {
		return nil, err
	}
	marks := make(map[string]sale.Mark)
	var user string
	var m sale.Mark
	_, err = pgx.ForEachRow(rows, []any{&user, (*[16]byte)(&m.OrderID), &m.Quantity, &m.Price, &m.Currency, &m.ReservedAt, &m.KeyHash}, func() error {
		marks[user] = m
		return nil
	})
	return marks, err
}

// DuePlanned is why a load is due that somebody wishes for, of a stock that is as it should be; see Wish.
const DuePlanned = "planned"

// LoadState is what the ledger knows about the load of an item.
type LoadState struct {
	ItemID    int64
	Shards    int
	Epoch     int64
	Claim     int64
	Leased    bool      // a loader is at work: before its snapshot, or writing the shards behind it
	Abandoned bool      // a load was begun, did not come to its snapshot, and its lease ran out
	Due       string    // why the ledger itself knows that a load is due; empty if it does not. DuePlanned only where there is no other reason
	DueSince  time.Time // zero if not due, or planned
}

// LoadWatch returns the load states of the items whose stock in Redis has to be right: those of the counter model that are not retired. One whose sale has
// ended is among them, sold or not: only a loaded shard can tell who bought, and who did not.
func (db *DB) LoadWatch(ctx context.Context) ([]LoadState, error) {
	var states []LoadState
	err := db.read(ctx, func(ctx context.Context) (err error) {
		rows, _ := db.pool.Query(ctx, `
SELECT i.id, i.shards, i.epoch, i.claim, coalesce(i.lease_until > clock_timestamp(), false),
       coalesce(i.load_due_reason, CASE WHEN `+wished+` THEN $1 END, ''), i.load_due_at
FROM flash_sale_item i WHERE i.retired_at IS NULL AND i.stock_model = 'counter' ORDER BY i.id`, DuePlanned)
		states, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (s LoadState, err error) {
			var since *time.Time
			err = row.Scan(&s.ItemID, &s.Shards, &s.Epoch, &s.Claim, &s.Leased, &s.Due, &since)
			s.Abandoned = s.Claim > s.Epoch && !s.Leased
			if since != nil {
				s.DueSince = *since
			}
			return s, err
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read load states: %w", err)
	}
	return states, nil
}
