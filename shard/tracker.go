package shard

import (
	"context"
	"sync"
)

// tracker counts what is under way, so that Close can refuse what is new and wait for the rest. It is a wait group that
// can be entered while somebody waits, and waited for under a context.
type tracker struct {
	mu     sync.Mutex
	count  int
	closed bool
	idle   chan struct{} // closed when closed and count is 0
}

func newTracker() *tracker { return &tracker{idle: make(chan struct{})} }

// enter counts a newcomer; false after close.
func (t *tracker) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.count++
	return true
}

// add counts work that somebody who is counted starts. It is always let in.
func (t *tracker) add() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count++
}

// leave ends what enter or add began.
func (t *tracker) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count--
	if t.closed && t.count == 0 {
		close(t.idle)
	}
}

// close refuses newcomers and waits for everybody who is in. It may be called again.
func (t *tracker) close(ctx context.Context) error {
	t.mu.Lock()
	if !t.closed {
		t.closed = true
		if t.count == 0 {
			close(t.idle)
		}
	}
	t.mu.Unlock()
	select {
	case <-t.idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
