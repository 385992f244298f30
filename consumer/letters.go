package consumer

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"flashgate/internal/broker"
	"flashgate/internal/ledger"
	"flashgate/internal/sale"
)

// letter is a record on its way to the dead-letter topic.
type letter struct {
	record    *kgo.Record
	partition *partition
	reason    string
	cause     error
	event     *sale.Event // the reservation that ends with it; nil for a record that could not be understood
	written   bool        // it is in the topic, and the reservation has yet to be ended
}

func poisonLetter(e entry, err error) *letter {
	reason := broker.ReasonMalformed
	var poison *broker.PoisonError
	if errors.As(err, &poison) {
		reason = poison.Reason
	}
	return &letter{record: e.record, partition: e.partition, reason: reason, cause: err}
}

func refusedLetter(r reservation, err error) *letter {
	return &letter{record: r.record, partition: r.partition, reason: broker.ReasonRefused, cause: err, event: &r.event}
}

// about is what the log says of a letter. What exactly is wrong with a record that nobody understands stands in the letter alone: it quotes what
// anybody may have written there.
func (l *letter) about() []any {
	about := []any{"reason", l.reason, "partition", l.record.Partition, "offset", l.record.Offset}
	if l.event != nil {
		return append(about, "order", l.event.OrderID.String(), "item", l.event.ItemID, "error", l.cause)
	}
	var poison *broker.PoisonError
	if errors.As(l.cause, &poison) && poison.Field() != "" {
		about = append(about, "field", poison.Field())
	}
	return about
}

// addLetter puts a letter among those of its partition, by offset.
func (s *session) addLetter(l *letter) {
	p := l.partition
	at, _ := slices.BinarySearchFunc(p.letters, l, func(a, b *letter) int { return cmp.Compare(a.record.Offset, b.record.Offset) })
	p.letters = slices.Insert(p.letters, at, l)
}

// sendLetters writes the letters that are due. A partition that has some left is not fetched until they are written; the others go on. The first
// failure ends the round, so that a dead-letter topic that is away costs one timeout per round and not one per letter.
func (s *session) sendLetters(ctx context.Context) {
	failed := false
	for _, p := range s.owned.all() {
		for len(p.letters) > 0 && !failed && !s.cfg.Now().Before(p.retryAt) {
			if err := s.settle(ctx, p.letters[0]); err != nil {
				failed = true
				s.metrics.letterErrors.Inc()
				s.cfg.Logger.Error("cannot set a record aside, its partition waits", "partition", p.number, "offset", p.letters[0].record.Offset, "error", err)
				p.retryAt = s.cfg.Now().Add(s.waits().After(p.retries + 1))
				p.retries++
				break
			}
			p.letters = p.letters[1:]
			p.retries = 0
		}
		s.fetchOrPause(p)
	}
}

func (s *session) fetchOrPause(p *partition) {
	if stuck := len(p.letters) > 0; stuck != p.paused {
		p.paused = stuck
		topics := map[string][]int32{broker.Orders: {p.number}}
		if stuck {
			s.client.PauseFetchPartitions(topics)
		} else {
			s.client.ResumeFetchPartitions(topics)
		}
	}
}

// settle writes a letter, then ends the reservation that it is about. In this order a crash in between leaves a second letter at worst: the other way
// round the record, read again, would find the row of its end and pass for stored, and nobody would learn of it.
func (s *session) settle(ctx context.Context, l *letter) error {
	if !l.written {
		letterCtx, cancel := context.WithTimeout(ctx, s.cfg.LetterTimeout)
		defer cancel()
		if err := s.cfg.DeadLetters.ProduceDead(letterCtx, l.record, l.reason, l.cause); err != nil {
			return err
		}
		l.written = true
		s.metrics.letters.WithLabelValues(l.reason).Inc()
		s.cfg.Logger.Error("record set aside", l.about()...)
	}
	if l.event == nil {
		return nil
	}
	writeCtx, cancel := context.WithTimeout(ctx, s.cfg.WriteTimeout)
	defer cancel()
	err := s.cfg.Ledger.GiveUp(writeCtx, []sale.Event{*l.event})
	if ledger.Kind(err) == ledger.Permanent {
		// No row can be written, so nothing is released: the next load of the item takes the unit back.
		s.cfg.Logger.Error("reservation cannot be ended either", "order", l.event.OrderID.String(), "item", l.event.ItemID, "error", err)
		return nil
	}
	return err
}
