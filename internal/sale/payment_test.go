package sale_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"flashgate/internal/sale"
)

func TestAmount(t *testing.T) {
	for _, text := range []string{"0", "1980", "19.80", "0.0000000001", strings.Repeat("9", 20) + "." + strings.Repeat("9", 10)} {
		if a, err := sale.ParseAmount(text); err != nil || string(a) != text || !a.Equal(a) {
			t.Errorf("ParseAmount(%q) = %q, %v", text, a, err)
		}
	}
	for _, text := range []string{"", "-1", "+1", "01", "1.", ".5", "1e3", "1,5", " 1", "0x10", "NaN", "Inf", "1/2", "1_000", "１",
		strings.Repeat("9", 21), "0." + strings.Repeat("1", 11)} {
		if a, err := sale.ParseAmount(text); err == nil {
			t.Errorf("ParseAmount(%q) = %q, want a refusal", text, a)
		}
	}
	for _, c := range []struct {
		a, b  sale.Amount
		equal bool
	}{
		{"1980", "1980.0", true}, {"19.8", "19.80", true}, {"0", "0.00", true}, {"0.1", "0.10000000001", false}, {"1980", "198", false},
		{"", "", false}, {"x", "x", false},
	} {
		if c.a.Equal(c.b) != c.equal {
			t.Errorf("%q equals %q: want %v", c.a, c.b, c.equal)
		}
	}
}

func TestTotal(t *testing.T) {
	for _, c := range []struct {
		price    sale.Price
		quantity int64
		want     sale.Amount
	}{
		{"1980", 1, "1980"}, {"1980", 3, "5940"}, {"19.80", 3, "59.40"}, {"0.1", 3, "0.3"}, {"0.0001", 10_000, "1.0000"},
		{"99999999999999.9999", 10_000, "999999999999999999.0000"}, {"none", 1, ""},
	} {
		if got := sale.Total(c.price, c.quantity); got != c.want {
			t.Errorf("Total(%q, %d) = %q, want %q", c.price, c.quantity, got, c.want)
		}
	}
	// The total of an order is an amount that a provider may send.
	rapid.Check(t, func(t *rapid.T) {
		price := sale.Price(rapid.StringMatching(`(0|[1-9][0-9]{0,13})(\.[0-9]{1,4})?`).Draw(t, "price"))
		total := sale.Total(price, rapid.Int64Range(1, 10_000).Draw(t, "quantity"))
		if _, err := sale.ParseAmount(string(total)); err != nil {
			t.Errorf("%q: %v", total, err)
		}
	})
}

func TestCheckEventID(t *testing.T) {
	for _, id := range []string{"e", "evt_1", strings.Repeat("x", sale.MaxEventID), "~!"} {
		if err := sale.CheckEventID(id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	for _, id := range []string{"", " ", "a b", "a\n", "ä", "\x7f", strings.Repeat("x", sale.MaxEventID+1)} {
		if sale.CheckEventID(id) == nil {
			t.Errorf("%q was accepted", id)
		}
	}
}
