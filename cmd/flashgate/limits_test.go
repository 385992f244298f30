package main

import (
	"net/netip"
	"testing"

	"flashgate/internal/sale"
	"flashgate/limiter"
)

// Looks have buckets of their own, one for each address and user: whoever empties one can see that nowhere else.
func TestLooksHaveTheirOwnBuckets(t *testing.T) {
	l, err := newLimits(limiter.PerSecond(1, 2), limiter.PerSecond(1, 2), limiter.PerSecond(1, 2))
	if err != nil {
		t.Fatal(err)
	}
	here, there := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	alice, bob := sale.HashUser("alice"), sale.HashUser("bob")
	for i := range 5 {
		if ok := l.LookAddr(here, alice); ok != (i < 2) {
			t.Errorf("look %d with a burst of 2: %v", i+1, ok)
		}
	}
	if !l.LookAddr(there, alice) || !l.LookAddr(here, bob) {
		t.Error("another address, or another user, pays for it")
	}
	if ok, _ := l.PurchaseAddr(here); !ok {
		t.Error("the purchases of the address pay for it")
	}
	if ok, _ := l.PurchaseUser("alice"); !ok {
		t.Error("the purchases of the user pay for it")
	}
	if ok, _ := l.ReadUser("alice"); !ok {
		t.Error("the reads of the user pay for it")
	}
	// One customer's line is one address, however it is written.
	for _, same := range [][2]string{{"2001:db8::1", "2001:db8::ffff"}, {"198.51.100.1", "::ffff:198.51.100.1"}} {
		for i := range 4 {
			if ok := l.LookAddr(netip.MustParseAddr(same[i%2]), alice); ok != (i < 2) {
				t.Errorf("%v, look %d: %v", same, i+1, ok)
			}
		}
	}
	if !l.LookAddr(netip.Addr{}, alice) {
		t.Error("no address")
	}
	if n := testing.AllocsPerRun(100, func() { l.LookAddr(here, alice) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// An address without a limit has none for looks either.
func TestLooksWithoutLimit(t *testing.T) {
	l, err := newLimits(limiter.PerSecond(1, 1), limiter.Off(), limiter.PerSecond(1, 1))
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if !l.LookAddr(netip.MustParseAddr("192.0.2.1"), 1) {
			t.Fatal("limited")
		}
	}
}
