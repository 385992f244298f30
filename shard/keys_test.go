package shard

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
	"flashgate/lua"
)

// slotOf is the slot of a key in a cluster: CRC16 (XMODEM) of its hash tag, or of all of it, modulo 16384.
// https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/
func slotOf(key string) int {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if n := strings.IndexByte(key[open+1:], '}'); n > 0 {
			key = key[open+1 : open+1+n]
		}
	}
	crc := uint16(0)
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % 16384)
}

// The reference implementation of the slot agrees with Redis.
func TestSlotReference(t *testing.T) {
	l := labAt(t, onReal, devtest.Redis(t, "--cluster-enabled", "yes").URL())
	for _, key := range []string{"123456789", "{item:7:3}:stock", "a{b}c{d}", "{}x", "x{", "x}y{z}"} {
		if got, want := fmt.Sprint(slotOf(key)), l.do("CLUSTER", "KEYSLOT", key); got != want {
			t.Errorf("slot of %q: %s, Redis says %s", key, got, want)
		}
	}
}

// All keys of one shard lie in one slot, and no two shards share a key.
func TestKeys(t *testing.T) {
	seen := map[string]string{}
	check := func(item int64, shard int) {
		k := keysOf(item, shard)
		where := fmt.Sprintf("item %d shard %d", item, shard)
		for _, key := range k.all() {
			if slotOf(key) != slotOf(k.stock) {
				t.Errorf("%s: %q and %q lie in different slots", where, key, k.stock)
			}
			if other, ok := seen[key]; ok && other != where {
				t.Errorf("%q belongs to %s and to %s", key, other, where)
			}
			seen[key] = where
		}
	}
	for _, item := range []int64{1, 11, 111, 1001, sale.MaxID} {
		for shard := range sale.MaxShards {
			check(item, shard)
		}
	}
	for range 10_000 {
		check(1+rand.Int64N(sale.MaxID), rand.IntN(sale.MaxShards))
	}
}

// Text from outside never becomes part of a key: what is no plain number is refused where it enters.
func TestHostileItemIDs(t *testing.T) {
	for _, id := range []string{"a", "a{b}", "}{", "{}", "", "x}y", "1}", "{1", "1:2", "01", "-1", "+1", " 1", "1 ", "1e3", "9007199254740992", "１"} {
		if n, err := sale.ParseID(id); err == nil {
			t.Errorf("%q is taken for item %d", id, n)
		}
	}
}

// Every script gets keys of one shard only.
func TestKeysOfScripts(t *testing.T) {
	for _, s := range lua.All() {
		if strings.Contains(s.Source, "{item:") {
			t.Errorf("%s builds a key name", s.Name)
		}
	}
}
