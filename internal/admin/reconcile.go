package admin

import (
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
type ReconciledView struct {
	ItemView
	Orders    []ConcernView `json:"orders"`    // the first 100
	Concerned int           `json:"concerned"` // how many there are
	Undecided bool          `json:"undecided"` // there are reservations of which it is not known whether their events still come
	Fixed     bool          `json:"fixed"`     // the stock was loaded anew, and the numbers are those of behind it
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
	a.cfg.Logger.Info("item does not add up, and is loaded anew", "item", id, "drift", found.Drift, "concerned", len(found.Orders))
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
		found = Comparison{Item: it, Shards: make([]ShardView, it.Shards)}
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
	return v
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
