package shard

import (
	"pgregory.net/rapid"

	"flashgate/internal/sale"
)

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
