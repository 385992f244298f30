package shard

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
)

// A unit returns once, whoever releases it and however often; another order's mark is left alone.
func TestRelease(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 30, Shards: 3}
		s := l.stock(&broker{})
		l.load(s, layout, 4, 9, nil)
		r := s.Reserve(l.ctx, layout, request(layout, "u", 3, "k"))
		if r.Outcome != sale.Reserved {
			t.Fatalf("reserve: %+v", r)
		}
		c := Correction{User: "u", OrderID: r.OrderID, Epoch: 4}
		for _, try := range []struct {
			name string
			c    Correction
			want Applied
			free int64
		}{
			{"of another order", Correction{"u", sale.NewOrderID(30), 4}, Done, 6},
			{"of another user", Correction{"v", r.OrderID, 4}, Done, 6},
			{"older than the load", Correction{"u", r.OrderID, 3}, Absorbed, 6},
			{"the first time", c, Done, 9},
			{"again", c, Done, 9},
		} {
			if got, err := s.Release(l.ctx, layout, try.c); err != nil || got != try.want {
				t.Errorf("%s: %v, %v", try.name, got, err)
			}
			if sum := l.totals(layout); sum.free != try.free {
				t.Errorf("%s: %+v", try.name, sum)
			}
		}
		// He may buy again, under a new order that the old release does not touch.
		again := s.Reserve(l.ctx, layout, request(layout, "u", 1, "k"))
		if again.Outcome != sale.Reserved || again.OrderID == r.OrderID {
			t.Fatalf("again: %+v", again)
		}
		if got, err := s.Release(l.ctx, layout, c); err != nil || got != Done {
			t.Errorf("late: %v, %v", got, err)
		}
		if l.markOf(layout, "u") != again.OrderID {
			t.Error("a late release took the mark of a newer order")
		}
		// Void takes the mark and gives nothing back.
		for range 2 {
			if got, err := s.Void(l.ctx, layout, Correction{"u", again.OrderID, 5}); err != nil || got != Done {
				t.Errorf("void: %v, %v", got, err)
			}
		}
		if sum := l.totals(layout); sum.free != 8 || sum.marks != 0 {
			t.Errorf("after void: %+v", sum)
		}
		if got, err := s.Release(l.ctx, Layout{30, 2}, Correction{"u", again.OrderID, 5}); err != nil || got != WrongLayout {
			t.Errorf("other layout: %v, %v", got, err)
		}
		if ok, err := s.Fence(l.ctx, 30, 3, 9); err != nil || !ok {
			t.Fatalf("fence: %v, %v", ok, err)
		}
		if got, err := s.Release(l.ctx, layout, c); err != nil || got != NotLoaded {
			t.Errorf("not loaded: %v, %v", got, err)
		}
		l.do("SET", keysOf(30, sale.Home("u", 3)).stock, "x")
		if got, err := s.Release(l.ctx, layout, c); err != nil || got != Unreadable {
			t.Errorf("unreadable: %v, %v", got, err)
		}
	})
}

// One operation adds its units once over all shards, also when it is repeated after a part of it failed.
func TestIncrease(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 31, Shards: 4}
		s := l.stock(&broker{})
		l.load(s, layout, 2, 0, nil)
		stocks := func() []string {
			var out []string
			for i := range layout.Shards {
				out = append(out, l.do("GET", keysOf(31, i).stock))
			}
			return out
		}
		for range 2 {
			if got, err := s.Increase(l.ctx, layout, "a", 7, 2); err != nil || got != Done {
				t.Fatalf("increase: %v, %v", got, err)
			}
			if got := stocks(); !slices.Equal(got, []string{"2", "2", "2", "1"}) {
				t.Errorf("stocks %v", got)
			}
		}
		if got, err := s.Increase(l.ctx, layout, "old", 7, 1); err != nil || got != Absorbed {
			t.Errorf("older than the load: %v, %v", got, err)
		}
		if got, err := s.Increase(l.ctx, layout, "none", 0, 2); err != nil || got != Done {
			t.Errorf("of nothing: %v, %v", got, err)
		}
		// A missing key stays missing: adding to an unknown number would invent one.
		lost := keysOf(31, 1).stock
		l.do("DEL", lost)
		if got, err := s.Increase(l.ctx, layout, "b", 4, 2); err != nil || got != NotLoaded {
			t.Errorf("with a missing key: %v, %v", got, err)
		}
		if got := stocks(); !slices.Equal(got, []string{"3", "<nil>", "3", "2"}) {
			t.Errorf("stocks %v", got)
		}
		l.do("SET", lost, "2")
		if got, err := s.Increase(l.ctx, layout, "b", 4, 2); err != nil || got != Done {
			t.Errorf("again: %v, %v", got, err)
		}
		if got := stocks(); !slices.Equal(got, []string{"3", "3", "3", "2"}) {
			t.Errorf("stocks %v", got)
		}
		if got, err := s.Increase(l.ctx, Layout{31, 3}, "c", 4, 2); err != nil || got != WrongLayout {
			t.Errorf("other layout: %v, %v", got, err)
		}
		if _, err := s.Increase(l.ctx, layout, "", 4, 2); err == nil {
			t.Error("without an operation id")
		}
	})
}

