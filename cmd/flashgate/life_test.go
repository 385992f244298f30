package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What does not stop takes its share of the time, and no more: what was started before it still has some.
func TestNothingTakesTheWholeTimeForStopping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLife(slog.New(slog.DiscardHandler))
		began := time.Now()
		ended := map[string]time.Duration{} // when each had to
		hangs := func(name string) func(context.Context) error {
			return func(ctx context.Context) error {
				<-ctx.Done()
				ended[name] = time.Since(began)
				return ctx.Err()
			}
		}
		l.onStop("the first", hangs("the first"))
		l.onStop("the second", hangs("the second"))
		l.onStop("quick", func(context.Context) error { ended["quick"] = time.Since(began); return nil })
		l.onStopWithin(drainShare, "the gateway", hangs("the gateway"))
		err := l.end(12 * time.Second)
		for name, want := range map[string]time.Duration{"the gateway": 8 * time.Second, "quick": 8 * time.Second, "the second": 11 * time.Second, "the first": 12 * time.Second} {
			if got := ended[name].Round(time.Millisecond); got != want {
				t.Errorf("%s: ended after %v, want %v", name, got, want)
			}
		}
		for _, name := range []string{"the gateway", "the second", "the first"} {
			if err == nil || !strings.Contains(err.Error(), "stop "+name+": ") {
				t.Errorf("%v does not name %s", err, name)
			}
		}
		if err := l.end(time.Second); err != nil {
			t.Errorf("stopped again: %v", err)
		}
	})
}

// Time that is over already is no reason to leave something running.
func TestEverythingIsStoppedInNoTime(t *testing.T) {
	l := newLife(slog.New(slog.DiscardHandler))
	stopped := 0
	for range 3 {
		l.onStop("a part", func(ctx context.Context) error { stopped++; <-ctx.Done(); return nil })
	}
	if err := l.end(-time.Second); err != nil || stopped != 3 {
		t.Errorf("%d of 3 stopped, %v", stopped, err)
	}
}

// Work that ends by itself ends the role, and what it says is in the error.
func TestBackgroundThatEnds(t *testing.T) {
	l := newLife(slog.New(slog.DiscardHandler))
	odd := errors.New("odd")
	l.background("the work", func(context.Context) error { return odd })
	if err := l.wait(t.Context()); !errors.Is(err, odd) || !strings.Contains(err.Error(), "the work has ended") {
		t.Errorf("%v", err)
	}
	if err := l.end(time.Second); !errors.Is(err, odd) {
		t.Errorf("%v", err)
	}
}
