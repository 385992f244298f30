package shard

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"flashgate/internal/sale"
)

// Everything that may happen to the shards of an item happens here in random order: reservations, corrections, restocks,
// transfers whose steps are repeated and come late, and two loaders at a time that change the layout and are put out by
// each other. A small model in memory does the same; after every step Redis must hold exactly what the model holds, and
// no unit may be lost or doubled (I2).
func TestMachine(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		s := l.stock(&broker{})
		if b.inProcess {
			// Its scripts take some fifteen times as long; the real one runs all that is asked for.
			fewerChecks(t, 12)
		}
		var item atomic.Int64
		rapid.Check(t, func(t *rapid.T) {
			m := newMachine(l, s, item.Add(1))
			t.Repeat(map[string]func(*rapid.T){
				"":             m.check,
				"reserve":      m.reserve,
				"reserve more": m.reserve,
				"ack":          m.ack,
				"end":          m.end,
				"correct":      m.correct,
				"correct more": m.correct,
				"restock":      m.restock,
				"take":         m.take,
				"give":         m.give,
				"settle":       m.settle,
				"prove":        m.prove,
				"load":         m.startLoad,
				"loader":       m.stepLoader,
				"loader more":  m.stepLoader,
			})
		})
	})
}

// fewerChecks lowers the number of runs of a property for one test.
func fewerChecks(t *testing.T, n int) {
	checks := flag.Lookup("rapid.checks")
	was := checks.Value.String()
	if err := checks.Value.Set(strconv.Itoa(n)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := checks.Value.Set(was); err != nil {
			t.Error(err)
		}
	})
}

// mShard is one shard in the model.
type mShard struct {
	loaded                      bool
	stock, k, epoch, adds, bver int64
	waiting, units, token       int64
	marks                       map[string]*mOrder
	pending                     map[string][]*mOrder
	transfers                   map[string]transfer
	ops                         map[string]bool
}

// mOrder is a row of the ledger.
type mOrder struct {
	id     sale.OrderID
	user   string
	units  int64
	key    string
	live   bool
	voided bool
}

// mCorrection is an outbox row of the ledger. It may be carried out any number of times.
type mCorrection struct {
	op    string // release, void, increase
	order *mOrder
	id    string
	units int64
	epoch int64
}

// mLoader is a loader on its way.
type mLoader struct {
	token, k int64
	next     int // shard to fence; above the fences: to load
	fences   int
	image    *Image
	orders   []*mOrder
	gone     bool
}

type machine struct {
	l           *lab
	s           *Stock
	item        int64
	shards      []*mShard
	quantity    int64
	epoch, k    int64 // of the ledger
	claim       int64
	orders      []*mOrder
	corrections []*mCorrection
	transfers   []transfer // all that ever began
	batches     []string   // likewise, with their shard in front
	loaders     []*mLoader
	serial      int
}

const mostShards = 4

func newMachine(l *lab, s *Stock, item int64) *machine {
	m := &machine{l: l, s: s, item: item, quantity: 12, k: 3}
	for range mostShards {
		m.shards = append(m.shards, &mShard{})
	}
	m.addLoader(3)
	for !m.loaders[0].gone {
		if err := m.step(m.loaders[0]); err != nil {
			l.Fatal(err)
		}
	}
	return m
}

func (m *machine) layout() Layout { return Layout{m.item, int(m.k)} }

func (m *machine) fresh(prefix string) string {
	m.serial++
	return fmt.Sprintf("%s%d", prefix, m.serial)
}

// refusal is what a script answers before it looks at anything else, or "".
func (sh *mShard) refusal(k int64) string {
	switch {
	case !sh.loaded:
		return "NOT_LOADED"
	case sh.k != k:
		return "WRONG_LAYOUT"
	}
	return ""
}

func (m *machine) reserve(t *rapid.T) {
	k := m.k
	if rapid.IntRange(0, 9).Draw(t, "stale layout") == 0 {
		k = rapid.Int64Range(1, mostShards).Draw(t, "k")
	}
	home := rapid.IntRange(0, int(k)-1).Draw(t, "home")
	n := rapid.IntRange(1, 4).Draw(t, "users")
	batch := m.fresh("batch")
	args := []string{formatInt(k), batch, "6"}
	wants := make([]*mOrder, n)
	for i := range wants {
		o := &mOrder{
			id: sale.NewOrderID(m.item), user: formatInt(int64(home) + k*rapid.Int64Range(0, 3).Draw(t, "user")),
			units: rapid.Int64Range(1, 3).Draw(t, "quantity"), key: rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "key"), live: true,
		}
		wants[i] = o
		args = append(args, o.user, o.id.String(), formatInt(o.units), o.key, "1980", "JPY", "")
	}
	r, err := m.s.run(m.l.ctx, call{scriptReserve, keysOf(m.item, home).all(), args})
	if err != nil {
		t.Fatal(err)
	}
	sh := m.shards[home]
	if want := sh.refusal(k); want != "" {
		if r.code != want {
			t.Fatalf("reserve: %+v, want %s", r, want)
		}
		return
	}
	if r.code != "OK" || len(r.values) != 3+n || r.values[0] != formatInt(sh.epoch) {
		t.Fatalf("reserve: %+v", r)
	}
	var won []*mOrder
	for i, o := range wants {
		want := sh.want(o, batch, won)
		if want == "R" {
			sh.stock -= o.units
			won = append(won, o)
			sh.marks[o.user] = o
		}
		if got := r.values[3+i]; got != want && (want == "" || !strings.HasPrefix(got, want)) {
			t.Fatalf("request %d of user %s was told %q, want %q", i, o.user, got, want)
		}
	}
	if r.values[2] != formatInt(sh.stock) {
		t.Fatalf("stock left: %s, want %d", r.values[2], sh.stock)
	}
	if len(won) > 0 {
		sh.pending[batch] = won
		sh.count(won, 1)
		sh.bver++
		m.orders = append(m.orders, won...)
		m.batches = append(m.batches, fmt.Sprintf("%d %s", home, batch))
	}
}

