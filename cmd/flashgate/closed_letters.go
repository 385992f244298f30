package main

import (
	"context"
	"time"

	"flashgate/internal/admin"
	"flashgate/internal/broker"
	"flashgate/internal/ledger"
)

// closedLetters lets the admin API say when a letter was replayed.
type closedLetters struct {
	admin  *broker.Admin
	ledger *ledger.DB
}

var _ admin.ClosedLetters = closedLetters{}

// ClosedAt implements admin.ClosedLetters.
func (c closedLetters) ClosedAt(ctx context.Context, letter admin.LetterPlace) (time.Time, bool, error) {
	topic, err := c.admin.LetterTopic(ctx)
	if err != nil {
		return time.Time{}, false, err
	}
	return c.ledger.LetterClosedAt(ctx, topic, ledger.LetterPlace(letter))
}
