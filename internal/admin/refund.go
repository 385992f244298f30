package admin

import (
	"fmt"
	"net/http"
	"strconv"

	"flashgate/internal/ops"
	"flashgate/internal/sale"
)

// RefundInput is the word that refunds have been paid, as it is sent.
type RefundInput struct {
	// RefundsDue is how many were due when whoever sends it looked; left out, whatever is due is meant.
	RefundsDue *int64 `json:"refundsDue,omitempty"`
}

// refunded marks what was due as paid back. Again, it is the same.
func (a *API) refunded(w http.ResponseWriter, r *http.Request) error {
	id, err := pathOrder(r)
	if err != nil {
		return err
	}
	key, err := idempotencyKey(r)
	if err != nil {
		return err
	}
	var in RefundInput
	if err := decodeOptional(w, r, &in); err != nil {
		return err
	}
	if in.RefundsDue != nil {
		var c checker
		if c.number("refundsDue", in.RefundsDue, -1, 0, sale.MaxQuantity); c.err != nil {
			return c.err
		}
	}
	o, outcome, err := a.cfg.Orders.Refunded(r.Context(), id, Refund{Seen: in.RefundsDue, Key: key})
	if err != nil {
		return fmt.Errorf("mark order %s as refunded: %w", id, err)
	}
	if err := refusedRefund(outcome, id, o.RefundsDue); err != nil {
		return err
	}
	if outcome == RefundMarked {
		a.cfg.Logger.Info("order refunded", "order", id, "item", o.ItemID)
	}
	payments, err := a.cfg.Orders.Payments(r.Context(), id)
	if err != nil {
		return &failure{
			status: http.StatusServiceUnavailable, code: ops.CodeUnavailable, cause: err,
			message: "the refund is marked, but the order could not be read afterwards: ask for it again",
		}
	}
	ops.WriteJSON(w, http.StatusOK, a.viewDetail(&o, payments))
	return nil
}

// refusedRefund returns the answer to a mark that the ledger refused; due is how many refunds are due now.
func refusedRefund(outcome RefundOutcome, id sale.OrderID, due int64) error {
	switch outcome {
	case RefundMarked, RefundMarkedBefore:
		return nil
	case RefundsChanged:
		return &failure{
			status: http.StatusConflict, code: CodeRefundsChanged, refundsDue: &due,
			message: "refundsDue: is " + strconv.FormatInt(due, 10) + " now; nothing was marked: look at the order again",
		}
	case RefundKeyReused:
		return &failure{status: http.StatusUnprocessableEntity, code: CodeKeyReused, message: "this Idempotency-Key was used for this order with another number of refunds"}
	case RefundNotDue:
		return &failure{status: http.StatusConflict, code: CodeNotDue, message: fmt.Sprintf("no refund of order %s is due", id)}
	case RefundNoOrder:
		return notFound(fmt.Sprintf("order %s is not in the database", id))
	}
	return fmt.Errorf("mark order %s as refunded: the ledger answers with outcome %d", id, outcome)
}
