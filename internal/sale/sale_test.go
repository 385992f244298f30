package sale_test

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"flashgate/internal/sale"
)

func TestParseID(t *testing.T) {
	for text, want := range map[string]int64{"1": 1, "1001": 1001, "9007199254740991": sale.MaxID} {
		if got, err := sale.ParseID(text); err != nil || got != want {
			t.Errorf("ParseID(%q) = %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "+1", "01", "1.0", "1e3", " 1", "1 ", "0x10", "9007199254740992", "9223372036854775808",
		"99999999999999999999", "a", "a{b}", "}{", "{}", "x}y", "１", "1\x00"} {
		if got, err := sale.ParseID(text); err == nil {
			t.Errorf("ParseID(%q) = %d, want a refusal", text, got)
		}
	}
}

func TestOrderIDHoldsItsItem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		item := rapid.Int64Range(1, sale.MaxID).Draw(t, "item")
		id := sale.NewOrderID(item)
		if got, ok := id.Item(); !ok || got != item {
			t.Fatalf("the id %s of item %d names item %d, %v", id, item, got, ok)
		}
		back, err := sale.ParseOrderID(strings.ToUpper(id.String()))
		if err != nil || back != id {
			t.Fatalf("%s reads back as %s, %v", id, back, err)
		}
	})
}

func TestOrderIDsDiffer(t *testing.T) {
	seen := map[sale.OrderID]bool{}
	var ones, zeros [16]byte
	for i := range zeros {
		zeros[i] = 0xff
	}
	for range 2000 {
		id := sale.NewOrderID(sale.MaxID)
		if seen[id] {
			t.Fatalf("%s came twice", id)
		}
		seen[id] = true
		for i, b := range id {
			ones[i] |= b
			zeros[i] &= b
		}
	}
	// 69 bits are random: seven of byte 7, six of byte 8 and all behind it have been seen as one and as zero.
	if ones[7]&^zeros[7] != 0x7f || ones[8]&^zeros[8] != 0x3f {
		t.Errorf("random bits of bytes 7 and 8 are %08b and %08b", ones[7]&^zeros[7], ones[8]&^zeros[8])
	}
	for i := 9; i < 16; i++ {
		if ones[i]&^zeros[i] != 0xff {
			t.Errorf("random bits of byte %d are %08b", i, ones[i]&^zeros[i])
		}
	}
}

func TestParseOrderIDRefuses(t *testing.T) {
	good := sale.NewOrderID(7).String()
	for _, text := range []string{"", good[:35], good + "0", strings.ReplaceAll(good, "-", "_"), "g" + good[1:], "{" + good[1:35] + "}", good[:8] + good[9:] + "0"} {
		if id, err := sale.ParseOrderID(text); err == nil {
			t.Errorf("ParseOrderID(%q) = %s, want a refusal", text, id)
		}
	}
	other, err := sale.ParseOrderID("123e4567-e89b-42d3-a456-426614174000")
	if err != nil {
		t.Fatal(err)
	}
	if item, ok := other.Item(); ok {
		t.Errorf("a UUID of version 4 names item %d", item)
	}
}

func TestHome(t *testing.T) {
	for _, test := range []struct {
		user   string
		shards int
		want   int
	}{
		{"0", 13, 0}, {"26", 13, 0}, {"27", 13, 1}, {"9223372036854775807", 13, int(int64(math.MaxInt64) % 13)},
		// Not decimals within int64: hashed. The values pin the hash, which must never change while a sale is on.
		{"-1", 1 << 8, int(sale.HashUser("-1") % 256)}, {"007", 13, int(sale.HashUser("007") % 13)},
		{"9223372036854775808", 13, int(sale.HashUser("9223372036854775808") % 13)},
	} {
		if got := sale.Home(test.user, test.shards); got != test.want {
			t.Errorf("Home(%q, %d) = %d, want %d", test.user, test.shards, got, test.want)
		}
	}
	// Test vectors of the hash's authors.
	for text, want := range map[string]uint64{"": 0xcbf29ce484222325, "a": 0xaf63dc4c8601ec8c, "foobar": 0x85944171f73967e8} {
		if got := sale.HashUser(text); got != want {
			t.Errorf("HashUser(%q) = %#x, want %#x", text, got, want)
		}
	}
}

