package gateway

import (
	"fmt"
	"strings"
	"testing"

	"flashgate/internal/sale"
)

func TestBody(t *testing.T) {
	w := newWorld(t)
	g := w.start(t)
	raw := w.token(t, "1")
	for _, c := range []struct {
		body     string
		quantity int64 // 0: refused
		mentions string
	}{
		{"", 1, ""},
		{"{}", 1, ""},
		{" { } ", 1, ""},
		{`{"quantity":1}`, 1, ""},
		{`{"quantity":5}`, 5, ""},
		{`{"quantity":6}`, 0, `"body: quantity: must be between 1 and 5"`},
		{`{"quantity":0}`, 0, `"body: quantity: must be between 1 and 5"`},
		{`{"quantity":-1}`, 0, `"body: quantity: must be between 1 and 5"`},
		{`{"quantity":9223372036854775808}`, 0, `"body: quantity: `},
		{`{"quantity":"1"}`, 0, `"body: quantity: `},
		{`{"quantity":1.0}`, 0, "quantity"},
		{`{"quantity":1e0}`, 0, "quantity"},
		{`{"quantity":null}`, 0, "quantity"},
		{`{"quantity":true}`, 0, "quantity"},
		{`{"quantity":[1]}`, 0, "quantity"},
		{`{"quantity":01}`, 0, ""},
		{`{"quantity":1,"quantity":1}`, 0, "quantity"},
		{`{"quantity":1,"QUANTITY":1}`, 0, "QUANTITY"},
		{`{"Quantity":1}`, 0, "Quantity"},
		{`{"qua` + "\u017f" + `ity":1}`, 0, ""},
		{`{"qty":1}`, 0, "qty"},
		{`{"quantity":1}{}`, 0, ""},
		{`{"quantity":1} x`, 0, ""},
		{`{"quantity":1`, 0, ""},
		{`{"\ud800":1}`, 0, ""},
		{`null`, 0, ""},
		{`[]`, 0, ""},
		{`1`, 0, ""},
		{` `, 0, ""},
		{"\xff", 0, ""},
		{"\xef\xbb\xbf{}", 0, ""},
	} {
		before := w.askedCount()
		r := do(t, g, ask{method: "POST", path: "/api/flash-sales/items/1001/purchase", token: raw, body: c.body})
		asked := w.asked()[before:]
		if c.quantity == 0 {
			r.want(t, 400, "BAD_REQUEST")
			if !strings.Contains(r.body, c.mentions) || len(asked) != 0 {
				t.Errorf("%q: %s, %d reservations", c.body, r.body, len(asked))
			}
			checkHeaders(t, r)
			continue
		}
		r.want(t, 202, "")
		if len(asked) != 1 || asked[0].Quantity != c.quantity {
			t.Errorf("%q: asked %+v", c.body, asked)
		}
	}
}

func TestIdempotencyKey(t *testing.T) {
	w := newWorld(t)
	g := w.start(t)
	raw := w.token(t, "1")
	for _, c := range []struct {
		lines []string
		key   string
		bad   bool
	}{
		{nil, "", false},
		{[]string{"Idempotency-Key: a"}, "a", false},
		{[]string{"idempotency-key:   a-b_c~!  "}, "a-b_c~!", false},
		{[]string{"Idempotency-Key: " + strings.Repeat("x", 128)}, strings.Repeat("x", 128), false},
		{[]string{"Idempotency-Key: " + strings.Repeat("x", 129)}, "", true},
		{[]string{"Idempotency-Key:"}, "", true},
		{[]string{"Idempotency-Key:    "}, "", true},
		{[]string{"Idempotency-Key: a b"}, "", true},
		{[]string{"Idempotency-Key: a\tb"}, "", true},
		{[]string{"Idempotency-Key: caf\u00e9"}, "", true},
		{[]string{"Idempotency-Key: a", "Idempotency-Key: a"}, "", true},
		{[]string{"Idempotency-Key: a", "IDEMPOTENCY-KEY: b"}, "", true},
		{[]string{"Idempotency-Key: a", "Idempotency-Key:"}, "", true},
	} {
		before := w.askedCount()
		r := do(t, g, purchaseOf(raw, c.lines...))
		asked := w.asked()[before:]
		if c.bad {
			r.want(t, 400, "BAD_REQUEST")
			if !strings.Contains(r.body, "Idempotency-Key") || len(asked) != 0 {
				t.Errorf("%q: %s", c.lines, r.body)
			}
			continue
		}
		r.want(t, 202, "")
		if asked[0].KeyHash != sale.HashKey(c.key) {
			t.Errorf("%q: hash %q", c.lines, asked[0].KeyHash)
		}
	}
}

