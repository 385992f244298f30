package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"flashgate/internal/sale"
)

// CancelOutcome says how a cancellation ended.
type CancelOutcome uint8

// The outcomes of a cancellation.
const (
	CancelDone     CancelOutcome = iota + 1 // the order is CANCELLED, now or since an earlier call
	CancelRefused                           // the order is in another state, which the returned order shows, and stays in it
	CancelNotFound                          // there is no row, or it is another user's
)

// Cancel ends a PENDING order of the user and returns the order as it is afterwards (zero for CancelNotFound). Its units go back by a
// correction. It may be repeated after any error.
func (db *DB) Cancel(ctx context.Context, id sale.OrderID, user string) (sale.Order, CancelOutcome, error) {
	var o sale.Order
	var outcome CancelOutcome
	err := db.InTx(ctx, func(ctx context.Context, tx Tx) (err error) {
		o, outcome, err = readForCancel(ctx, tx, id, user)
		if err != nil || outcome != 0 {
			return err
		}
		it, err := lockItem(ctx, tx, o.ItemID)
		if err != nil {
			return err
		}
		o, outcome, err = cancelLocked(ctx, tx, it, id, user)
		return err
	})
	if err != nil {
		return sale.Order{}, 0, fmt.Errorf("cancel order %s: %w", id, err)
	}
	return o, outcome, nil
}

// readForCancel returns how the cancellation of an order ends as it stands; 0 when it is PENDING, which only the item's lock makes certain.
func readForCancel(ctx context.Context, tx Tx, id sale.OrderID, user string) (sale.Order, CancelOutcome, error) {
	rows, _ := tx.Query(ctx, `SELECT `+orderColumns+` FROM flash_sale_order WHERE id = $1 AND user_id = $2`, [16]byte(id), user)
	o, err := pgx.CollectExactlyOneRow(rows, scanOrder)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return sale.Order{}, CancelNotFound, nil
	case err != nil:
		return sale.Order{}, 0, fmt.Errorf("read order: %w", err)
	case o.Status == sale.Cancelled:
		return o, CancelDone, nil
	case o.Status != sale.Pending:
		return o, CancelRefused, nil
	}
	return o, 0, nil
}

// cancelLocked cancels an order of a locked item. The guard is a CASE, as wherever an order is named by its id: of a plain comparison the planner
// concludes that the row is in the index of those that are PENDING, and while it takes the table for empty it reads that from end to end.
func cancelLocked(ctx context.Context, tx Tx, it lockedItem, id sale.OrderID, user string) (sale.Order, CancelOutcome, error) {
	rows, _ := tx.Query(ctx, `
UPDATE flash_sale_order SET status = 'CANCELLED', ended_at = now()
WHERE id = $1 AND CASE status WHEN 'PENDING' THEN user_id = $2 ELSE false END RETURNING `+orderColumns, [16]byte(id), user)
	ended, err := pgx.CollectRows(rows, scanOrder)
	if err != nil {
		return sale.Order{}, 0, fmt.Errorf("end order: %w", err)
	}
	if len(ended) == 0 {
		// It ended, or was paid, between our look at it and the lock. From here on its state is certain.
		o, outcome, err := readForCancel(ctx, tx, id, user)
		if err == nil && outcome == 0 {
			err = errRaced
		}
		return o, outcome, err
	}
	if err := giveBack(ctx, tx, it, ended); err != nil {
		return sale.Order{}, 0, err
	}
	return ended[0], CancelDone, nil
}

// giveBack lowers sold by the units of live orders that have just ended and writes their releases. The item is locked.
func giveBack(ctx context.Context, tx Tx, it lockedItem, ended []sale.Order) error {
	var units int64
	var fixes corrections
	for i := range ended {
		o := &ended[i]
		units += o.Quantity
		if !it.retired {
			fixes.add(OpRelease, &sale.Event{OrderID: o.ID, ItemID: o.ItemID, UserID: o.UserID, Quantity: o.Quantity}, it.epoch)
		}
	}
	var writes pgx.Batch
	writes.Queue(`UPDATE flash_sale_item SET sold = sold - $2 WHERE id = $1`, it.id, units)
	fixes.queue(&writes)
	if err := tx.SendBatch(ctx, &writes).Close(); err != nil {
		return fmt.Errorf("give units back: %w", err)
	}
	return nil
}

