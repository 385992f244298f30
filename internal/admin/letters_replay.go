package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"flashgate/internal/ops"
	"flashgate/internal/sale"
)

// ReplayInput is the body of a replay. Nil is what it does not say.
type ReplayInput struct {
	DryRun    *bool   `json:"dryRun,omitempty"`
	Partition *int64  `json:"partition,omitempty"` // of the dead-letter topic; with Offset it is one letter
	Offset    *int64  `json:"offset,omitempty"`
	Reason    *string `json:"reason,omitempty"`
	Cursor    *string `json:"cursor,omitempty"`
}

// ReplayView is what a replay did, or would do.
type ReplayView struct {
	DryRun     bool           `json:"dryRun"`
	Replayed   []ReplayedView `json:"replayed"`
	Kept       []KeptView     `json:"kept"`
	Closed     []ClosedView   `json:"closed"`     // the letter that was asked for, if it had been replayed before
	NextCursor *string        `json:"nextCursor"` // null: nothing is left to do
}

// ReplayedView is a letter that was put back into the orders topic, or would be.
type ReplayedView struct {
	Partition int32  `json:"partition"` // of the dead-letter topic
	Offset    int64  `json:"offset"`
	OrderID   string `json:"orderId"`
	Reason    string `json:"reason"` // for which it was set aside
}

// KeptView is a letter that stays, because it is no reservation now either.
type KeptView struct {
	Partition int32   `json:"partition"`
	Offset    int64   `json:"offset"`
	OrderID   *string `json:"orderId"` // null where none can be read
	Reason    string  `json:"reason"`  // for which it stays
	Error     string  `json:"error"`
}

// ClosedView is a letter that was replayed by an earlier call.
type ClosedView struct {
	Partition int32 `json:"partition"`
	Offset    int64 `json:"offset"`
	At        Time  `json:"at"` // when it was closed
}

// maxReason bounds the reason that a replay asks for, in characters.
const maxReason = 64

// wish checks what was asked for.
func (in *ReplayInput) wish() (Replay, error) {
	wish := Replay{DryRun: in.DryRun != nil && *in.DryRun}
	switch {
	case in.Partition != nil && in.Offset == nil:
		return wish, badRequest("offset: is missing; a partition comes with the offset of the letter")
	case in.Partition == nil && in.Offset != nil:
		return wish, badRequest("partition: is missing; an offset comes with the partition of the letter")
	case in.Partition != nil && (*in.Partition < 0 || *in.Partition > math.MaxInt32):
		return wish, badRequest(fmt.Sprintf("partition: must be an integer from 0 to %d", math.MaxInt32))
	case in.Offset != nil && (*in.Offset < 0 || *in.Offset > sale.MaxID):
		return wish, badRequest(fmt.Sprintf("offset: must be an integer from 0 to %d", sale.MaxID))
	case in.Reason != nil && (*in.Reason == "" || utf8.RuneCountInString(*in.Reason) > maxReason):
		return wish, badRequest(fmt.Sprintf("reason: must be a text of 1 to %d characters", maxReason))
	case in.Cursor != nil && (*in.Cursor == "" || in.Offset != nil):
		return wish, badCursor()
	}
	if in.Partition != nil {
		wish.One = &LetterPlace{int32(*in.Partition), *in.Offset}
	}
	if in.Reason != nil {
		wish.Reason = *in.Reason
	}
	if in.Cursor != nil {
		wish.Cursor = *in.Cursor
	}
	var err error
	wish.Asked, err = json.Marshal(ReplayInput{Partition: in.Partition, Offset: in.Offset, Reason: in.Reason})
	return wish, err
}

// replayLetters puts dead letters back where they came from.
func (a *API) replayLetters(w http.ResponseWriter, r *http.Request) error {
	var in ReplayInput
	if err := decodeOptional(w, r, &in); err != nil {
		return err
	}
	wish, err := in.wish()
	if err != nil {
		return err
	}
	leave, err := a.enter(r.Context())
	if err != nil {
		return err
	}
	defer leave()
	done, err := a.cfg.DeadLetters.Replay(r.Context(), wish)
	if err != nil {
		return replayFailure(wish, err)
	}
	closed, err := a.nothingBecause(r.Context(), wish, done)
	if err != nil {
		return err
	}
	if !wish.DryRun && len(done.Replayed) > 0 {
		a.cfg.Logger.Info("dead letters replayed", "replayed", len(done.Replayed), "kept", len(done.Kept))
	}
	view := ReplayView{
		DryRun: wish.DryRun, Replayed: make([]ReplayedView, len(done.Replayed)), Kept: make([]KeptView, len(done.Kept)), Closed: closed,
		NextCursor: nextCursor(done.Next),
	}
	for i, l := range done.Replayed {
		view.Replayed[i] = ReplayedView{Partition: l.Partition, Offset: l.Offset, OrderID: l.OrderID.String(), Reason: l.Reason}
	}
	for i, l := range done.Kept {
		view.Kept[i] = KeptView{Partition: l.Partition, Offset: l.Offset, OrderID: orderName(l.OrderID), Reason: l.Reason, Error: l.Error}
	}
	ops.WriteJSON(w, http.StatusOK, view)
	return nil
}

// nothingBecause says why a replay found nothing: the letter that it names was closed before, or the error that refuses a reason which is none. Letters may
// have reasons that this version does not know, so one is only refused after no letter was found that has it.
func (a *API) nothingBecause(ctx context.Context, wish Replay, done Replayed) ([]ClosedView, error) {
	closed := []ClosedView{}
	if len(done.Replayed)+len(done.Kept) > 0 || done.Next != "" || wish.Cursor != "" {
		return closed, nil
	}
	if known := a.cfg.LetterReasons; wish.Reason != "" && len(known) > 0 && !slices.Contains(known, wish.Reason) {
		return nil, badRequest(fmt.Sprintf("reason: must be one of %s, or another that a letter has", strings.Join(known, ", ")))
	}
	if wish.One == nil {
		return closed, nil
	}
	at, ok, err := a.cfg.DeadLetters.ClosedAt(ctx, *wish.One)
	if err != nil {
		return nil, replayFailure(wish, err)
	}
	if ok {
		closed = append(closed, ClosedView{Partition: wish.One.Partition, Offset: wish.One.Offset, At: Time{at}})
	}
	return closed, nil
}

// replayFailure says how far a replay came.
func replayFailure(wish Replay, err error) error {
	var half *ReplayError
	message := noLetters + "; nothing was replayed"
	switch {
	case errors.Is(err, ErrBadCursor):
		return badCursor()
	case errors.Is(err, ErrNoLetter) && wish.One != nil:
		return notFound(fmt.Sprintf("there is no dead letter at partition %d offset %d", wish.One.Partition, wish.One.Offset))
	case errors.As(err, &half):
		message = fmt.Sprintf("Kafka or the database does not answer; %d letters were replayed", half.Done)
		if half.Unsure > 0 {
			message += fmt.Sprintf(", of %d it is unknown; to replay them once more does no harm", half.Unsure)
		}
	}
	return &failure{status: http.StatusServiceUnavailable, code: ops.CodeUnavailable, message: message, cause: fmt.Errorf("replay dead letters: %w", err)}
}
