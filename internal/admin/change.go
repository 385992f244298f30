package admin

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"flashgate/internal/ops"
	"flashgate/internal/sale"
)

// changeSale changes a sale that exists. Gateways act on it within a second, the one of this process before the answer.
func (a *API) changeSale(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	var patch SalePatch
	if err := decode(w, r, &patch); err != nil {
		return err
	}
	change, err := patch.change(a.cfg.Now())
	if err != nil {
		return err
	}
	if change == (SaleChange{}) {
		return a.showSale(w, r)
	}
	s, outcome, err := a.cfg.Changes.UpdateSale(r.Context(), id, change)
	if err != nil {
		return fmt.Errorf("change sale %d: %w", id, err)
	}
	if err := refusedSale(outcome, id, change); err != nil {
		return err
	}
	a.cfg.Logger.Info("sale changed", "sale", id, "changed", patch.names())
	a.refresh(r.Context())
	ops.WriteJSON(w, http.StatusOK, viewSale(s))
	return nil
}

// refusedSale returns the answer to a change of a sale that the ledger refused.
func refusedSale(outcome ChangeOutcome, id int64, change SaleChange) error {
	switch outcome {
	case Changed:
		return nil
	case NothingThere:
		return notFound(fmt.Sprintf("sale %d does not exist", id))
	case SaleStarted:
		return &failure{status: http.StatusConflict, code: CodeSaleStarted, message: "startsAt: the sale has begun, so its start cannot be moved any more; nothing was changed"}
	case BadWindow:
		if change.EndsAt == nil {
			return badRequest("startsAt: must be earlier than endsAt")
		}
		return badRequest("endsAt: must be later than startsAt")
	case ChangeRetired:
		return &failure{status: http.StatusConflict, code: CodeRetired, message: fmt.Sprintf("items of sale %d are retired: it is over and cleared away", id)}
	}
	return fmt.Errorf("change sale %d: the ledger answers with outcome %d", id, outcome)
}

// changeItem changes an item that exists. From the moment the database has it the answer is that it was done, or will be, whatever becomes of Redis.
func (a *API) changeItem(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	var patch ItemPatch
	if err := decode(w, r, &patch); err != nil {
		return err
	}
	change, err := patch.change()
	if err != nil {
		return err
	}
	if change == (ItemChange{}) {
		return a.showItem(w, r)
	}
	it, outcome, err := a.cfg.Changes.UpdateItem(r.Context(), id, change)
	if err != nil {
		return fmt.Errorf("change item %d: %w", id, err)
	}
	if err := refusedItem(outcome, id, it.Item); err != nil {
		return err
	}
	a.cfg.Logger.Info("item changed", "item", id, "changed", patch.names())
	a.refresh(r.Context())
	if it.Wish != 0 {
		return a.carryOut(w, r, it, change)
	}
	patience := readingWait
	if change.Quantity != nil {
		patience = max(patience, a.cfg.RestockWait) // units that were added are missing from Redis until the relay has put them there
	}
	ops.WriteJSON(w, http.StatusOK, a.viewAfter(r.Context(), it.Item, patience))
	return nil
}

// refusedItem returns the answer to a change of an item that the ledger refused.
func refusedItem(outcome ChangeOutcome, id int64, it sale.Item) error {
	switch outcome {
	case Changed:
		return nil
	case NothingThere:
		return noItem(id)
	case ChangeRetired:
		return retiredItem(id)
	case BelowSold:
		return belowSold(fmt.Sprintf("quantity: %d units are sold; nothing was changed", it.Sold))
	}
	return fmt.Errorf("change item %d: the ledger answers with outcome %d", id, outcome)
}

// refresh has the gateway of this process take up a change that is stored. Where that fails it will see it within a second, like all the others.
func (a *API) refresh(ctx context.Context) {
	ctx, cancel := a.afterwards(ctx)
	defer cancel()
	if err := a.cfg.Catalogue.Refresh(ctx); err != nil {
		a.cfg.Logger.Warn("catalogue not refreshed after a change", "error", err)
	}
}

// viewAfter shows an item that has just been changed; its numbers in Redis, and in a database that has gone away since, are unknown where they
// cannot be read. The change is stored: it must not be answered with an error.
func (a *API) viewAfter(ctx context.Context, it sale.Item, patience time.Duration) ItemView {
	ctx, cancel := a.afterwards(ctx)
	defer cancel()
	view, ok, err := a.readItem(ctx, it.ID, patience)
	if err != nil || !ok {
		a.cfg.Logger.Warn("item not read after its change", "item", it.ID, because(err))
		return viewItem(Standing{Item: it}, make([]Shard, it.Shards))
	}
	return view
}

// afterwards is the context for what follows a change that is stored: a caller who went away, or a change that took all the time, must not leave
// it half announced.
func (a *API) afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), a.cfg.Timeout)
}
