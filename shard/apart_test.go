package shard

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A server that is silent holds up a bounded number of goroutines, and whoever comes beyond that is told so at once.
func TestCallsDoNotPileUp(t *testing.T) {
	s := &Stock{calls: make(chan struct{}, 3)}
	silent := make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	for range 3 {
		if _, err := apart(ctx, s, func() int { <-silent; return 0 }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a silent server: %v", err)
		}
	}
	_, err := apart(t.Context(), s, func() int { t.Error("the call was begun"); return 0 })
	if !errors.Is(err, errCrowded) || !neverRan(err) {
		t.Errorf("one call too many: %v, and neverRan says %v", err, neverRan(err))
	}
	close(silent)
	for range 3 {
		s.calls <- struct{}{} // every place is free again
	}
}
