package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"flashgate/internal/sale"
	"flashgate/lua"
)

// dump is everything that Redis holds, as text.
func (l *lab) dump() string {
	l.Helper()
	names, err := l.client.Do(l.ctx, l.client.B().Keys().Pattern("*").Build()).AsStrSlice()
	if err != nil {
		l.Fatal(err)
	}
	slices.Sort(names)
	var lines []string
	for _, name := range names {
		switch kind := l.do("TYPE", name); kind {
		case "string":
			lines = append(lines, name+" = "+l.do("GET", name))
		case "hash":
			fields, err := l.client.Do(l.ctx, l.client.B().Hgetall().Key(name).Build()).AsStrMap()
			if err != nil {
				l.Fatal(err)
			}
			for field, value := range fields {
				lines = append(lines, name+" "+field+" = "+value)
			}
		default:
			lines = append(lines, name+" is a "+kind)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// everyCall tries whatever changes a shard, with arguments that would do something.
func everyCall(l *lab, s *Stock, layout Layout, held sale.OrderID) map[string]error {
	at := place{layout.Item, 0}
	k := at.keys()
	ks := formatInt(int64(layout.Shards))
	out := map[string]error{}
	try := func(name string, script *script, keys []string, args ...string) {
		r, err := s.run(l.ctx, call{script, keys, args})
		if err == nil {
			err = r.fault()
		}
		if err == nil {
			err = errors.New(r.code)
		}
		out[name] = err
	}
	corrected := []string{ks, "1", "held", held.String()}
	try("reserve", scriptReserve, k.all(), ks, "b", "100", "u", sale.NewOrderID(layout.Item).String(), "1", "", "1", "JPY", "")
	try("release", scriptRelease, []string{k.stock, k.buyers, k.meta}, corrected...)
	try("void", scriptVoid, []string{k.stock, k.buyers, k.meta}, corrected...)
	try("increase", scriptIncrease, []string{k.stock, k.meta}, ks, "1", "op", "3")
	try("take", scriptTake, []string{k.stock, k.meta}, ks, "tr", "1", "1")
	try("give", scriptGive, []string{k.stock, k.meta}, ks, "gv", "1", "1")
	return out
}

// A stock that is not a canonical number, or a number that is not there, is unreadable to every script, and stays as it
// is. tonumber and DECRBY disagree about most of these, and the two implementations of Lua among themselves.
func TestUnreadableStock(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		for _, text := range []string{"", " 7 ", "7 ", "1e3", "0x10", "inf", "nan", "007", "-1", "+1", "1.0", "x", "9007199254740992",
			"9007199254740993", "99999999999999999999", "7\n"} {
			l := newLab(t, b)
			layout := Layout{Item: 18, Shards: 1}
			s := l.stock(&broker{})
			held := sale.NewOrderID(layout.Item)
			l.load(s, layout, 1, 10, map[string]sale.Mark{"held": heldMark(held)})
			k := keysOf(layout.Item, 0)
			l.do("SET", k.stock, text)
			before := l.dump()
			for name, err := range everyCall(l, s, layout, held) {
				if !errors.Is(err, ErrUnreadable) {
					t.Errorf("stock %q, %s: %v", text, name, err)
				}
			}
			if r := s.Reserve(l.ctx, layout, request(layout, "u", 1, "")); r.Outcome != sale.Unreadable || r.Err == nil {
				t.Errorf("stock %q: %+v", text, r)
			}
			if _, err := s.Prove(l.ctx, layout); !errors.Is(err, ErrUnreadable) {
				t.Errorf("stock %q, prove: %v", text, err)
			}
			if got := l.dump(); got != before {
				t.Errorf("stock %q: changed from\n%s\nto\n%s", text, before, got)
			}
		}
	})
}

// Each key of another type, and each number in meta spoilt or missing: refused, and nothing is written.
func TestUnreadableKeys(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		k := keysOf(18, 0)
		spoilt := map[string][][]string{
			"stock is a hash":     {{"DEL", k.stock}, {"HSET", k.stock, "a", "b"}},
			"buyers is a string":  {{"SET", k.buyers, "x"}},
			"pending is a string": {{"SET", k.pending, "x"}},
			"meta is a string":    {{"SET", k.meta, "x"}},
			"no meta":             {{"DEL", k.meta}},
			"no buyers":           {{"DEL", k.buyers}},
			"a buyer less":        {{"HDEL", k.buyers, "too"}},
			"a buyer more":        {{"HSET", k.buyers, "other", encodeMark(heldMark(sale.NewOrderID(18)))}},
		}
		for _, field := range []string{"k", "epoch", "adds", "bver", "waiting", "units", "moving", "token", "marks", "entries"} {
			spoilt["no "+field] = [][]string{{"HDEL", k.meta, field}}
			spoilt["odd "+field] = [][]string{{"HSET", k.meta, field, "1e1"}}
		}
		uses := map[string][]string{ // calls that do not touch the spoilt key go through
			"buyers is a string": {"increase", "take", "give"}, "pending is a string": {"release", "void", "increase", "take", "give"},
			"no buyers": {"increase", "take", "give"}, "a buyer less": {"increase", "take", "give"}, "a buyer more": {"increase", "take", "give"},
		}
		for name, commands := range spoilt {
			l := newLab(t, b)
			layout := Layout{Item: 18, Shards: 1}
			s := l.stock(&broker{})
			held := sale.NewOrderID(layout.Item)
			l.load(s, layout, 1, 10, map[string]sale.Mark{"held": heldMark(held), "too": heldMark(sale.NewOrderID(18))})
			for _, c := range commands {
				l.do(c...)
			}
			before := l.dump()
			if r := s.Reserve(l.ctx, layout, request(layout, "u", 1, "")); r.Outcome != sale.Unreadable {
				t.Errorf("%s: %+v", name, r)
			}
			if got := l.dump(); got != before {
				t.Errorf("%s: changed from\n%s\nto\n%s", name, before, got)
			}
			for script, err := range everyCall(l, s, layout, held) {
				if slices.Contains(uses[name], script) == errors.Is(err, ErrUnreadable) {
					t.Errorf("%s, %s: %v", name, script, err)
				}
			}
		}
	})
}

