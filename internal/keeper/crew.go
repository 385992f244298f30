package keeper

import (
	"context"
	"sync"
)

// crew works on items: on so many at once, and on each with one goroutine at most. A server that answers slowly for one item so holds up
// neither the others nor, however often it is asked, piles up goroutines.
type crew struct {
	room chan struct{}
	wg   sync.WaitGroup

	mu   sync.Mutex
	busy map[int64]bool
}

func newCrew(size int) *crew {
	return &crew{room: make(chan struct{}, size), busy: make(map[int64]bool)}
}

// offer has the work on an item done in a goroutine of its own. It waits for room, and returns false without starting when somebody works on
// the item already, or ctx ends first.
func (c *crew) offer(ctx context.Context, item int64, work func()) bool {
	if !c.take(item) {
		return false
	}
	select {
	case c.room <- struct{}{}:
	case <-ctx.Done():
		c.free(item)
		return false
	}
	c.start(item, work)
	return true
}

// offerNow is offer that does not wait for room.
func (c *crew) offerNow(item int64, work func()) bool {
	if !c.take(item) {
		return false
	}
	select {
	case c.room <- struct{}{}:
	default:
		c.free(item)
		return false
	}
	c.start(item, work)
	return true
}

func (c *crew) start(item int64, work func()) {
	c.wg.Go(func() {
		defer func() {
			<-c.room
			c.free(item)
		}()
		work()
	})
}

func (c *crew) take(item int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy[item] {
		return false
	}
	c.busy[item] = true
	return true
}

func (c *crew) free(item int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.busy, item)
}

// wait returns when all work is done. Nothing may be offered meanwhile.
func (c *crew) wait() { c.wg.Wait() }
