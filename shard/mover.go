package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"flashgate/internal/pause"
	"flashgate/internal/sale"
)

const (
	// mostRounds bounds the moves for a request of more than one unit. Two such requests at two shards can take each
	// other's units for ever; a request for one unit cannot: whoever takes it has it.
	mostRounds = 3
	// Waits for units in transfer: a transfer takes three round trips, its ends included.
	firstWait = time.Millisecond
	mostWait  = 20 * time.Millisecond
	// orphanAge is when a transfer counts as left by a process that died. Waiting requests look for such records at every
	// orphanTries-th look at the shards, some 150 ms apart: it reads all of a meta hash.
	orphanAge   = time.Second
	orphanTries = 8
)

// starve hands a request whose home has too few units to the mover of the item.
func (s *Stock) starve(layout Layout, w *waiter) {
	if w.become(starving) {
		s.starved.push(layout, w)
	}
}

// feed looks once at all shards of an item for all requests that starve, moves units to their homes and sends them back
// to their lanes, or answers them. There is one mover for an item and layout in a process, so requests do not take each
// other's units, and share one look at the shards.
//
// A request of one unit goes round until it is served, the item is proven empty, or its caller leaves. Every request here
// came before the first pass began, so a proof made now is of an instant during each of them.
func (s *Stock) feed(layout Layout, waiters []*waiter) {
	waiters = keep(waiters, (*waiter).here)
	if len(waiters) == 0 {
		return
	}
	ctx := context.Background() // every call has its own timeout
	look := s.firstPass(ctx, layout)
	served, short, waiting := s.sort(look, waiters)
	if len(short) > 0 {
		if s.secondPass(ctx, layout, &look) {
			answerShort(short, look)
		} else {
			waiting = append(waiting, short...)
		}
	}
	busy := false
	if len(served) > 0 {
		stuck := s.serve(ctx, layout, look, served)
		busy = len(stuck) < len(served)
		waiting = append(waiting, stuck...)
	}
	if len(waiting) > 0 {
		s.waitForUnits(ctx, layout, waiting, busy)
	}
}

// sort divides requests by what the shards hold: enough units for it, first come first served; too few in all of the item,
// which the second pass has to prove; or units that are in transfer or spoken for by a request before it. A request that
// cannot be told any of this, because shards are missing, is answered.
func (s *Stock) sort(look Proof, waiters []*waiter) (served, short, waiting []*waiter) {
	whole := verdict(look.shards)
	free := map[int64]int64{} // by epoch: units do not move between loads
	for _, st := range look.shards {
		if st.err == nil {
			free[st.epoch] += st.stock
		}
	}
	for _, w := range waiters {
		home := look.shards[w.home]
		switch {
		case home.err != nil:
			w.answer(refusal(home.err))
		case isLayout(whole):
			w.answer(refusal(whole))
		case w.rounds >= mostRounds:
			w.answer(sale.Result{Outcome: sale.Busy, Err: errTaken})
		case free[home.epoch] >= w.req.Quantity:
			free[home.epoch] -= w.req.Quantity
			served = append(served, w)
		case whole != nil:
			w.answer(refusal(whole))
		case look.Free+look.Moving < w.req.Quantity:
			short = append(short, w)
		default:
			waiting = append(waiting, w)
		}
	}
	return served, short, waiting
}

var errTaken = errors.New("reserve: others took the units that were moved for this request")

func answerShort(short []*waiter, proof Proof) {
	left := proof.Free + proof.Moving
	for _, w := range short {
		if left == 0 {
			w.answer(sale.Result{Outcome: sale.NoStock})
		} else {
			w.answer(sale.Result{Outcome: sale.Insufficient, Available: left})
		}
	}
}

// serve moves units to the homes of requests and sends the requests back to their lanes. It returns those to whose homes
// nothing moved, because others were faster or a server takes no writes for the moment: a home is asked without end, and in
// vain, by requests that come back at once. Who meets a refusal that stays, as of a full memory, is answered.
func (s *Stock) serve(ctx context.Context, layout Layout, look Proof, served []*waiter) (stuck []*waiter) {
	epochs := map[int64]bool{}
	for _, w := range served {
		epochs[look.shards[w.home].epoch] = true
	}
	var moves []move
	for epoch := range epochs {
		stock, need := make([]int64, layout.Shards), make([]int64, layout.Shards)
		for i, st := range look.shards {
			if st.err == nil && st.epoch == epoch {
				stock[i] = st.stock
			}
		}
		for _, w := range served {
			if look.shards[w.home].epoch == epoch {
				need[w.home] += w.req.Quantity
			}
		}
		moves = append(moves, plan(stock, need)...)
	}
	var given []transfer
	var refused error
	hungry := make(map[int]bool)
	if len(moves) > 0 {
		var taken []transfer
		if taken, refused = s.take(ctx, layout, moves); refused != nil {
			refused = fmt.Errorf("reserve: move units here: %w", refused)
		}
		for _, m := range moves {
			hungry[m.to] = true
		}
		for _, t := range taken {
			delete(hungry, t.to)
		}
		var err error
		if given, err = s.give(ctx, layout, taken); err != nil {
			s.cfg.Logger.Warn("units stay in transfer", slog.Int64("item", layout.Item), slog.Any("error", err))
		}
	}
	for _, w := range served {
		if w.req.Quantity > 1 {
			w.rounds++
		}
		if hungry[w.home] {
			if refused != nil {
				w.answer(sale.Result{Outcome: sale.Failed, Err: refused})
			} else {
				stuck = append(stuck, w)
			}
			continue
		}
		w.tries = 0
		if w.requeue(false) && !s.requests.push(lane{layout, w.home}, w) {
			w.answer(sale.Result{Outcome: sale.QueueFull})
		}
	}
	if err := s.settle(ctx, layout.Item, given); err != nil {
		s.cfg.Logger.Warn("a transfer is left unsettled", slog.Int64("item", layout.Item), slog.Any("error", err))
	}
	return stuck
}

// waitForUnits lets some time pass before the next look, unless requests were served just now, whose units settle what the
// others wait for.
func (s *Stock) waitForUnits(ctx context.Context, layout Layout, waiting []*waiter, busy bool) {
	tries := 0
	for _, w := range waiting {
		w.tries++
		tries = max(tries, w.tries)
	}
	if tries%orphanTries == 0 {
		if err := s.FinishTransfers(ctx, layout, orphanAge); err != nil {
			s.cfg.Logger.Warn("units stay in transfer", slog.Int64("item", layout.Item), slog.Any("error", err))
		}
	}
	if !busy {
		pause.For(ctx, min(mostWait, firstWait<<min(tries, 10)))
	}
	for _, w := range waiting {
		s.starve(layout, w)
	}
}
