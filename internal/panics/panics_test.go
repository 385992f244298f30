package panics

import (
	"errors"
	"testing"
)

func TestText(t *testing.T) {
	var none map[string]int
	for name, c := range map[string]struct {
		panics func()
		want   string
	}{
		"the runtime": {func() { none["alice"] = 1 }, "assignment to entry in nil map"},
		"a text":      {func() { panic("alice bought") }, "string"},
		"an error":    {func() { panic(errors.New("alice bought")) }, "*errors.errorString"},
		"a value":     {func() { panic(struct{ user string }{"alice"}) }, "struct { user string }"},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if got := Text(recover()); got != c.want {
					t.Errorf("%q, want %q", got, c.want)
				}
			}()
			c.panics()
		})
	}
}
