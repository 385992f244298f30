package admin

import (
	"errors"
	"fmt"
	"net/http"

	"flashgate/internal/ops"
	"flashgate/internal/sale"
)

// LettersView is one page of dead letters, oldest first.
type LettersView struct {
	Letters    []LetterView `json:"letters"`
	NextCursor *string      `json:"nextCursor"` // null: that was the last page
}

// LetterView is a record that the order writer could not store. Null is what it does not have or what is no text.
type LetterView struct {
	Partition       int32   `json:"partition"` // of the dead-letter topic
	Offset          int64   `json:"offset"`
	At              Time    `json:"at"`
	Reason          string  `json:"reason"`
	Error           string  `json:"error"`
	Topic           string  `json:"topic"` // where the record was
	SourcePartition *int32  `json:"sourcePartition"`
	SourceOffset    *int64  `json:"sourceOffset"`
	Key             *string `json:"key"`
	Value           *string `json:"value"`
	ValueBytes      int     `json:"valueBytes"`
	OrderID         *string `json:"orderId"`
}

// noLetters is the message of a reading of the dead letters that failed.
const noLetters = "Kafka or the database does not answer, or the dead letters cannot be read"

// listLetters answers a page of the dead-letter topic: those letters that nobody has replayed.
func (a *API) listLetters(w http.ResponseWriter, r *http.Request) error {
	limit, cursor, err := page(r)
	if err != nil {
		return err
	}
	leave, err := a.enter(r.Context())
	if err != nil {
		return err
	}
	defer leave()
	letters, next, err := a.cfg.DeadLetters.List(r.Context(), cursor, limit)
	switch {
	case errors.Is(err, ErrBadCursor):
		return badCursor()
	case err != nil:
		return &failure{
			status: http.StatusServiceUnavailable, code: ops.CodeUnavailable, message: noLetters,
			cause: fmt.Errorf("list dead letters: %w", err),
		}
	}
	view := LettersView{Letters: make([]LetterView, 0, len(letters)), NextCursor: nextCursor(next)}
	for i := range letters {
		view.Letters = append(view.Letters, viewLetter(&letters[i]))
	}
	ops.WriteJSON(w, http.StatusOK, view)
	return nil
}

func viewLetter(l *Letter) LetterView {
	return LetterView{
		Partition: l.Partition, Offset: l.Offset, At: Time{l.At}, Reason: l.Reason, Error: l.Error, Topic: l.Topic,
		SourcePartition: l.SourcePartition, SourceOffset: l.SourceOffset, Key: l.Key, Value: l.Value, ValueBytes: l.ValueBytes,
		OrderID: orderName(l.OrderID),
	}
}

// orderName is the id of the order in a letter, or nil where none could be read.
func orderName(id sale.OrderID) *string {
	if id.IsZero() {
		return nil
	}
	return nonEmpty(id.String())
}
