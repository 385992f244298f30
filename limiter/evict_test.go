package limiter

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"pgregory.net/rapid"
)

// checkShard asserts what holds between calls: every slot is on one list, the right
// one for its shelf; the index names each key's slot; the bound holds; a slot on
// the full list is full.
func checkShard[K comparable](t interface{ Fatalf(string, ...any) }, s *shard[K]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used > s.room || len(s.index) != int(s.used) {
		t.Fatalf("%d keys in %d slots, room for %d", len(s.index), s.used, s.room)
	}
	seen := 0
	walk := func(l *list, check func(*slot[K])) {
		prev := int32(none)
		for i := l.head; i != none; i = s.slot(i).next {
			b := s.slot(i)
			if b.prev != prev || s.home(i) != l {
				t.Fatalf("slot %d has prev %d for %d, shelf %d of %d", i, b.prev, prev, b.shelf, s.passed)
			}
			if at, ok := s.index[b.key]; !ok || at != i {
				t.Fatalf("the index has %d, %v for the key of slot %d", at, ok, i)
			}
			check(b)
			prev = i
			if seen++; seen > int(s.used) {
				t.Fatalf("more than the %d slots in use are on lists", s.used)
			}
		}
		if l.tail != prev {
			t.Fatalf("a list ends at %d, not %d", l.tail, prev)
		}
	}
	walk(&s.full, func(b *slot[K]) {
		if missing := float64(s.rate.Burst) - b.bucket.TokensAt(epoch.Add(s.latest)); missing > 1e-6 {
			t.Fatalf("a bucket on the full list misses %v tokens", missing)
		}
	})
	for n := s.passed + 1; n < s.passed+int64(len(s.shelves)); n++ {
		walk(s.at(n), func(b *slot[K]) {
			if b.shelf != n {
				t.Fatalf("a slot of shelf %d is on shelf %d", b.shelf, n)
			}
		})
	}
	if seen != int(s.used) {
		t.Fatalf("%d of %d slots are on a list", seen, s.used)
	}
}

func TestFullBucketsAreReusedFirst(t *testing.T) {
	var c clock
	table := newTable[int](t, Config{Rate: PerSecond(5, 10), MaxKeys: 1000, Shards: 1, Now: c.Now})
	for i := range 100_000 { // 100 a second, each full after 200 ms
		table.Allow(i)
		c.Advance(10 * time.Millisecond)
	}
	// 20 missing a token, and those of one shelf (62.5 ms) that wait for its end.
	if s := table.Stats(); s.Keys > 30 || s.Forgotten != 0 {
		t.Errorf("the table holds %+v, with 20 buckets that miss a token", s)
	}
	checkShard(t, table.shards[0])
}

func TestMemoryStaysBounded(t *testing.T) {
	const maxKeys = 1000
	var c clock
	table := newTable[int](t, Config{Rate: PerSecond(1, 5), MaxKeys: maxKeys, Shards: 4, Now: c.Now})
	for i := range 50 * maxKeys {
		if ok, _ := table.Allow(i); !ok {
			t.Fatal("a new key was refused for lack of room")
		}
	}
	s := table.Stats()
	if s.Keys != maxKeys || s.Forgotten != 49*maxKeys {
		t.Errorf("the table holds %+v", s)
	}
	for _, sh := range table.shards {
		if slots := len(sh.slabs) * slabSize; slots >= int(sh.room)+slabSize {
			t.Errorf("%d slots for %d keys", slots, sh.room)
		}
		checkShard(t, sh)
	}
}

// A drained bucket outlasts any number of fresh keys, hammered at or left alone.
func TestFreshKeysDoNotResetADrainedBucket(t *testing.T) {
	for _, hammered := range []bool{true, false} {
		var c clock
		table := newTable[int](t, Config{Rate: PerSecond(5, 10), MaxKeys: 64, Shards: 1, Now: c.Now})
		for range 10 {
			table.Allow(-1)
		}
		for i := range 100_000 { // 0.1 s in all: half a token
			table.Allow(i)
			c.Advance(time.Microsecond)
			if hammered {
				if ok, _ := table.Allow(-1); ok {
					t.Fatalf("allowed after %d fresh keys", i)
				}
			}
		}
		if ok, _ := table.Allow(-1); ok {
			t.Fatal("100,000 fresh keys reset a drained bucket")
		}
	}
}

// A table that is never too full answers exactly as one library bucket per key.
func TestEqualsTheLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const keys = 12
		r := genRate(t)
		var c clock
		table, err := New[int](Config{Rate: r, MaxKeys: keys, Shards: 1, Now: c.Now})
		if err != nil {
			t.Fatal(err)
		}
		want := map[int]*rate.Limiter{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			c.Advance(genStep(t, r))
			k := rapid.IntRange(1, keys).Draw(t, "key")
			if want[k] == nil {
				want[k] = rate.NewLimiter(r.limit(), r.Burst)
			}
			allowed := want[k].AllowN(epoch.Add(c.Elapsed()), 1)
			if ok, _ := table.Allow(k); ok != allowed {
				t.Fatalf("key %d at %v: %v, the library says %v", k, c.Elapsed(), ok, allowed)
			}
			checkShard(t, table.shards[0])
		}
		if table.Stats().Forgotten != 0 {
			t.Fatalf("something was forgotten")
		}
	})
}