// A stock that is not there is unknown, never zero, and another layout is told as such.
func TestNotLoadedAndWrongLayout(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 19, Shards: 4}
		s := l.stock(&broker{})
		if r := s.Reserve(l.ctx, layout, request(layout, "1", 1, "")); r.Outcome != sale.NotLoaded {
			t.Errorf("nothing there: %+v", r)
		}
		l.load(s, layout, 1, 4, nil)
		other := Layout{Item: 19, Shards: 3}
		if r := s.Reserve(l.ctx, other, request(layout, "1", 1, "")); r.Outcome != sale.WrongLayout {
			t.Errorf("other layout: %+v", r)
		}
		if _, err := s.Prove(l.ctx, other); !errors.Is(err, ErrWrongLayout) {
			t.Errorf("prove of another layout: %v", err)
		}
		if _, _, err := s.Mark(l.ctx, other, "1"); !errors.Is(err, ErrWrongLayout) {
			t.Errorf("mark in another layout: %v", err)
		}
		// One shard is lost in mid-sale: its users are told so, the others go on buying, and it is never sold out.
		l.do("DEL", keysOf(19, 2).stock)
		counts, results := l.buyers(layout, []string{"0", "1", "3", "2", "6"}, 1, s)
		if counts.count(sale.Reserved) != 3 || counts.count(sale.NotLoaded) != 2 || results["2"].Outcome != sale.NotLoaded {
			t.Errorf("outcomes: %v", counts)
		}
		if r := s.Reserve(l.ctx, layout, request(layout, "4", 1, "")); r.Outcome != sale.NotLoaded {
			t.Errorf("a shard of unknown stock and nothing elsewhere: %+v", r)
		}
		if _, err := s.Prove(l.ctx, layout); !errors.Is(err, ErrNotLoaded) || !strings.Contains(err.Error(), "item 19 shard 2") {
			t.Errorf("prove: %v", err)
		}
	})
}

// At the largest stock the script's answer is the number that GET reads, to the last digit.
func TestLargestStock(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 16, Shards: 1}
		s := l.stock(&broker{})
		if _, err := s.Load(l.ctx, layout, Image{Token: 1, Free: sale.MaxQuantity + 1}); err == nil {
			t.Error("loaded more than 2^53-1")
		}
		l.load(s, layout, 1, sale.MaxQuantity, nil)
		k := keysOf(layout.Item, 0)
		for i := range 3 {
			id := sale.NewOrderID(layout.Item).String()
			r, err := s.run(l.ctx, call{scriptReserve, k.all(), []string{"1", "b" + id, "9", "u" + id, id, "1", "", "1", "JPY", ""}})
			if err != nil || r.code != "OK" || r.values[2] != l.do("GET", k.stock) || r.values[2] != formatInt(sale.MaxQuantity-int64(i)-1) {
				t.Errorf("got %+v, %v; Redis has %s", r, err, l.do("GET", k.stock))
			}
		}
		if got, err := s.Increase(l.ctx, layout, "op", 4, 1); err == nil {
			t.Errorf("increase beyond 2^53-1: %v", got)
		}
		if got, err := s.Increase(l.ctx, layout, "op", 3, 1); err != nil || got != Done || l.do("GET", k.stock) != "9007199254740991" {
			t.Errorf("increase to 2^53-1: %v, %v, %s", got, err, l.do("GET", k.stock))
		}
		if r := s.Reserve(l.ctx, layout, request(layout, "all", sale.MaxQuantity, "")); r.Outcome != sale.Reserved {
			t.Errorf("all of it: %+v", r)
		}
		// Sums over shards are made of 64-bit integers.
		four := Layout{Item: 17, Shards: 4}
		l.load(s, four, 1, sale.MaxQuantity, nil)
		if p, err := s.Prove(l.ctx, four); err != nil || p.Free != sale.MaxQuantity {
			t.Errorf("sum: %+v, %v", p, err)
		}
	})
}

