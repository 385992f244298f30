package ops_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"flashgate/internal/ops"
)

func TestReadinessRunsItsChecksAtOnceAndServesManyWithOneReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := ops.NewReadiness(ops.ReadinessConfig{})
		var calls atomic.Int64
		for _, name := range []string{"a", "b", "c"} {
			r.Add(name, func(ctx context.Context) error {
				calls.Add(1)
				time.Sleep(1500 * time.Millisecond) // in the bubble
				if name == "b" {
					return errors.New("b is away")
				}
				return nil
			})
		}
		started := time.Now()
		answers := make(chan []ops.Missing, 50)
		for range cap(answers) {
			go func() { answers <- r.Missing(t.Context()) }()
		}
		for range cap(answers) {
			if got := <-answers; len(got) != 1 || got[0] != (ops.Missing{Check: "b", Reason: "b is away"}) {
				t.Errorf("missing: %v", got)
			}
		}
		if took := time.Since(started); took != 1500*time.Millisecond {
			t.Errorf("three checks of 1.5 s took %v", took)
		}
		r.Missing(t.Context()) // the reading was begun 1.5 s ago, and is no longer fresh
		if got := calls.Load(); got != 6 {
			t.Errorf("%d calls of checks for two readings of three", got)
		}
	})
}

func TestAFreshAnswerIsServedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := ops.NewReadiness(ops.ReadinessConfig{})
		var calls atomic.Int64
		r.Add("a", func(context.Context) error { calls.Add(1); return nil })
		for range 5 {
			r.Missing(t.Context())
			time.Sleep(240 * time.Millisecond)
		}
		if got := calls.Load(); got != 1 {
			t.Errorf("%d calls within a second, want 1", got)
		}
		r.Missing(t.Context())
		if got := calls.Load(); got != 2 {
			t.Errorf("%d calls after a second, want 2", got)
		}
	})
}

func TestACheckThatHangsCostsOneGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := ops.NewReadiness(ops.ReadinessConfig{Fresh: -1})
		release := make(chan struct{})
		var calls atomic.Int64
		r.Add("deaf", func(context.Context) error {
			calls.Add(1)
			<-release
			return nil
		})
		r.Add("fine", func(context.Context) error { return nil })
		if got := r.Missing(t.Context()); len(got) != 1 || got[0].Reason != "no answer within 2s" {
			t.Errorf("missing: %v", got)
		}
		if got := r.Missing(t.Context()); len(got) != 1 || got[0].Check != "deaf" || got[0].Reason != "the check before has not returned yet" {
			t.Errorf("missing: %v", got)
		}
		if got := calls.Load(); got != 1 {
			t.Errorf("the check was called %d times while it hung", got)
		}
		close(release)
		synctest.Wait()
		if got := r.Missing(t.Context()); len(got) != 0 {
			t.Errorf("missing when it answers again: %v", got)
		}
	})
}

func TestWhoDoesNotWaitGetsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := ops.NewReadiness(ops.ReadinessConfig{})
		r.Add("slow", func(context.Context) error { time.Sleep(time.Second); return nil })
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if got := r.Missing(ctx); len(got) != 1 {
			t.Errorf("missing: %v", got)
		}
		if got := r.Missing(t.Context()); len(got) != 0 {
			t.Errorf("whoever waits gets %v", got)
		}
	})
}

func TestReadyNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := ops.NewReadiness(ops.ReadinessConfig{})
		var away atomic.Bool
		r.Add("slow", func(context.Context) error {
			time.Sleep(500 * time.Millisecond)
			if away.Load() {
				return errors.New("away")
			}
			return nil
		})
		ready := func(want bool, when string) {
			t.Helper()
			started := time.Now()
			if got := r.Ready(); got != want || time.Since(started) != 0 {
				t.Errorf("%s: %v after %v, want %v at once", when, got, time.Since(started), want)
			}
		}
		ready(false, "before the first reading")
		time.Sleep(600 * time.Millisecond)
		ready(true, "after it")
		away.Store(true)
		time.Sleep(time.Second)
		ready(true, "from the reading before")
		time.Sleep(600 * time.Millisecond)
		ready(false, "after the next reading")
		r.Add("late", func(context.Context) error { return nil })
		away.Store(false)
		ready(false, "with a check of which nothing is known")
		time.Sleep(600 * time.Millisecond)
		ready(true, "when it is")
		r.Drain()
		ready(false, "while stopping")
		if got := r.Missing(t.Context()); len(got) != 1 || got[0].Check != "shutdown" {
			t.Errorf("missing while stopping: %v", got)
		}
	})
}

// TestACheckThatIsAddedLate begins a second reading while the first one runs: the second must not take the first one's calls for hanging ones.
func TestACheckThatIsAddedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := ops.NewReadiness(ops.ReadinessConfig{})
		var calls atomic.Int64
		r.Add("slow", func(context.Context) error { calls.Add(1); time.Sleep(time.Second); return nil })
		first := make(chan []ops.Missing, 1)
		go func() { first <- r.Missing(t.Context()) }()
		time.Sleep(100 * time.Millisecond)
		r.Add("late", func(context.Context) error { return errors.New("away") })
		if got := r.Missing(t.Context()); len(got) != 1 || got[0].Check != "late" {
			t.Errorf("missing: %v", got)
		}
		if got := <-first; len(got) != 0 {
			t.Errorf("the reading before: %v", got)
		}
		if got := calls.Load(); got != 1 {
			t.Errorf("the slow check was called %d times", got)
		}
	})
}

func TestChangesAreLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	r := ops.NewReadiness(ops.ReadinessConfig{Fresh: -1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	var fault error
	r.Add("redis", func(context.Context) error { return fault })
	for _, next := range []error{nil, errors.New("away"), errors.New("away"), nil, nil} {
		fault = next
		r.Missing(t.Context())
	}
	if got := log.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, `msg="not ready" check=redis error=away`) || !strings.Contains(got, `msg="ready again" check=redis`) {
		t.Errorf("the log is\n%s", got)
	}
}
