package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"flashgate/internal/pause"
	"flashgate/internal/sale"
)

// catalogueTimeout bounds one reading of the catalogue.
const catalogueTimeout = 5 * time.Second

// entry is an item as it was at one reading of the catalogue. Immutable; what changes in between is behind state, which all entries of an item share.
type entry struct {
	item       sale.Item
	notStarted answer
	state      *itemState
}

// itemState is what the gateway knows of an item beyond the catalogue; it survives every new reading.
type itemState struct {
	flag flag
	late atomic.Pointer[lateWinners]
}

// items is one reading of the catalogue. Immutable.
type items struct {
	byID   map[int64]*entry
	all    []*entry
	readAt time.Time
}

// catalogue holds the newest reading, so that no request has to ask anybody what an item is.
type catalogue struct {
	items    atomic.Pointer[items]
	first    chan struct{} // closed after the first reading
	once     sync.Once
	requests chan chan error // who wants a reading that begins from now on
	nudge    chan struct{}   // a place for one: something may have changed
}

func newCatalogue() *catalogue {
	return &catalogue{first: make(chan struct{}), requests: make(chan chan error), nudge: make(chan struct{}, 1)}
}

// Refresh returns after the catalogue was read again, by a reading that began after the call: what was committed before is known to this gateway
// from then on. Calls that wait at the same time share a reading. An error means that the old catalogue is still in use.
func (g *Gateway) Refresh(ctx context.Context) error {
	reply := make(chan error, 1)
	select {
	case g.catalogue.requests <- reply:
	case <-ctx.Done():
		return fmt.Errorf("read catalogue: %w", ctx.Err())
	case <-g.base.Done():
		return errors.New("read catalogue: the gateway has stopped")
	}
	select {
	case err := <-reply:
		return err
	case <-ctx.Done():
		return fmt.Errorf("read catalogue: %w", ctx.Err())
	}
}

// catalogueLoop is the only reader, so that an older reading never replaces a newer one.
func (g *Gateway) catalogueLoop() {
	c := g.catalogue
	tick := time.NewTicker(g.cfg.CatalogueEvery)
	defer tick.Stop()
	for {
		var waiting []chan error
		select {
		case <-tick.C:
		case <-c.nudge:
		case reply := <-c.requests:
			waiting = append(waiting, reply)
		case <-g.base.Done():
			return
		}
		// Everybody who is waiting by now asked before this reading begins. Who comes while it runs stays in the channel for the next one: it may have
		// been too early for what he wants to see.
		for more := true; more; {
			select {
			case reply := <-c.requests:
				waiting = append(waiting, reply)
			default:
				more = false
			}
		}
		err := g.readCatalogue()
		g.metrics.reads.WithLabelValues(result(err)).Inc()
		if err != nil {
			g.warnUnlessStopping("read catalogue: the last one stays in use", "error", err)
		}
		for _, reply := range waiting {
			reply <- err
		}
	}
}

// watchSource turns news about the catalogue into readings. Between two watches the regular reading finds what was missed.
func (g *Gateway) watchSource() {
	for {
		err := g.ports.Source.Watch(g.base, func() {
			select {
			case g.catalogue.nudge <- struct{}{}:
			default: // a reading is due already
			}
		})
		g.warnUnlessStopping("watch catalogue", "error", err)
		if !pause.For(g.base, resubscribe) {
			return
		}
	}
}

// readCatalogue replaces the catalogue by a new reading.
func (g *Gateway) readCatalogue() error {
	ctx, cancel := context.WithTimeout(g.base, catalogueTimeout)
	defer cancel()
	began := g.cfg.Now()
	list, err := g.ports.Source.Catalogue(ctx)
	if err != nil {
		return fmt.Errorf("read catalogue: %w", err)
	}
	g.databaseAnswered()
	old := g.catalogue.items.Load()
	next := &items{byID: make(map[int64]*entry, len(list)), all: make([]*entry, 0, len(list)), readAt: began}
	for i := range list {
		e := &entry{item: list[i], notStarted: notStarted(list[i].StartsAt)}
		if before := old.find(list[i].ID); before != nil {
			e.state = before.state
		} else {
			e.state = &itemState{}
		}
		next.byID[e.item.ID] = e
		next.all = append(next.all, e)
	}
	g.catalogue.items.Store(next)
	g.catalogue.once.Do(func() { close(g.catalogue.first) })
	return nil
}

func (i *items) find(id int64) *entry {
	if i == nil {
		return nil
	}
	return i.byID[id]
}

// entryOf returns an item as it was last read, or nil.
func (g *Gateway) entryOf(id int64) *entry { return g.catalogue.items.Load().find(id) }

// entries returns all items as they were last read.
func (g *Gateway) entries() []*entry {
	if i := g.catalogue.items.Load(); i != nil {
		return i.all
	}
	return nil
}

// catalogueAge is the time since the newest reading began; false before the first one.
func (g *Gateway) catalogueAge() (time.Duration, bool) {
	i := g.catalogue.items.Load()
	if i == nil {
		return 0, false
	}
	return g.cfg.Now().Sub(i.readAt), true
}