// Refusals of the scripts themselves: arguments that no caller of this package sends.
func TestScriptsRefuseArguments(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 18, Shards: 1}
		s := l.stock(&broker{})
		l.load(s, layout, 1, 10, nil)
		k := keysOf(layout.Item, 0)
		before := l.dump()
		user := []string{"u", sale.NewOrderID(18).String(), "1", "", "1", "JPY", ""}
		for name, c := range map[string]call{
			"no users":       {scriptReserve, k.all(), []string{"1", "b", "9"}},
			"half a user":    {scriptReserve, k.all(), append([]string{"1", "b", "9"}, user[:4]...)},
			"bad limit":      {scriptReserve, k.all(), append([]string{"1", "b", "many"}, user...)},
			"no quantity":    {scriptReserve, k.all(), []string{"1", "b", "9", "u", "id", "0", "", "1", "JPY", ""}},
			"odd quantity":   {scriptReserve, k.all(), []string{"1", "b", "9", "u", "id", "1e1", "", "1", "JPY", ""}},
			"too many users": {scriptReserve, k.all(), append([]string{"1", "b", "9"}, slices.Repeat(user, 257)...)},
			"take nothing":   {scriptTake, []string{k.stock, k.meta}, []string{"1", "op", "0", "0"}},
			"give oddly":     {scriptGive, []string{k.stock, k.meta}, []string{"1", "op", "-1", "1"}},
			"odd epoch":      {scriptIncrease, []string{k.stock, k.meta}, []string{"1", "", "op", "1"}},
			"fence with 0":   {scriptFence, []string{k.stock, k.meta}, []string{"0"}},
			"load an odd k":  {scriptLoad, k.all(), []string{"1", "0", "1"}},
			"half a mark":    {scriptLoad, k.all(), []string{"1", "1", "1", "u"}},
		} {
			if r, err := s.run(l.ctx, c); err != nil || !errors.Is(r.fault(), errBadCall) {
				t.Errorf("%s: %+v, %v", name, r, err)
			}
		}
		if got := l.dump(); got != before {
			t.Errorf("changed from\n%s\nto\n%s", before, got)
		}
		// A batch that ran is recognised and not run again.
		args := append([]string{"1", "b", "9"}, user...)
		if r, err := s.run(l.ctx, call{scriptReserve, k.all(), args}); err != nil || r.code != "OK" {
			t.Fatalf("reserve: %+v, %v", r, err)
		}
		before = l.dump()
		if r, err := s.run(l.ctx, call{scriptReserve, k.all(), args}); err != nil || r.code != "RAN" {
			t.Errorf("the same batch again: %+v, %v", r, err)
		}
		if got := l.dump(); got != before {
			t.Errorf("the same batch again changed\n%s\nto\n%s", before, got)
		}
	})
}

// Scripts that may not be repeated say so, and the header of each file says the same.
func TestScriptHeaders(t *testing.T) {
	names := map[string]bool{}
	for _, s := range lua.All() {
		names[s.Name] = true
		if !strings.Contains(s.Source, "-- "+s.Name+": ") || !strings.Contains(s.Source, "-- KEYS") || !strings.Contains(s.Source, "-- Returns") {
			t.Errorf("%s has no header", s.Name)
		}
		if says := strings.Contains(s.Source, "-- NOT idempotent"); says == s.Repeatable {
			t.Errorf("%s: repeatable %v, header says otherwise", s.Name, s.Repeatable)
		}
	}
	if len(names) != len(lua.All()) {
		t.Error("two scripts of one name")
	}
}

func TestWhatAnErrorSays(t *testing.T) {
	l := newLab(t, onReal)
	redis := func(text string) error {
		return l.client.Do(l.ctx, l.client.B().Eval().Script("return redis.error_reply(ARGV[1])").Numkeys(0).Arg(text).Build()).Error()
	}
	for _, c := range []struct {
		err            error
		never, passing bool
	}{
		{redis("MOVED 1 127.0.0.1:1"), true, true},
		{redis("TRYAGAIN x"), true, true},
		{redis("CLUSTERDOWN x"), true, true},
		{redis("LOADING x"), true, true},
		{redis("READONLY x"), true, true},
		{redis("BUSY x"), true, true},
		{redis("MASTERDOWN x"), true, true},
		{redis("OOM x"), true, false},
		{redis("MISCONF x"), true, false},
		{redis("NOREPLICAS x"), true, false},
		{redis("NOAUTH x"), true, false},
		{redis("NOPERM this user has no permissions to run the 'evalsha' command"), true, false},
		{redis("NOPERM ACL failure in script"), false, false},
		{redis("WRONGTYPE x"), false, true},
		{redis("ERR x"), false, true},
		{context.DeadlineExceeded, false, true},
		{rueidis.ErrClosing, false, true},
		{fmt.Errorf("wrapped: %w", rueidis.ErrNoSlot), true, true},
	} {
		if got := neverRan(c.err); got != c.never {
			t.Errorf("%v: never ran %v", c.err, got)
		}
		if got := passing(c.err); c.never && got != c.passing {
			t.Errorf("%v: passing %v", c.err, got)
		}
	}
}
