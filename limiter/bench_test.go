package limiter

import (
	"fmt"
	"net/netip"
	"testing"
)

const knownUsers = 500_000

// knownTable is a table that knows 500,000 users, each of whom has spent a token,
// and their keys in an order that caches do not like.
func knownTable(b *testing.B) (*Table[Key], []Key) {
	b.Helper()
	table := newTable[Key](b, Config{Rate: PerSecond(5, 10), Now: new(clock).Now})
	keyer := NewKeyer()
	keys := make([]Key, knownUsers)
	for i := range keys {
		keys[i] = keyer.Key(fmt.Appendf(nil, "user-%d", i*7919%knownUsers))
		table.Allow(keys[i])
	}
	if s := table.Stats(); s.Keys != knownUsers {
		b.Fatalf("%d users are known", s.Keys)
	}
	b.ReportAllocs()
	b.ResetTimer()
	return table, keys
}

func BenchmarkAllowKnown500k(b *testing.B) {
	table, keys := knownTable(b)
	for i := 0; b.Loop(); i++ {
		table.Allow(keys[i*104729%knownUsers])
	}
}

func BenchmarkAllowKnown500kParallel(b *testing.B) {
	table, keys := knownTable(b)
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			table.Allow(keys[i*104729%knownUsers])
		}
	})
}

// BenchmarkAllowNew is the attack: every key is a new one, and the table is full.
func BenchmarkAllowNew(b *testing.B) {
	table := newTable[Key](b, Config{Rate: PerSecond(5, 10), MaxKeys: 100_000, Now: new(clock).Now})
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		table.Allow(Key(i))
	}
}

func BenchmarkKey(b *testing.B) {
	keyer := NewKeyer()
	user := []byte("0b0c6c3e-7b64-4c1a-9b53-3f6f7d1c2a11")
	b.ReportAllocs()
	for b.Loop() {
		_ = keyer.Key(user)
	}
}

func BenchmarkAllowAddress(b *testing.B) {
	table := newTable[netip.Addr](b, Config{Rate: PerSecond(100, 200)})
	client := addr("2001:db8::1")
	b.ReportAllocs()
	for b.Loop() {
		table.Allow(BucketKey(client))
	}
}

func BenchmarkResolve(b *testing.B) {
	r := newResolver(b, "10.0.0.0/8, 173.245.48.0/20, 103.21.244.0/22, 2400:cb00::/32", "")
	header := [][]byte{[]byte("198.51.100.1, 203.0.113.7, 10.2.2.2")}
	peer := addr("10.0.0.1")
	b.ReportAllocs()
	for b.Loop() {
		r.Resolve(peer, header)
	}
}
