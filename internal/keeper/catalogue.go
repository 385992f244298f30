package keeper

import (
	"context"
	"slices"
	"sync"
	"time"

	"flashgate/internal/sale"
	"flashgate/shard"
)

// catalogue is what the loops know of the items: a copy of the database's catalogue, at most a second old, and which items need looking after.
type catalogue struct {
	read func(context.Context) ([]sale.Item, error)
	now  func() time.Time
	// grace is how long after the end of a sale its items are swept at full pace: the last reservation is stored or given up by then.
	grace time.Duration

	mu    sync.RWMutex
	items map[int64]sale.Item
	order []int64
	// clean holds the items whose outboxes were found empty after the grace, by the end of sale that this was about: an extended sale makes
	// the finding void.
	clean map[int64]time.Time
}

func newCatalogue(read func(context.Context) ([]sale.Item, error), now func() time.Time, grace time.Duration) *catalogue {
	return &catalogue{read: read, now: now, grace: grace, items: make(map[int64]sale.Item), clean: make(map[int64]time.Time)}
}

// refresh reads the items anew. On an error the old ones stay.
func (c *catalogue) refresh(ctx context.Context) error {
	read, err := c.read(ctx)
	if err != nil {
		return err
	}
	items, order := make(map[int64]sale.Item, len(read)), make([]int64, 0, len(read))
	for _, it := range read {
		items[it.ID] = it
		order = append(order, it.ID)
	}
	slices.Sort(order)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.items, c.order = items, order
	for id := range c.clean {
		if _, ok := items[id]; !ok {
			delete(c.clean, id)
		}
	}
	return nil
}

// item returns an item, whether it needs looking after or not.
func (c *catalogue) item(id int64) (sale.Item, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	it, ok := c.items[id]
	return it, ok
}

// retired returns the ids of the items that are retired, in their order.
func (c *catalogue) retired() []int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var ids []int64
	for _, id := range c.order {
		if it := c.items[id]; !it.RetiredAt.IsZero() {
			ids = append(ids, id)
		}
	}
	return ids
}

// care is how much looking after an item needs.
type care uint8

const (
	none care = iota // it is retired, or over and nothing of it is left to do
	idle             // nothing can be reserved now, but there are orders or will be
	full
)

// watched returns the items that need looking after, in the order of their ids, and how much.
func (c *catalogue) watched() ([]sale.Item, map[int64]care) {
	now := c.now()
	c.mu.RLock()
	defer c.mu.RUnlock()
	items, cares := make([]sale.Item, 0, len(c.order)), make(map[int64]care, len(c.order))
	for _, id := range c.order {
		it := c.items[id]
		if care := c.care(&it, now); care != none {
			items = append(items, it)
			cares[id] = care
		}
	}
	return items, cares
}

// care decides about one item. Called with mu held.
func (c *catalogue) care(it *sale.Item, now time.Time) care {
	switch {
	case it.Model != sale.Counter || !it.RetiredAt.IsZero():
		return none
	case it.Epoch == 0 && now.Before(it.EndsAt):
		return full // its first load is due
	case it.Epoch == 0:
		return none // nothing can ever have been reserved
	case now.Before(it.StartsAt.Add(-soon)):
		return idle
	case now.Before(it.EndsAt.Add(c.grace)):
		return full
	case !c.clean[it.ID].Equal(it.EndsAt):
		return full // nobody has looked since
	case it.Sold > 0:
		return idle
	}
	return none
}

// soon is how long before its start an item is watched as if its sale were open: longer than a load takes.
const soon = time.Minute

// swept notes that a sweep which began at the given time found every outbox of the item empty, or not.
func (c *catalogue) swept(id int64, began time.Time, empty bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	it, ok := c.items[id]
	switch {
	case !ok:
	case !empty:
		delete(c.clean, id)
	case !began.Before(it.EndsAt.Add(c.grace)):
		c.clean[id] = it.EndsAt
	}
}

// layoutOf is the layout under which an item's shards are asked.
func layoutOf(it *sale.Item) shard.Layout { return shard.Layout{Item: it.ID, Shards: it.Shards} }

// newItem reports whether there is an item that was never loaded.
func (c *catalogue) newItem() bool {
	now := c.now()
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, id := range c.order {
		if it := c.items[id]; it.Epoch == 0 && c.care(&it, now) == full {
			return true
		}
	}
	return false
}
