package shard

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/rueidis"
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
		m.step(m.loaders[0])
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
		case o.key == "" || held.key != o.key:
			return "A" + held.id.String()
		case held.units != o.units:
			return "K" + held.id.String()
		case slices.Contains(won, held) || sh.entryOf(held):
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

func (sh *mShard) entryOf(o *mOrder) bool {
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

// end ends a live order in the ledger: its unit comes back, or it turns out never to have existed.
func (m *machine) end(t *rapid.T) {
	var live []*mOrder
	for _, o := range m.orders {
		if o.live {
			live = append(live, o)
		}
	}
	if len(live) == 0 {
		t.Skip()
	}
	o := live[rapid.IntRange(0, len(live)-1).Draw(t, "order")]
	o.live = false
	op := "release"
	if rapid.IntRange(0, 4).Draw(t, "rejected") == 0 {
		op, o.voided = "void", true
		m.quantity -= o.units
	}
	m.corrections = append(m.corrections, &mCorrection{op: op, order: o, epoch: m.epoch})
}

func (m *machine) restock(t *rapid.T) {
	c := &mCorrection{op: "increase", id: m.fresh("restock"), units: rapid.Int64Range(1, 7).Draw(t, "units"), epoch: m.epoch}
	m.quantity += c.units
	m.corrections = append(m.corrections, c)
}

func (m *machine) correct(t *rapid.T) {
	if len(m.corrections) == 0 {
		t.Skip()
	}
	c := m.corrections[rapid.IntRange(0, len(m.corrections)-1).Draw(t, "correction")]
	var got, want Applied
	var err error
	if c.op == "increase" {
		got, err = m.s.Increase(m.l.ctx, m.layout(), c.id, c.units, c.epoch)
		want = m.increased(c)
	} else {
		do := map[string]func() (Applied, error){
			"release": func() (Applied, error) {
				return m.s.Release(m.l.ctx, m.layout(), Correction{c.order.user, c.order.id, c.epoch})
			},
			"void": func() (Applied, error) {
				return m.s.Void(m.l.ctx, m.layout(), Correction{c.order.user, c.order.id, c.epoch})
			},
		}[c.op]
		got, err = do()
		want = m.dropped(c)
	}
	if err != nil || got != want {
		t.Fatalf("%+v: %v, %v, want %v", c, got, err, want)
	}
}

func (m *machine) dropped(c *mCorrection) Applied {
	sh := m.shards[sale.Home(c.order.user, int(m.k))]
	switch {
	case !sh.loaded:
		return NotLoaded
	case c.epoch < sh.epoch:
		return Absorbed
	case sh.k != m.k:
		return WrongLayout
	}
	if sh.marks[c.order.user] == c.order {
		delete(sh.marks, c.order.user)
		sh.bver++
		if c.op == "release" {
			sh.stock += c.order.units
			sh.adds++
		}
	}
	return Done
}

func (m *machine) increased(c *mCorrection) Applied {
	sum := Absorbed
	for i := range int(m.k) {
		share := spread(c.units, int(m.k), i)
		if share == 0 {
			continue
		}
		sh := m.shards[i]
		switch {
		case !sh.loaded:
			sum = worse(sum, NotLoaded)
		case c.epoch < sh.epoch:
			sum = worse(sum, Absorbed)
		case sh.k != m.k:
			sum = worse(sum, WrongLayout)
		default:
			sum = worse(sum, Done)
			if !sh.ops[c.id] {
				sh.ops[c.id] = true
				sh.stock += share
				sh.adds++
			}
		}
	}
	return sum
}

func (m *machine) take(t *rapid.T) {
	from := rapid.IntRange(0, int(m.k)-1).Draw(t, "from")
	to := rapid.IntRange(0, int(m.k)-1).Draw(t, "to")
	if from == to {
		t.Skip()
	}
	units := rapid.Int64Range(1, 4).Draw(t, "units")
	taken := m.s.take(m.l.ctx, m.layout(), []move{{from, to, units}})
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

func (m *machine) startLoad(t *rapid.T) {
	if len(m.loaders) >= 2 {
		t.Skip()
	}
	m.addLoader(rapid.Int64Range(1, mostShards).Draw(t, "k"))
}

func (m *machine) addLoader(k int64) {
	m.claim++
	m.loaders = append(m.loaders, &mLoader{token: m.claim, k: k, fences: int(max(k, m.k))})
}

func (m *machine) stepLoader(t *rapid.T) {
	if len(m.loaders) == 0 {
		t.Skip()
	}
	ld := rapid.SampledFrom(m.loaders).Draw(t, "loader")
	if err := m.step(ld); err != nil {
		t.Fatal(err)
	}
	m.loaders = slices.DeleteFunc(m.loaders, func(l *mLoader) bool { return l.gone })
}

// step does the next thing of a loader: fence a shard, take the snapshot, load a shard.
func (m *machine) step(ld *mLoader) error {
	switch {
	case ld.next < ld.fences:
		return m.fence(ld)
	case ld.image == nil:
		m.snapshot(ld)
		return nil
	}
	return m.load(ld)
}

func (m *machine) fence(ld *mLoader) error {
	k := keysOf(m.item, ld.next)
	r, err := m.s.run(m.l.ctx, call{scriptFence, []string{k.stock, k.meta}, []string{formatInt(ld.token)}})
	sh := m.shards[ld.next]
	ok := sh.token < ld.token || sh.token == ld.token && !sh.loaded
	if err != nil || (r.code == "OK") != ok {
		return fmt.Errorf("fence %+v of %+v: %+v, %w", ld, sh, r, err)
	}
	if !ok {
		ld.gone = true
		return nil
	}
	sh.token, sh.loaded = ld.token, false
	ld.next++
	return nil
}

func (m *machine) snapshot(ld *mLoader) {
	if m.claim != ld.token {
		ld.gone = true
		return
	}
	m.epoch, m.k = ld.token, ld.k
	ld.image = &Image{Token: ld.token, Free: m.quantity, Marks: map[string]sale.Mark{}}
	for _, o := range m.orders {
		if o.live {
			ld.image.Free -= o.units
			ld.orders = append(ld.orders, o)
		}
	}
	ld.next = ld.fences
}

func (m *machine) load(ld *mLoader) error {
	i := ld.next - ld.fences
	sh := m.shards[i]
	args := []string{formatInt(ld.token), formatInt(ld.k), formatInt(spread(ld.image.Free, int(ld.k), i))}
	marks := map[string]*mOrder{}
	for _, o := range ld.orders {
		if sale.Home(o.user, int(ld.k)) == i {
			mark := heldMark(o.id)
			mark.Quantity, mark.KeyHash = o.units, o.key
			args = append(args, o.user, encodeMark(mark))
			marks[o.user] = o
		}
	}
	r, err := m.s.run(m.l.ctx, call{scriptLoad, keysOf(m.item, i).all(), args})
	ok := sh.token == ld.token && !sh.loaded
	if err != nil || (r.code == "OK") != ok {
		return fmt.Errorf("load %+v of %+v: %+v, %w", ld, sh, r, err)
	}
	if !ok {
		ld.gone = true
		return nil
	}
	*sh = mShard{
		loaded: true, stock: spread(ld.image.Free, int(ld.k), i), k: ld.k, epoch: ld.token, token: ld.token, marks: marks,
		pending: map[string][]*mOrder{}, transfers: map[string]transfer{}, ops: map[string]bool{},
	}
	ld.next++
	ld.gone = i == int(ld.k)-1
	return nil
}

// check compares all of Redis with the model, and counts the units.
func (m *machine) check(t *rapid.T) {
	whole := true
	var free, transit, held int64
	texts := m.redis(t)
	for i, sh := range m.shards {
		if got, want := texts[i], sh.text(); got != want {
			t.Fatalf("shard %d holds\n%s\nwant\n%s", i, got, want)
		}
		if int64(i) >= m.k {
			continue
		}
		whole = whole && sh.loaded && sh.epoch == m.epoch
		free += max(0, sh.stock)
		for _, tr := range sh.transfers {
			if to := m.shards[tr.to]; to.ops != nil && !to.ops[tr.id] {
				transit += tr.units
			}
		}
		for _, o := range sh.marks {
			if !o.voided {
				held += o.units
			}
		}
	}
	if !whole {
		return
	}
	coming := int64(0) // restocks not yet in the shards
	for _, c := range m.corrections {
		for i := range int(m.k) {
			if c.op == "increase" && c.epoch == m.epoch && !m.shards[i].ops[c.id] {
				coming += spread(c.units, int(m.k), i)
			}
		}
	}
	if free+transit+held+coming != m.quantity {
		t.Fatalf("%d free + %d in transfer + %d held + %d to come are not the %d there are", free, transit, held, coming, m.quantity)
	}
	for _, o := range m.orders {
		if o.live && m.shards[sale.Home(o.user, int(m.k))].marks[o.user] != o {
			t.Fatalf("live order %+v has no mark", o)
		}
	}
}

// text is what Redis should hold of a shard.
func (sh *mShard) text() string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if sh.loaded {
		add("stock %d", sh.stock)
	}
	if sh.token > 0 {
		add("meta token %d", sh.token)
	}
	if sh.ops != nil {
		add("meta k %d", sh.k)
		add("meta epoch %d", sh.epoch)
		add("meta adds %d", sh.adds)
		add("meta bver %d", sh.bver)
		add("meta waiting %d", sh.waiting)
		add("meta units %d", sh.units)
		add("meta moving %d", sh.moving())
	}
	for op := range sh.ops {
		add("meta op:%s 1", op)
	}
	for id, tr := range sh.transfers {
		add("meta tr:%s %d %d %d", id, tr.to, tr.units, tr.epoch)
	}
	for user, o := range sh.marks {
		add("mark %s %s %d %s", user, o.id, o.units, o.key)
	}
	for batch, orders := range sh.pending {
		for _, o := range orders {
			add("entry %s %s %s %d", batch, o.id, o.user, o.units)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// redis is what Redis does hold, in the same form, by shard.
func (m *machine) redis(t *rapid.T) []string {
	c := m.l.client
	var commands rueidis.Commands
	for i := range m.shards {
		k := keysOf(m.item, i)
		commands = append(commands, c.B().Get().Key(k.stock).Build())
		for _, key := range []string{k.meta, k.buyers, k.pending} {
			commands = append(commands, c.B().Hgetall().Key(key).Build())
		}
	}
	answers := c.DoMulti(m.l.ctx, commands...)
	texts := make([]string, len(m.shards))
	for i := range texts {
		var hashes []map[string]string
		for _, answer := range answers[4*i+1 : 4*i+4] {
			fields, err := answer.AsStrMap()
			if err != nil {
				t.Fatal(err)
			}
			hashes = append(hashes, fields)
		}
		stock, err := answers[4*i].ToString()
		if err != nil && !rueidis.IsRedisNil(err) {
			t.Fatal(err)
		}
		texts[i] = describe(t, place{m.item, i}, stock, hashes[0], hashes[1], hashes[2])
	}
	return texts
}

func describe(t *rapid.T, at place, stock string, meta, buyers, pending map[string]string) string {
	var lines []string
	if stock != "" {
		lines = append(lines, "stock "+stock)
	}
	for field, value := range meta {
		if strings.HasPrefix(field, "tr:") {
			value = strings.Join(strings.Split(value, "\t")[:3], " ")
		}
		lines = append(lines, "meta "+field+" "+value)
	}
	for user, text := range buyers {
		mark, err := decodeMark(text)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("mark %s %s %d %s", user, mark.OrderID, mark.Quantity, mark.KeyHash))
	}
	for batch, blob := range pending {
		entry, err := decodeEntry(at, batch, blob)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entry.Events {
			lines = append(lines, fmt.Sprintf("entry %s %s %s %d", batch, e.OrderID, e.UserID, e.Quantity))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
