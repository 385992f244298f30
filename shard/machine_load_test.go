package shard

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"flashgate/internal/sale"
)

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
	// Some steps at once, or few loads would come to their end.
	for range rapid.IntRange(1, 5).Draw(t, "steps") {
		if err := m.step(ld); err != nil {
			t.Fatal(err)
		}
		if ld.gone {
			break
		}
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