// want is the answer to a request of a batch in which some have won already.
func (sh *mShard) want(o *mOrder, batch string, won []*mOrder) string {
	if held, ok := sh.marks[o.user]; ok {
		switch {
		case (o.key == "" || held.key != o.key) && sh.standing(held, won):
			return "B" + held.id.String()
		case o.key == "" || held.key != o.key:
			return "A" + held.id.String()
		case held.units != o.units:
			return "K" + held.id.String()
		case sh.standing(held, won):
			return "P" + held.id.String()
		}
		return "O" + held.id.String()
	}
	if sh.stock < o.units {
		return "E"
	}
	if sh.waiting+int64(len(won)) >= 6 {
		return "F"
	}
	return "R"
}

// standing reports whether an order's outbox entry stands, or is about to be written.
func (sh *mShard) standing(o *mOrder, won []*mOrder) bool {
	if slices.Contains(won, o) {
		return true
	}
	for _, orders := range sh.pending {
		if slices.Contains(orders, o) {
			return true
		}
	}
	return false
}

func (sh *mShard) count(orders []*mOrder, sign int64) {
	for _, o := range orders {
		sh.waiting += sign
		sh.units += sign * o.units
	}
}

func (m *machine) ack(t *rapid.T) {
	if len(m.batches) == 0 {
		t.Skip()
	}
	var home int
	var batch string
	if _, err := fmt.Sscan(rapid.SampledFrom(m.batches).Draw(t, "batch"), &home, &batch); err != nil {
		t.Fatal(err)
	}
	if err := m.s.Forget(m.l.ctx, m.item, home, batch); err != nil {
		t.Fatal(err)
	}
	sh := m.shards[home]
	if orders, ok := sh.pending[batch]; ok {
		sh.count(orders, -1)
		delete(sh.pending, batch)
	}
}

func (m *machine) take(t *rapid.T) {
	from := rapid.IntRange(0, int(m.k)-1).Draw(t, "from")
	to := rapid.IntRange(0, int(m.k)-1).Draw(t, "to")
	if from == to {
		t.Skip()
	}
	units := rapid.Int64Range(1, 4).Draw(t, "units")
	taken, _ := m.s.take(m.l.ctx, m.layout(), []move{{from, to, units}})
	sh := m.shards[from]
	if sh.refusal(m.k) != "" || sh.stock == 0 {
		if len(taken) != 0 {
			t.Fatalf("took %+v from %+v", taken, sh)
		}
		return
	}
	if len(taken) != 1 || taken[0].units != min(units, sh.stock) || taken[0].epoch != sh.epoch {
		t.Fatalf("took %+v from %+v", taken, sh)
	}
	sh.stock -= taken[0].units
	sh.transfers[taken[0].id] = taken[0]
	m.transfers = append(m.transfers, taken[0])
}

func (m *machine) give(t *rapid.T) {
	if len(m.transfers) == 0 {
		t.Skip()
	}
	tr := rapid.SampledFrom(m.transfers).Draw(t, "transfer")
	// A transfer that was settled is given again only by a process that has been at it since before.
	given, _ := m.s.give(m.l.ctx, m.layout(), []transfer{tr})
	sh := m.shards[tr.to]
	want := true
	switch {
	case !sh.loaded:
		want = false
	case tr.epoch < sh.epoch:
	case sh.k != m.k:
		want = false
	case !sh.ops[tr.id]:
		sh.ops[tr.id] = true
		sh.stock += tr.units
		sh.adds++
	}
	if (len(given) == 1) != want {
		t.Fatalf("gave %v of %+v to %+v", given, tr, sh)
	}
}

// settle removes a record as a gateway does: only after give said that it may.
func (m *machine) settle(t *rapid.T) {
	var ready []transfer
	for _, tr := range m.transfers {
		if sh := m.shards[tr.to]; sh.loaded && (tr.epoch < sh.epoch || sh.ops[tr.id]) {
			ready = append(ready, tr)
		}
	}
	if len(ready) == 0 {
		t.Skip()
	}
	tr := rapid.SampledFrom(ready).Draw(t, "transfer")
	if err := m.s.settle(m.l.ctx, m.item, []transfer{tr}); err != nil {
		t.Fatal(err)
	}
	sh := m.shards[tr.from]
	if record, ok := sh.transfers[tr.id]; ok && record.epoch == tr.epoch {
		delete(sh.transfers, tr.id)
	}
}

func (m *machine) prove(t *rapid.T) {
	proof, err := m.s.Prove(m.l.ctx, m.layout())
	var free, moving int64
	for _, sh := range m.shards[:m.k] {
		if sh.refusal(m.k) != "" || sh.epoch != m.shards[0].epoch {
			if err == nil {
				t.Fatalf("proven with %+v: %+v", sh, proof)
			}
			return
		}
		free += sh.stock
		moving += sh.moving()
	}
	if err != nil || proof.Free != free || proof.Moving != moving || proof.Empty != (free+moving == 0) {
		t.Fatalf("proof %+v, %v, want %d free and %d moving", proof, err, free, moving)
	}
}

func (sh *mShard) moving() (sum int64) {
	for _, tr := range sh.transfers {
		sum += tr.units
	}
	return sum
}
