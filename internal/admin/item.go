package admin

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"flashgate/internal/ops"
	"flashgate/internal/pause"
	"flashgate/internal/sale"
)

const (
	// readingWait is how long an item is read over and over before a drift is believed: three times.
	readingWait = 2 * betweenReadings
	// betweenReadings is the first wait between two of them: a relay or a consumer in full swing needs less. It doubles.
	betweenReadings = 50 * time.Millisecond
)

// showItem puts together what the database and Redis say about an item.
func (a *API) showItem(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	view, ok, err := a.readItem(r.Context(), id, readingWait)
	if err != nil {
		return fmt.Errorf("show item %d: %w", id, err)
	}
	if !ok {
		return noItem(id)
	}
	ops.WriteJSON(w, http.StatusOK, view)
	return nil
}

// readItem is look for as many callers at once as the servers that sell can bear.
func (a *API) readItem(ctx context.Context, id int64, patience time.Duration) (ItemView, bool, error) {
	leave, err := a.enter(ctx)
	if err != nil {
		return ItemView{}, false, err
	}
	defer leave()
	return a.look(ctx, id, patience)
}

// enter waits for its turn to read what is large, and returns how to give it back.
func (a *API) enter(ctx context.Context) (leave func(), err error) {
	select {
	case a.readings <- struct{}{}:
		return func() { <-a.readings }, nil
	case <-ctx.Done():
		return nil, &failure{status: http.StatusServiceUnavailable, code: ops.CodeUnavailable, message: "too much is being read at once"}
	}
}

// look reads an item until its numbers agree, or its waits in between add up to patience.
//
// Redis and the database cannot be read at one instant, and during a rush units move between two readings: an order is reserved after Redis
// was read and stored before the database is, or a release is under way. Such a difference is another one, or none, in the next reading.
// One that stays is a drift.
func (a *API) look(ctx context.Context, id int64, patience time.Duration) (ItemView, bool, error) {
	it, ok, err := a.cfg.Ledger.Item(ctx, id)
	if err != nil || !ok {
		return ItemView{}, false, err
	}
	for wait := betweenReadings; ; wait *= 2 {
		shards := a.readStock(ctx, it)
		standing, ok, err := a.cfg.Ledger.Standing(ctx, id, orders(shards))
		if err != nil || !ok {
			return ItemView{}, false, err
		}
		view := viewItem(standing, shards)
		moved := standing.Item.Shards != it.Shards || standing.Item.Epoch != it.Epoch // loaded anew since it was read
		agreed := !moved && (view.Drift == nil || *view.Drift == 0)
		wait = min(wait, patience)
		if agreed || patience <= 0 || !pause.For(ctx, wait) {
			return view, true, nil
		}
		patience -= wait
		it = standing.Item
	}
}

// readStock reads the shards of an item. Where Redis does not answer in time nothing is known of any.
func (a *API) readStock(ctx context.Context, it sale.Item) []Shard {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.StockTimeout)
	defer cancel()
	shards, err := a.cfg.Stock.Read(ctx, it)
	if err != nil || len(shards) != it.Shards {
		a.cfg.Logger.Warn("stock not read", "item", it.ID, because(err))
		return make([]Shard, it.Shards)
	}
	return shards
}

func orders(shards []Shard) []sale.OrderID {
	var ids []sale.OrderID
	for _, s := range shards {
		for _, h := range s.Holdings {
			ids = append(ids, h.OrderID)
		}
	}
	return ids
}

// viewItem computes the numbers of an item.
//
// Pending is what Redis has given away and the database does not count: the units of all marks without those whose order is live in the
// database. That includes an order that is in Kafka and not consumed yet, one that was consumed and is still in the outbox (it counts once, in
// sold), and the mark of an order that ended and whose release is still to be relayed; so neither a late acknowledgement nor a release under
// way is a drift. It was read in the order Redis, then database: whatever arrived in between is in both, and counted once.
func viewItem(standing Standing, shards []Shard) ItemView {
	it := standing.Item
	v := viewOf(it)
	v.Shards = make([]ShardView, 0, len(shards))
	var free, held, moving int64
	known, whole, loaded := true, true, true
	for i, s := range shards {
		shard := ShardView{Shard: i}
		if s.Known {
			buyers, pending := int64(len(s.Holdings)), s.Pending
			shard.Stock, shard.Buyers, shard.Pending = s.Stock, &buyers, &pending
		}
		v.Shards = append(v.Shards, shard)
		known = known && s.Known
		whole = whole && !s.Partial
		if loaded = loaded && shard.Stock != nil; loaded {
			free += *shard.Stock
		}
		for _, h := range s.Holdings {
			held += h.Quantity
		}
		moving += s.Moving
	}
	if known {
		v.InTransfer = &moving
	}
	if known && whole {
		pending := held - standing.Held
		v.Pending = &pending
	}
	if loaded {
		v.Available = &free
	}
	v.SoldOut = soldOut(v.Available, v.InTransfer)
	if v.Pending != nil && loaded {
		drift := it.Quantity - it.Sold - free - *v.Pending - moving
		v.Drift = &drift
	}
	return v
}

// viewOf is what the database alone says of an item.
func viewOf(it sale.Item) ItemView {
	return ItemView{
		ID: it.ID, SaleID: it.SaleID, Price: string(it.Price), Currency: it.Currency, MaxPerUser: it.MaxPerUser, Paused: it.Paused,
		Retired: !it.RetiredAt.IsZero(), Quantity: it.Quantity, Sold: it.Sold, Epoch: it.Epoch,
	}
}

// soldOut says whether no unit is free, where both numbers are known.
func soldOut(available, inTransfer *int64) *bool {
	if available == nil || inTransfer == nil {
		return nil
	}
	none := *available == 0 && *inTransfer == 0
	return &none
}
