package shard

import (
	"context"
	"errors"
)

// maxCalls bounds the calls that a Stock has under way. A healthy server has some hundred of one process; only a silent one lets them pile up, because
// each of them stays until its connection is given up, long after its caller has left.
const maxCalls = 4096

// errCrowded: the call was not begun.
var errCrowded = errors.New("too many calls of this process wait for Redis")

// apart runs a call of the client in a goroutine of its own and waits for it until ctx ends. The client can wait past the end of a context: for room
// in the ring of a connection whose server is silent, or for somebody else's connection attempt. A call that has been left may still run.
func apart[T any](ctx context.Context, s *Stock, call func() T) (T, error) {
	var none T
	select {
	case s.calls <- struct{}{}:
	default:
		return none, errCrowded
	}
	done := make(chan T, 1)
	go func() {
		defer func() { <-s.calls }()
		done <- call()
	}()
	select {
	case answer := <-done:
		return answer, nil
	case <-ctx.Done():
		return none, ctx.Err()
	}
}
