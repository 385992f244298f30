package ops_test

import (
	"net/http"
	"net/url"
	"path"
	"strings"
	"testing"

	"flashgate/internal/ops"
)

// FuzzPath gives any request target: what is taken is clean by every reading of it, and the same before and after decoding.
func FuzzPath(f *testing.F) {
	for _, seed := range []string{"/admin", "/admin/sales/1", "//admin", "/%61dmin", "/a/../b", "/debug/pprof/", "/a?b=/c/", "*", "http://x/y", "/a%2fb", "/.", "/~x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			return // net/http answers 400
		}
		got, ok := ops.Path(&http.Request{RequestURI: target, URL: u})
		if !ok {
			return
		}
		if got != "/debug/pprof/" && (path.Clean(got) != got || strings.HasSuffix(got, "/")) {
			t.Errorf("%q was taken as %q, which is not clean", target, got)
		}
		if got != u.Path || strings.ContainsAny(got, "%\\;? ") || !strings.HasPrefix(target, got) {
			t.Errorf("%q was taken as %q, the handlers see %q", target, got, u.Path)
		}
	})
}
