package token

import "testing"

func TestFromHeader(t *testing.T) {
	for header, want := range map[string]string{
		"Bearer a.b.c":     "a.b.c",
		"bearer a.b.c":     "a.b.c",
		"BEARER a.b.c":     "a.b.c",
		"bEaReR a.b.c":     "a.b.c",
		"Bearer   a.b.c":   "a.b.c",
		"Bearer x":         "x",
		"":                 "",
		"Bearer":           "",
		"Bearer ":          "",
		"Bearer    ":       "",
		"Bearera.b.c":      "",
		"Bearer\ta.b.c":    "",
		"Bearer \ta.b.c":   "",
		"Bearer a.b.c ":    "",
		"Bearer a.b.c d":   "",
		"Bearer a.b.c, d":  "",
		"Bearer a.b.c\r\n": "",
		" Bearer a.b.c":    "",
		"Bearer, a.b.c":    "",
		"Basic a.b.c":      "",
		"a.b.c":            "",
		"Bearer: a.b.c":    "",
	} {
		raw, ok := FromHeader([]byte(header))
		if string(raw) != want || ok != (want != "") {
			t.Errorf("%q: %q, %v; want %q", header, raw, ok, want)
		}
	}
	header := []byte("Bearer a.b.c")
	if n := testing.AllocsPerRun(100, func() { FromHeader(header) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
