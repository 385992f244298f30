package limiter

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestAllowBurstThenRate(t *testing.T) {
	var c clock
	table := newTable[string](t, Config{Rate: PerSecond(5, 10), Now: c.Now})
	for i := range 10 {
		if ok, wait := table.Allow("a"); !ok || wait != 0 {
			t.Fatalf("event %d of the burst: %v, %v", i, ok, wait)
		}
	}
	ok, wait := table.Allow("a")
	if ok || wait != 200*time.Millisecond {
		t.Fatalf("eleventh event: %v, %v; want a refusal for 200ms", ok, wait)
	}
	c.Advance(wait - time.Microsecond)
	ok, rest := table.Allow("a")
	if ok || rest < time.Microsecond || rest > time.Microsecond+1 { // rounded up
		t.Fatalf("1 µs too early: %v, %v", ok, rest)
	}
	c.Advance(time.Microsecond)
	if ok, _ := table.Allow("a"); !ok {
		t.Fatal("refused after the wait it was told")
	}
	if ok, _ := table.Allow("a"); ok {
		t.Fatal("allowed twice after one wait")
	}
	if ok, _ := table.Allow("b"); !ok {
		t.Fatal("one key pays for another")
	}
}

// Whoever waits for as long as he was told is let in, at every rate.
func TestRetryAfterIsEnough(t *testing.T) {
	for _, text := range []string{"3/s:1", "7/m:3", "1/h:2", "999999/s:5", "1000000/s:1", "7/h:1000"} {
		r, err := ParseRate(text)
		if err != nil {
			t.Fatal(err)
		}
		var c clock
		table := newTable[int](t, Config{Rate: r, Now: c.Now})
		for range 3000 {
			ok, wait := table.Allow(0)
			if ok {
				c.Advance(time.Nanosecond)
				continue
			}
			if wait <= 0 || wait > r.Per {
				t.Fatalf("%s: told to wait %v", text, wait)
			}
			c.Advance(wait)
			if ok, again := table.Allow(0); !ok {
				t.Fatalf("%s: refused after waiting %v, now for %v", text, wait, again)
			}
		}
	}
}

func TestOffLimitsNothing(t *testing.T) {
	table := newTable[int](t, Config{Rate: Off()})
	for range 100_000 {
		if ok, wait := table.Allow(1); !ok || wait != 0 {
			t.Fatal("off refuses")
		}
	}
	if s := table.Stats(); s != (Stats{}) {
		t.Errorf("off remembers: %+v", s)
	}
}

func TestConfigValidate(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no rate":               {},
		"negative keys":         {MaxKeys: -1},
		"too many keys":         {MaxKeys: maxMaxKeys + 1},
		"negative shards":       {Shards: -1},
		"too many shards":       {Shards: maxShards + 1},
		"more shards than keys": {MaxKeys: 4, Shards: 5},
	} {
		if name != "no rate" {
			cfg.Rate = PerSecond(1, 1)
		}
		if _, err := New[int](cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	small := Config{MaxKeys: 10}.WithDefaults()
	if small.Shards != 1 {
		t.Errorf("a table of 10 keys gets %d shards", small.Shards)
	}
}

func TestMaxKeysIsDividedWithoutLoss(t *testing.T) {
	table := newTable[int](t, Config{Rate: PerSecond(1, 1), MaxKeys: 103, Shards: 10})
	sum := 0
	for _, s := range table.shards {
		sum += int(s.room)
	}
	if sum != 103 {
		t.Errorf("the shards have room for %d keys of 103", sum)
	}
}

// A clock reading from before another that came first must neither refill a bucket
// nor have the same time counted twice.
func TestClockBackwards(t *testing.T) {
	var c clock
	table := newTable[string](t, Config{Rate: PerSecond(5, 2), Now: c.Now})
	c.Advance(time.Minute)
	table.Allow("a")
	table.Allow("a")
	for range 10 {
		c.Advance(-time.Minute)
		if ok, _ := table.Allow("a"); ok {
			t.Fatal("allowed at an earlier time")
		}
		c.Advance(time.Minute)
		if ok, _ := table.Allow("a"); ok {
			t.Fatal("the time since the step back was counted again")
		}
	}
	c.Advance(-time.Hour)
	if ok, _ := table.Allow("new"); !ok {
		t.Fatal("a new key is refused while the clock is behind")
	}
}

// Whatever the interleaving, a key gets its burst and not one more.
func TestConcurrentUseIsExact(t *testing.T) {
	const workers, keys, burst = 8, 300, 7
	var c clock
	table := newTable[int](t, Config{Rate: PerSecond(1, burst), MaxKeys: 4096, Now: c.Now})
	var allowed [keys]atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range 3 * keys {
				k := (i*(2*w+1) + w) % keys
				if ok, _ := table.Allow(k); ok {
					allowed[k].Add(1)
				}
				_ = table.Stats()
			}
		})
	}
	wg.Wait()
	for k := range keys {
		for ok := true; ok; {
			if ok, _ = table.Allow(k); ok {
				allowed[k].Add(1)
			}
		}
		if n := allowed[k].Load(); n != burst {
			t.Errorf("key %d was allowed %d times, not %d", k, n, burst)
		}
	}
	if s := table.Stats(); s.Keys != keys || s.Forgotten != 0 {
		t.Errorf("the table holds %+v", s)
	}
}

// Many goroutines on a table that is far too small, with time passing: the lists
// stay whole, the bound holds.
func TestConcurrentUseWithEviction(t *testing.T) {
	const maxKeys = 96
	var c clock
	table := newTable[int](t, Config{Rate: PerSecond(50, 5), MaxKeys: maxKeys, Shards: 3, Now: c.Now})
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 5000 {
				table.Allow((i*7919 + w*104729) % 1000)
				if i%16 == 0 {
					c.Advance(time.Millisecond)
				}
				if s := table.Stats(); s.Keys > maxKeys {
					t.Errorf("%d keys of %d", s.Keys, maxKeys)
					return
				}
			}
		})
	}
	wg.Wait()
	for _, s := range table.shards {
		checkShard(t, s)
	}
	if table.Stats().Forgotten == 0 {
		t.Error("the table was never too small: the test tests nothing")
	}
}

func TestAllowDoesNotAllocateForKnownKeys(t *testing.T) {
	users := newTable[Key](t, Config{Rate: PerSecond(1_000_000, 1000)})
	keyer := NewKeyer()
	name := []byte("user-4711")
	if n := testing.AllocsPerRun(1000, func() { users.Allow(keyer.Key(name)) }); n != 0 {
		t.Errorf("a known user costs %v allocations", n)
	}
	drained := newTable[string](t, Config{Rate: Rate{Events: 1, Per: time.Hour, Burst: 1}})
	if n := testing.AllocsPerRun(1000, func() { drained.Allow("a") }); n != 0 {
		t.Errorf("a refusal costs %v allocations", n)
	}
}
