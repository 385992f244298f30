package ledger

import (
	"flashgate/internal/sale"
)

// decision is what becomes of a batch.
type decision struct {
	batch     *batch
	items     map[int64]*lockedItem
	written   []Written // of every event
	inserts   []int     // positions of the events that get a row
	conflicts []int     // positions of the events that are recorded as conflicts
	raise     map[int64]*raise
}

// raise is what changes on the row of an item.
type raise struct {
	units  int64
	noRoom bool
}

// decide says what becomes of each event, given what the ledger holds. It changes nothing of either.
func (b *batch) decide(k *known) *decision {
	d := &decision{batch: b, items: k.items, written: make([]Written, len(b.events)), raise: make(map[int64]*raise)}
	taken := make(map[limit]bool)
	for _, i := range b.order {
		e := &b.events[i]
		if row, ok := k.rows[e.OrderID]; ok {
			d.repeated(i, row)
			continue
		}
		it := k.items[e.ItemID]
		if it.purged {
			d.written[i] = Purged
			continue
		}
		l := limit{key: it.limitKey, user: e.UserID}
		r := d.raise[e.ItemID]
		if r == nil {
			r = &raise{}
			d.raise[e.ItemID] = r
		}
		d.inserts = append(d.inserts, i)
		switch {
		case it.retired:
			d.written[i] = RejectedRetired
		case e.Epoch < it.epoch:
			// Before the user's other order: whether he has one or not, the load has not counted this unit.
			d.written[i] = RejectedStale
		case k.live[l] || taken[l]:
			d.written[i] = RejectedDuplicate
		case e.Quantity > it.quantity-it.sold-r.units:
			d.written[i], r.noRoom = RejectedNoRoom, true
		default:
			d.written[i] = Stored
			r.units += e.Quantity
			taken[l] = true
		}
	}
	d.repetitions(k)
	return d
}

// repetitions decides about the events whose id an earlier event of the batch has.
func (d *decision) repetitions(k *known) {
	for i := range d.batch.events {
		e := &d.batch.events[i]
		first := d.batch.first[e.OrderID]
		if first == i {
			continue
		}
		if d.written[first] == Purged {
			d.written[i] = Purged
			continue
		}
		row, ok := k.rows[e.OrderID]
		if !ok {
			row = payloadOf(&d.batch.events[first])
		}
		d.repeated(i, row)
	}
}

// repeated decides about an event whose id is taken.
func (d *decision) repeated(i int, row payload) {
	if row.same(&d.batch.events[i]) {
		d.written[i] = Redelivered
		return
	}
	d.written[i] = Conflict
	d.conflicts = append(d.conflicts, i)
}

// stands reports whether the rows that the decision wrote are there. They were written by one transaction, so one of them tells for all; a
// decision that wrote no row is simply made again.
func (d *decision) stands(k *known) bool {
	if d == nil || len(d.inserts) == 0 {
		return false
	}
	for _, i := range d.inserts {
		if _, ok := k.rows[d.batch.events[i].OrderID]; !ok {
			return false
		}
	}
	return true
}

// correction is the operation that a refused event needs in Redis; "" for none.
func (w Written) correction() CorrectionOp {
	switch w {
	case RejectedStale, RejectedNoRoom:
		return OpVoid
	case RejectedDuplicate:
		return OpRelease
	}
	return ""
}

// status of the row that an event gets.
func (w Written) status() sale.OrderStatus {
	if w == Stored {
		return sale.Pending
	}
	return sale.Rejected
}
