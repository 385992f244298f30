package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// life is what a role has started, and how it ends: everything is stopped in the reverse order of its start, under one deadline, of which nothing may
// take so much that the others get none.
type life struct {
	logger *slog.Logger
	stops  []stop
	failed chan error // what must not end by itself, and did
	once   sync.Once
}

type stop struct {
	name  string
	share float64 // the part of the time that is left which it may take
	run   func(context.Context) error
}

// usualShare leaves enough for what comes after something that does not stop: the events that are to be flushed, the admin listener.
const usualShare = 3.0 / 4

func newLife(logger *slog.Logger) *life {
	return &life{logger: logger, failed: make(chan error, 1)}
}

// onStop adds something that has been started.
func (l *life) onStop(name string, run func(context.Context) error) {
	l.onStopWithin(usualShare, name, run)
}

// onStopWithin adds something that may take a part of the time which is left when it is stopped.
func (l *life) onStopWithin(share float64, name string, run func(context.Context) error) {
	l.stops = append(l.stops, stop{name, share, run})
}

// fail ends the role because of err; only the first counts.
func (l *life) fail(err error) {
	select {
	case l.failed <- err:
	default:
	}
}

// background runs work until the role stops. It must return soon after its context has ended; if it returns before, the role ends.
func (l *life) background(name string, work func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		err := work(ctx)
		done <- err
		if ctx.Err() == nil {
			l.fail(fmt.Errorf("%s has ended: %w", name, errors.Join(err, errEnded)))
		}
	}()
	l.onStop(name, func(deadline context.Context) error {
		cancel()
		select {
		case err := <-done:
			if errors.Is(err, context.Canceled) {
				err = nil
			}
			return err
		case <-deadline.Done():
			return deadline.Err()
		}
	})
}

var errEnded = errors.New("it should go on until it is stopped")

// wait returns when ctx has ended, with nil, or when something failed.
func (l *life) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-l.failed:
		return err
	}
}

// end stops everything within the timeout, newest first. What does not stop in time is named in the error; the rest is stopped all the same.
func (l *life) end(timeout time.Duration) (err error) {
	l.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		var errs []error
		for i, s := range slices.Backward(l.stops) {
			if i == 0 {
				s.share = 1 // the last one leaves nothing for anybody
			}
			if failed := s.within(ctx); failed != nil {
				l.logger.Warn("not stopped cleanly", "part", s.name, "error", failed)
				errs = append(errs, fmt.Errorf("stop %s: %w", s.name, failed))
			}
		}
		err = errors.Join(errs...)
	})
	return err
}

// within runs the stop in its share of the time until ctx ends.
func (s stop) within(ctx context.Context) error {
	end, _ := ctx.Deadline()
	limited, cancel := context.WithTimeout(ctx, time.Duration(s.share*float64(time.Until(end))))
	defer cancel()
	return s.run(limited)
}
