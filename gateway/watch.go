package gateway

import (
	"context"
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
