package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"flashgate/internal/admin"
	"flashgate/internal/broker"
	"flashgate/internal/ledger"
	"flashgate/internal/sale"
)

// This file lets the admin API answer about dead letters and replay them.

var _ admin.DeadLetters = deskLetters{}

// letterLedger remembers which letters are done with. *ledger.DB is one.
type letterLedger interface {
	ClosedLetters(ctx context.Context, topic uuid.UUID) (map[int32][]int64, error)
	LetterClosedAt(ctx context.Context, topic uuid.UUID, letter ledger.LetterPlace) (time.Time, bool, error)
	CloseLetters(ctx context.Context, topic uuid.UUID, letters []ledger.LetterPlace, asked json.RawMessage, starts map[int32]int64) error
}

type deskLetters struct {
	admin    *broker.Admin
	producer *broker.Producer
	ledger   letterLedger
	step     int // letters that one call of Replay looks at
}

// replayStep is the step of a replay. So many letters are written, and closed, well within the time of a request.
const replayStep = 1000

// closeTimeout bounds the closing of letters, which goes on when whoever asked for it has gone: they are in the orders topic by then.
const closeTimeout = 5 * time.Second

// closed reads which letters are done with. The topic is looked up before anything is read from it: if it is made anew in between, letters of the new one
// are closed under the id of the old one, which hides nothing, and they are replayed once more.
func (l deskLetters) closed(ctx context.Context) (uuid.UUID, broker.ClosedLetters, error) {
	topic, err := l.admin.LetterTopic(ctx)
	if err != nil {
		return uuid.UUID{}, nil, err
	}
	closed, err := l.ledger.ClosedLetters(ctx, topic)
	return topic, closed, err
}

func (l deskLetters) ClosedAt(ctx context.Context, letter admin.LetterPlace) (time.Time, bool, error) {
	topic, err := l.admin.LetterTopic(ctx)
	if err != nil {
		return time.Time{}, false, err
	}
	return l.ledger.LetterClosedAt(ctx, topic, ledger.LetterPlace(letter))
}

func (l deskLetters) List(ctx context.Context, cursor string, limit int) ([]admin.Letter, string, error) {
	after, err := broker.ParseLetterCursor(cursor)
	if err != nil {
		return nil, "", errors.Join(admin.ErrBadCursor, err)
	}
	_, closed, err := l.closed(ctx)
	if err != nil {
		return nil, "", err
	}
	found, next, err := l.admin.Letters(ctx, after, limit, closed)
	letters := make([]admin.Letter, len(found))
	for i, letter := range found {
		letters[i] = admin.Letter{
			Partition: letter.Partition, Offset: letter.Offset, At: letter.At, Reason: letter.Reason, Error: letter.Error, Topic: letter.Topic,
			SourcePartition: known(letter.SourcePartition), SourceOffset: known(letter.SourceOffset),
			Key: letter.Key, Value: letter.Value, ValueBytes: letter.ValueBytes, OrderID: letter.OrderID,
		}
	}
	return letters, next.String(), err
}

// known is a number, or nil for a negative one, which stands for none.
func known[T int32 | int64](n T) *T {
	if n < 0 {
		return nil
	}
	return &n
}

// Replay writes first and closes then. A crash in between leaves a letter that is replayed once more, which the order writer takes for a redelivery; the
// other way round the reservation would be lost, and nobody would learn of it.
func (l deskLetters) Replay(ctx context.Context, wish admin.Replay) (admin.Replayed, error) {
	at, err := broker.ParseReplayCursor(wish.Cursor)
	if err != nil {
		return admin.Replayed{}, errors.Join(admin.ErrBadCursor, err)
	}
	if wish.One != nil {
		at = broker.OneLetter(wish.One.Partition, wish.One.Offset)
	}
	topic, closed, err := l.closed(ctx)
	if err != nil {
		return admin.Replayed{}, err
	}
	step, err := l.admin.StoredLetters(ctx, at, l.step, closed)
	if err != nil {
		return admin.Replayed{}, err
	}
	if wish.One != nil && len(step.Letters) == 0 && !closed.Has(wish.One.Partition, wish.One.Offset) {
		return admin.Replayed{}, admin.ErrNoLetter
	}
	r := replaying{deskLetters: l, topic: topic, starts: step.Starts, asked: wish.Asked}
	r.sort(step.Letters, wish.Reason)
	if !wish.DryRun && len(r.records) > 0 {
		if err := r.carryOut(ctx); err != nil {
			return admin.Replayed{}, err
		}
	}
	if step.Next != nil {
		r.result.Next = step.Next.String()
	}
	return r.result, nil
}

// replaying is one step of a replay.
type replaying struct {
	deskLetters
	topic  uuid.UUID
	starts map[int32]int64
	asked  []byte

	records []*kgo.Record // what is to be written, as many as result.Replayed
	result  admin.Replayed
}

// sort tells the letters that can be replayed from those that stay.
func (r *replaying) sort(letters []broker.StoredLetter, reason string) {
	for i := range letters {
		letter := &letters[i]
		if reason != "" && letter.Reason != reason {
			continue
		}
		place := admin.LetterPlace{Partition: letter.Partition, Offset: letter.Offset}
		record, event, err := letter.Original()
		var poison *broker.PoisonError
		switch {
		case errors.As(err, &poison):
			r.keep(place, letter.OrderID, poison.Reason, poison.Err)
		case err != nil:
			r.keep(place, letter.OrderID, broker.ReasonMalformed, err)
		default:
			r.records = append(r.records, record)
			r.result.Replayed = append(r.result.Replayed, admin.ReplayedLetter{LetterPlace: place, OrderID: event.OrderID, Reason: letter.Reason})
		}
	}
}

func (r *replaying) keep(place admin.LetterPlace, order sale.OrderID, reason string, err error) {
	r.result.Kept = append(r.result.Kept, admin.KeptLetter{LetterPlace: place, OrderID: order, Reason: reason, Error: err.Error()})
}

// carryOut writes the records, and closes the letters of those that the brokers have acknowledged.
func (r *replaying) carryOut(ctx context.Context) error {
	errs := r.producer.Replay(ctx, r.records)
	var written []ledger.LetterPlace
	var replayed []admin.ReplayedLetter
	var failed error
	unsure := 0
	for i, letter := range r.result.Replayed {
		switch err := errs[i]; {
		case err == nil:
			written = append(written, ledger.LetterPlace(letter.LetterPlace))
			replayed = append(replayed, letter)
		case broker.TooLarge(err):
			r.keep(letter.LetterPlace, letter.OrderID, broker.ReasonTooLarge, err)
		default:
			failed = cmp.Or(failed, err) // the first tells enough
			unsure++
		}
	}
	r.result.Replayed = replayed
	if len(written) > 0 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if err := r.ledger.CloseLetters(ctx, r.topic, written, r.asked, r.starts); err != nil {
			return &admin.ReplayError{Unsure: unsure + len(written), Err: errors.Join(err, failed)}
		}
	}
	if unsure > 0 {
		return &admin.ReplayError{Done: len(written), Unsure: unsure, Err: failed}
	}
	return nil
}
