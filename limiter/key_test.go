package limiter

import (
	"fmt"
	"testing"
)

func TestKeyKeepsPartsApart(t *testing.T) {
	k := NewKeyer()
	key := func(parts ...string) Key {
		b := make([][]byte, len(parts))
		for i, p := range parts {
			b[i] = []byte(p)
		}
		return k.Key(b...)
	}
	seen := map[Key]string{}
	for _, parts := range [][]string{
		{"a:b", "c"}, {"a", "b:c"}, {"a:b:c"}, {"a", "b", "c"}, {"abc"}, {"ab", "c"}, {"a", "bc"},
		{"", "abc"}, {"abc", ""}, {"", "", "abc"}, {}, {""}, {"", ""},
		{"a\x00b", "c"}, {"a", "\x00b", "c"}, {"\x01\x00\x00\x00\x00\x00\x00\x00a"}, {"a:b"}, {"a"}, {"A"},
	} {
		name := fmt.Sprintf("%q", parts)
		if other, ok := seen[key(parts...)]; ok {
			t.Errorf("%s and %s have the same key", name, other)
		}
		seen[key(parts...)] = name
	}
	if _, ok := seen[key("a:b", "c")]; !ok {
		t.Error("the same parts give two keys")
	}
	if NewKeyer().Key([]byte("a")) == k.Key([]byte("a")) {
		t.Error("two keyers have the same seed")
	}
}

// Users whose names contain the separators of other schemes have buckets of their
// own, alone and together with an item.
func TestJoinedKeysHaveTheirOwnBuckets(t *testing.T) {
	var c clock
	table := newTable[Key](t, Config{Rate: PerSecond(1, 1), Now: c.Now})
	k := NewKeyer()
	for _, parts := range [][][]byte{
		{[]byte("a:b"), []byte("c")}, {[]byte("a"), []byte("b:c")}, {[]byte("a:b")}, {[]byte("a")},
	} {
		if ok, _ := table.Allow(k.Key(parts...)); !ok {
			t.Errorf("%q pays for another", parts)
		}
		if ok, _ := table.Allow(k.Key(parts...)); ok {
			t.Errorf("%q has two buckets", parts)
		}
	}
}

func TestKeyDoesNotAllocate(t *testing.T) {
	k := NewKeyer()
	user, item := []byte("0b0c6c3e-7b64-4c1a-9b53-3f6f7d1c2a11"), []byte("1001")
	if n := testing.AllocsPerRun(1000, func() { _ = k.Key(user, item) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
