package gateway

import (
	"context"
	"sync"
	"time"

	"flashgate/internal/pause"
	"flashgate/internal/sale"
)

const (
	// reproveEvery and reproveTimeout together stay below flagAge: a flag that can be renewed never runs out in between.
	reproveEvery   = 500 * time.Millisecond
	reproveTimeout = 400 * time.Millisecond
	// maxProofs bounds the items that are read at the same time. At 1 ms a reading, 16 are some eight thousand flagged items per interval.
	maxProofs = 16

	// The winners of an ended item are fetched from shortly before its end, every second while late reservations may still come in, and once behind
	// that: afterwards only cancellations and expiries change them, which a closer look finds out.
	winnersLead    = 2 * time.Second
	winnersSettle  = 30 * time.Second
	winnersSoon    = time.Second
	winnersTimeout = 5 * time.Second

	announceTimeout = time.Second
	resubscribe     = time.Second
)

// reproveLoop renews flags. An item whose reading takes longer than the interval is left alone until it is through; the others do not wait for it.
func (g *Gateway) reproveLoop() {
	tick := time.NewTicker(reproveEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-g.base.Done():
			return
		}
		for _, e := range g.entries() {
			if !e.state.flag.isSet() {
				continue
			}
			if e.item.StatusAt(g.cfg.Now()) == sale.Ended {
				g.unset(e, clearedByEnd) // the winners of an ended item are kept by endedLoop
				continue
			}
			if !g.bounded(func() { g.reprove(e) }) {
				return
			}
		}
	}
}

// bounded runs a reading of Redis beside the loop that wants it, when there is a place for it.
func (g *Gateway) bounded(run func()) bool {
	select {
	case g.proofs <- struct{}{}:
	case <-g.base.Done():
		return false
	}
	if g.spawn(func() {
		defer func() { <-g.proofs }()
		run()
	}) {
		return true
	}
	<-g.proofs
	return false
}

// unset clears a flag for a reason.
func (g *Gateway) unset(e *entry, reason string) {
	if e.state.flag.clear() {
		g.metrics.flagClears.WithLabelValues(reason).Inc()
	}
}

// watchNotices listens to what is said about items. A subscription that ends is made again; what was said in between is lost, which the re-proofs
// make up for.
func (g *Gateway) watchNotices() {
	for {
		err := g.ports.Notices.Subscribe(g.base, g.hear)
		g.warnUnlessStopping("listen to notices", "error", err)
		if !pause.For(g.base, resubscribe) {
			return
		}
	}
}

// hear acts on a notice. Nobody is believed that an item is empty: the news only starts a proof.
func (g *Gateway) hear(n Notice) {
	e := g.entryOf(n.Item)
	switch {
	case e == nil:
	case n.Flagged:
		g.raise(e, false)
	default:
		g.unset(e, clearedByNotice)
	}
}

// announce tells the others; it is no harm if it fails.
func (g *Gateway) announce(n Notice) {
	ctx, cancel := context.WithTimeout(g.base, announceTimeout)
	defer cancel()
	if err := g.ports.Notices.Announce(ctx, n); err != nil {
		g.warnUnlessStopping("announce sold-out flag", "item", n.Item, "error", err)
	}
}

// lateWinners is what a gateway knows of the buyers of an item at and after its end.
type lateWinners struct {
	set      *winnerSet
	ends     time.Time // the end that they are of: a sale may be extended
	complete bool      // every purchase that was let in before the end had its answer when they were fetched
	whole    bool      // nor can anybody have been added by a gateway whose clock is slow, or by one that was stopped for a while
	next     time.Time // when to fetch them again unless whole
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
		if last != nil && last.ends.Equal(e.item.EndsAt) && (last.whole || now.Before(last.next)) {
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
	set, err := g.fetchWinners(ctx, &e.item)
	if err != nil {
		// The old set, if there is one, is still right about nearly everybody.
		g.warnUnlessStopping("fetch winners of ended item", "item", e.item.ID, "error", err)
		return
	}
	after := began.Sub(e.item.EndsAt)
	e.state.late.CompareAndSwap(last, &lateWinners{
		set: set, ends: e.item.EndsAt, complete: after >= g.cfg.RequestTimeout, whole: after > max(winnersSettle, g.cfg.RequestTimeout), next: began.Add(winnersSoon),
	})
}