func TestAuthorization(t *testing.T) {
	w := newWorld(t)
	g := w.start(t)
	raw := w.token(t, "1")
	for _, c := range []struct {
		lines []string
		ok    bool
	}{
		{[]string{"Authorization: Bearer " + raw}, true},
		{[]string{"authorization: bearer " + raw}, true},
		{nil, false},
		{[]string{"Authorization: "}, false},
		{[]string{"Authorization: Bearer"}, false},
		{[]string{"Authorization: Bearer " + raw + "x"}, false},
		{[]string{"Authorization: Basic " + raw}, false},
		{[]string{"Authorization: " + raw}, false},
		{[]string{"Authorization: Bearer " + w.forged(t, "1")}, false},
		{[]string{"Authorization: Bearer " + raw, "Authorization: Bearer " + raw}, false},
		{[]string{"Authorization: Bearer " + raw, "Authorization: Bearer " + w.token(t, "2")}, false},
		{[]string{"Authorization: Bearer " + strings.Repeat(".", 8000)}, false},
	} {
		r := do(t, g, purchaseOf("", c.lines...))
		if c.ok {
			r.want(t, 202, "")
		} else {
			checkHeaders(t, r.want(t, 401, "UNAUTHORIZED"))
		}
	}
}

func TestTraceparent(t *testing.T) {
	good := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	for _, c := range []struct {
		lines []string
		want  string
	}{
		{[]string{"traceparent: " + good}, good},
		{nil, ""},
		{[]string{"traceparent: " + good, "traceparent: " + good}, ""},
		{[]string{"traceparent: " + strings.ToUpper(good)}, ""},
		{[]string{"traceparent: 01" + good[2:]}, ""},
		{[]string{"traceparent: " + good + "-x"}, ""},
		{[]string{"traceparent: 00-" + strings.Repeat("0", 32) + good[35:]}, ""},
		{[]string{"traceparent: " + good[:36] + strings.Repeat("0", 16) + "-00"}, ""},
		{[]string{"traceparent: " + strings.Repeat("-", 55)}, ""},
	} {
		w := newWorld(t)
		do(t, w.start(t), purchaseOf(w.token(t, "1"), c.lines...)).want(t, 202, "")
		if got := w.asked()[0].Trace; got != c.want {
			t.Errorf("%q: %q", c.lines, got)
		}
	}
}

// A trailer arrives after the headers that a proxy looked at, and fasthttp finds it where it finds headers.
func TestTrailersAreRefused(t *testing.T) {
	w := newWorld(t)
	g := w.start(t)
	for _, trailer := range []string{"Idempotency-Key: k\r\n", "Cf-Connecting-Ip: 192.0.2.9\r\n"} {
		for _, announce := range []string{"", "Trailer: Idempotency-Key, Cf-Connecting-Ip\r\n"} {
			raw := "POST /api/flash-sales/items/1001/purchase HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer " + w.token(t, "1") +
				"\r\n" + announce + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n" + trailer + "\r\n"
			if r := doRaw(t, g, raw); r.status != 400 {
				t.Errorf("%q %q: %d %s", announce, trailer, r.status, r.body)
			}
		}
	}
	if n := w.askedCount(); n != 0 {
		t.Errorf("%d reservations", n)
	}
}

func FuzzKey(f *testing.F) {
	f.Add([]byte("k"))
	f.Add([]byte{0x7f})
	f.Fuzz(func(t *testing.T, key []byte) {
		if !validKey(key) {
			return
		}
		if len(key) < 1 || len(key) > 128 || strings.ContainsFunc(string(key), func(r rune) bool { return r <= ' ' || r > '~' }) {
			t.Fatalf("took %q", key)
		}
	})
}

func FuzzTrace(f *testing.F) {
	f.Add([]byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))
	f.Fuzz(func(t *testing.T, value []byte) {
		if !validTrace(value) {
			return
		}
		var trace, span [8]uint64
		var flags uint8
		if n, err := fmt.Sscanf(string(value), "00-%16x%16x-%16x-%02x", &trace[0], &trace[1], &span[0], &flags); n != 4 || err != nil {
			t.Fatalf("took %q: %v", value, err)
		}
		if trace[0]|trace[1] == 0 || span[0] == 0 {
			t.Fatalf("took zeros: %q", value)
		}
	})
}
