package shard

import (
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // G505: EVALSHA names scripts by it
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/rueidis"

	"flashgate/lua"
)

// What a script can answer instead of doing its work. Errors of this package wrap them.
var (
	// ErrNotLoaded: the stock of a shard is unknown, because it is being loaded or was lost.
	ErrNotLoaded = errors.New("stock is not loaded")
	// ErrWrongLayout: the item has another number of shards than the caller believes.
	ErrWrongLayout = errors.New("the item has another number of shards")
	// ErrUnreadable: Redis holds something that is no stock.
	ErrUnreadable = errors.New("unreadable")
)

var (
	errFull    = errors.New("more than 2^53-1 units")
	errBadCall = errors.New("the script refused its arguments")
)

// place is one shard of one item.
type place struct {
	item  int64
	shard int
}

func (p place) keys() keys { return keysOf(p.item, p.shard) }

// wrap says where and at what an error happened.
func (p place) wrap(what string, err error) error {
	return fmt.Errorf("%s, item %d shard %d: %w", what, p.item, p.shard, err)
}

// script is a Lua script with the name under which servers remember it.
type script struct {
	lua.Script
	sha string
}

func known(s lua.Script) *script {
	sum := sha1.Sum([]byte(s.Source)) //nolint:gosec // G401: see the import
	return &script{Script: s, sha: hex.EncodeToString(sum[:])}
}

var (
	scriptReserve   = known(lua.Reserve)
	scriptAck       = known(lua.Ack)
	scriptState     = known(lua.State)
	scriptRelease   = known(lua.Release)
	scriptVoid      = known(lua.Void)
	scriptIncrease  = known(lua.Increase)
	scriptTake      = known(lua.Take)
	scriptGive      = known(lua.Give)
	scriptSettle    = known(lua.Settle)
	scriptTransfers = known(lua.Transfers)
	scriptFence     = known(lua.Fence)
	scriptLoad      = known(lua.Load)
	scriptMark      = known(lua.Mark)
	scriptBuyers    = known(lua.Buyers)
	scriptOutbox    = known(lua.Outbox)
	scriptReadBack  = known(lua.ReadBack)
	scriptServer    = known(lua.Server)
)

// call is one run of a script. Its slices belong to the client from then on.
type call struct {
	script *script
	keys   []string
	args   []string
}

// reply is what a script returned: a code and what belongs to it.
type reply struct {
	code   string
	values []string
}

// fault is the error that a code stands for; nil for the codes that a script's caller asked for.
func (r reply) fault() error {
	switch r.code {
	case "NOT_LOADED":
		return ErrNotLoaded
	case "WRONG_LAYOUT":
		return ErrWrongLayout
	case "CORRUPT":
		return fmt.Errorf("%w: %s", ErrUnreadable, strings.Join(r.values[:min(1, len(r.values))], ""))
	case "FULL":
		return errFull
	case "BAD_CALL":
		return errBadCall
	}
	return nil
}

// result is a reply, or the error of the call itself, which neverRan and passing sort.
type result struct {
	reply
	err error
}

// failure is why a result is no answer: the call failed, the script refused it, or it has not the number of values that it must have, which the caller
// has counted.
func (r result) failure(complete bool) error {
	err := cmp.Or(r.err, r.fault())
	if err == nil && !complete {
		err = fmt.Errorf("%q with %d values", r.code, len(r.values))
	}
	return err
}

// run calls one script.
func (s *Stock) run(ctx context.Context, c call) (reply, error) {
	results := s.runAll(ctx, []call{c})
	return results[0].reply, results[0].err
}

// runAll calls several scripts at once, of any shards, and returns their results in the order of calls. It returns by the
// end of ctx or of the call timeout; what it sent may then still run.
//
// A server that does not know a script, because it was restarted, promoted or told SCRIPT FLUSH, says NOSCRIPT and runs
// nothing. Those calls are sent again with the text, by EVAL, which cannot meet NOSCRIPT whatever happens in between.
func (s *Stock) runAll(ctx context.Context, calls []call) []result {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.CallTimeout)
	defer cancel()
	return s.runUntil(ctx, calls)
}

// runUntil is runAll bounded by ctx alone.
func (s *Stock) runUntil(ctx context.Context, calls []call) []result {
	results := s.send(ctx, calls, false)
	var again []call
	var at []int
	for i, c := range calls {
		if e, ok := rueidis.IsRedisErr(results[i].err); ok && e.IsNoScript() {
			again, at = append(again, c), append(at, i)
		}
	}
	if len(again) > 0 {
		for i, r := range s.send(ctx, again, true) {
			results[at[i]] = r
		}
	}
	return results
}

// send sends the calls in one pipeline to each server concerned.
func (s *Stock) send(ctx context.Context, calls []call, withText bool) []result {
	commands := make([]rueidis.Completed, len(calls))
	for i, c := range calls {
		if withText {
			commands[i] = s.cfg.Client.B().Eval().Script(c.script.Source).Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(c.args...).Build()
		} else {
			commands[i] = s.cfg.Client.B().Evalsha().Sha1(c.script.sha).Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(c.args...).Build()
		}
	}
	return s.await(ctx, commands)
}

func (s *Stock) await(ctx context.Context, commands []rueidis.Completed) []result {
	results, err := apart(ctx, s, func() []result {
		answers := s.cfg.Client.DoMulti(ctx, commands...)
		results := make([]result, len(answers))
		for i, answer := range answers {
			results[i] = parseReply(answer)
		}
		return results
	})
	if err != nil {
		results = make([]result, len(commands))
		for i := range results {
			results[i].err = err
		}
	}
	return results
}

func parseReply(answer rueidis.RedisResult) result {
	values, err := answer.AsStrSlice()
	if err != nil {
		return result{err: err}
	}
	if len(values) == 0 {
		return result{err: errors.New("empty answer")}
	}
	return result{reply: reply{code: values[0], values: values[1:]}}
}

// neverRan reports whether err says for certain that the server ran nothing of the call. Redis makes these checks before a
// script starts, or at its first write; our scripts begin with a write that the check for memory covers. An error of the
// connection says so only when there was none yet.
func neverRan(err error) bool {
	if e, ok := rueidis.IsRedisErr(err); ok {
		word, rest, _ := strings.Cut(e.Error(), " ")
		switch word {
		case "NOSCRIPT", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "LOADING", "READONLY", "OOM", "BUSY", "MASTERDOWN",
			"MISCONF", "NOREPLICAS", "NOAUTH", "WRONGPASS", "CROSSSLOT":
			return true
		case "NOPERM":
			// Of the call, or of a command in the middle of the script.
			return !strings.Contains(rest, "script")
		}
		return false
	}
	var op *net.OpError
	return errors.Is(err, errCrowded) || errors.As(err, &op) && op.Op == "dial" || errors.Is(err, rueidis.ErrNoSlot)
}

// passing reports whether an error after which nothing ran is one that goes away by itself within a second or two: a
// failover, a moving slot, a restart. A full memory or a missing permission does not.
func passing(err error) bool {
	if e, ok := rueidis.IsRedisErr(err); ok {
		word, _, _ := strings.Cut(e.Error(), " ")
		switch word {
		case "OOM", "MISCONF", "NOREPLICAS", "NOAUTH", "WRONGPASS", "CROSSSLOT", "NOPERM":
			return false
		}
	}
	return true
}
