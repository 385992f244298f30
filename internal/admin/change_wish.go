package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"flashgate/internal/ops"
)

// carryOut waits for what a load has to do for a change that is stored, and answers with the item behind it. It goes on when nobody waits for it any
// more, as reloads do, and when this process ends a keeper goes on with it.
func (a *API) carryOut(w http.ResponseWriter, r *http.Request, it ChangedItem, quantity *int64) error {
	var outcome WishOutcome
	begun := a.reloads.begin(func(ctx context.Context) error {
		return a.guard("carry out a wish", func() (err error) {
			ctx, cancel := context.WithTimeout(ctx, a.cfg.ReloadTimeout)
			defer cancel()
			outcome, err = a.cfg.Reloader.CarryOut(ctx, it.ID, it.Wish, quantity)
			return err
		})
	})
	if !begun.endsWithin(a.cfg.ReloadWait) {
		return pendingWish(w, it.ID)
	}
	switch {
	case begun.err != nil:
		if !errors.Is(begun.err, errClosed) {
			a.cfg.Logger.Warn("item not changed yet, a keeper goes on", "item", it.ID, because(begun.err))
		}
		return pendingWish(w, it.ID)
	case outcome == WishRetired:
		return retiredItem(it.ID)
	}
	a.refresh(r.Context())
	view := a.viewAfter(r.Context(), it.Item, readingWait)
	if outcome == WishBelowSold {
		return belowSold(fmt.Sprintf("quantity: %d units were sold when it was to be changed, so it stays at %d; what else was to be changed is", view.Sold, view.Quantity))
	}
	ops.WriteJSON(w, http.StatusOK, view)
	return nil
}

func pendingWish(w http.ResponseWriter, id int64) error {
	ops.WriteJSON(w, http.StatusAccepted, PendingView{ID: id, Pending: true, Message: "the change is stored and will be carried out; look at the item later"})
	return nil
}

func belowSold(message string) *failure {
	return &failure{status: http.StatusConflict, code: CodeBelowSold, message: message}
}

// begin begins a load of which there may be several for one item. load returns by the end of its context, and does not panic.
func (l *reloads) begin(load func(context.Context) error) *reloading {
	begun := &reloading{done: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		begun.err = errClosed
		close(begun.done)
		return begun
	}
	l.wg.Go(func() {
		begun.err = load(l.ctx)
		close(begun.done)
	})
	return begun
}
