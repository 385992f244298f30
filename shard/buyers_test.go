package shard

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"flashgate/internal/sale"
)

// Who has bought is said of a whole stock of one load alone: whoever is not named is told that he has nothing.
func TestBuyersOfAWholeStock(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		layout := Layout{Item: 61, Shards: 2}
		zero, one := keysOf(61, 0), keysOf(61, 1)
		for name, c := range map[string]struct {
			spoil  func(l *lab, s *Stock)
			layout Layout
			want   error
			says   string
		}{
			"wiped":                           {func(l *lab, _ *Stock) { l.do("FLUSHALL") }, layout, ErrNotLoaded, "shard 1"},
			"one shard wiped":                 {func(l *lab, _ *Stock) { l.do("DEL", one.stock, one.buyers, one.pending, one.meta) }, layout, ErrNotLoaded, "shard 1"},
			"fenced":                          {func(l *lab, s *Stock) { _, err := s.Fence(l.ctx, 61, 2, 9); l.must(err) }, layout, ErrNotLoaded, "shard 0"},
			"one shard of another load":       {func(l *lab, s *Stock) { l.loadOne(s, layout, 1, 9) }, layout, ErrNotLoaded, "epoch 9, shard 0 has 8"},
			"an unreadable stock":             {func(l *lab, _ *Stock) { l.do("SET", zero.stock, "x") }, layout, ErrUnreadable, "stock"},
			"no marks":                        {func(l *lab, _ *Stock) { l.do("DEL", zero.buyers) }, layout, ErrUnreadable, "buyers"},
			"a mark less":                     {func(l *lab, _ *Stock) { l.do("HDEL", zero.buyers, "0") }, layout, ErrUnreadable, "buyers"},
			"another type of marks":           {func(l *lab, _ *Stock) { l.do("DEL", zero.buyers); l.do("SET", zero.buyers, "x") }, layout, ErrUnreadable, "buyers"},
			"a mark that was seen to be none": {func(l *lab, _ *Stock) { l.do("HSET", zero.meta, "bad", "1") }, layout, ErrUnreadable, "buyers"},
			"an outbox entry less":            {func(l *lab, _ *Stock) { l.do("DEL", zero.pending) }, layout, ErrUnreadable, "pending"},
			"another layout":                  {func(*lab, *Stock) {}, Layout{Item: 61, Shards: 3}, ErrWrongLayout, "shard 0"},
			"no layout":                       {func(*lab, *Stock) {}, Layout{Item: 61}, nil, "read buyers"},
		} {
			t.Run(name, func(t *testing.T) {
				l := newLab(t, b)
				s := l.stock(&broker{refuse: errors.New("away")})
				l.load(s, layout, 8, 10, map[string]sale.Mark{"0": heldMark(sale.NewOrderID(61)), "1": heldMark(sale.NewOrderID(61))})
				if r := s.Reserve(l.ctx, layout, request(layout, "2", 1, "")); r.Outcome != sale.Reserved {
					t.Fatalf("%+v", r)
				}
				users, epoch, err := s.Buyers(l.ctx, layout)
				slices.Sort(users)
				if err != nil || epoch != 8 || !slices.Equal(users, []string{"0", "1", "2"}) {
					t.Fatalf("%v of epoch %d, %v", users, epoch, err)
				}
				c.spoil(l, s)
				users, epoch, err = s.Buyers(l.ctx, c.layout)
				if len(users) != 0 || epoch != 0 || err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%v of epoch %d, %v", users, epoch, err)
				}
			})
		}
	})
}

// loadOne loads one shard of an item alone, as a loader does that stops in the middle.
func (l *lab) loadOne(s *Stock, layout Layout, n int, token int64) {
	l.Helper()
	k := keysOf(layout.Item, n)
	text := formatInt(token)
	for _, c := range []call{
		{scriptFence, []string{k.stock, k.meta}, []string{text}},
		{scriptLoad, k.all(), []string{text, formatInt(int64(layout.Shards)), "5"}},
	} {
		if r, err := s.run(l.ctx, c); err != nil || r.code != "OK" {
			l.Fatalf("%+v, %v", r, err)
		}
	}
}

// A server that takes no writes may have been replaced, and what it holds may be old.
func TestBuyersOfAReplica(t *testing.T) {
	l := newLab(t, onReal)
	layout := Layout{Item: 61, Shards: 1}
	s := l.stock(&broker{})
	l.load(s, layout, 8, 10, map[string]sale.Mark{"0": heldMark(sale.NewOrderID(61))})
	l.do("REPLICAOF", "127.0.0.1", "1")
	if users, _, err := s.Buyers(l.ctx, layout); err == nil || !strings.Contains(err.Error(), "READONLY") {
		t.Errorf("%v, %v", users, err)
	}
}
