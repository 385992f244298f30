package shard

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/rueidis"
)

// Account is what one shard holds at one instant: its numbers and the marks that go with them.
type Account struct {
	ShardReading
	Marks []Holding // in no order
	// Whole: the shard is readable, and Marks are all the marks that it had at the instant of the numbers. Where it is false the marks are what could be
	// read, and the numbers may be of another instant.
	Whole bool
}

// accountTries is how often a shard is read at most until nothing has changed in between.
const accountTries = 3

// Accounts reads every shard of a layout with all its marks, each shard at one instant, but one after another. It moves every mark over the
// network, so it is bounded by ctx alone. The error names the shards that did not answer, or hold something else; everything else is good beside it.
//
// A shard is asked for its numbers, its marks, and its numbers again, in one pipeline. Whatever changes a mark counts a change of the buyers, and
// whatever adds or takes units changes the stock or counts an addition: where the numbers are the same before and behind the marks, all three are
// of one instant. That is nearly always so, as a server runs what it finds in a pipeline in one go, and where it is not the shard is asked again.
func (s *Stock) Accounts(ctx context.Context, layout Layout) ([]Account, error) {
	if err := checkLayout(layout); err != nil {
		return nil, fmt.Errorf("read accounts: %w", err)
	}
	accounts := make([]Account, layout.Shards)
	faults := make([]error, layout.Shards)
	left := make([]int, layout.Shards)
	for i := range left {
		left[i] = i
	}
	for range accountTries {
		var unsteady []int
		for j, a := range s.account(ctx, layout, left) {
			n := left[j]
			accounts[n], faults[n] = a.Account, a.err
			if a.moved && ctx.Err() == nil {
				unsteady = append(unsteady, n)
			}
		}
		if left = unsteady; len(left) == 0 {
			break
		}
	}
	return accounts, errors.Join(faults...)
}

type accountRead struct {
	Account
	moved bool // something changed between the two readings of the numbers
	err   error
}

// account reads some shards once.
func (s *Stock) account(ctx context.Context, layout Layout, shards []int) []accountRead {
	b := s.cfg.Client.B
	commands := make([]rueidis.Completed, 0, 3*len(shards))
	for _, n := range shards {
		k := keysOf(layout.Item, n)
		// With its text: a server that does not know the script would answer the first of the two with an error.
		state := func() rueidis.Completed {
			return b().Eval().Script(scriptState.Source).Numkeys(int64(len(k.all()))).Key(k.all()...).Build()
		}
		commands = append(commands, state(), b().Hgetall().Key(k.buyers).Build(), state())
	}
	read := make([]accountRead, len(shards))
	answers, err := apart(ctx, s, func() []rueidis.RedisResult { return s.cfg.Client.DoMulti(ctx, commands...) })
	for j, n := range shards {
		at := place{layout.Item, n}
		if err != nil {
			read[j] = accountRead{Account{ShardReading: reading(readState(layout, at, result{err: err}))}, false, at.wrap("read account", err)}
			continue
		}
		read[j] = readAccount(layout, at, answers[3*j], answers[3*j+1], answers[3*j+2])
	}
	return read
}

func readAccount(layout Layout, at place, first, marks, second rueidis.RedisResult) accountRead {
	before, after := readState(layout, at, parseReply(first)), readState(layout, at, parseReply(second))
	a := accountRead{Account: Account{ShardReading: reading(after)}}
	if !before.answered || !after.answered {
		a.err = at.wrap("read account", errors.Join(before.err, after.err))
		return a
	}
	texts, err := marks.AsStrMap()
	if err != nil {
		a.err = at.wrap("read account", err)
		return a
	}
	if a.Marks, err = decodeMarks(texts); err != nil {
		a.err = at.wrap("read account", err)
	}
	a.moved = before.numbers() != after.numbers() || int64(len(texts)) != after.marks
	a.Whole = !a.moved && a.err == nil && a.Readable
	return a
}

// numbers are what an account compares.
func (st *shardState) numbers() [11]int64 {
	return [...]int64{st.stock, st.k, st.epoch, st.adds, st.bver, st.waiting, st.units, st.moving, st.token, st.marks, st.entries}
}
