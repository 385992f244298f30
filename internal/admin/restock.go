package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"flashgate/internal/ops"
	"flashgate/internal/pause"
	"flashgate/internal/sale"
)

// restockPoll is how often a restock asks whether its units are in Redis. The relay is told at once and needs some milliseconds.
const restockPoll = 20 * time.Millisecond

// restock adds units to an item. From the moment the database has them the answer is 200, whatever becomes of Redis: they will be there.
func (a *API) restock(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	key, err := idempotencyKey(r)
	if err != nil {
		return err
	}
	var in struct {
		Quantity *int64 `json:"quantity"`
	}
	if err := decode(w, r, &in); err != nil {
		return err
	}
	var c checker
	units := c.number("quantity", in.Quantity, -1, 1, sale.MaxQuantity)
	if c.err != nil {
		return c.err
	}
	done, outcome, err := a.cfg.Ledger.Restock(r.Context(), id, units, key)
	if errors.Is(err, ErrOutcomeUnknown) {
		a.cfg.Logger.Warn("item perhaps restocked", "item", id, "units", units, "error", err)
		message := "whether the units were added is unknown: look at the item before you repeat the call"
		if key != "" {
			message = "whether the units were added is unknown: repeat the call with the same Idempotency-Key"
		}
		return &failure{status: http.StatusServiceUnavailable, code: CodeOutcomeUnknown, message: message}
	}
	if err != nil {
		return fmt.Errorf("restock item %d: %w", id, err)
	}
	if err := refusedRestock(outcome, id); err != nil {
		return err
	}
	a.cfg.Logger.Info("item restocked", "item", id, "units", units, "quantity", done.Quantity, "repeated", done.Repeated)
	ops.WriteJSON(w, http.StatusOK, RestockView{ItemID: id, Quantity: done.Quantity, Available: a.availableAfter(r.Context(), id, done.Correction)})
	return nil
}

// refusedRestock returns the answer to a restock that the ledger refused.
func refusedRestock(outcome RestockOutcome, id int64) error {
	switch outcome {
	case Restocked:
		return nil
	case NoItem:
		return noItem(id)
	case RestockKeyReused:
		return &failure{status: http.StatusUnprocessableEntity, code: CodeKeyReused, message: "this Idempotency-Key was used with another quantity"}
	case TooMany:
		return badRequest(fmt.Sprintf("quantity: the item would have more than %d units", sale.MaxQuantity))
	case Retired:
		return retiredItem(id)
	}
	return fmt.Errorf("restock item %d: the ledger answers with outcome %d", id, outcome)
}

// availableAfter waits until a correction was carried out and returns the free units then; nil when it took too long, or nobody knows them.
func (a *API) availableAfter(ctx context.Context, id, correction int64) *int64 {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.RestockWait)
	defer cancel()
	for {
		done, err := a.cfg.Ledger.CorrectionDone(ctx, correction)
		if err == nil && done {
			break
		}
		if !pause.For(ctx, restockPoll) {
			a.cfg.Logger.Info("restocked units are not in Redis yet", "item", id, because(err))
			return nil
		}
	}
	it, ok, err := a.cfg.Ledger.Item(ctx, id)
	if err != nil || !ok {
		a.cfg.Logger.Warn("item not read after its restock", "item", id, because(err))
		return nil
	}
	units, known, err := a.cfg.Stock.Free(ctx, it)
	if err != nil || !known {
		a.cfg.Logger.Warn("stock not known after a restock", "item", id, because(err))
		return nil
	}
	return &units
}
