package shard

import (
	"strings"
	"testing"
	"time"

	"flashgate/internal/sale"
)

// orphan makes a transfer as a process leaves it that died after take; old is how long ago by the clock of Redis.
func (l *lab) orphan(s *Stock, layout Layout, from, to int, units int64, old time.Duration) transfer {
	l.Helper()
	taken, _ := s.take(l.ctx, layout, []move{{from, to, units}})
	if len(taken) != 1 || taken[0].units != units {
		l.Fatalf("take: %+v", taken)
	}
	k := keysOf(layout.Item, from)
	f := strings.Split(l.do("HGET", k.meta, "tr:"+taken[0].id), "\t")
	at, err := parseMillis(f[3])
	if err != nil {
		l.Fatal(err)
	}
	f[3] = formatInt(at.Add(-old).UnixMilli())
	l.do("HSET", k.meta, "tr:"+taken[0].id, strings.Join(f, "\t"))
	return taken[0]
}

// A request whose only unit hangs in a transfer that nobody finishes, finishes it.
func TestOrphanedTransferIsFinishedByWhoWaits(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 9, Shards: 3}
		s := l.stock(&broker{})
		l.load(s, layout, 1, 1, nil) // in shard 0
		l.orphan(s, layout, 0, 1, 1, time.Hour)
		if p, err := s.Prove(l.ctx, layout); err != nil || p.Empty || p.Moving != 1 || p.Free != 0 {
			t.Fatalf("a unit in transfer: %+v, %v", p, err)
		}
		if r := s.Reserve(l.ctx, layout, request(layout, "2", 1, "")); r.Outcome != sale.Reserved {
			t.Errorf("got %+v", r)
		}
		if got := l.rest(layout); got.free != 0 {
			t.Errorf("Redis holds %+v", got)
		}
	})
}

// The keeper finishes what is old enough, once, whatever was done of it already.
func TestFinishTransfers(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 9, Shards: 3}
		s := l.stock(&broker{})
		l.load(s, layout, 1, 30, nil)
		l.orphan(s, layout, 0, 1, 2, time.Hour)
		given := l.orphan(s, layout, 1, 2, 3, time.Hour)
		young := l.orphan(s, layout, 2, 0, 4, 0)
		if done, err := s.give(l.ctx, layout, []transfer{given}); err != nil || len(done) != 1 {
			t.Fatalf("give: %v, %v", done, err)
		}
		for range 2 {
			if err := s.FinishTransfers(l.ctx, layout, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		if got := l.totals(layout); got.free != 26 || got.moving != young.units {
			t.Errorf("Redis holds %+v", got)
		}
		if err := s.FinishTransfers(l.ctx, layout, 0); err != nil {
			t.Fatal(err)
		}
		if got := l.totals(layout); got.free != 30 || got.moving != 0 {
			t.Errorf("Redis holds %+v", got)
		}
		for i, want := range []string{"12", "9", "9"} {
			if got := l.do("GET", keysOf(9, i).stock); got != want {
				t.Errorf("shard %d has %s, want %s", i, got, want)
			}
		}
	})
}

// A transfer to a shard that is not loaded keeps its record; after the load of the destination it is stale and adds
// nothing, because the load has counted its units.
func TestTransferAcrossALoad(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 9, Shards: 2}
		s := l.stock(&broker{})
		l.load(s, layout, 1, 20, nil)
		tr := l.orphan(s, layout, 0, 1, 5, time.Hour)
		k := keysOf(9, 1)
		// Only the destination is fenced and loaded so far: the loader is on its way.
		if r, err := s.run(l.ctx, call{scriptFence, []string{k.stock, k.meta}, []string{"2"}}); err != nil || r.code != "OK" {
			t.Fatalf("fence: %+v, %v", r, err)
		}
		if err := s.FinishTransfers(l.ctx, layout, 0); err == nil {
			t.Error("a transfer to nowhere is finished")
		}
		if got := l.do("HGET", keysOf(9, 0).meta, "moving"); got != "5" {
			t.Errorf("moving %s", got)
		}
		if r, err := s.run(l.ctx, call{scriptLoad, k.all(), []string{"2", "2", "10"}}); err != nil || r.code != "OK" {
			t.Fatalf("load: %+v, %v", r, err)
		}
		for range 2 {
			if err := s.FinishTransfers(l.ctx, layout, 0); err != nil {
				t.Error(err)
			}
		}
		if got := l.do("GET", k.stock); got != "10" {
			t.Errorf("the destination has %s units: those of the transfer came on top of the load", got)
		}
		if got := l.do("HGET", keysOf(9, 0).meta, "moving"); got != "0" {
			t.Errorf("moving %s", got)
		}
		// A late settle or give of a process that stopped in between changes nothing.
		before := l.dump()
		if _, err := s.give(l.ctx, layout, []transfer{tr}); err != nil {
			t.Error(err)
		}
		if err := s.settle(l.ctx, 9, []transfer{tr}); err != nil {
			t.Error(err)
		}
		if got := l.dump(); got != before {
			t.Errorf("changed from\n%s\nto\n%s", before, got)
		}
	})
}

