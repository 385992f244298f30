package keeper

import (
	"sync"
	"time"
)

// pace remembers when each item is due again in a loop, and how often it failed in a row.
type pace struct {
	mu    sync.Mutex
	items map[int64]paced
}

type paced struct {
	next     time.Time
	failures int
}

func newPace() *pace { return &pace{items: make(map[int64]paced)} }

// due reports whether the item is to be worked on at the instant now.
func (p *pace) due(item int64, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !now.Before(p.items[item].next)
}

// worked sets when the item is due next: after rest, or, where the work was in vain, after a wait that doubles from first to longest.
func (p *pace) worked(item int64, now time.Time, ok bool, rest, first, longest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.items[item]
	if ok {
		p.items[item] = paced{next: now.Add(rest)}
		return
	}
	wait := doubled(first, at.failures, longest)
	p.items[item] = paced{next: now.Add(wait), failures: at.failures + 1}
}

// doubled is first, doubled n times, and at most longest.
func doubled(first time.Duration, n int, longest time.Duration) time.Duration {
	for ; n > 0 && first < longest; n-- {
		first *= 2
	}
	return min(first, longest)
}

// keep forgets all items but these.
func (p *pace) keep(items map[int64]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for item := range p.items {
		if !items[item] {
			delete(p.items, item)
		}
	}
}
