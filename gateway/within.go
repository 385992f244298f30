package gateway

import (
	"context"
	"errors"
	"runtime/debug"
)

// within runs call beside the request that needs it and waits for its result until ctx ends, whether call respects a context or not: the client's time
// is up either way. ok is false when there is no result in time, or call panicked. call must not touch bytes of the request: they belong to the next
// one by the time a late call reads them.
func within[T any](ctx context.Context, g *Gateway, call func() T) (result T, ok bool) {
	done := make(chan T, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				g.log.warn("call for a request: panic", "panic", panicText(p), "stack", string(debug.Stack()))
				close(done)
			}
		}()
		done <- call()
	}()
	select {
	case result, ok = <-done:
		return result, ok
	case <-ctx.Done():
	}
	select {
	case result, ok = <-done: // both were ready
		return result, ok
	default:
		return result, false
	}
}

var (
	errNoAnswer = errors.New("no answer in time")
	errNoTime   = errors.New("no time left to ask")
)
