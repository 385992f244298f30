package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"golang.org/x/sync/errgroup"

	"flashgate/internal/ops"
	"flashgate/internal/sale"
)

// loadsAtOnce is how many items of a new sale are loaded at the same time.
const loadsAtOnce = 8

// createSale stores a sale, loads its stock and tells the gateway, in this order. What can be found wrong is found first: a sale that exists
// without its stock is answered with 503 WARMING_UP to every shopper.
func (a *API) createSale(w http.ResponseWriter, r *http.Request) error {
	var in saleInput
	if err := decode(w, r, &in); err != nil {
		return err
	}
	wanted, err := in.sale()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), a.cfg.StockTimeout)
	err = a.cfg.Stock.Ping(ctx)
	cancel()
	if err != nil {
		a.cfg.Logger.Warn("sale not created: Redis does not answer", "error", err)
		return &failure{status: http.StatusServiceUnavailable, code: ops.CodeUnavailable, message: "Redis does not answer, so the stock could not be loaded; nothing was created"}
	}
	created, taken, err := a.cfg.Ledger.CreateSale(r.Context(), wanted)
	switch {
	case errors.Is(err, ErrOutcomeUnknown):
		a.cfg.Logger.Warn("sale perhaps created", "error", err)
		return &failure{
			status: http.StatusServiceUnavailable, code: CodeOutcomeUnknown,
			message: "whether the sale was created is unknown: look for it among GET /admin/sales before you create it again",
		}
	case err != nil:
		return fmt.Errorf("create sale: %w", err)
	case taken != nil:
		return &failure{status: http.StatusConflict, code: CodeAlreadyExists, message: fmt.Sprintf("%s %d exists already; nothing was created", taken.What, taken.ID)}
	}
	a.cfg.Logger.Info("sale created", "sale", created.ID, "items", len(created.Items), "starts_at", created.StartsAt)

	w.Header().Set("Location", "/admin/sales/"+strconv.FormatInt(created.ID, 10))
	view := CreatedView{SaleView: viewSale(created)}
	if err := a.open(r.Context(), created); err != nil {
		a.cfg.Logger.Warn("new sale not loaded yet", "sale", created.ID, "error", err)
		view.Pending = true
		view.Message = "the sale exists, but its stock is not loaded everywhere yet; it will be, without another call"
		ops.WriteJSON(w, http.StatusAccepted, view)
		return nil
	}
	ops.WriteJSON(w, http.StatusCreated, view)
	return nil
}

// open loads the items of a new sale and has the gateway take them up. The sale exists by now: a caller who went away must not leave it half
// open, so only the time ends the attempt.
func (a *API) open(ctx context.Context, s sale.Sale) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.LoadTimeout)
	defer cancel()
	var group errgroup.Group // without a context of its own: one item that fails is no reason to stop the others
	group.SetLimit(loadsAtOnce)
	for _, it := range s.Items {
		group.Go(func() error {
			if err := a.guard("load item", func() error { return a.cfg.Loader.Load(ctx, it) }); err != nil {
				return fmt.Errorf("load item %d: %w", it.ID, err)
			}
			return nil
		})
	}
	// The gateway learns of the items in any case: shoppers get an answer about the sale instead of a 404.
	err := group.Wait()
	if refresh := a.cfg.Catalogue.Refresh(ctx); refresh != nil {
		err = errors.Join(err, fmt.Errorf("refresh catalogue: %w", refresh))
	}
	return err
}

func (a *API) showSale(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	s, ok, err := a.cfg.Ledger.Sale(r.Context(), id)
	if err != nil {
		return fmt.Errorf("show sale %d: %w", id, err)
	}
	if !ok {
		return notFound(fmt.Sprintf("sale %d does not exist", id))
	}
	ops.WriteJSON(w, http.StatusOK, viewSale(s))
	return nil
}

// listSales answers a page of sales in the order of their ids. A cursor is the last id of the page before.
func (a *API) listSales(w http.ResponseWriter, r *http.Request) error {
	limit, cursor, err := page(r)
	if err != nil {
		return err
	}
	after, err := idCursor(cursor)
	if err != nil {
		return err
	}
	// One more than asked for tells whether there is another page.
	sales, err := a.cfg.Ledger.Sales(r.Context(), after, limit+1)
	if err != nil {
		return fmt.Errorf("list sales: %w", err)
	}
	view := SalesView{Sales: make([]SaleView, 0, len(sales))}
	if len(sales) > limit {
		sales = sales[:limit]
		view.NextCursor = nextCursor(strconv.FormatInt(sales[limit-1].ID, 10))
	}
	for _, s := range sales {
		view.Sales = append(view.Sales, viewSale(s))
	}
	ops.WriteJSON(w, http.StatusOK, view)
	return nil
}
