package ledger

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"flashgate/internal/sale"
)

// Written says what Write did with an event.
type Written uint8

// What Write does with an event. Everything but Conflict and Purged leaves a row with the event's id and payload.
const (
	// Stored: a PENDING order, its units are sold.
	Stored Written = iota + 1
	// Redelivered: the row was there already, in whatever state, or an earlier event of the same call is the same.
	Redelivered
	// Conflict: there is a row with this id and another payload. It stands; the event is recorded beside it, once. Nothing contradicts a row that was
	// made anonymous: what it was is forgotten.
	Conflict
	// RejectedStale: the event is of an epoch before the last load, which has given its unit to somebody else. Its mark is voided.
	RejectedStale
	// RejectedNoRoom: the item is sold out in the ledger. The unit never existed: its mark is voided, and a load is due.
	RejectedNoRoom
	// RejectedDuplicate: the user has another live order for the item or sale. The unit goes back.
	RejectedDuplicate
	// RejectedRetired: the item is retired; nothing is left in Redis to correct.
	RejectedRetired
	// Purged: there is no row, and orders of the item have been deleted: most likely it is one of those, read again. Nothing is stored or told, or the
	// user would be back whom the purge has forgotten.
	Purged
)

var writtenNames = [...]string{"", "stored", "redelivered", "conflict", "rejected_stale", "rejected_no_room", "rejected_duplicate",
	"rejected_retired", "purged"}

// String returns the name used in metrics and logs.
func (w Written) String() string {
	if int(w) < len(writtenNames) && w > 0 {
		return writtenNames[w]
	}
	return "invalid"
}

// reason is what the row of a refused event says; empty for one that is not refused.
func (w Written) reason() string {
	switch w {
	case RejectedStale:
		return "stale"
	case RejectedNoRoom:
		return "no_room"
	case RejectedDuplicate:
		return "duplicate"
	case RejectedRetired:
		return "retired"
	}
	return ""
}

// Write stores a batch of events in one transaction and says, for each in turn, what it did. Where the room of an item does not suffice for
// all, those reserved first get it. It may be called with the same events any number of times, also by several processes at once, and after
// an error of any kind.
//
// Events that cannot be stored are a *PermanentError, which names them where it is known which they are, and nothing of the batch is stored.
// Every other error is of kind Passing or Unknown.
func (db *DB) Write(ctx context.Context, events []sale.Event) ([]Written, error) {
	if len(events) == 0 {
		return nil, nil
	}
	if err := checkEvents(events); err != nil {
		return nil, fmt.Errorf("write orders: %w", err)
	}
	b := newBatch(events)
	var last *decision
	err := db.InTx(ctx, func(ctx context.Context, tx Tx) error {
		known, err := b.read(ctx, tx)
		if err != nil {
			return err
		}
		if tx.Unsure && last.stands(known) {
			// The attempt whose reply was lost did happen: what it decided is the answer. The rows alone would read as a redelivery.
			return nil
		}
		last = b.decide(known)
		return last.store(ctx, tx)
	})
	if err != nil {
		return nil, fmt.Errorf("write orders: %w", permanent(err, events))
	}
	return last.written, nil
}

// permanent turns an error of the database about values into a *PermanentError. It knows which event it was about only if there was one.
func permanent(err error, events []sale.Event) error {
	if Kind(err) != Permanent {
		return err
	}
	var at []int
	if len(events) == 1 {
		at = []int{0}
	}
	return permanentAt(err, at)
}

// batch is what Write was given.
type batch struct {
	events []sale.Event
	first  map[sale.OrderID]int // position of the first event with an id
	order  []int                // these positions, in the order of reservation
	ids    []sale.OrderID       // of order
	items  []int64              // ids of all items, sorted
}

