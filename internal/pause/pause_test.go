package pause_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"flashgate/internal/pause"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if !pause.For(t.Context(), time.Minute) || time.Since(start) != time.Minute {
			t.Errorf("a wait of a minute took %v", time.Since(start))
		}
		if !pause.For(t.Context(), 0) || !pause.For(t.Context(), -time.Second) {
			t.Error("no wait at all: the context stands")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start = time.Now()
		if pause.For(ctx, time.Minute) || time.Since(start) != time.Second {
			t.Errorf("a context of a second ended the wait after %v", time.Since(start))
		}
		if pause.For(ctx, 0) {
			t.Error("the context has ended")
		}
	})
}

func TestSteps(t *testing.T) {
	steps := pause.Steps{First: 10 * time.Millisecond, Longest: 60 * time.Millisecond}
	for n, whole := range map[int]time.Duration{
		-1: 10 * time.Millisecond, 1: 10 * time.Millisecond, 2: 20 * time.Millisecond, 3: 40 * time.Millisecond,
		4: 60 * time.Millisecond, 1 << 30: 60 * time.Millisecond,
	} {
		seen := map[time.Duration]bool{}
		for range 200 {
			d := steps.After(n)
			if d < whole/2 || d > whole {
				t.Fatalf("after attempt %d: %v, want %v to %v", n, d, whole/2, whole)
			}
			seen[d] = true
		}
		if len(seen) < 2 {
			t.Errorf("after attempt %d every wait is the same", n)
		}
	}
}
