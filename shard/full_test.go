package shard

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
)

// used is the memory of a real Redis in bytes.
func (l *lab) used() int64 {
	l.Helper()
	info, err := serverInfo(l.ctx, l.client, []string{"memory"})
	if err != nil {
		l.Fatal(err)
	}
	n, err := strconv.ParseInt(info["used_memory"], 10, 64)
	if err != nil {
		l.Fatal(err)
	}
	return n
}

// headroom is the memory that is left when a rush begins, in bytes: many times what the buffers of its connections take, which count in it, and enough
// for half of the units.
const headroom = 1_000_000

// The memory runs out in the midst of a rush. Whoever is refused has nothing; whoever has something keeps it, and every script
// that had begun came to its end. With memory the rest is sold, to the last unit and not one more.
func TestMemoryRunsOutInARush(t *testing.T) {
	l := newLab(t, onReal)
	layout := Layout{Item: 91, Shards: 4}
	const units, users = 12_000, 18_000
	kafka := &broker{}
	stocks := []*Stock{l.stock(kafka), l.stock(kafka)}
	l.load(stocks[0], layout, 1, units, nil)
	for n := range layout.Shards { // servers know the scripts, shards their keys, clients their connections
		for _, s := range stocks {
			user := strconv.Itoa(users + n + layout.Shards*len(l.heldBy(layout)))
			if r := s.Reserve(l.ctx, layout, request(layout, user, 1, "k")); r.Outcome != sale.Reserved {
				t.Fatalf("warm up: %+v", r)
			}
		}
	}
	warm := int64(len(l.heldBy(layout)))
	l.do("CONFIG", "SET", "maxmemory-policy", "noeviction")
	l.do("CONFIG", "SET", "maxmemory", strconv.FormatInt(l.used()+headroom, 10))

	yes := map[string]sale.OrderID{}
	var mu sync.Mutex
	round := func(from, to int) *tally {
		var counts tally
		var crowd sync.WaitGroup
		for worker := range 64 {
			crowd.Go(func() {
				for i := from + worker; i < to; i += 64 {
					user := strconv.Itoa(i)
					mu.Lock()
					_, served := yes[user]
					mu.Unlock()
					if served {
						continue
					}
					r := stocks[i%2].Reserve(l.ctx, layout, request(layout, user, 1, "k"))
					counts[r.Outcome].Add(1)
					switch r.Outcome {
					case sale.Reserved, sale.Own:
						mu.Lock()
						yes[user] = r.OrderID
						mu.Unlock()
					case sale.Failed:
						if !strings.Contains(r.Err.Error(), "OOM") {
							t.Errorf("user %s: %v", user, r.Err)
						}
					}
				}
			})
		}
		crowd.Wait()
		return &counts
	}
	full := round(0, users)
	t.Logf("until the memory was full, and then: %v", full)
	if full.count(sale.Reserved) == 0 || full.count(sale.Failed) == 0 || full.count(sale.Own)+full.count(sale.Unknown)+full.count(sale.NoStock) > 0 {
		t.Fatalf("outcomes: %v", full)
	}
	// Entries of acknowledged events go, also now. Whoever was refused has no mark, and all counts are right.
	got := l.rest(layout)
	if sold := full.count(sale.Reserved) + warm; got.free != units-sold || got.marks != sold {
		t.Errorf("%d are sold, Redis holds %+v", sold, got)
	}
	if held := l.heldBy(layout); int64(len(held)) != full.count(sale.Reserved)+warm {
		t.Errorf("%d have marks", len(held))
	} else {
		for user, id := range yes {
			if held[user] != id {
				t.Errorf("user %s was told %v and has %v", user, id, held[user])
			}
		}
	}
	l.do("CONFIG", "SET", "maxmemory", "0")
	rest := round(0, users)
	if rest.count(sale.Reserved) != units-warm-full.count(sale.Reserved) || rest.count(sale.NoStock)+rest.count(sale.Reserved)+full.count(sale.Reserved) != users {
		t.Errorf("with memory: %v", rest)
	}
	if got := l.rest(layout); got.free != 0 || got.marks != units {
		t.Errorf("Redis holds %+v", got)
	}
	events := map[sale.OrderID]int{}
	for _, e := range kafka.seen() {
		events[e.OrderID]++
	}
	if len(events) != units || len(kafka.seen()) != units {
		t.Errorf("%d events of %d orders", len(kafka.seen()), len(events))
	}
	for user, id := range yes {
		if events[id] != 1 {
			t.Errorf("user %s has %d events", user, events[id])
		}
	}
}