func TestWorse(t *testing.T) {
	order := []Applied{Absorbed, Done, NotLoaded, WrongLayout, Unreadable}
	for i, a := range order {
		for j, b := range order {
			if got := worse(a, b); got != order[max(i, j)] {
				t.Errorf("%v and %v make %v", a, b, got)
			}
		}
	}
}

// A load replaces everything, belongs to one token, and a newer loader puts an older one out.
func TestLoad(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 32, Shards: 2}
		s := l.stock(&broker{refuse: context.DeadlineExceeded})
		l.load(s, layout, 1, 10, nil)
		l.buyers(layout, numbered(0, 4, 1), 1, s) // marks and outbox entries of the first load
		l.orphan(s, layout, 0, 1, 2, 0)
		if got, err := s.Increase(l.ctx, layout, "op", 4, 1); err != nil || got != Done {
			t.Fatalf("increase: %v, %v", got, err)
		}

		marks := map[string]sale.Mark{}
		for i := range 4000 { // more than unpack takes at once
			marks["u"+strconv.Itoa(i)] = sale.Mark{OrderID: sale.NewOrderID(32), Quantity: 1, Price: "5", Currency: "EUR", KeyHash: sale.HashKey("k"), ReservedAt: time.UnixMilli(1_700_000_000_000)}
		}
		image := Image{Token: 7, Free: 5, Marks: marks}
		if ok, err := s.Load(l.ctx, layout, image); err != nil || ok {
			t.Errorf("load without a fence: %v, %v", ok, err)
		}
		for _, c := range []struct {
			token int64
			want  bool
		}{{7, true}, {7, true}, {6, false}} {
			if ok, err := s.Fence(l.ctx, 32, 2, c.token); err != nil || ok != c.want {
				t.Errorf("fence %d: %v, %v", c.token, ok, err)
			}
		}
		if r := s.Reserve(l.ctx, layout, request(layout, "0", 1, "")); r.Outcome != sale.NotLoaded {
			t.Errorf("behind a fence: %+v", r)
		}
		// The sweep runs on: outboxes can be read and emptied.
		outbox, err := s.Outbox(l.ctx, layout, 0)
		if err != nil || len(outbox.Entries) == 0 || outbox.Now.Before(outbox.Entries[0].At) {
			t.Errorf("outbox behind a fence: %+v, %v", outbox, err)
		}
		if err := s.Forget(l.ctx, 32, 0, outbox.Entries[0].Batch); err != nil {
			t.Error(err)
		}
		odd := Image{Token: 7, Free: 5, Marks: map[string]sale.Mark{"u": {OrderID: sale.NewOrderID(32), Quantity: 1}}}
		if ok, err := s.Load(l.ctx, layout, odd); err == nil {
			t.Errorf("load of a mark without a time: %v", ok)
		}
		old := image
		old.Token = 6
		if ok, err := s.Load(l.ctx, layout, old); err != nil || ok {
			t.Errorf("load of a loader that was put out: %v, %v", ok, err)
		}
		for range 2 { // a repetition after a lost answer
			if ok, err := s.Load(l.ctx, layout, image); err != nil || !ok {
				t.Errorf("load: %v, %v", ok, err)
			}
		}
		if ok, err := s.Fence(l.ctx, 32, 2, 7); err != nil || ok {
			t.Errorf("a fence that was long on its way undid the load: %v, %v", ok, err)
		}
		if got := l.totals(layout); got != (totals{free: 5, marks: 4000}) {
			t.Errorf("Redis holds %+v", got)
		}
		for i := range 2 {
			meta, err := l.client.Do(l.ctx, l.client.B().Hgetall().Key(keysOf(32, i).meta).Build()).AsStrMap()
			if err != nil || meta["epoch"] != "7" || meta["token"] != "7" || meta["k"] != "2" || meta["marks"] != l.do("HLEN", keysOf(32, i).buyers) || meta["entries"] != "0" || len(meta) != 11 {
				t.Errorf("shard %d: meta %v, %v", i, meta, err)
			}
			if l.do("EXISTS", keysOf(32, i).pending) != "0" {
				t.Errorf("shard %d: outbox entries from before the load", i)
			}
		}
		mark, ok, err := s.Mark(l.ctx, layout, "u17")
		if want := marks["u17"]; err != nil || !ok || mark.OrderID != want.OrderID || mark.KeyHash != want.KeyHash || mark.Price != "5" || mark.Batch != "" {
			t.Errorf("mark %+v, %v, %v", mark, ok, err)
		}
		again := request(layout, "u17", 1, "k")
		if r := s.Reserve(l.ctx, layout, again); r.Outcome != sale.Own || r.OrderID != mark.OrderID || r.Epoch != 7 {
			t.Errorf("a buyer from before the load: %+v", r)
		}
		users, _, err := s.Buyers(l.ctx, layout)
		if err != nil || len(users) != 4000 || !slices.Contains(users, "u3999") {
			t.Errorf("%d buyers, %v", len(users), err)
		}
	})
}