// A give that is repeated after its record was settled, and a settle of another load's record, do nothing.
func TestTransferStepsAreIdempotent(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 9, Shards: 2}
		s := l.stock(&broker{})
		l.load(s, layout, 5, 20, nil)
		taken, _ := s.take(l.ctx, layout, []move{{0, 1, 4}})
		for range 2 {
			if done, err := s.give(l.ctx, layout, taken); err != nil || len(done) != 1 {
				t.Fatalf("give: %v, %v", done, err)
			}
			other := []transfer{taken[0]}
			other[0].epoch = 4
			if err := s.settle(l.ctx, 9, other); err != nil {
				t.Fatal(err)
			}
		}
		if got := l.totals(layout); got.moving != 4 || got.free != 20 {
			t.Errorf("given, not settled: %+v", got)
		}
		for range 2 {
			if err := s.settle(l.ctx, 9, taken); err != nil {
				t.Fatal(err)
			}
			if done, err := s.give(l.ctx, layout, taken); err != nil || len(done) != 1 {
				t.Fatalf("give again: %v, %v", done, err)
			}
		}
		if got := l.totals(layout); got.moving != 0 || got.free != 20 {
			t.Errorf("settled: %+v", got)
		}
		if none, _ := s.take(l.ctx, layout, []move{{0, 1, 100}}); len(none) != 1 || none[0].units != 6 {
			t.Errorf("more than there is: %+v", none)
		}
		if none, _ := s.take(l.ctx, layout, []move{{0, 1, 1}}); len(none) != 0 {
			t.Errorf("from an empty shard: %+v", none)
		}
	})
}

// Somebody else takes the units of a larger request each time they have moved: after three rounds it is told so, because
// two such requests could go on like that for ever.
func TestLargerRequestGivesUp(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 15, Shards: 2}
		p := newProxy(t, l.url)
		s, thief := l.stockAt(p.URL(), &broker{}), l.stock(nil)
		l.load(s, layout, 1, 3, nil) // two in shard 0, one in shard 1
		s.Reserve(l.ctx, layout, request(layout, "2", 1, ""))
		l.rest(layout)
		thefts := 0
		var steal func()
		steal = func() {
			thefts++
			taken, _ := thief.take(l.ctx, layout, []move{{0, 1, 1}})
			given, err := thief.give(l.ctx, layout, taken)
			if err != nil || len(given) != 1 {
				t.Errorf("theft %d: %+v, %v", thefts, given, err)
			}
			if err := thief.settle(l.ctx, 15, given); err != nil {
				t.Error(err)
			}
			p.letGo()
			p.next(scriptGive.sha, keepReply, steal)
		}
		p.next(scriptGive.sha, keepReply, steal)
		if r := s.Reserve(l.ctx, layout, request(layout, "4", 2, "")); r.Outcome != sale.Busy || r.Err == nil {
			t.Errorf("got %+v", r)
		}
		if thefts != mostRounds {
			t.Errorf("%d rounds", thefts)
		}
		if got := l.rest(layout); got.free != 2 {
			t.Errorf("Redis holds %+v", got)
		}
	})
}