// heldBy returns the orders of an item by user.
func (l *lab) heldBy(layout Layout) map[string]sale.OrderID {
	l.Helper()
	holdings, err := l.reader().Holdings(l.ctx, layout)
	if err != nil {
		l.Fatal(err)
	}
	held := map[string]sale.OrderID{}
	for _, h := range holdings {
		for _, m := range h.Marks {
			held[m.User] = m.OrderID
		}
	}
	return held
}

// Whose units would have to move is told at once that they cannot, instead of going round until his time is up.
func TestFullMemoryAndUnitsElsewhere(t *testing.T) {
	l := newLab(t, onReal)
	layout := Layout{Item: 92, Shards: 2}
	s := l.stock(&broker{})
	l.load(s, layout, 1, 10, nil)
	l.do("SET", keysOf(92, 0).stock, "0")
	if r := s.Reserve(l.ctx, layout, request(layout, "0", 1, "")); r.Outcome != sale.Reserved { // moves work
		t.Fatalf("reserve: %+v", r)
	}
	l.do("SET", keysOf(92, 0).stock, "0")
	l.rest(layout)
	l.do("CONFIG", "SET", "maxmemory", "1mb")
	calls := testutil.ToFloat64(s.metrics.calls.WithLabelValues("ok"))
	for _, quantity := range []int64{1, 2} {
		ctx, cancel := context.WithTimeout(l.ctx, timeout)
		if r := s.Reserve(ctx, layout, request(layout, "2", quantity, "")); r.Outcome != sale.Failed || !strings.Contains(r.Err.Error(), "OOM") {
			t.Errorf("got %+v", r)
		}
		cancel()
	}
	if n := testutil.ToFloat64(s.metrics.calls.WithLabelValues("ok")) - calls; n > 4 {
		t.Errorf("%v reserve calls for two requests", n)
	}
	l.do("CONFIG", "SET", "maxmemory", "0")
	if r := s.Reserve(l.ctx, layout, request(layout, "2", 1, "")); r.Outcome != sale.Reserved {
		t.Errorf("with memory: %+v", r)
	}
}

// A replica does not even say that a home is empty. Requests wait for the master with growing pauses, and are served when it is
// there.
func TestEmptyHomeOnAReplicaForAWhile(t *testing.T) {
	l := newLab(t, onReal)
	layout := Layout{Item: 93, Shards: 2}
	s := l.stock(&broker{})
	l.load(s, layout, 1, 10, nil)
	s.warm(l, layout)
	l.do("SET", keysOf(93, 0).stock, "0")
	l.do("REPLICAOF", "127.0.0.1", "1")
	answered, refused := s.metrics.calls.WithLabelValues("ok"), s.metrics.calls.WithLabelValues("refused")
	calls := testutil.ToFloat64(answered)
	var wg sync.WaitGroup
	wg.Go(func() {
		if r := s.Reserve(l.ctx, layout, request(layout, "2", 1, "")); r.Outcome != sale.Reserved {
			t.Errorf("got %+v", r)
		}
	})
	devtest.Eventually(t, timeout, func() bool { return testutil.ToFloat64(refused) > 2 }, "nobody tries")
	during := testutil.ToFloat64(answered) - calls
	l.do("REPLICAOF", "NO", "ONE")
	wg.Wait()
	if during != 0 {
		t.Errorf("the replica has answered %v reserve calls", during)
	}
}

