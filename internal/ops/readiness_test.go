package ops_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
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

// Whoever asks again after a long time is told what is true then, and not what was true when he asked before.
func TestReadyTellsTheTruthOfNow(t *testing.T) {
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
		ready := func(want bool, after time.Duration, when string) {
			t.Helper()
			started := time.Now()
			if got := r.Ready(t.Context()); got != want || time.Since(started) != after {
				t.Errorf("%s: %v after %v, want %v after %v", when, got, time.Since(started), want, after)
			}
		}
		ready(true, 500*time.Millisecond, "the first time")
		away.Store(true)
		ready(true, 0, "from an answer that is fresh")
		time.Sleep(8 * time.Second)
		ready(false, 500*time.Millisecond, "after eight seconds")
		away.Store(false)
		time.Sleep(8 * time.Second)
		ready(true, 500*time.Millisecond, "after another eight")
		r.Add("late", func(context.Context) error { time.Sleep(time.Millisecond); return errors.New("away") })
		ready(false, time.Millisecond, "with a check of which nothing is known")
		r.Drain()
		ready(false, 0, "while stopping")
		if got := r.Missing(t.Context()); len(got) != 1 || got[0].Check != "shutdown" {
			t.Errorf("missing while stopping: %v", got)
		}
	})
}

func TestAFloodOfPollsCallsEachCheckOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := ops.NewReadiness(ops.ReadinessConfig{})
		var calls, yes atomic.Int64
		r.Add("slow", func(context.Context) error { calls.Add(1); time.Sleep(100 * time.Millisecond); return nil })
		var polls sync.WaitGroup
		for range 1000 {
			polls.Go(func() {
				for range 10 {
					if r.Ready(t.Context()) {
						yes.Add(1)
					}
					time.Sleep(50 * time.Millisecond)
				}
			})
		}
		polls.Wait()
		if calls.Load() != 1 || yes.Load() != 10000 {
			t.Errorf("%d calls, %d of 10000 polls were told yes", calls.Load(), yes.Load())
		}
	})
}

func TestReadyDoesNotWaitForWhatIsNotNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := ops.NewReadiness(ops.ReadinessConfig{})
		var away atomic.Bool
		r.Add("database", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		r.Add("redis", func(ctx context.Context) error {
			if away.Load() {
				<-ctx.Done()
			}
			return ctx.Err()
		})
		started := time.Now()
		if !r.Ready(t.Context(), "database") || time.Since(started) != 0 {
			t.Errorf("without the database: not ready, or only after %v", time.Since(started))
		}
		if r.Ready(t.Context()) {
			t.Error("ready with a database that hangs")
		}
		away.Store(true)
		started = time.Now()
		if r.Ready(t.Context(), "database") || time.Since(started) != 2*time.Second {
			t.Errorf("with a Redis that hangs: ready, or not so only after %v", time.Since(started))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		time.Sleep(500 * time.Millisecond)
		if r.Ready(ctx, "database") {
			t.Error("ready though the one who asked left before there was an answer")
		}
		time.Sleep(3 * time.Second) // the last calls end
	})
}

// TestWhatIsAdvice has a check that operators are told of, and that nobody has to wait for.
func TestWhatIsAdvice(t *testing.T) {
	away, full := errors.New("away"), errors.New("full")
	for _, c := range []struct {
		name      string
		redis     error
		look      func(*ops.Readiness) bool
		says, was bool
	}{
		{"all is there but what was advised", nil, func(r *ops.Readiness) bool { return r.Ready(t.Context()) }, true, true},
		{"the same, told to operators", nil, func(r *ops.Readiness) bool { return len(r.Missing(t.Context())) == 1 }, true, true},
		{"one check was left out", nil, func(r *ops.Readiness) bool { return r.Ready(t.Context(), "redis") }, true, false},
		{"Redis is away", away, func(r *ops.Readiness) bool { return r.Ready(t.Context()) }, false, false},
		{"the same, told to operators", away, func(r *ops.Readiness) bool { return len(r.Missing(t.Context())) == 2 }, true, false},
	} {
		r := ops.NewReadiness(ops.ReadinessConfig{Fresh: -1})
		r.Add("redis", func(context.Context) error { return c.redis })
		r.AddAdvice("redis memory", func(context.Context) error { return full })
		if says := c.look(r); says != c.says || r.WasReady() != c.was {
			t.Errorf("%s: says %v, was ready %v; want %v and %v", c.name, says, r.WasReady(), c.says, c.was)
		}
	}
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

func TestAReasonIsOneLine(t *testing.T) {
	for _, reason := range []struct{ err, want string }{
		{"away", "away"},
		{"Redis a has no memory left\nRedis b has no memory left", "Redis a has no memory left; Redis b has no memory left"},
		{"failed to connect to `database=x`:\n\t127.0.0.1:1 (localhost): refused\n\t[::1]:1 (localhost):  refused\n", "failed to connect to `database=x`: 127.0.0.1:1 (localhost): refused; [::1]:1 (localhost): refused"},
		{strings.Repeat("é", 200), strings.Repeat("é", 150) + "…"},
		{"x" + strings.Repeat("é", 200), "x" + strings.Repeat("é", 149) + "…"},
		{"\n \n", ""},
	} {
		r := ops.NewReadiness(ops.ReadinessConfig{Fresh: -1})
		r.Add("redis", func(context.Context) error { return errors.New(reason.err) })
		if missing := r.Missing(t.Context()); len(missing) != 1 || missing[0].Reason != reason.want {
			t.Errorf("%q: %v, want %q", reason.err, missing, reason.want)
		}
	}
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
