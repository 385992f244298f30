// Package pause holds the two things that everything which tries again needs: a wait that ends with its context, and waits
// that grow and do not meet.
package pause

import (
	"context"
	"math/rand/v2"
	"time"
)

// For waits for d and returns true, or returns false as soon as ctx ends. A d of zero or less asks only whether ctx stands.
func For(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// Jitter returns a random time between half of d and d: those who collided do not come back at the same instant.
func Jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1) //nolint:gosec // G404: jitter needs no secret
}

// Steps are waits that double, from First up to Longest.
type Steps struct {
	First, Longest time.Duration
}

// After is the jittered wait after the n-th attempt, counted from 1. n below 1 counts as 1.
func (s Steps) After(n int) time.Duration {
	step := s.First
	for ; n > 1 && step < s.Longest; n-- {
		step *= 2
	}
	return Jitter(min(step, s.Longest))
}
