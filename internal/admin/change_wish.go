package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"flashgate/internal/ops"
)

// carryOut waits for what a load has to do for a change that is stored, and answers with the item behind it. It goes on when nobody waits for it any
// more, as reloads do, and when this process ends a keeper goes on with it. One of them does that for everybody who wishes something of the item;
// what became of his own wish each finds out when it is over.
func (a *API) carryOut(w http.ResponseWriter, r *http.Request, it ChangedItem, change ItemChange) error {
	wish := Wish{Number: it.Wish}
	others := ""
	if change.Quantity != nil {
		wish.Fewer = max(0, it.Quantity-*change.Quantity)
		if change != (ItemChange{Quantity: change.Quantity}) {
			others = "; what else was asked for was changed"
		}
	}
	patience, cancel := a.patience()
	defer cancel()
	end, err := a.wishEnd(patience, it.ID, wish)
	switch {
	case err != nil:
		if patience.Err() == nil && !errors.Is(err, errClosed) {
			a.cfg.Logger.Warn("item not changed yet, a keeper goes on", "item", it.ID, because(err))
		}
		return pendingWish(w, it.ID)
	case end.Outcome == WishRetired:
		return retiredItem(it.ID)
	}
	a.refresh(r.Context())
	switch end.Outcome {
	case WishBelowSold:
		return belowSold(fmt.Sprintf("quantity: %d units were sold when it was to be changed, so it stays at %d%s", end.Sold, end.Quantity, others))
	case WishReplaced:
		return belowSold(fmt.Sprintf("quantity: a later change had taken the place of this one, and as %d units were sold by then that was refused, so it stays at %d%s",
			end.Sold, end.Quantity, others))
	}
	ops.WriteJSON(w, http.StatusOK, a.viewAfter(r.Context(), it.Item, readingWait))
	return nil
}

// wishEnd waits for the end of a wish. An error, be it only that patience has ended, says that it is open or may be.
//
// Whoever joins the runner of an item may have come too late for it: it has seen that nothing was open before this wish was stored, and ends. The
// wish is open then, and the next runner begins.
func (a *API) wishEnd(patience context.Context, item int64, wish Wish) (WishEnd, error) {
	for {
		begun := a.reloads.join(task{item: item, wishes: true}, func(ctx context.Context) error {
			return a.guard("carry out wishes", func() error {
				ctx, cancel := context.WithTimeout(ctx, a.cfg.ReloadTimeout)
				defer cancel()
				return a.cfg.Reloader.CarryOut(ctx, item)
			})
		})
		if !begun.endsBefore(patience) {
			return WishEnd{}, patience.Err()
		}
		if begun.err != nil {
			return WishEnd{}, begun.err
		}
		if end, err := a.cfg.Reloader.WishEnd(patience, item, wish); err != nil || end.Outcome != WishOpen {
			return end, err
		}
	}
}

func pendingWish(w http.ResponseWriter, id int64) error {
	ops.WriteJSON(w, http.StatusAccepted, PendingView{ID: id, Pending: true, Message: "the change is stored and will be carried out; look at the item later"})
	return nil
}

func belowSold(message string) *failure {
	return &failure{status: http.StatusConflict, code: CodeBelowSold, message: message}
}
