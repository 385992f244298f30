package gateway

import (
	"context"
	"errors"
	"runtime/debug"
	"sync/atomic"

	"flashgate/internal/panics"
)

// maxAbandoned bounds the calls that nobody waits for any more, to Redis and to the database each. There should be none: ports end their
// calls with the context. But if one does not, while its server stands still, every request would leave a goroutine behind.
const maxAbandoned = 4096

// callee is somebody whom requests ask.
type callee struct{ calls atomic.Int64 } // under way, whether somebody waits for them or not

// call is something that runs beside the request that needs it.
type call[T any] struct {
	done   chan T // gets the result; closed without one when the call panicked
	result T
	ended  bool // the result was received, or there will be none
	ok     bool // it was received
	never  bool // it did not begin: too many were abandoned
}

// begin runs a call. It must not touch bytes of the request: they belong to the next one by the time a late call reads them.
//
// A connection has one request at a time, and a request waits for one call to each callee at a time. So there are no more calls that
// somebody waits for than connections; what goes beyond was abandoned.
func begin[T any](g *Gateway, to *callee, run func() T) *call[T] {
	if to.calls.Add(1) > g.openConns.Load()+maxAbandoned {
		to.calls.Add(-1)
		return &call[T]{ended: true, never: true}
	}
	c := &call[T]{done: make(chan T, 1)}
	go func() {
		defer to.calls.Add(-1)
		defer func() {
			if p := recover(); p != nil {
				g.log.warn("call for a request: panic", "panic", panics.Text(p), "stack", string(debug.Stack()))
				close(c.done)
			}
		}()
		c.done <- run()
	}()
	return c
}

// wait waits for the result until ctx ends, whether the call respects a context or not: the client's time is up either way. ok is false
// when there is no result in time, or the call panicked. It may be called again, by the same goroutine.
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

// failure is why wait has no result.
func (c *call[T]) failure() error {
	if c.never {
		return errAbandoned
	}
	return errNoAnswer
}

var (
	errNoAnswer  = errors.New("no answer in time")
	errNoTime    = errors.New("no time left to ask")
	errAbandoned = errors.New("too many calls have not ended")
)
