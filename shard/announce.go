package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"flashgate/internal/pause"
	"flashgate/internal/sale"
)

// MessageKind says what gateways tell each other.
type MessageKind string

// The kinds of messages.
const (
	// Clear: units came back or were added; whoever has the item flagged as sold out must look again.
	Clear MessageKind = "clear"
	// Flagged: a gateway has proven the item sold out and flagged it; the others may prove it for themselves.
	Flagged MessageKind = "flagged"
)

// Message is about one item. Messages get lost; whoever acts on them needs another way to find out.
type Message struct {
	Kind MessageKind
	Item int64
}

func (m Message) String() string { return string(m.Kind) + ":" + formatInt(m.Item) }

func parseMessage(text string) (Message, bool) {
	kind, id, _ := strings.Cut(text, ":")
	item, err := sale.ParseID(id)
	m := Message{Kind: MessageKind(kind), Item: item}
	return m, err == nil && (m.Kind == Clear || m.Kind == Flagged)
}

// Announce tells every subscriber. Release, Increase and Load announce Clear by themselves.
func (s *Stock) Announce(ctx context.Context, m Message) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.CallTimeout)
	defer cancel()
	answer, err := apart(ctx, s, func() error {
		return s.cfg.Client.Do(ctx, s.cfg.Client.B().Publish().Channel(channel).Message(m.String()).Build()).Error()
	})
	if err := errors.Join(answer, err); err != nil {
		return fmt.Errorf("announce %s: %w", m, err)
	}
	return nil
}

func (s *Stock) announceCleared(ctx context.Context, item int64) {
	if err := s.Announce(ctx, Message{Clear, item}); err != nil {
		// What was done stands; the gateways' own look at their flagged items finds it out.
		s.cfg.Logger.Warn("gateways were not told that units came back", slog.Int64("item", item), slog.Any("error", err))
	}
}

// Waits before a lost subscription is made anew.
const (
	resubscribeWait = 20 * time.Millisecond
	resubscribeMost = time.Second
)

// Subscribe calls hear for every message, one after another, on a connection of its own, until ctx ends, whose error it
// returns. A lost connection is made anew; what was said meanwhile is lost. hear must not block for long.
func (s *Stock) Subscribe(ctx context.Context, hear func(Message)) error {
	for wait := resubscribeWait; ; wait = min(2*wait, resubscribeMost) {
		heard := false
		err := s.listen(ctx, func(text string) {
			heard = true
			if m, ok := parseMessage(text); ok {
				hear(m)
			}
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.cfg.Logger.Warn("messages between gateways may be lost", slog.Any("error", err))
		if heard {
			wait = resubscribeWait
		}
		if !pause.For(ctx, pause.Jitter(wait)) { // so that gateways do not come back all at once
			return ctx.Err()
		}
	}
}

// listen subscribes until the connection or ctx ends. The connection is new each time: the client keeps a broken one of the
// older protocol for ever.
func (s *Stock) listen(ctx context.Context, hear func(string)) error {
	conn, _ := s.cfg.Client.Dedicate()
	defer conn.Close()
	subscribe := conn.B().Subscribe().Channel(channel).Build()
	err := conn.Receive(ctx, subscribe, func(m rueidis.PubSubMessage) { hear(m.Message) })
	if err == nil {
		err = errors.New("the subscription ended")
	}
	return err
}