// More marks than go into one pipeline.
func TestLargeLoad(t *testing.T) {
	l := newLab(t, onReal)
	layout := Layout{Item: 32, Shards: 3}
	s := l.stock(&broker{})
	const n = marksAtOnce + 20_000
	marks := make(map[string]sale.Mark, n)
	for i := range n {
		marks[strconv.Itoa(i)] = heldMark(sale.NewOrderID(32))
	}
	l.load(s, layout, 1, 5, marks)
	if got := l.totals(layout); got != (totals{free: 5, marks: n}) {
		t.Errorf("Redis holds %+v", got)
	}
	if id := l.markOf(layout, "77777"); id != marks["77777"].OrderID {
		t.Errorf("mark of order %s", id)
	}
}

// A change of layout: the old one's shards are fenced too, and whoever comes with the old number is told.
func TestLoadOfAnotherLayout(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		s := l.stock(&broker{})
		wide, narrow := Layout{33, 4}, Layout{33, 2}
		l.load(s, wide, 1, 8, nil)
		if ok, err := s.Fence(l.ctx, 33, 4, 2); err != nil || !ok {
			t.Fatalf("fence: %v, %v", ok, err)
		}
		if ok, err := s.Load(l.ctx, narrow, Image{Token: 2, Free: 8}); err != nil || !ok {
			t.Fatalf("load: %v, %v", ok, err)
		}
		if r := s.Reserve(l.ctx, wide, request(wide, "1", 1, "")); r.Outcome != sale.WrongLayout {
			t.Errorf("home that exists: %+v", r)
		}
		if r := s.Reserve(l.ctx, wide, request(wide, "3", 1, "")); r.Outcome != sale.NotLoaded {
			t.Errorf("home that is gone: %+v", r)
		}
		if r := s.Reserve(l.ctx, narrow, request(narrow, "3", 1, "")); r.Outcome != sale.Reserved {
			t.Errorf("new layout: %+v", r)
		}
		if err := s.Remove(l.ctx, 33, 4); err != nil {
			t.Fatal(err)
		}
		if got := l.dump(); got != "" {
			t.Errorf("left after retiring:\n%s", got)
		}
	})
}

// A broken meta key does not keep a load from repairing the shard.
func TestFenceRepairs(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		for _, spoil := range [][]string{{"SET", "meta", "x"}, {"HSET", "meta", "token", "x"}, {"SET", "buyers", "x"}, {"HSET", "stock", "a", "b"}} {
			l := newLab(t, b)
			layout := Layout{34, 1}
			s := l.stock(&broker{})
			l.load(s, layout, 1, 8, nil)
			k := keysOf(34, 0)
			spoil[1] = map[string]string{"meta": k.meta, "buyers": k.buyers, "stock": k.stock}[spoil[1]]
			l.do("DEL", spoil[1])
			l.do(spoil...)
			l.load(s, layout, 2, 3, nil)
			if got := l.totals(layout); got.free != 3 {
				t.Errorf("%v: %+v", spoil, got)
			}
		}
	})
}

// While the stock is fenced a mark that is there is good, and one that is not may be about to come.
func TestMarkBehindAFence(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{35, 1}
		s := l.stock(&broker{})
		l.load(s, layout, 1, 8, nil)
		r := s.Reserve(l.ctx, layout, request(layout, "u", 1, ""))
		if ok, err := s.Fence(l.ctx, 35, 1, 2); err != nil || !ok {
			t.Fatalf("fence: %v, %v", ok, err)
		}
		if mark, ok, err := s.Mark(l.ctx, layout, "u"); err != nil || !ok || mark.OrderID != r.OrderID {
			t.Errorf("got %+v, %v, %v", mark, ok, err)
		}
		if _, ok, err := s.Mark(l.ctx, layout, "v"); !errors.Is(err, ErrNotLoaded) || ok {
			t.Errorf("got %v, %v", ok, err)
		}
	})
}