// CancelUnwritten cancels an order that so far is known from Redis alone: it writes the row as CANCELLED, with the release of its units, before
// the event arrives. If the event was faster, the row it made is cancelled as Cancel does; an order that another user has under this id is
// CancelNotFound. It may be repeated after any error.
func (db *DB) CancelUnwritten(ctx context.Context, e sale.Event) (sale.Order, CancelOutcome, error) {
	events := []sale.Event{e}
	if err := checkEvents(events); err != nil {
		return sale.Order{}, 0, fmt.Errorf("cancel order: %w", err)
	}
	var o sale.Order
	var outcome CancelOutcome
	err := db.InTx(ctx, func(ctx context.Context, tx Tx) error {
		items, err := endUnwritten(ctx, tx, events)
		if err != nil {
			return err
		}
		o, outcome, err = cancelLocked(ctx, tx, *items[e.ItemID], e.OrderID, e.UserID)
		return err
	})
	if err != nil {
		return sale.Order{}, 0, fmt.Errorf("cancel order %s: %w", e.OrderID, permanent(err, events))
	}
	return o, outcome, nil
}

// GiveUp ends reservations whose events will not be stored any more: those without a row get one that is CANCELLED, together with the release of
// their units. Whatever a row says that is already there, it stands. Afterwards the outbox entries may be removed. It may be repeated
// after any error. Events for which no row can be written are a *PermanentError, as with Write; nothing is released for those.
func (db *DB) GiveUp(ctx context.Context, events []sale.Event) error {
	if len(events) == 0 {
		return nil
	}
	if err := checkEvents(events); err != nil {
		return fmt.Errorf("give up reservations: %w", err)
	}
	err := db.InTx(ctx, func(ctx context.Context, tx Tx) error {
		_, err := endUnwritten(ctx, tx, events)
		return err
	})
	if err != nil {
		return fmt.Errorf("give up reservations: %w", permanent(err, events))
	}
	return nil
}

// endUnwritten locks the items of events and writes a CANCELLED row and a release for each event that has no row. Events of items whose orders have
// been deleted are let go, as by Write.
func endUnwritten(ctx context.Context, tx Tx, events []sale.Event) (map[int64]*lockedItem, error) {
	b := newBatch(events)
	rows, _ := tx.Query(ctx, lockItems, b.items)
	locked, err := pgx.CollectRows(rows, scanLockedItem)
	if err != nil {
		return nil, fmt.Errorf("lock items: %w", err)
	}
	k := &known{items: make(map[int64]*lockedItem, len(locked))}
	for i := range locked {
		k.items[locked[i].id] = &locked[i]
	}
	if err := b.checkItems(k); err != nil {
		return nil, err
	}
	var insert pgx.Batch
	var fresh orderRows
	for _, i := range b.order {
		if !k.items[events[i].ItemID].purged { // its row may have been deleted, and does not come back
			fresh.add(&events[i], sale.Cancelled, "")
		}
	}
	fresh.queue(&insert)
	if insert.Len() == 0 {
		return k.items, nil
	}
	if err := tx.SendBatch(ctx, &insert).Close(); err != nil {
		return nil, fmt.Errorf("write cancelled orders: %w", err)
	}
	var release pgx.Batch
	var fixes corrections
	for _, i := range b.order {
		if e := &events[i]; fresh.fresh[e.OrderID] && !k.items[e.ItemID].retired {
			fixes.add(OpRelease, e, k.items[e.ItemID].epoch)
		}
	}
	fixes.queue(&release)
	if release.Len() == 0 {
		return k.items, nil
	}
	if err := tx.SendBatch(ctx, &release).Close(); err != nil {
		return nil, fmt.Errorf("write releases: %w", err)
	}
	return k.items, nil
}
