package gateway

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	// flagAge is how old the proof behind a sold-out answer may be (invariant I6): a flag without a younger one does not stand, whoever was kept
	// from renewing it. A proof older than this sets nothing either.
	flagAge = time.Second
	// proofPause is the least time between the end of a proof in vain and the next one.
	proofPause = 100 * time.Millisecond
)

// flag says of one item that nothing is left. It is one word: a pointer to an immutable state. Every change, also that from "not set" to
// "not set", puts a new state there, so that the pointer is the generation of rule R15 as well: who sets, sets by compare-and-set on the
// state that he read before he began to prove, and fails if anything happened since. A state that somebody still holds cannot come back
// under the same address.
//
// Three things change it, in any order and at the same time:
//
//	set      read state s → prove empty (two passes) → fetch buyers → CAS s by a set state → tell the others
//	clear    CAS whatever is there by a fresh state that is not set; a message says that units came back
//	reprove  read set state s → one reading, compared with the proof in s → CAS s by a renewed state, or by one that is not set
//
// What can go wrong, and does not:
//
//   - V7, a unit on its way from one shard to another while they are read one after the other: the proof is of two passes with `adds`
//     compared, so the arrival shows. That is Zero's part.
//   - V8, a winner is told "sold out" because the flag stood before the set of winners was there: the set is part of the state that sets the flag.
//   - A release between the proof and the CAS: its message puts a new state there (clear does so even when the flag is not set), the CAS fails,
//     and the next request asks the shards again. If the message was lost, `adds` has moved, and the next re-proof, at most 500 ms later, clears.
//   - A release between the reading of a re-proof and its CAS: the message's clear is what the CAS finds, it fails, and the flag stays
//     cleared. The other way round, CAS first, the clear comes after it and stands.
//   - A proof that took long (a stalled process, a slow Redis) ends in a state whose time is up already: it is not put there, and if it were, it
//     would not stand.
//   - Two provers at once: one per item is let in. Were there two, one CAS would fail.
//   - The buyer's side of a lost message: a unit is released and bought through another gateway between two re-proofs. This gateway's set does not
//     know that buyer, who may be told "sold out" here until the re-proof clears the flag; the price of not asking Redis.
type flag struct {
	state   atomic.Pointer[flagState]
	proving atomic.Bool  // somebody is proving, or renewing a proof
	rest    atomic.Int64 // no proof before this instant, in Unix nanoseconds
}

// flagState is immutable once it is in a flag.
type flagState struct {
	set     bool
	until   time.Time  // the flag stands before this instant
	proof   Proof      // what it rests on, and what the next reading is compared with
	shards  int        // of the layout that was read
	winners *winnerSet // who may not be told "sold out" without a closer look
	missed  bool       // the buyers changed, and could not be fetched
}

// soldOut reports whether the flag stands, with the winners of that state.
func (f *flag) soldOut(now time.Time) (*winnerSet, bool) {
	s := f.state.Load()
	if s == nil || !s.set || !now.Before(s.until) {
		return nil, false
	}
	return s.winners, true
}

// isSet reports whether the flag is set, though perhaps too long ago to stand.
func (f *flag) isSet() bool {
	s := f.state.Load()
	return s != nil && s.set
}

// clear unsets the flag, and makes everybody fail who was about to set or renew it. It reports whether it was set.
func (f *flag) clear() bool {
	was := f.state.Swap(&flagState{})
	return was != nil && was.set
}

// enter lets one prover in, who leaves by leave.
func (f *flag) enter() bool { return f.proving.CompareAndSwap(false, true) }

func (f *flag) leave() { f.proving.Store(false) }

// Reasons for clearing a flag.
const (
	clearedByNotice = "notice" // units came back
	clearedByProof  = "added"  // units came back, as a re-proof found
	clearedByError  = "unproven"
	clearedByBuyers = "buyers" // the buyers changed and could not be fetched
	clearedByLayout = "layout"
	clearedByEnd    = "ended"
)

// raise sets the flag of an item if it can be proven empty. It is asked to when a reservation found nothing, or when another gateway has set its own.
// tell says whether the others are to hear of it; who only heard it from them does not pass it on, or every flag would be announced by everybody
// to everybody.
func (g *Gateway) raise(e *entry, tell bool) {
	f := &e.state.flag
	if now := g.cfg.Now(); now.UnixNano() < f.rest.Load() {
		return
	} else if _, stands := f.soldOut(now); stands {
		return
	}
	if !f.enter() {
		return
	}
	if !g.spawn(func() {
		defer f.leave()
		if g.prove(e, f) {
			if tell {
				g.announce(Notice{Item: e.item.ID, Flagged: true})
			}
			return
		}
		f.rest.Store(g.cfg.Now().Add(proofPause).UnixNano())
	}) {
		f.leave()
	}
}

// prove is the setting of a flag, in the order of rule R15.
func (g *Gateway) prove(e *entry, f *flag) bool {
	before := f.state.Load()
	ctx, cancel := context.WithTimeout(g.base, flagAge)
	defer cancel()
	proof, err := g.ports.Zero.Prove(ctx, &e.item)
	if err != nil {
		g.warnUnlessStopping("prove item empty", "item", e.item.ID, "error", err)
		return false
	}
	if !proof.Empty() {
		return false
	}
	winners, _, err := g.fetchWinners(ctx, &e.item)
	if err != nil {
		g.warnUnlessStopping("set sold-out flag", "item", e.item.ID, "error", err)
		return false
	}
	next := &flagState{set: true, until: proof.At().Add(flagAge), proof: proof, shards: e.item.Shards, winners: winners}
	if !g.cfg.Now().Before(next.until) {
		g.warnUnlessStopping("set sold-out flag: the proof took too long", "item", e.item.ID)
		return false
	}
	if !f.state.CompareAndSwap(before, next) {
		return false
	}
	g.metrics.flagSets.Inc()
	return true
}

// reprove renews a flag, or clears it: what is not proven again does not stay.
func (g *Gateway) reprove(e *entry) {
	f := &e.state.flag
	if !f.enter() {
		return
	}
	defer f.leave()
	s := f.state.Load()
	if s == nil || !s.set {
		return
	}
	drop := func(reason string) {
		if f.state.CompareAndSwap(s, &flagState{}) {
			g.metrics.flagClears.WithLabelValues(reason).Inc()
		}
	}
	if s.shards != e.item.Shards {
		drop(clearedByLayout)
		return
	}
	ctx, cancel := context.WithTimeout(g.base, reproveTimeout)
	defer cancel()
	r, err := g.ports.Zero.Reprove(ctx, &e.item, s.proof)
	if err != nil {
		g.warnUnlessStopping("prove item empty again", "item", e.item.ID, "error", err)
		drop(clearedByError)
		return
	}
	if !r.Same {
		drop(clearedByProof)
		return
	}
	next := *s
	next.proof, next.until, next.missed = r.Next, r.Next.At().Add(flagAge), false
	if r.BuyersChanged {
		// Read after the version that is in r.Next: who changes the buyers from here on is seen by the next comparison.
		winners, _, err := g.fetchWinners(ctx, &e.item)
		switch {
		case err == nil:
			next.winners = winners
		case s.missed:
			g.warnUnlessStopping("fetch buyers again", "item", e.item.ID, "error", err)
			drop(clearedByBuyers)
			return
		default:
			// Once more with the old set. The old proof stays, so that the next comparison finds the same change; it proves as much as the new one.
			next.proof, next.missed = s.proof, true
		}
	}
	if f.state.CompareAndSwap(s, &next) && !g.cfg.Now().Before(s.until) {
		g.metrics.flagSets.Inc()
	}
}
