package token

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestPeekSubject(t *testing.T) {
	const unsigned = "e30" // the header and the signature are not looked at
	for name, c := range map[string]struct {
		raw, want string
		ok        bool
	}{
		"plain":               {unsigned + "." + segment(`{"sub":"u1"}`) + ".x", "u1", true},
		"forged":              {"x." + segment(`{"exp":0,"sub":"u1"}`) + ".x", "u1", true},
		"nested before":       {"x." + segment(`{"a":{"sub":"u2"},"b":[{"sub":"u3"}],"sub":"u1"}`) + ".x", "u1", true},
		"text before":         {"x." + segment(`{"a":"\",\"sub\":\"u2\"","sub":"u1"}`) + ".x", "u1", true},
		"other case before":   {"x." + segment(`{"SUB":"u2","sub":"u1"}`) + ".x", "u1", true},
		"escapes":             {"x." + segment(`{"s\u0075b":"\u00751"}`) + ".x", "u1", true},
		"white space":         {"x." + segment("\n{ \"sub\"\t:\r\"u1\" }") + ".x", "u1", true},
		"no sub":              {"x." + segment(`{"a":{"sub":"u1"}}`) + ".x", "", false},
		"sub a number":        {"x." + segment(`{"sub":5}`) + ".x", "", false},
		"sub a list":          {"x." + segment(`{"sub":["u1"]}`) + ".x", "", false},
		"sub empty":           {"x." + segment(`{"sub":""}`) + ".x", "", false},
		"sub long":            {"x." + segment(`{"sub":"`+strings.Repeat("a", 65)+`"}`) + ".x", "", false},
		"sub with a control":  {"x." + segment("{\"sub\":\"u\\u0007\"}") + ".x", "", false},
		"cut off in sub":      {"x." + segment(`{"sub":"u1`) + ".x", "", false},
		"cut off in a escape": {"x." + segment(`{"sub":"u1\`) + ".x", "", false},
		"cut off in a name":   {"x." + segment(`{"su`) + ".x", "", false},
		"cut off in a value":  {"x." + segment(`{"a":[1,{"b":2}`) + ".x", "", false},
		"a bad escape":        {"x." + segment(`{"sub":"\x41"}`) + ".x", "", false},
		"a list":              {"x." + segment(`["sub","u1"]`) + ".x", "", false},
		"empty":               {"", "", false},
		"one segment":         {"x", "", false},
		"two segments":        {"x." + segment(`{"sub":"u1"}`), "", false},
		"not base64":          {"x.{\"sub\":\"u1\"}.x", "", false},
		"too long":            {"x." + segment(`{"sub":"u1","p":"`+strings.Repeat("a", MaxBytes)+`"}`) + ".x", "", false},
		"dots":                {strings.Repeat(".", 100_000), "", false},
	} {
		for _, size := range []int{0, 8, MaxBytes} {
			sub, ok := PeekSubject([]byte(c.raw), make([]byte, size))
			if string(sub) != c.want || ok != c.ok {
				t.Errorf("%s, buffer of %d: %q, %v; want %q", name, size, sub, ok, c.want)
			}
		}
	}
}

func TestPeekSubjectDoesNotAllocate(t *testing.T) {
	buf := make([]byte, 1024)
	raw := ordinaryToken(t, HS256)
	if sub, ok := PeekSubject(raw, buf); !ok || string(sub) != ordinarySubject {
		t.Fatalf("%q, %v", sub, ok)
	}
	if n := testing.AllocsPerRun(1000, func() { PeekSubject(raw, buf) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	// Nobody has to sign what is peeked at: what costs is bounded by the length alone.
	hostile := []byte("x." + segment("{"+strings.Repeat(`"s\u0075x":0,`, 400)+`"s\u0075b":"u1"}`) + ".x")
	large := make([]byte, MaxBytes)
	if sub, ok := PeekSubject(hostile, large); !ok || string(sub) != "u1" {
		t.Fatalf("%q, %v", sub, ok)
	}
	if n := testing.AllocsPerRun(10, func() { PeekSubject(hostile, large) }); n != 0 {
		t.Errorf("escaped names cost %v allocations", n)
	}
	dots := []byte(strings.Repeat(".", 100_000))
	if n := testing.AllocsPerRun(10, func() { PeekSubject(dots, buf) }); n != 0 {
		t.Errorf("100,000 dots cost %v allocations", n)
	}
}

const ordinarySubject = "auth0|5f7c8ec7c33c6c004bbafe82"

// ordinaryToken is a token like those of identity providers.
func ordinaryToken(tb testing.TB, algorithm string) []byte {
	tb.Helper()
	return signedBy(tb, algorithm, fmt.Sprintf(`{"iss":"https://id.shop.example/","sub":%q,`+
		`"aud":["https://api.shop.example","https://shop.example/userinfo"],"iat":%d,"exp":%d,`+
		`"azp":"my_client_id","scope":"openid profile purchase"}`, ordinarySubject, at(-time.Minute), at(time.Hour)))
}
