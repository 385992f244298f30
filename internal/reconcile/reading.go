package reconcile

import (
	"context"
	"fmt"
	"time"

	"flashgate/internal/ledger"
	"flashgate/internal/sale"
	"flashgate/shard"
)

// Reason says why an order is named.
type Reason string

// The reasons.
const (
	// MarkMissing: the order is live in the database, and Redis has no mark of its user: he could buy again, and its release would return nothing.
	MarkMissing Reason = "mark_missing"
	// MarkDiffers: the order is live in the database, and the mark of its user names another order or quantity.
	MarkDiffers Reason = "mark_differs"
	// MarkLeft: the order has ended in the database, no correction waits for it, and its mark still holds its units.
	MarkLeft Reason = "mark_left"
	// EventLost: a mark holds units for a reservation that has no row and will get none, because its event is nowhere.
	EventLost Reason = "event_lost"
)

// Concern is an order that is not as it should be in Redis.
type Concern struct {
	OrderID  sale.OrderID
	Reason   Reason
	Quantity int64 // units that its row holds, or its mark where there is no live row
}

// suspect is a mark without a row.
type suspect struct {
	quantity   int64
	shard      int
	batch      string
	reservedAt time.Time
}

// reading is an item in Redis and, a moment later, in the database.
type reading struct {
	item    sale.Item // as in the database
	shards  []shard.Account
	known   bool   // every shard answered with numbers that count
	settled bool   // nothing is being loaded, and every shard is whole, and of the item's epoch and layout
	why     string // it is not settled

	free, moving, held int64 // held: units of all marks, without those that wait to be voided
	heldLive           int64 // units of marks whose order is live
	loaded, whole      bool

	owed     int64                    // units of restocks that wait
	named    map[sale.OrderID]bool    // by marks, whatever they say
	concerns map[sale.OrderID]Concern // of marks and live rows
	rowless  map[sale.OrderID]suspect
}

// read reads an item once. it is what the database said of it before.
func (c *Checker) read(ctx context.Context, it *sale.Item) (*reading, bool, error) {
	r := &reading{named: make(map[sale.OrderID]bool), concerns: make(map[sale.OrderID]Concern), rowless: make(map[sale.OrderID]suspect)}
	shards, fault := c.accounts(ctx, it)
	r.shards = shards
	var asked []sale.OrderID
	for _, s := range r.shards {
		for _, m := range s.Marks {
			asked = append(asked, m.OrderID)
		}
	}
	books, ok, err := c.books(ctx, it.ID, asked)
	if err != nil || !ok {
		return nil, false, err
	}
	r.item = books.Item
	r.number(it, &books)
	if !r.settled {
		r.why = r.unsettledBecause(it, &books, fault, c.cfg.CallTimeout)
	}
	r.compare(&books)
	return r, true, nil
}

// accounts reads Redis. Where it does not answer in time nothing is known of any shard. The error says what is not known; everything else is good beside it.
func (c *Checker) accounts(ctx context.Context, it *sale.Item) ([]shard.Account, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	accounts, err := c.cfg.Stock.Accounts(ctx, shard.Layout{Item: it.ID, Shards: it.Shards})
	if err != nil && ctx.Err() == nil {
		c.cfg.Logger.WarnContext(ctx, "reconcile: not all of the stock was read", "item", it.ID, "error", err)
	}
	if len(accounts) != it.Shards {
		accounts = make([]shard.Account, it.Shards)
		for i := range accounts {
			accounts[i].ShardReading = shard.ShardReading{Shard: i, Buyers: -1, Pending: -1, Moving: -1, Epoch: -1}
		}
	}
	return accounts, err
}

func (c *Checker) books(ctx context.Context, item int64, asked []sale.OrderID) (ledger.Books, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	books, ok, err := c.cfg.Ledger.Books(ctx, item, asked)
	if err != nil {
		err = fmt.Errorf("reconcile: %w", err)
	}
	return books, ok, err
}

// number adds the shards up.
func (r *reading) number(before *sale.Item, books *ledger.Books) {
	it := &books.Item
	r.known, r.loaded, r.whole = true, true, true
	r.settled = before.Epoch == it.Epoch && before.Claim == it.Claim && it.Claim == it.Epoch && before.Shards == it.Shards && !books.Leased
	for _, s := range r.shards {
		r.known = r.known && (s.Readable || s.Loaded) && s.Buyers >= 0 && s.Pending >= 0 && s.Moving >= 0
		r.whole = r.whole && s.Whole
		if r.loaded = r.loaded && s.Loaded && s.Stock != nil; r.loaded {
			r.free += *s.Stock
		}
		r.moving += max(0, s.Moving)
		r.settled = r.settled && s.Epoch == it.Epoch && s.K == int64(it.Shards)
	}
	r.settled = r.settled && r.known && r.loaded && r.whole
	r.owed = books.Increase
}

// compare holds the marks against the rows.
func (r *reading) compare(books *ledger.Books) {
	live := make(map[sale.OrderID]int64, len(books.Live))
	for _, o := range books.Live {
		live[o.ID] = o.Quantity
	}
	marks := make(map[string]shard.Holding)
	for n, s := range r.shards {
		for _, m := range s.Marks {
			marks[m.User] = m
			r.named[m.OrderID] = true
			status, ended := books.Ended[m.OrderID]
			_, isLive := live[m.OrderID]
			switch {
			case books.Voids[m.OrderID]:
				continue // it goes, and no unit comes of it
			case isLive:
				r.heldLive += live[m.OrderID]
			case ended && !books.Releases[m.OrderID] && !status.Live():
				r.concerns[m.OrderID] = Concern{m.OrderID, MarkLeft, m.Quantity}
			case !ended:
				r.rowless[m.OrderID] = suspect{m.Quantity, n, m.Batch, m.ReservedAt}
			}
			r.held += m.Quantity
		}
	}
	for _, o := range books.Live {
		switch m, ok := marks[o.UserID]; {
		case !ok:
			r.concerns[o.ID] = Concern{o.ID, MarkMissing, o.Quantity}
		case m.OrderID != o.ID || m.Quantity != o.Quantity:
			r.concerns[o.ID] = Concern{o.ID, MarkDiffers, o.Quantity}
		}
	}
}

// clean reports whether one reading is enough: all adds up, and there is nobody to ask about.
func (r *reading) clean() bool {
	return r.settled && len(r.concerns) == 0 && len(r.rowless) == 0 && r.drift(nil) == 0
}

// unmarked is how many units the rows of some orders hold of which Redis knows nothing.
func (r *reading) unmarked(of map[sale.OrderID]Concern) (units int64) {
	for _, o := range of {
		if o.Reason == MarkMissing || o.Reason == MarkDiffers && !r.named[o.OrderID] {
			units += o.Quantity
		}
	}
	return units
}

// drift is how many units are missing from Redis, below 0 how many are too many, if of the live rows exactly those of confirmed have no mark: those of
// others were reserved behind the reading of their shard, out of what was free there.
//
// A unit that counts twice because its transfer or restock has not been finished is no surplus.
func (r *reading) drift(confirmed map[sale.OrderID]Concern) int64 {
	drift := r.item.Quantity - r.free - r.moving - r.held - r.owed - r.unmarked(confirmed)
	if drift < 0 {
		drift = min(0, drift+r.moving+r.owed)
	}
	return drift
}
