package keeper

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"sync/atomic"
	"time"
)

// turn decides which of several keepers runs a loop. It only saves double work: every loop may run in any number of keepers at once, and a
// keeper that cannot ask, or whose work fails, works without having been given the turn. A turn is used by one goroutine, failed by any.
type turn struct {
	name   string
	holder string
	ttl    time.Duration
	bound  time.Duration // of one question
	lease  func(ctx context.Context, name, holder string, ttl time.Duration) (bool, error)

	held   bool
	until  time.Time // no need to ask before
	failed atomic.Bool
}

// mine reports whether this keeper is to work now.
//
// A keeper that holds the turn and cannot do the work, because a network keeps it from Redis but not from the database, would keep everybody
// else from it. So one that failed gives the turn back and goes on without it until it succeeds: somebody else may do better.
func (t *turn) mine(ctx context.Context, now time.Time) bool {
	if t.failed.Swap(false) {
		if t.held {
			t.giveBack(ctx)
			// Not asked for again before others, who ask every quarter, have had their chance.
			t.until = now.Add(t.ttl / 2)
		}
		return true
	}
	if now.Before(t.until) {
		return t.held
	}
	ctx, cancel := context.WithTimeout(ctx, t.bound)
	defer cancel()
	held, err := t.lease(ctx, t.name, t.holder, t.ttl)
	if err != nil {
		// The database is away. Whether somebody else works is unknown; that nobody does would be worse.
		t.held, t.until = true, now.Add(t.ttl/2)
		return true
	}
	t.held, t.until = held, now.Add(t.ttl/2)
	if !held {
		// A dead holder is found out the sooner.
		t.until = now.Add(t.ttl / 4)
	}
	return held
}

// giveBack lets somebody else have the turn at once.
func (t *turn) giveBack(ctx context.Context) {
	if !t.held {
		return
	}
	t.held, t.until = false, time.Time{}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.bound)
	defer cancel()
	// If it cannot be given back it runs out.
	_, _ = t.lease(ctx, t.name, t.holder, 0)
}

// randomHolder names this process.
func randomHolder() string {
	var id [12]byte
	_, _ = rand.Read(id[:]) // never returns an error
	return "keeper-" + hex.EncodeToString(id[:])
}
