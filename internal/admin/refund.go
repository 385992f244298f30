package admin

import (
	"fmt"
	"net/http"

	"flashgate/internal/ops"
	"flashgate/internal/sale"
)

// RefundInput is the word that payments have been paid back, as it is sent.
type RefundInput struct {
	EventIDs []string `json:"eventIds,omitzero"` // of those payments; left out, all that is due at that moment is meant
}

// check returns what is wrong with the word. No name is not none: a list that came out empty by mistake must not mark everything.
func (in RefundInput) check() error {
	var c checker
	if in.EventIDs != nil && len(in.EventIDs) == 0 {
		c.fail("eventIds", "names no payment; leave it out to mark everything that is due")
	}
	for i, event := range in.EventIDs {
		if err := sale.CheckEventID(event); err != nil {
			c.fail(fmt.Sprintf("eventIds[%d]", i), err.Error())
		}
	}
	return c.err
}

// refunded marks payments as paid back. Said again, it is answered in the same way.
func (a *API) refunded(w http.ResponseWriter, r *http.Request) error {
	id, err := pathOrder(r)
	if err != nil {
		return err
	}
	var in RefundInput
	if err := decodeOptional(w, r, &in); err != nil {
		return err
	}
	if err := in.check(); err != nil {
		return err
	}
	refund, err := a.cfg.Orders.Refunded(r.Context(), id, in.EventIDs)
	if err != nil {
		return fmt.Errorf("mark order %s as refunded: %w", id, err)
	}
	if err := refund.refused(id); err != nil {
		return err
	}
	if refund.Outcome == RefundMarked {
		a.cfg.Logger.Info("order refunded", "order", id, "item", refund.Order.ItemID, "due", refund.Order.RefundsDue)
	}
	payments, err := a.cfg.Orders.Payments(r.Context(), id)
	if err != nil {
		return &failure{
			status: http.StatusServiceUnavailable, code: ops.CodeUnavailable, cause: err,
			message: "the refund is marked, but the order could not be read afterwards: ask for it again",
		}
	}
	ops.WriteJSON(w, http.StatusOK, a.viewDetail(&refund.Order, payments))
	return nil
}

// refused returns the answer to a mark that the ledger refused.
func (f Refund) refused(id sale.OrderID) error {
	switch f.Outcome {
	case RefundMarked, RefundMarkedBefore:
		return nil
	case RefundNotDue:
		message := fmt.Sprintf("no refund of order %s is due", id)
		if f.Event != "" {
			message = fmt.Sprintf("eventIds: %s is no payment of order %s that has to be paid back; nothing was marked", f.Event, id)
		}
		return &failure{status: http.StatusConflict, code: CodeNotDue, message: message}
	case RefundNoOrder:
		return notFound(fmt.Sprintf("order %s is not in the database", id))
	}
	return fmt.Errorf("mark order %s as refunded: the ledger answers with outcome %d", id, f.Outcome)
}
