package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"flashgate/internal/ops"
	"flashgate/internal/sale"
)

// orderStatuses are what a list of orders can be narrowed to.
var orderStatuses = []string{
	string(sale.Pending), string(sale.Paid), string(sale.Expired), string(sale.Cancelled), string(sale.Rejected), StatusRefundDue,
}

// listOrders answers a page of orders, newest first.
func (a *API) listOrders(w http.ResponseWriter, r *http.Request) error {
	limit, cursor, err := page(r)
	if err != nil {
		return err
	}
	filter := OrderFilter{Limit: limit, Cursor: cursor}
	if text, given := parameter(r, "item"); given {
		if filter.Item, err = sale.ParseID(text); err != nil {
			return badRequest("item: " + err.Error())
		}
	}
	if text, given := parameter(r, "status"); given {
		if filter.Status = text; !slices.Contains(orderStatuses, text) {
			return badRequest("status: must be one of " + strings.Join(orderStatuses, ", "))
		}
	}
	orders, next, err := a.cfg.Orders.Orders(r.Context(), filter)
	switch {
	case errors.Is(err, ErrBadCursor):
		return badCursor()
	case err != nil:
		return fmt.Errorf("list orders: %w", err)
	}
	view := OrdersView{Orders: make([]OrderView, 0, len(orders)), NextCursor: nextCursor(next)}
	for i := range orders {
		view.Orders = append(view.Orders, viewOrder(&orders[i], a.cfg.Now()))
	}
	ops.WriteJSON(w, http.StatusOK, view)
	return nil
}

// showOrder answers what became of an order.
func (a *API) showOrder(w http.ResponseWriter, r *http.Request) error {
	id, err := pathOrder(r)
	if err != nil {
		return err
	}
	view, ok, err := a.findOrder(r.Context(), id)
	if err != nil {
		return fmt.Errorf("show order %s: %w", id, err)
	}
	if !ok {
		return noOrder(id)
	}
	ops.WriteJSON(w, http.StatusOK, view)
	return nil
}

func noOrder(id sale.OrderID) *failure { return notFound(fmt.Sprintf("order %s does not exist", id)) }

// findOrder looks into the database, then into Redis, where a reservation is until the consumer has written its row, and where there is neither
// into the database once more:
//
//	this request              consumer, keeper
//	no row
//	                          row is written; cancelled or expired at once; its mark is released
//	no mark
//	row, CANCELLED
//
// Without the third step an order that exists would be denied.
func (a *API) findOrder(ctx context.Context, id sale.OrderID) (OrderDetailView, bool, error) {
	view, ok, err := a.storedOrder(ctx, id)
	if ok || err != nil {
		return view, ok, err
	}
	event, ok, unread := a.reservation(ctx, id)
	if ok {
		return viewReservation(&event), true, nil
	}
	view, ok, err = a.storedOrder(ctx, id)
	if ok || err != nil {
		return view, ok, err
	}
	return OrderDetailView{}, false, unread
}

// storedOrder reads an order and its payments from the database.
func (a *API) storedOrder(ctx context.Context, id sale.OrderID) (OrderDetailView, bool, error) {
	o, ok, err := a.cfg.Orders.Order(ctx, id)
	if err != nil || !ok {
		return OrderDetailView{}, false, err
	}
	payments, err := a.cfg.Orders.Payments(ctx, id)
	if err != nil {
		return OrderDetailView{}, false, err
	}
	return a.viewDetail(&o, payments), true, nil
}

// reservation looks for an order among the marks of its item. Without an item, or with one that was never loaded or is retired, there is none.
func (a *API) reservation(ctx context.Context, id sale.OrderID) (sale.Event, bool, error) {
	item, ok := id.Item()
	if !ok {
		return sale.Event{}, false, nil
	}
	it, ok, err := a.cfg.Ledger.Item(ctx, item)
	if err != nil || !ok || it.Epoch == 0 || !it.RetiredAt.IsZero() {
		return sale.Event{}, false, err
	}
	leave, err := a.enter(ctx)
	if err != nil {
		return sale.Event{}, false, err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, a.cfg.StockTimeout)
	defer cancel()
	event, ok, err := a.cfg.Reservations.Find(ctx, it, id)
	if err != nil {
		return sale.Event{}, false, &failure{
			status: http.StatusServiceUnavailable, code: ops.CodeUnavailable, cause: err,
			message: "the order is not in the database, and whether it is reserved cannot be read from Redis",
		}
	}
	return event, ok, nil
}