func TestHomeSpreadsOpaqueUsers(t *testing.T) {
	const users, shards = 13000, 13
	var count [shards]int
	for i := range users {
		count[sale.Home("auth0|"+strconv.Itoa(i), shards)]++
	}
	for shard, n := range count {
		if n < 800 || n > 1200 {
			t.Errorf("shard %d got %d of %d users", shard, n, users)
		}
	}
}

func TestHomeDoesNotAllocate(t *testing.T) {
	decimal, opaque := []byte("123456789"), []byte("auth0|507f1f77bcf86cd799439011")
	if n := testing.AllocsPerRun(100, func() { sale.Home(decimal, 13); sale.Home(opaque, 13) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestCheckUser(t *testing.T) {
	for _, user := range []string{"1", "auth0|x", "ü", strings.Repeat("x", 64), "a b", "a:b"} {
		if err := sale.CheckUser(user); err != nil {
			t.Errorf("CheckUser(%q) = %v", user, err)
		}
	}
	for _, user := range []string{"", strings.Repeat("x", 65), "a\tb", "a\nb", "\x00", "\x7f", "\u0085", "\xff"} {
		if sale.CheckUser(user) == nil {
			t.Errorf("CheckUser(%q) accepts", user)
		}
	}
}

func TestDecimals(t *testing.T) {
	for price, want := range map[sale.Price]int{"0": 0, "1980": 0, "19.8": 1, "19.80": 1, "1980.00": 0, "0.0001": 4} {
		if got := price.Decimals(); got != want {
			t.Errorf("%s has %d decimals, want %d", price, got, want)
		}
	}
	for currency, want := range map[string]int{"JPY": 0, "KRW": 0, "ISK": 0, "USD": 2, "EUR": 2, "RSD": 2, "COP": 2, "KWD": 3, "IQD": 3, "CLF": 4, "ZWG": 2} {
		if got := sale.CurrencyDecimals(currency); got != want {
			t.Errorf("%s has %d decimals, want %d", currency, got, want)
		}
	}
}

func TestPrice(t *testing.T) {
	for _, text := range []string{"0", "1980", "19.80", "0.0001", "99999999999999.9999"} {
		if p, err := sale.ParsePrice(text); err != nil || string(p) != text {
			t.Errorf("ParsePrice(%q) = %q, %v", text, p, err)
		}
	}
	for _, text := range []string{"", "-1", "+1", "01", "1.", ".5", "1.00000", "1e3", "NaN", "1,5", "100000000000000", " 1", "0x1", "1/2"} {
		if p, err := sale.ParsePrice(text); err == nil {
			t.Errorf("ParsePrice(%q) = %q, want a refusal", text, p)
		}
	}
	if !sale.Price("19.8").Equal("19.80") || sale.Price("19.8").Equal("19.81") || sale.Price("").Equal("") {
		t.Error("Equal does not compare values")
	}
	for code, ok := range map[string]bool{"JPY": true, "jpy": false, "JP": false, "JPYE": false, "J1Y": false} {
		if (sale.CheckCurrency(code) == nil) != ok {
			t.Errorf("CheckCurrency(%q) = %v", code, sale.CheckCurrency(code))
		}
	}
}

func TestStatusAt(t *testing.T) {
	start := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	item := sale.Item{StartsAt: start, EndsAt: start.Add(time.Hour)}
	paused, salePaused, retired := item, item, item
	paused.Paused, salePaused.SalePaused, retired.RetiredAt = true, true, start
	for _, test := range []struct {
		name string
		item sale.Item
		at   time.Time
		want sale.Status
	}{
		{"a millisecond before the start", item, start.Add(-time.Millisecond), sale.Upcoming},
		{"at the start", item, start, sale.OnSale},
		{"a nanosecond before the end", item, start.Add(time.Hour - 1), sale.OnSale},
		{"at the end", item, start.Add(time.Hour), sale.Ended},
		{"item paused", paused, start, sale.Paused},
		{"sale paused", salePaused, start, sale.Paused},
		{"paused before the start", paused, start.Add(-1), sale.Upcoming},
		{"paused after the end", paused, start.Add(time.Hour), sale.Paused},
		{"retired", retired, start, sale.Ended},
	} {
		if got := test.item.StatusAt(test.at); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

func TestHashKey(t *testing.T) {
	if sale.HashKey("") != "" || sale.HashKey([]byte("a")) != sale.HashKey("a") || sale.HashKey("a") == sale.HashKey("b") || len(sale.HashKey("a")) != 32 {
		t.Error("HashKey is not a 128-bit hash of the key's bytes")
	}
}
