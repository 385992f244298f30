package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"flashgate/internal/sale"
)

// ReplayCursor is where a replay of the dead letters goes on, and where it ends: it goes through what was there when it began. A letter that fails once
// more becomes a new one behind that end, so that a replay cannot run after itself for ever.
type ReplayCursor struct {
	From  LetterCursor
	Until LetterCursor // for each partition the offset of the first one that is left alone; partitions that are not in it are left alone. nil: the ends now
}

// OneLetter is the cursor of a replay of a single letter.
func OneLetter(partition int32, offset int64) ReplayCursor {
	return ReplayCursor{From: LetterCursor{partition: offset}, Until: LetterCursor{partition: offset + 1}}
}

const replayCursorSeparator = "_"

// String returns the cursor as text for ParseReplayCursor, empty for the start of all.
func (c ReplayCursor) String() string {
	if c.From == nil && c.Until == nil {
		return ""
	}
	return c.From.String() + replayCursorSeparator + c.Until.String()
}

// ParseReplayCursor reads what String wrote, and nothing else. Its error is ErrBadLetterCursor.
func ParseReplayCursor(text string) (ReplayCursor, error) {
	if text == "" {
		return ReplayCursor{}, nil
	}
	from, until, _ := strings.Cut(text, replayCursorSeparator)
	var c ReplayCursor
	var err1, err2 error
	c.From, err1 = ParseLetterCursor(from)
	c.Until, err2 = ParseLetterCursor(until)
	if err1 != nil || err2 != nil || c.Until == nil {
		return ReplayCursor{}, ErrBadLetterCursor
	}
	return c, nil
}

// StoredLetter is a dead letter with the record that holds it.
type StoredLetter struct {
	Letter
	record *kgo.Record
}

// The reasons, beside those for which a record is poison, for which a dead letter cannot be replayed.
const (
	ReasonCut      = "cut"       // the letter has no value, because it was too large for the dead-letter topic
	ReasonElse     = "elsewhere" // it is from another topic
	ReasonTooLarge = "too_large" // larger than the brokers take in the orders topic now
)

// Original returns the record as it was before it became a dead letter, ready to be written, and the reservation in it. Every error is a *PoisonError.
func (l *StoredLetter) Original() (*kgo.Record, sale.Event, error) {
	original := &kgo.Record{Topic: Orders, Key: l.record.Key, Value: l.record.Value}
	cut := false
	for _, header := range l.record.Headers {
		if !strings.HasPrefix(header.Key, deadPrefix) {
			original.Headers = append(original.Headers, header)
		}
		cut = cut || header.Key == DeadCut
	}
	switch {
	case l.Topic != "" && l.Topic != Orders:
		return nil, sale.Event{}, poison(ReasonElse, "the record was in topic %s", l.Topic)
	case cut:
		return nil, sale.Event{}, poison(ReasonCut, "the value of %d bytes did not fit into the letter", l.ValueBytes)
	}
	event, err := Decode(original)
	if err != nil {
		return nil, sale.Event{}, err
	}
	return original, event, nil
}

// replayRoom bounds the records that one call of StoredLetters returns, in bytes; the last one may have more.
const replayRoom = 8 << 20

// StoredLetters is one step of a replay.
type StoredLetters struct {
	Letters []StoredLetter
	Next    *ReplayCursor   // nil: that was all
	Starts  map[int32]int64 // for each partition, the offset in front of which everything has been deleted
}

// StoredLetters reads up to limit dead letters for a replay, those that are closed left out; fewer when they are large. They come partition by partition,
// those of one partition in their order. It is bounded as Letters is.
func (a *Admin) StoredLetters(ctx context.Context, at ReplayCursor, limit int, closed ClosedLetters) (StoredLetters, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.RequestTimeout)
	defer cancel()
	extent, err := a.letterExtent(ctx)
	if err != nil {
		return StoredLetters{}, fmt.Errorf("read the dead letters: %w", err)
	}
	if at.Until == nil {
		at.Until = extent.ends
	}
	step := StoredLetters{Starts: extent.starts}
	next := ReplayCursor{From: LetterCursor{}, Until: at.Until}
	maps.Copy(next.From, at.From)
	room := int64(replayRoom)
	for _, partition := range slices.Sorted(maps.Keys(at.Until)) {
		// A partition of a topic that was made anew with fewer of them has no end, and so no letters.
		end := min(at.Until[partition], extent.ends[partition])
		p := newPile(max(extent.starts[partition], at.From[partition]), end, closed[partition], limit-len(step.Letters))
		p.whole, p.room = true, room
		if !p.full() {
			if err := a.collectLetters(ctx, map[int32]*pile{partition: p}); err != nil {
				return StoredLetters{}, fmt.Errorf("read the dead letters: %w", err)
			}
		}
		room = p.room
		for i, letter := range p.letters {
			step.Letters = append(step.Letters, StoredLetter{letter, p.records[i]})
		}
		next.From[partition] = p.next
		if p.next < end {
			step.Next = &next
		}
	}
	return step, nil
}

// Replay writes records that Original returned to the orders topic, those of one key in their order while none fails, and returns for each of them nil
// when the brokers have acknowledged it. After an error a record may be there all the same: whoever repeats the call may write it twice, which the ledger
// does not mind. Safe for concurrent use; bounded by ctx, and by the request timeout.
func (p *Producer) Replay(ctx context.Context, records []*kgo.Record) []error {
	deadline := time.Now().Add(p.cfg.RequestTimeout)
	if end, ok := ctx.Deadline(); ok && end.Before(deadline) {
		deadline = end
	}
	type fate struct {
		at  int
		err error
	}
	fates := make(chan fate, len(records)) // so that no callback waits
	calls := make([]*call, len(records))
	for i, record := range records {
		// Each on its own: one that is refused must not take the word about the others with it.
		calls[i] = p.submit(deadline, []*kgo.Record{record}, func(err error) { fates <- fate{i, err} })
	}
	unwatch := context.AfterFunc(ctx, func() {
		for _, c := range calls {
			p.giveUp(c, ctx.Err())
		}
	})
	defer unwatch()
	errs := make([]error, len(records))
	for range records {
		f := <-fates
		errs[f.at] = f.err
	}
	return errs
}

// TooLarge reports whether a record was refused by the brokers because of its size, which no repetition changes.
func TooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
}
