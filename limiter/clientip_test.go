package limiter

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func newResolver(tb testing.TB, trusted, header string) *Resolver {
	tb.Helper()
	prefixes, err := ParsePrefixes(trusted)
	if err != nil {
		tb.Fatal(err)
	}
	r, err := NewResolver(ResolverConfig{Trusted: prefixes, Header: header})
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// lines are the values of the header's lines, one per line of text.
func lines(text string) [][]byte {
	if text == "" {
		return nil
	}
	return bytes.Split([]byte(text), []byte("\n"))
}

func TestResolveList(t *testing.T) {
	r := newResolver(t, "10.0.0.0/8, 2001:db8:ffff::/48, 192.0.2.10", "")
	const proxy = "10.0.0.1"
	for _, c := range []struct{ name, peer, header, want string }{
		{"no header", proxy, "", proxy},
		{"one entry", proxy, "203.0.113.7", "203.0.113.7"},
		{"untrusted peer is not asked", "203.0.113.99", "203.0.113.7", "203.0.113.99"},
		{"untrusted IPv6 peer is not asked", "2001:db8::1", "203.0.113.7", "2001:db8::1"},
		{"trusted IPv6 peer", "2001:db8:ffff::1", "203.0.113.7", "203.0.113.7"},
		{"mapped peer", "::ffff:10.0.0.1", "203.0.113.7", "203.0.113.7"},
		{"peer with a zone", "2001:db8:ffff::1%eth0", "203.0.113.7", "203.0.113.7"},
		{"mapped untrusted peer is IPv4", "::ffff:203.0.113.99", "203.0.113.7", "203.0.113.99"},
		{"what the client says is not read", proxy, "198.51.100.1, 203.0.113.7", "203.0.113.7"},
		{"trusted entries are skipped", proxy, "203.0.113.7, 10.9.9.9, 192.0.2.10", "203.0.113.7"},
		{"a mapped trusted entry is skipped", proxy, "203.0.113.7, ::ffff:10.9.9.9", "203.0.113.7"},
		{"the client claims a proxy", proxy, "10.1.1.1, 203.0.113.7", "203.0.113.7"},
		{"all are trusted", proxy, "10.1.1.1, 10.2.2.2", "10.1.1.1"},
		{"lines are one list", proxy, "198.51.100.1\n203.0.113.7", "203.0.113.7"},
		{"skipping across lines", proxy, "203.0.113.7, 10.3.3.3\n10.2.2.2\n10.4.4.4", "203.0.113.7"},
		{"an own line first", proxy, "198.51.100.1, 198.51.100.2\n203.0.113.7, 10.2.2.2", "203.0.113.7"},
		{"no space", proxy, "198.51.100.1,203.0.113.7", "203.0.113.7"},
		{"much space", proxy, " \t 203.0.113.7 \t ", "203.0.113.7"},
		{"space for a whole header", proxy, "198.51.100.1," + strings.Repeat(" ", 4000) + "203.0.113.7", "203.0.113.7"},
		{"empty entries", proxy, "203.0.113.7,, ,10.2.2.2,", "203.0.113.7"},
		{"empty lines", proxy, "203.0.113.7\n\n \n10.2.2.2\n", "203.0.113.7"},
		{"only commas", proxy, ",,,", proxy},
		{"port", proxy, "203.0.113.7:4711", "203.0.113.7"},
		{"quotes", proxy, `"203.0.113.7"`, "203.0.113.7"},
		{"quotes and port", proxy, `"203.0.113.7:4711"`, "203.0.113.7"},
		{"brackets", proxy, "[2001:db8::7]", "2001:db8::7"},
		{"brackets and port", proxy, "[2001:db8::7]:4711", "2001:db8::7"},
		{"quotes, brackets and port", proxy, `"[2001:db8::7]:4711"`, "2001:db8::7"},
		{"bare IPv6", proxy, "2001:DB8:0:0::7", "2001:db8::7"},
		{"IPv6 with a zone", proxy, "fe80::1%eth0", "fe80::1"},
		{"IPv6 with a zone in brackets", proxy, "[fe80::1%25eth0]:1", "fe80::1"},
		{"mapped entry", proxy, "::ffff:203.0.113.7", "203.0.113.7"},
		{"mapped entry in hex", proxy, "::ffff:cb00:7107", "203.0.113.7"},

		{"not an address: the proxy that says so", proxy, "unknown", proxy},
		{"not an address behind a proxy", proxy, "203.0.113.7, unknown, 10.2.2.2", "10.2.2.2"},
		{"obfuscated", proxy, "203.0.113.7, _hidden, 10.2.2.2", "10.2.2.2"},
		{"octal", proxy, "203.0.113.07", proxy},
		{"short IPv4", proxy, "127.1", proxy},
		{"a number", proxy, "3405803783", proxy},
		{"five octets", proxy, "203.0.113.7.9", proxy},
		{"a network", proxy, "203.0.113.0/24", proxy},
		{"a name", proxy, "localhost", proxy},
		{"two in one entry", proxy, "203.0.113.7 203.0.113.8", proxy},
		{"semicolon", proxy, "203.0.113.7; 203.0.113.8", proxy},
		{"port missing", proxy, "203.0.113.7:", proxy},
		{"port no number", proxy, "203.0.113.7:http", proxy},
		{"port too long", proxy, "203.0.113.7:123456", proxy},
		{"IPv4 in brackets", proxy, "[203.0.113.7]", proxy},
		{"bracket open", proxy, "[2001:db8::7", proxy},
		{"bracket and rubbish", proxy, "[2001:db8::7]x", proxy},
		{"empty brackets", proxy, "[]", proxy},
		{"half a quote", proxy, `"203.0.113.7`, proxy},
		{"a lone quote", proxy, `"`, proxy},
		{"empty quotes", proxy, `""`, proxy},
		{"a comma in quotes", proxy, `"203.0.113.7, 198.51.100.1"`, proxy},
		{"NUL", proxy, "203.0.113.7\x00", proxy},
		{"long", proxy, strings.Repeat("1", 5000), proxy},
		{"long behind a proxy", proxy, "203.0.113.7," + strings.Repeat("1", 5000) + ", 10.2.2.2", "10.2.2.2"},
	} {
		if got := r.Resolve(addr(c.peer), lines(c.header)); got != addr(c.want) {
			t.Errorf("%s: peer %s, header %.80q: %v; want %s", c.name, c.peer, c.header, got, c.want)
		}
	}
}

func TestResolveSingleHeader(t *testing.T) {
	r := newResolver(t, "10.0.0.0/8", "CF-Connecting-IP")
	for _, c := range []struct{ name, peer, header, want string }{
		{"no header", "10.0.0.1", "", "10.0.0.1"},
		{"one", "10.0.0.1", "203.0.113.7", "203.0.113.7"},
		{"IPv6", "10.0.0.1", " 2001:DB8::7 ", "2001:db8::7"},
		{"mapped", "10.0.0.1", "::ffff:203.0.113.7", "203.0.113.7"},
		{"untrusted peer", "203.0.113.99", "203.0.113.7", "203.0.113.99"},
		{"two lines", "10.0.0.1", "198.51.100.1\n203.0.113.7", "10.0.0.1"},
		{"two equal lines", "10.0.0.1", "203.0.113.7\n203.0.113.7", "10.0.0.1"},
		{"an empty line besides", "10.0.0.1", "203.0.113.7\n", "10.0.0.1"},
		{"a list", "10.0.0.1", "198.51.100.1, 203.0.113.7", "10.0.0.1"},
		{"empty", "10.0.0.1", " ", "10.0.0.1"},
		{"not an address", "10.0.0.1", "unknown", "10.0.0.1"},
	} {
		if got := r.Resolve(addr(c.peer), lines(c.header)); got != addr(c.want) {
			t.Errorf("%s: peer %s, header %q: %v; want %s", c.name, c.peer, c.header, got, c.want)
		}
	}
}

func TestResolveTrustsNobodyByDefault(t *testing.T) {
	r := newResolver(t, "", "")
	if r.Header() != "X-Forwarded-For" {
		t.Errorf("the default header is %q", r.Header())
	}
	for _, peer := range []string{"127.0.0.1", "::1", "10.0.0.1", "203.0.113.7"} {
		if got := r.Resolve(addr(peer), lines("198.51.100.1")); got != addr(peer) {
			t.Errorf("peer %s names %v", peer, got)
		}
	}
	// A Unix socket has no address; and no header makes it one.
	if got := r.Resolve(netip.Addr{}, lines("198.51.100.1")); got.IsValid() {
		t.Errorf("no peer names %v", got)
	}
}

func TestResolveIsBounded(t *testing.T) {
	r := newResolver(t, "10.0.0.0/8", "")
	peer := addr("10.0.0.1")
	many := strings.Repeat("10.2.2.2,", 100_000)
	if got := r.Resolve(peer, lines("203.0.113.7,"+many+"10.3.3.3")); got != addr("10.2.2.2") {
		t.Errorf("a chain of 100,000 proxies resolves to %v", got)
	}
	if got := r.Resolve(peer, lines("203.0.113.7"+strings.Repeat("\n10.2.2.2", 100_000))); got != addr("10.2.2.2") {
		t.Errorf("100,000 lines resolve to %v", got)
	}
	if got := r.Resolve(peer, lines("203.0.113.7"+strings.Repeat(",", 100_000))); got != peer {
		t.Errorf("100,000 commas resolve to %v", got)
	}
	// The longest chain that is still followed, and the same with one more.
	hops := strings.Repeat(",10.2.2.2", maxHops-1)
	if got := r.Resolve(peer, lines("203.0.113.7"+hops)); got != addr("203.0.113.7") {
		t.Errorf("%d entries resolve to %v", maxHops, got)
	}
	if got := r.Resolve(peer, lines("203.0.113.7,10.9.9.9"+hops)); got != addr("10.9.9.9") {
		t.Errorf("%d entries resolve to %v", maxHops+1, got)
	}
	long := lines("203.0.113.7," + many)
	if n := testing.AllocsPerRun(100, func() { r.Resolve(peer, long) }); n > maxHops {
		t.Errorf("a header of 100,000 entries costs %v allocations", n)
	}
}

func TestResolverConfig(t *testing.T) {
	for header, want := range map[string]string{
		"Forwarded":          "Forwarded is not supported",
		"forwarded":          "Forwarded is not supported",
		"X-Real-IP: 1.2.3.4": "not a header name",
		"X Real IP":          "not a header name",
		"X-Reäl-IP":          "not a header name",
	} {
		_, err := NewResolver(ResolverConfig{Header: header})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("header %q: %v; want an error with %q", header, err, want)
		}
	}
	if !newResolver(t, "", "x-forwarded-for").list {
		t.Error("x-forwarded-for is not read as a list")
	}
	for _, p := range []netip.Prefix{{}, netip.MustParsePrefix("10.1.0.0/8"), netip.MustParsePrefix("::ffff:0:0/95")} {
		if _, err := NewResolver(ResolverConfig{Trusted: []netip.Prefix{p}}); err == nil {
			t.Errorf("the trusted network %v is taken", p)
		}
	}
	// A prefix in the IPv4-mapped spelling, given as a value, works like IPv4.
	r, err := NewResolver(ResolverConfig{Trusted: []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")}})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Trusts(addr("10.1.2.3")) || !r.Trusts(addr("::ffff:10.1.2.3")) || r.Trusts(addr("11.0.0.1")) {
		t.Error("::ffff:10.0.0.0/104 is not 10.0.0.0/8")
	}
}

func TestParsePrefixes(t *testing.T) {
	got, err := ParsePrefixes(" 10.0.0.0/8 ,192.0.2.1, 2001:db8::/32,2001:db8::1,::ffff:10.0.0.0/104,::ffff:192.0.2.9, ::/0, 0.0.0.0/0 ")
	if err != nil {
		t.Fatal(err)
	}
	want := "10.0.0.0/8 192.0.2.1/32 2001:db8::/32 2001:db8::1/128 10.0.0.0/8 192.0.2.9/32 ::/0 0.0.0.0/0"
	var text []string
	for _, p := range got {
		text = append(text, p.String())
	}
	if s := strings.Join(text, " "); s != want {
		t.Errorf("got %s, want %s", s, want)
	}
	for _, empty := range []string{"", " ", "\t"} {
		if p, err := ParsePrefixes(empty); err != nil || len(p) != 0 {
			t.Errorf("ParsePrefixes(%q) = %v, %v", empty, p, err)
		}
	}
	for text, want := range map[string]string{
		"10.0.0.0/8,,::1":         `entry 2, ""`,
		"10.0.0.0/8,":             `entry 2, ""`,
		"10.0.0.0/8, 10.0.0.0/33": `entry 2, "10.0.0.0/33"`,
		"10.0.0.0/08":             `entry 1, "10.0.0.0/08"`,
		"10.0.0.1/8":              "write 10.0.0.0/8 for the network, or 10.0.0.1 for the one address",
		"2001:db8::1/64":          "write 2001:db8::/64",
		"::ffff:0:0/95":           "write the IPv4 and the IPv6 network apart",
		"cdn.example.com":         `entry 1, "cdn.example.com"`,
		"fe80::1%eth0":            `entry 1, "fe80::1%eth0"`,
		"10.0.0.0-10.0.0.9":       "entry 1",
		"10.0.0.0/8 192.0.2.0/24": "entry 1",
		"010.0.0.1":               "entry 1",
	} {
		_, err := ParsePrefixes(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParsePrefixes(%q): %v; want an error with %q", text, err, want)
		}
	}
}

func TestBucketKey(t *testing.T) {
	same := [][]string{
		{"2001:db8::1", "2001:DB8:0:0::1", "2001:db8::ffff", "2001:db8::ffff:ffff:ffff:ffff", "2001:db8::1%eth0"},
		{"2001:db8:0:1::1", "2001:db8:0:1::2"},
		{"::ffff:192.0.2.1", "192.0.2.1", "::ffff:c000:201"},
		{"192.0.2.2"},
		{"fe80::1%eth0", "fe80::1", "fe80::2%eth1"},
		{"::1", "::2"},
		{"0.0.0.0", "::ffff:0.0.0.0"},
	}
	seen := map[netip.Addr]int{}
	for i, group := range same {
		for _, s := range group {
			key := BucketKey(addr(s))
			if j, ok := seen[key]; ok && j != i {
				t.Errorf("%s shares the bucket %v with %v", s, key, same[j])
			}
			if key != BucketKey(addr(group[0])) {
				t.Errorf("%s has bucket %v, %s has %v", s, key, group[0], BucketKey(addr(group[0])))
			}
			seen[key] = i
		}
	}
	if BucketKey(netip.Addr{}).IsValid() {
		t.Error("no address has the bucket of one")
	}
	if n := testing.AllocsPerRun(100, func() { BucketKey(addr("2001:db8::1")) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// The addresses of one line share its bucket, end to end: peer, header, table.
func TestOneLineOneBucket(t *testing.T) {
	var c clock
	table := newTable[netip.Addr](t, Config{Rate: PerSecond(1, 2), Now: c.Now})
	r := newResolver(t, "::ffff:10.0.0.0/104", "")
	allow := func(peer, header string) bool {
		ok, _ := table.Allow(BucketKey(r.Resolve(addr(peer), lines(header))))
		return ok
	}
	for _, step := range []struct {
		peer, header string
		want         bool
	}{
		{"10.0.0.1", "2001:db8::1", true},
		{"::ffff:10.0.0.1", "[2001:DB8:0:0::2]:99", true},
		{"2001:db8::ffff", "", false},
		{"10.0.0.1", "192.0.2.77, 2001:db8::3", false},
		{"10.0.0.1", "2001:db8:0:1::1", true},
		{"10.0.0.1", "::ffff:192.0.2.1", true},
		{"192.0.2.1", "192.0.2.50", true},
		{"::ffff:192.0.2.1", "", false},
	} {
		if got := allow(step.peer, step.header); got != step.want {
			t.Errorf("peer %s, header %q: %v", step.peer, step.header, got)
		}
	}
}
