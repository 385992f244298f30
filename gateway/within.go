package gateway

import (
	"context"
	"errors"
	"runtime/debug"
)

// call is something that runs beside the request that needs it.
type call[T any] struct {
	done   chan T // gets the result; closed without one when the call panicked
	result T
	ended  bool // the result was received, or there will be none
	ok     bool // it was received
}

// begin runs a call. It must not touch bytes of the request: they belong to the next one by the time a late call reads them.
func begin[T any](g *Gateway, run func() T) *call[T] {
	c := &call[T]{done: make(chan T, 1)}
	go func() {
		defer func() {
			if p := recover(); p != nil {
				g.log.warn("call for a request: panic", "panic", panicText(p), "stack", string(debug.Stack()))
				close(c.done)
			}
		}()
		c.done <- run()
	}()
	return c
}

// wait waits for the result until ctx ends, whether the call respects a context or not: the client's time is up either way. ok is false when there is no
// result in time, or the call panicked. It may be called again, by the same goroutine.
func (c *call[T]) wait(ctx context.Context) (result T, ok bool) {
	if c.ended {
		return c.result, c.ok
	}
	select {
	case c.result, c.ok = <-c.done:
		c.ended = true
		return c.result, c.ok
	case <-ctx.Done():
	}
	select {
	case c.result, c.ok = <-c.done: // both were ready
		c.ended = true
	default:
	}
	return c.result, c.ok
}

// within runs a call and waits for its result until ctx ends.
func within[T any](ctx context.Context, g *Gateway, run func() T) (result T, ok bool) {
	return begin(g, run).wait(ctx)
}

var (
	errNoAnswer = errors.New("no answer in time")
	errNoTime   = errors.New("no time left to ask")
)
