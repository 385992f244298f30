package gateway

import (
	"context"
	"errors"
	"sync"
	"time"

	"flashgate/internal/sale"
)

const (
	// The winners of an ended item are fetched from shortly before its end, every second while late reservations may still come in, and once behind
	// that: afterwards only cancellations and expiries change them, which a closer look finds out, and loads, which have another epoch.
	winnersLead    = 2 * time.Second
	winnersSettle  = 30 * time.Second
	winnersSoon    = time.Second
	winnersTimeout = 5 * time.Second
)

// lateWinners is what a gateway knows of the buyers of an item at and after its end.
//
// They are kept for as long as a day, and whoever is not among them is told that the sale has ended. So they have to be the buyers of the item's last
// load, all of them, and not what Redis held at some time:
//
//   - Redis has been wiped, or is new, and has no marks until the keeper has loaded the item. A shard that is not loaded has no buyers to tell of:
//     Zero.Buyers fails, and nobody is denied anything by a set that is not there.
//   - A load brings marks back, because Redis had lost them in a way that adds up (the last writes before a failover), or because people have the
//     item reconciled. Its snapshot gives the item another epoch before any mark is written. As soon as this gateway has read that, the set is of
//     an older epoch and not complete any more; it is fetched again until the shards are of the new one.
//   - This gateway has not read yet that the item has another epoch, or another number of shards. The shards are of that epoch or refuse the layout, or
//     the load has not come to them, and they have no stock: in each case nothing is taken for the buyers.
//   - The reverse: the catalogue is ahead of the shards. Between snapshot and load they have no stock, as the fence was before both; a shard that has
//     one all the same, of an older epoch, is served by a server that was replaced, or is about to be loaded.
//
// Each time everybody with a token is looked at until there is a set again: his mark is read, or his row, and where neither says anything he is told to
// come again.
type lateWinners struct {
	set      *winnerSet
	ends     time.Time // the end that they are of: a sale may be extended
	epoch    int64     // the load that they are of
	shards   int       // likewise
	complete bool      // every purchase that was let in before the end had its answer when they were fetched
	whole    bool      // nor can anybody have been added by a gateway whose clock is slow, or by one that was stopped for a while
	next     time.Time // when to fetch them again unless whole
}

// of reports whether they are the winners of the item as it is now, by its end and its last load.
func (l *lateWinners) of(item *sale.Item) bool {
	return l.ends.Equal(item.EndsAt) && l.epoch == item.Epoch && l.shards == item.Shards
}

// endedWinners is the set of those who are known to have bought when the sale has ended, nil where nothing is known of this end. complete says that
// nobody else has: until then everybody who has a token may be a winner. A retired item has none.
func (e *entry) endedWinners() (winners *winnerSet, complete bool) {
	if !e.item.RetiredAt.IsZero() {
		return noWinners, true
	}
	// A sale that was extended has had another end, and winners since. Those of an older load are some of the winners.
	if late := e.state.late.Load(); late != nil && late.ends.Equal(e.item.EndsAt) {
		return late.set, late.complete && late.of(&e.item)
	}
	return nil, false
}

// endedLoop fetches the winners of items that end or have ended, so that their retries are told apart from the crowd's (section 3 of the design).
func (g *Gateway) endedLoop() {
	select {
	case <-g.catalogue.first: // a gateway that starts after the end shall not wait for a tick
	case <-g.base.Done():
		return
	}
	tick := time.NewTicker(winnersSoon)
	defer tick.Stop()
	for {
		g.fetchLateWinners()
		select {
		case <-tick.C:
		case <-g.base.Done():
			return
		}
	}
}

// fetchLateWinners fetches what is due, some items at a time.
func (g *Gateway) fetchLateWinners() {
	var all sync.WaitGroup
	places := make(chan struct{}, maxProofs)
	for _, e := range g.entries() {
		now := g.cfg.Now()
		if !e.item.RetiredAt.IsZero() {
			e.state.late.Store(nil)
			continue
		}
		if now.Before(e.item.EndsAt.Add(-winnersLead)) {
			continue
		}
		last := e.state.late.Load()
		if last != nil && last.of(&e.item) && (last.whole || now.Before(last.next)) {
			continue
		}
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			g.fetchLate(e, last)
		})
	}
	all.Wait()
}

func (g *Gateway) fetchLate(e *entry, last *lateWinners) {
	ctx, cancel := context.WithTimeout(g.base, winnersTimeout)
	defer cancel()
	began := g.cfg.Now()
	set, epoch, err := g.fetchWinners(ctx, &e.item)
	switch {
	case errors.Is(err, ErrUnknownStock) || err == nil && epoch != e.item.Epoch:
		return // a load is due or under way, and its keeper says so; the next tick asks again
	case err != nil:
		// The old set, if there is one, is still right about nearly everybody.
		g.warnUnlessStopping("fetch winners of ended item", "item", e.item.ID, "error", err)
		return
	}
	after := began.Sub(e.item.EndsAt)
	e.state.late.CompareAndSwap(last, &lateWinners{
		set: set, ends: e.item.EndsAt, epoch: epoch, shards: e.item.Shards,
		complete: after >= g.cfg.RequestTimeout, whole: after > max(winnersSettle, g.cfg.RequestTimeout), next: began.Add(winnersSoon),
	})
}
