package limiter

import (
	"bytes"
	"net/netip"
	"testing"
)

// Whatever a client sends, the proxy's own entry at the right end decides; and the
// answer is a normal address.
func FuzzResolve(f *testing.F) {
	for _, s := range []string{
		"", "203.0.113.7", "10.2.2.2, unknown", `"[2001:db8::1%eth0]:80",,`, "a\nb\n", "::ffff:10.0.0.1\n10.0.0.1:1,",
	} {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	list := newResolver(f, "10.0.0.0/8", "")
	single := newResolver(f, "10.0.0.0/8", "X-Real-IP")
	proxy, client := addr("10.0.0.1"), addr("203.0.113.7")
	f.Fuzz(func(t *testing.T, said []byte, sameLine bool) {
		values := bytes.Split(said, []byte("\n"))
		for _, r := range []*Resolver{list, single} {
			got := r.Resolve(proxy, values)
			if !got.IsValid() || got != Normal(got) {
				t.Fatalf("%q resolves to %v", said, got)
			}
			if got := r.Resolve(client, values); got != client {
				t.Fatalf("an untrusted peer names %v by %q", got, said)
			}
		}
		// The same, after the proxy has appended the client's address.
		if last := len(values) - 1; sameLine {
			values[last] = append(bytes.Clone(values[last]), ", 203.0.113.7"...)
		} else {
			values = append(values, []byte("203.0.113.7"))
		}
		if got := list.Resolve(proxy, values); got != client {
			t.Fatalf("after %q the client is %v", said, got)
		}
		if got := single.Resolve(proxy, values); len(values) > 1 && got != proxy {
			t.Fatalf("with %q the one address is %v", values, got)
		}
	})
}

func FuzzParsePrefixes(f *testing.F) {
	for _, s := range []string{"10.0.0.0/8", "::ffff:10.0.0.0/104,::1", "a,b", "10.0.0.1/8"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		prefixes, err := ParsePrefixes(text)
		if err != nil {
			return
		}
		for _, p := range prefixes {
			if !p.IsValid() || p != p.Masked() || p.Addr() != Normal(p.Addr()) {
				t.Errorf("%q holds %v", text, p)
			}
		}
		if _, err := NewResolver(ResolverConfig{Trusted: prefixes}); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		var again []netip.Prefix
		for _, p := range prefixes {
			q, err := ParsePrefixes(p.String())
			if err != nil || len(q) != 1 || q[0] != p {
				t.Errorf("%v reads as %v, %v", p, q, err)
			}
			again = append(again, q...)
		}
		if len(again) != len(prefixes) {
			t.Errorf("%q: %d networks become %d", text, len(prefixes), len(again))
		}
	})
}
