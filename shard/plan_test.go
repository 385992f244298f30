package shard

import (
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestPlan(t *testing.T) {
	for _, c := range []struct {
		name        string
		stock, need []int64
		want        []move
	}{
		{"enough at home", []int64{3, 5}, []int64{2, 0}, nil},
		{"half of the richest", []int64{0, 4, 100}, []int64{1, 0, 0}, []move{{2, 0, 50}}},
		{"at least what is needed", []int64{0, 4, 6}, []int64{5, 0, 0}, []move{{2, 0, 5}}},
		{"several sources", []int64{1, 2, 3}, []int64{6, 0, 0}, []move{{2, 0, 3}, {1, 0, 2}}},
		{"two that need", []int64{0, 0, 90}, []int64{1, 1, 0}, []move{{2, 0, 30}, {2, 1, 30}}},
		{"one unit for two", []int64{0, 0, 1}, []int64{1, 1, 0}, []move{{2, 0, 1}}},
		{"nothing", []int64{0, 0}, []int64{1, 0}, nil},
	} {
		if got := plan(slices.Clone(c.stock), slices.Clone(c.need)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// Whatever is needed and there is gets there; nobody gives what he has not, or needs himself.
func TestPlanServesEveryNeed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 13).Draw(t, "shards")
		units := rapid.SliceOfN(rapid.Int64Range(0, 40), n, n)
		stock, need := units.Draw(t, "stock"), units.Draw(t, "need")
		after := slices.Clone(stock)
		var free, wanted int64
		for i := range n {
			free += stock[i]
			wanted += need[i]
		}
		for _, m := range plan(slices.Clone(stock), slices.Clone(need)) {
			if m.units < 1 || m.from == m.to || after[m.from] < m.units {
				t.Fatalf("move %+v with %v", m, after)
			}
			after[m.from] -= m.units
			after[m.to] += m.units
		}
		for i := range n {
			if wanted <= free && after[i] < need[i] {
				t.Errorf("shard %d needs %d and has %d of %d free for %d wanted", i, need[i], after[i], free, wanted)
			}
			if after[i] < min(stock[i], need[i]) {
				t.Errorf("shard %d was left %d of its own %d, and needs %d", i, after[i], stock[i], need[i])
			}
		}
	})
}