func newBatch(events []sale.Event) *batch {
	b := &batch{events: events, first: make(map[sale.OrderID]int, len(events))}
	for i := range events {
		if _, again := b.first[events[i].OrderID]; !again {
			b.first[events[i].OrderID] = i
			b.order = append(b.order, i)
		}
		b.items = append(b.items, events[i].ItemID)
	}
	slices.SortFunc(b.order, func(i, j int) int {
		e, f := &events[i], &events[j]
		return cmp.Or(e.ReservedAt.Compare(f.ReservedAt), slices.Compare(e.OrderID[:], f.OrderID[:]))
	})
	for _, i := range b.order {
		b.ids = append(b.ids, events[i].OrderID)
	}
	slices.Sort(b.items)
	b.items = slices.Compact(b.items)
	return b
}

// limit is the scope of one live order.
type limit struct{ key, user string }

// known is what the ledger holds that a batch touches.
type known struct {
	items map[int64]*lockedItem
	rows  map[sale.OrderID]payload // rows that have an id of the batch
	live  map[limit]bool           // live orders of the users of the batch
}

// read locks the items of the batch and reads what is known of its ids and users. The three statements travel together, but each sees
// what was committed before it began: the second and third begin when every item is locked, and nobody else can change rows of these items.
func (b *batch) read(ctx context.Context, tx Tx) (*known, error) {
	k := &known{items: make(map[int64]*lockedItem), rows: make(map[sale.OrderID]payload), live: make(map[limit]bool)}
	users, itemOf := make([]string, len(b.order)), make([]int64, len(b.order))
	for at, i := range b.order {
		users[at], itemOf[at] = b.events[i].UserID, b.events[i].ItemID
	}
	var reads pgx.Batch
	reads.Queue(lockItems, b.items).Query(func(rows pgx.Rows) error {
		items, err := pgx.CollectRows(rows, scanLockedItem)
		for i := range items {
			k.items[items[i].id] = &items[i]
		}
		return err
	})
	reads.Queue(`
SELECT id, item_id, user_id, quantity, price::text, currency, key_hash, reserved_at, anonymised_at IS NOT NULL
FROM flash_sale_order WHERE id = ANY($1)`,
		uuids(b.ids)).Query(k.collectRows)
	reads.Queue(`
SELECT i.limit_key, e.user_id
FROM unnest($1::bigint[], $2::text[]) AS e(item_id, user_id)
JOIN flash_sale_item i ON i.id = e.item_id
CROSS JOIN LATERAL (
    SELECT FROM flash_sale_order o
    WHERE o.limit_key = i.limit_key AND o.user_id = e.user_id AND o.status IN ('PENDING', 'PAID') LIMIT 1) live`,
		itemOf, users).Query(k.collectLive)
	if err := tx.SendBatch(ctx, &reads).Close(); err != nil {
		return nil, fmt.Errorf("lock items and read orders: %w", err)
	}
	return k, b.checkItems(k)
}

func (k *known) collectRows(rows pgx.Rows) error {
	var id sale.OrderID
	var p payload
	var reserved time.Time
	_, err := pgx.ForEachRow(rows, []any{(*[16]byte)(&id), &p.item, &p.user, &p.quantity, &p.price, &p.currency, &p.keyHash, &reserved,
		&p.anonymous}, func() error {
		p.reservedAt = reserved.UnixMilli()
		k.rows[id] = p
		return nil
	})
	return err
}

func (k *known) collectLive(rows pgx.Rows) error {
	var l limit
	_, err := pgx.ForEachRow(rows, []any{&l.key, &l.user}, func() error {
		k.live[l] = true
		return nil
	})
	return err
}

// checkItems returns a *PermanentError that names the events of items which do not exist.
func (b *batch) checkItems(k *known) error {
	if len(k.items) == len(b.items) {
		return nil
	}
	var at []int
	for i := range b.events {
		if k.items[b.events[i].ItemID] == nil {
			at = append(at, i)
		}
	}
	return permanentAt(&NotFoundError{What: "item", ID: b.events[at[0]].ItemID}, at)
}
