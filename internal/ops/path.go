package ops

import (
	"net/http"
	"strings"
)

// Path returns the path of a request if it was sent in the one form that means what it says: the request target itself, byte for byte, not
// what is left of it after decoding. "//admin", "/x/../admin", "/%61dmin" and "/admin/" are other spellings of "/admin" to some programs and
// not to others, and a rule that is checked on one spelling while another is served is no rule. None of them is a path here; nothing is ever
// redirected to a better spelling either.
//
// The only path with a slash at its end is that of the index of profiles, which links to its neighbours.
func Path(r *http.Request) (path string, ok bool) {
	path, _, _ = strings.Cut(r.RequestURI, "?")
	if path == profiles {
		return path, true
	}
	if !strings.HasPrefix(path, "/") || len(path) == 1 {
		return "", false
	}
	for segment := range strings.SplitSeq(path[1:], "/") {
		if segment == "" || segment == "." || segment == ".." {
			return "", false
		}
		for i := range len(segment) {
			if !plain(segment[i]) {
				return "", false
			}
		}
	}
	// What net/http read of it has to be the same, as handlers look at that.
	return path, r.URL.Path == path
}

// plain reports whether c needs no escape in a path (RFC 3986, 2.3).
func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~'
}
