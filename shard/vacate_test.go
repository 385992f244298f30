package shard

import (
	"testing"

	"flashgate/internal/sale"
)

func TestVacate(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		pub := &broker{}
		s := l.stock(pub)
		was, layout := Layout{43, 4}, Layout{43, 2}
		l.load(s, was, 1, 8, map[string]sale.Mark{"7": heldMark(sale.NewOrderID(43))})
		vacate := func(token int64, want bool) {
			t.Helper()
			if ok, err := s.Vacate(l.ctx, layout, 4, token); ok != want || err != nil {
				t.Errorf("vacate with token %d: %v, want %v; %v", token, ok, want, err)
			}
		}
		vacate(1, true) // that load is written: it is left alone
		vacate(2, false)
		if n := l.totals(was); n.free != 8 {
			t.Errorf("behind vacates that must do nothing: %+v", n)
		}
		l.do("SET", "{item:43:3}:pending", "no outbox") // and nobody can read it
		if ok, err := s.Fence(l.ctx, 43, 4, 3); !ok || err != nil {
			t.Fatal(ok, err)
		}
		vacate(2, false) // a loader that was stopped
		vacate(3, true)
		vacate(3, true)
		l.load(s, layout, 3, 8, nil)
		for n := 2; n < 4; n++ {
			k := keysOf(43, n)
			if held := l.do("EXISTS", k.buyers, k.pending) + l.do("GET", k.stock); held != "00" {
				t.Errorf("shard %d holds %s", n, held)
			}
		}
		// Whoever comes with the larger layout is told so by all four.
		for user := range 4 {
			r := request(was, string(rune('0'+user)), 1, "")
			if got := s.Reserve(l.ctx, was, r); got.Outcome != sale.WrongLayout {
				t.Errorf("user %d: %s, %v", user, got.Outcome, got.Err)
			}
		}
		if n := l.totals(layout); n.free != 8 {
			t.Errorf("the smaller layout has %+v", n)
		}
		// And it grows again.
		l.load(s, was, 4, 9, nil)
		if n := l.totals(was); n.free != 9 {
			t.Errorf("the larger layout has %+v", n)
		}
	})
}
