package admin

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	"flashgate/internal/ops"
	"flashgate/internal/sale"
)

// Reconciler compares Redis with the database. Implementations are safe for concurrent use.
type Reconciler interface {
	// Compare reads an item until its numbers agree or differ for good, and changes nothing; false when there is no such item. The error says that the
	// database did not answer.
	Compare(ctx context.Context, item int64) (Comparison, bool, error)
	// Repair is Reloader.Reload for an item whose stock is wrong.
	Repair(ctx context.Context, item int64) error
}

// Comparison is what was found about an item, in units. Nil is what is unknown.
type Comparison struct {
	Item                                  sale.Item
	Shards                                []ShardView
	Available, Pending, InTransfer, Drift *int64
	Orders                                []ConcernView
	Undecided                             bool
	Unknown                               string // why Drift is nil, for people, without secrets; empty where it is known
}

// wrong reports whether there is something to repair.
func (c *Comparison) wrong() bool { return c.Drift != nil && *c.Drift != 0 || len(c.Orders) > 0 }

// maxConcerned is how many orders an answer names.
const maxConcerned = 100

// ConcernView is an order that is not in Redis as it should be.
type ConcernView struct {
	OrderID  string `json:"orderId"`
	Quantity int64  `json:"quantity"`
	Reason   string `json:"reason"` // mark_missing, mark_differs, mark_left, event_lost
}

// ReconciledView is an item with what was found about it.
//
// Free and Reserved are Available and Pending, in the words in which people count: quantity = sold + free + reserved + in transfer + drift. So sold and
// reserved never count the same unit: with 100 orders in the database, 30 reservations on their way there and 70 units free of 200, sold is 100 and
// reserved 30. In flight are those reserved units that are on their way to where they belong: reserved without those of Orders that are lost or left over.
type ReconciledView struct {
	ItemView
	Free      *int64        `json:"free"`
	Reserved  *int64        `json:"reserved"`
	InFlight  *int64        `json:"inFlight"`
	Unknown   *string       `json:"unknownBecause"` // why the drift is unknown; null where it is known
	Orders    []ConcernView `json:"orders"`         // the first 100
	Concerned int           `json:"concerned"`      // how many there are
	Undecided bool          `json:"undecided"`      // there are reservations of which it is not known whether their events still come
	Fixed     bool          `json:"fixed"`          // the stock was loaded anew, and the numbers are those of behind it
}

// reconcile compares an item, and has its stock loaded anew if that is wished and something is wrong.
func (a *API) reconcile(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	if err := noBody(w, r); err != nil {
		return err
	}
	text, given := parameter(r, "fix")
	if given && text != "true" && text != "false" {
		return badRequest("fix: must be true or false")
	}
	found, ok, err := a.compare(r.Context(), id)
	switch {
	case err != nil:
		return fmt.Errorf("reconcile item %d: %w", id, err)
	case !ok:
		return noItem(id)
	case !found.Item.RetiredAt.IsZero():
		return retiredItem(id)
	}
	if text != "true" || !found.wrong() {
		ops.WriteJSON(w, http.StatusOK, viewComparison(found))
		return nil
	}
	a.cfg.Logger.Info("item does not add up, and is loaded anew", "item", id, "drift", numberOr(found.Drift, "unknown"), "concerned", len(found.Orders))
	if pending, err := a.awaitLoad(w, id, a.cfg.Reconciler.Repair); pending || err != nil {
		return err
	}
	view := a.comparedAfter(r.Context(), found.Item)
	view.Fixed = true
	ops.WriteJSON(w, http.StatusOK, view)
	return nil
}

// compare is Compare for as many callers at once as the servers that sell can bear.
func (a *API) compare(ctx context.Context, id int64) (Comparison, bool, error) {
	leave, err := a.enter(ctx)
	if err != nil {
		return Comparison{}, false, err
	}
	defer leave()
	return a.cfg.Reconciler.Compare(ctx, id)
}

// comparedAfter is what an item is like behind its repair, which has happened whether or not somebody can be asked now.
func (a *API) comparedAfter(ctx context.Context, it sale.Item) ReconciledView {
	ctx, cancel := a.afterwards(ctx)
	defer cancel()
	found, ok, err := a.compare(ctx, it.ID)
	if err != nil || !ok {
		a.cfg.Logger.Warn("item not compared after its repair", "item", it.ID, because(err))
		found = Comparison{Item: it, Shards: make([]ShardView, it.Shards), Unknown: "the stock was loaded anew, and could not be read after it"}
		for i := range found.Shards {
			found.Shards[i].Shard = i
		}
	}
	return viewComparison(found)
}

func viewComparison(c Comparison) ReconciledView {
	v := ReconciledView{
		ItemView: viewOf(c.Item),
		Orders:   c.Orders[:min(len(c.Orders), maxConcerned)], Concerned: len(c.Orders), Undecided: c.Undecided,
	}
	if v.Orders == nil {
		v.Orders = []ConcernView{}
	}
	v.Available, v.Pending, v.InTransfer, v.Drift, v.Shards = c.Available, c.Pending, c.InTransfer, c.Drift, c.Shards
	v.SoldOut = soldOut(v.Available, v.InTransfer)
	v.Free, v.Reserved, v.InFlight = c.Available, c.Pending, c.inFlight()
	if c.Drift == nil {
		v.Unknown = nonEmpty(cmp.Or(c.Unknown, "not all that it takes could be read"))
	}
	return v
}

// inFlight is how many of the reserved units are on their way: to an order in the database, or back. Those of the orders with the reasons named here are not.
func (c *Comparison) inFlight() *int64 {
	if c.Pending == nil {
		return nil
	}
	units := *c.Pending
	for _, o := range c.Orders {
		if o.Reason == "event_lost" || o.Reason == "mark_left" {
			units -= o.Quantity
		}
	}
	return &units
}

// numberOr is a number for a log, or what stands for none.
func numberOr(n *int64, none string) any {
	if n == nil {
		return none
	}
	return *n
}

// ReconcileView is the answer to a reconciliation: what was found, or that a load goes on. One of them is nil.
type ReconcileView struct {
	Found   *ReconciledView
	Pending *PendingView
}

// UnmarshalJSON tells the two answers apart as ReloadView does.
func (v *ReconcileView) UnmarshalJSON(data []byte) error {
	return eitherView(data, &v.Found, &v.Pending)
}

// Reconcile has an item compared, and repaired if fix is wished and something is wrong.
func (c *Client) Reconcile(ctx context.Context, id int64, fix bool) (Answer[ReconcileView], error) {
	path := itemPath(id) + "/reconcile"
	if fix {
		path += "?fix=true"
	}
	return call[ReconcileView](ctx, c, http.MethodPost, path, nil, "")
}