// A table that is too small errs on the side of the client alone, and gives up the
// bucket that is nearest to full, to within a shelf.
func TestEvictionTakesTheNearestToFull(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const room = 5
		r := genRate(t)
		var c clock
		table, err := New[int](Config{Rate: r, MaxKeys: room, Shards: 1, Now: c.Now})
		if err != nil {
			t.Fatal(err)
		}
		s := table.shards[0]
		unbounded := map[int]*rate.Limiter{}
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			c.Advance(genStep(t, r))
			k := rapid.IntRange(1, 12).Draw(t, "key")
			now := epoch.Add(c.Elapsed())

			before := map[int]float64{}
			for key, i := range s.index {
				before[key] = s.slot(i).bucket.TokensAt(now)
			}
			forgotten := s.forgotten
			ok, _ := table.Allow(k)
			checkShard(t, s)

			if unbounded[k] == nil {
				unbounded[k] = rate.NewLimiter(r.limit(), r.Burst)
			}
			if unbounded[k].AllowN(now, 1) && !ok {
				t.Fatalf("key %d is refused where a table without bounds allows", k)
			}
			for key, tokens := range before {
				if _, held := s.index[key]; held {
					continue
				}
				full := tokens >= float64(r.Burst)
				if tokens < float64(r.Burst)-1e-6 && s.forgotten != forgotten+1 || full && s.forgotten != forgotten {
					t.Fatalf("a bucket with %v of %d tokens went, and %d count as forgotten", tokens, r.Burst, s.forgotten-forgotten)
				}
				if tokens < float64(r.Burst)-1e-6 && len(before) < room {
					t.Fatalf("a bucket was forgotten with room left")
				}
				grain := float64(r.Burst)/shelfCount + 1e-6*float64(r.Burst)
				for other, has := range before {
					if has > tokens+grain {
						t.Fatalf("key %d with %v tokens was given up before key %d with %v", key, tokens, other, has)
					}
				}
			}
		}
	})
}

// For a hot key (asking for more than its rate), in every window of time: at most the burst and what the rate gives
// in that time, however many other keys pass by and whenever.
func TestHotKeyIsHeldToItsRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c clock
		r := PerSecond(5, 10)
		table, err := New[string](Config{Rate: r, MaxKeys: 16, Shards: 1, Now: c.Now})
		if err != nil {
			t.Fatal(err)
		}
		var allowed []time.Duration
		hit := func() {
			if ok, _ := table.Allow("hot"); ok {
				allowed = append(allowed, c.Elapsed())
			}
		}
		for range 10 {
			hit()
		}
		fresh := 0
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			for range rapid.IntRange(0, 40).Draw(t, "fresh keys") {
				table.Allow(fmt.Sprint(fresh))
				fresh++
			}
			c.Advance(time.Duration(rapid.IntRange(0, 300).Draw(t, "ms")) * time.Millisecond)
			// At most 1.5 tokens came back: with two tries it stays hot, missing more
			// than any fresh key does.
			for range rapid.IntRange(2, 4).Draw(t, "hits") {
				hit()
			}
		}
		for i := range allowed {
			for j := i; j < len(allowed); j++ {
				window := allowed[j] - allowed[i]
				if n := j - i + 1; float64(n) > 10+5*window.Seconds()+1e-6 {
					t.Fatalf("%d events in %v", n, window)
				}
			}
		}
		checkShard(t, table.shards[0])
	})
}

func genRate(t *rapid.T) Rate {
	return Rate{
		Events: rapid.IntRange(1, 50).Draw(t, "events"),
		Per:    rapid.SampledFrom([]time.Duration{time.Second, time.Minute, time.Hour}).Draw(t, "per"),
		Burst:  rapid.IntRange(1, 100).Draw(t, "burst"),
	}
}

// genStep is a wait of the size that matters at the rate: none, part of a token, a
// few, a refill, or far more.
func genStep(t *rapid.T, r Rate) time.Duration {
	token := r.Per / time.Duration(r.Events)
	switch rapid.IntRange(0, 5).Draw(t, "step") {
	case 0, 1:
		return 0
	case 2:
		return time.Duration(rapid.Int64Range(0, int64(token)).Draw(t, "part"))
	case 3:
		return token * time.Duration(rapid.IntRange(1, 5).Draw(t, "tokens"))
	case 4:
		return r.refill()
	default:
		return r.refill() * time.Duration(rapid.IntRange(2, 100).Draw(t, "refills"))
	}
}