// Reading tells what is wrong with which shard, and what the others hold.
func TestRead(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{36, 4}
		s := l.stock(&broker{refuse: context.DeadlineExceeded})
		l.load(s, layout, 3, 8, nil)
		if r := s.Reserve(l.ctx, layout, request(layout, "0", 2, "")); r.Outcome != sale.Reserved {
			t.Fatalf("reserve: %+v", r)
		}
		l.do("DEL", keysOf(36, 1).stock)
		l.do("SET", keysOf(36, 2).stock, "x")
		l.do("SET", keysOf(36, 3).buyers, "x")
		got, err := s.Read(l.ctx, layout)
		if err != nil || len(got) != 4 {
			t.Fatalf("%+v, %v", got, err)
		}
		if r := got[0]; !r.Loaded || !r.Readable || *r.Stock != 0 || r.Buyers != 1 || r.Entries != 1 || r.Waiting != 1 || r.Pending != 2 || r.Epoch != 3 || r.Token != 3 || r.K != 4 {
			t.Errorf("shard 0: %+v", r)
		}
		if r := got[1]; r.Loaded || !r.Readable || r.Stock != nil || r.Fault != nil || r.Epoch != 3 {
			t.Errorf("shard 1: %+v", r)
		}
		if r := got[2]; r.Loaded || r.Readable || r.Stock != nil || !errors.Is(r.Fault, ErrUnreadable) {
			t.Errorf("shard 2: %+v", r)
		}
		if r := got[3]; !r.Loaded || r.Readable || *r.Stock != 2 || r.Buyers != -1 || !errors.Is(r.Fault, ErrUnreadable) {
			t.Errorf("shard 3: %+v", r)
		}
		if _, _, err := s.Buyers(l.ctx, layout); err == nil {
			t.Error("buyers of a shard that has none to read")
		}
		holdings, err := s.Holdings(l.ctx, layout)
		if err == nil || !strings.Contains(err.Error(), "shard 3") || strings.Contains(err.Error(), "shard 2") || holdings[3].Whole {
			t.Errorf("holdings %v, %v", holdings, err)
		}
		if h := holdings[0]; !h.Whole || len(h.Marks) != 1 || h.Marks[0].Quantity != 2 || !holdings[1].Whole || len(holdings[1].Marks) != 0 {
			t.Errorf("holdings %v", holdings)
		}
	})
}

// Whoever brings units back tells everybody, and a subscription survives the loss of its connection.
func TestMessages(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{38, 2}
		p := newProxy(t, l.url)
		s, ear := l.stock(&broker{}), l.stockAt(p.URL(), nil)
		ctx, stop := context.WithCancel(l.ctx)
		heard := make(chan Message, 1000)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := ear.Subscribe(ctx, func(m Message) { heard <- m }); !errors.Is(err, context.Canceled) {
				t.Errorf("subscribe: %v", err)
			}
		})
		defer func() { stop(); wg.Wait() }()
		connected := func() {
			t.Helper()
			devtest.Eventually(t, timeout, func() bool { return l.do("PUBSUB", "NUMSUB", channel) == "["+channel+" 1]" }, "nobody listens")
		}
		expect := func(what string, want ...Message) {
			t.Helper()
			for _, m := range want {
				if got := <-heard; got != m {
					t.Errorf("%s: heard %v, want %v", what, got, m)
				}
			}
		}
		connected()
		l.load(s, layout, 1, 2, nil)
		expect("load", Message{Clear, 38})
		r := s.Reserve(l.ctx, layout, request(layout, "u", 1, ""))
		if got, err := s.Release(l.ctx, layout, Correction{"u", r.OrderID, 1}); err != nil || got != Done {
			t.Fatalf("release: %v, %v", got, err)
		}
		expect("release", Message{Clear, 38})
		if got, err := s.Increase(l.ctx, layout, "op", 1, 1); err != nil || got != Done {
			t.Fatalf("increase: %v, %v", got, err)
		}
		expect("increase", Message{Clear, 38})
		for _, odd := range []string{"", "clear", "clear:", "clear:0", "clear:01", "other:38", "flagged:x"} {
			l.do("PUBLISH", channel, odd)
		}
		if err := s.Announce(l.ctx, Message{Flagged, 38}); err != nil {
			t.Fatal(err)
		}
		expect("announce, after messages that are none", Message{Flagged, 38})
		p.breakAll()
		devtest.Eventually(t, timeout, func() bool { return l.do("PUBSUB", "NUMSUB", channel) == "["+channel+" 0]" }, "the old subscription stays")
		connected()
		if err := s.Announce(l.ctx, Message{Flagged, 39}); err != nil {
			t.Fatal(err)
		}
		expect("after a lost connection", Message{Flagged, 39})
	})
}