// A reading of the shards is no instant: a unit that goes from one that is yet to be read to one that was read already is
// seen nowhere, although it was there all the time (trace V7). The second pass finds that out.
func TestTornReading(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 14, Shards: 2}
		p := newProxy(t, l.url)
		s, other := l.stockAt(p.URL(), &broker{}), l.stock(nil)
		l.load(s, layout, 1, 2, nil)
		s.Reserve(l.ctx, layout, request(layout, "2", 1, "")) // takes the unit of shard 0
		l.rest(layout)
		if _, err := s.Prove(l.ctx, layout); err != nil {
			t.Fatal(err)
		}
		// arrives moves the last unit between the readings of shard 0 and shard 1.
		var tr transfer
		arrives := func() {
			if given, err := other.give(l.ctx, layout, []transfer{tr}); err != nil || len(given) != 1 {
				t.Errorf("give: %v, %v", given, err)
			}
			if err := other.settle(l.ctx, 14, []transfer{tr}); err != nil {
				t.Error(err)
			}
		}
		tr = l.orphan(other, layout, 1, 0, 1, 0)
		p.next(scriptState.sha, tearApart, arrives)
		if proof, err := s.Prove(l.ctx, layout); err != nil || proof.Empty {
			t.Errorf("%+v, %v: proven empty although a unit was there all the time", proof, err)
		}
		// Back, and the same under the eyes of a buyer.
		back, _ := other.take(l.ctx, layout, []move{{0, 1, 1}})
		if len(back) != 1 {
			t.Fatalf("take: %+v", back)
		}
		tr = back[0]
		arrives()
		tr = l.orphan(other, layout, 1, 0, 1, 0)
		p.next(scriptState.sha, tearApart, arrives)
		if r := s.Reserve(l.ctx, layout, request(layout, "4", 1, "")); r.Outcome != sale.Reserved {
			t.Errorf("got %+v although a unit was there all the time", r)
		}
	})
}

// Two passes: an addition between them leaves nothing proven.
func TestProofSeesAdditions(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 14, Shards: 2}
		s := l.stock(&broker{})
		held := sale.NewOrderID(14)
		l.load(s, layout, 1, 0, map[string]sale.Mark{"0": heldMark(held)})
		first := s.firstPass(l.ctx, layout)
		if !s.secondPass(l.ctx, layout, &first) {
			t.Fatal("an empty item is not proven")
		}
		proof, err := s.Prove(l.ctx, layout)
		if err != nil || !proof.Empty {
			t.Fatalf("prove: %+v, %v", proof, err)
		}
		if same, changed, next, err := s.Reprove(l.ctx, layout, proof); err != nil || !same || changed || !next.Empty || next.At.Before(proof.At) {
			t.Fatalf("again: %v %v %+v %v", same, changed, next, err)
		}
		// A unit comes, and a buyer takes it at once: no pass sees it, the counter does.
		first = s.firstPass(l.ctx, layout)
		if got, err := s.Release(l.ctx, layout, Correction{User: "0", OrderID: held, Epoch: 1}); err != nil || got != Done {
			t.Fatalf("release: %v, %v", got, err)
		}
		if r := s.Reserve(l.ctx, layout, request(layout, "2", 1, "")); r.Outcome != sale.Reserved {
			t.Fatalf("reserve: %+v", r)
		}
		if s.secondPass(l.ctx, layout, &first) {
			t.Error("proven empty although a unit was free in between")
		}
		if same, _, _, err := s.Reprove(l.ctx, layout, proof); err != nil || same {
			t.Errorf("proven again although a unit was free in between: %v, %v", same, err)
		}
		// A buyer alone changes the buyers, not the emptiness.
		proof, err = s.Prove(l.ctx, layout)
		if err != nil || !proof.Empty {
			t.Fatalf("prove: %+v, %v", proof, err)
		}
		if got, err := s.Void(l.ctx, layout, Correction{User: "2", OrderID: l.markOf(layout, "2"), Epoch: 1}); err != nil || got != Done {
			t.Fatalf("void: %v, %v", got, err)
		}
		if same, changed, _, err := s.Reprove(l.ctx, layout, proof); err != nil || !same || !changed {
			t.Errorf("after a void: same %v, buyers changed %v, %v", same, changed, err)
		}
		// Units that no counter tells of are seen all the same.
		l.do("SET", keysOf(14, 1).stock, "5")
		if same, _, _, err := s.Reprove(l.ctx, layout, proof); err != nil || same {
			t.Errorf("with units in a shard: %v, %v", same, err)
		}
		// A load starts all counters anew: equal ones of two loads say nothing.
		for token := range int64(2) {
			l.load(s, layout, 2+token, 0, nil)
			if same, _, _, err := s.Reprove(l.ctx, layout, proof); err != nil || same {
				t.Errorf("a proof of the load before: %v, %v", same, err)
			}
			if proof, err = s.Prove(l.ctx, layout); err != nil || !proof.Empty {
				t.Fatalf("prove: %+v, %v", proof, err)
			}
		}
	})
}

func (l *lab) markOf(layout Layout, user string) sale.OrderID {
	l.Helper()
	mark, ok, err := l.reader().Mark(l.ctx, layout, user)
	if err != nil || !ok {
		l.Fatalf("mark of %s: %v, %v", user, ok, err)
	}
	return mark.OrderID
}