// Each script on a full Redis: it is refused before it has written anything, or it frees memory and does all of its work.
func TestEveryScriptOnAFullRedis(t *testing.T) {
	l := newLab(t, onReal)
	layout := Layout{Item: 94, Shards: 1}
	s := l.stock(&broker{refuse: context.DeadlineExceeded})
	held := sale.NewOrderID(layout.Item)
	k := keysOf(layout.Item, 0)
	prepare := func() string {
		l.do("CONFIG", "SET", "maxmemory", "0")
		l.do("FLUSHALL")
		l.load(s, layout, 1, 10, map[string]sale.Mark{"held": heldMark(held)})
		if r := s.Reserve(l.ctx, layout, request(layout, "7", 1, "")); r.Outcome != sale.Reserved {
			t.Fatalf("reserve: %+v", r)
		}
		if taken, err := s.take(l.ctx, layout, []move{{0, 0, 2}}); err != nil || len(taken) != 1 {
			t.Fatalf("take: %v, %v", taken, err)
		}
		return l.dump()
	}
	prepare()
	everyCall(l, s, layout, held) // the server knows the scripts
	before := prepare()
	outbox, err := s.Outbox(l.ctx, layout, 0)
	if err != nil || len(outbox.Entries) != 1 {
		t.Fatalf("outbox %+v, %v", outbox, err)
	}
	transfers, err := readTransfers(layout, 0, s.runAll(l.ctx, []call{{scriptTransfers, []string{k.meta}, nil}})[0], 0)
	if err != nil || len(transfers) != 1 {
		t.Fatalf("transfers %+v, %v", transfers, err)
	}
	l.do("CONFIG", "SET", "maxmemory", "1mb")
	refused := map[string]error{}
	for name, err := range everyCall(l, s, layout, held) {
		if name != "release" && name != "void" {
			refused[name] = err
		}
	}
	_, refused["fence"] = s.Fence(l.ctx, layout.Item, 1, 2)
	for name, err := range refused {
		if err == nil || !strings.HasPrefix(err.Error(), "OOM") && !strings.Contains(err.Error(), ": OOM") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.Forget(l.ctx, layout.Item, 0, outbox.Entries[0].Batch); err != nil {
		t.Errorf("ack: %v", err)
	}
	if err := s.settle(l.ctx, layout.Item, transfers); err != nil {
		t.Errorf("settle: %v", err)
	}
	// Released, acknowledged and settled, and nothing else.
	l.do("CONFIG", "SET", "maxmemory", "0")
	if got := l.totals(layout); got != (totals{free: 8, marks: 1}) {
		t.Errorf("Redis holds %+v, and held\n%s", got, before)
	}
}

// A Redis that evicts loses keys in the midst of a rush. Nobody is sold what is not there or told that nothing is left, and
// what is lost is seen by who looks after the shards.
func TestEvictionInARush(t *testing.T) {
	l := newLab(t, onReal)
	layout := Layout{Item: 95, Shards: 4}
	const units, users = 12_000, 18_000
	s := l.stock(&broker{})
	l.load(s, layout, 1, units, nil)
	s.warm(l, layout)
	l.do("CONFIG", "SET", "maxmemory-policy", "allkeys-random")
	l.do("CONFIG", "SET", "maxmemory", strconv.FormatInt(l.used()+headroom, 10))
	counts, _ := l.buyers(layout, numbered(1, users, 1), 1, s)
	t.Logf("outcomes: %v", counts)
	for o := range counts {
		switch sale.Outcome(o) {
		case sale.Reserved, sale.NotLoaded, sale.Unreadable, sale.Failed:
		default:
			if n := counts[o].Load(); n > 0 {
				t.Errorf("%d were told %v", n, sale.Outcome(o))
			}
		}
	}
	if n := counts.count(sale.Reserved); n == 0 || n >= units {
		t.Errorf("%d of %d units were sold", n, units)
	}
	readings, err := s.Read(l.ctx, layout)
	if err != nil {
		t.Fatal(err)
	}
	lost := 0
	for _, r := range readings {
		if !r.Loaded || !r.Readable {
			lost++
		}
	}
	if lost == 0 {
		t.Errorf("nothing was noticed: %+v", readings)
	}
}

// A replica that stays one: told after a while, and nothing is written.
func TestReplicaThatStays(t *testing.T) {
	l := newLab(t, onReal)
	layout := Layout{Item: 96, Shards: 1}
	s := l.stock(&broker{}, func(c *Config) { c.CallTimeout = 2 * time.Second })
	l.load(s, layout, 1, 10, nil)
	s.warm(l, layout)
	before := l.dump()
	l.do("REPLICAOF", "127.0.0.1", "1")
	if r := s.Reserve(l.ctx, layout, request(layout, "7", 1, "")); r.Outcome != sale.Failed || !strings.Contains(r.Err.Error(), "READONLY") {
		t.Errorf("got %+v", r)
	}
	if after := l.dump(); after != before {
		t.Errorf("changed from\n%s\nto\n%s", before, after)
	}
}
