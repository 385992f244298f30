package token

import "unicode/utf8"

// MaxSubject is the longest subject in bytes.
const MaxSubject = 64

// subjectOf reads the subject from the value of the claim. Everything that gives a
// subject goes through here. It does not allocate unless there are escapes in it, and
// then not much: a character of one byte takes six at most.
func subjectOf(value []byte) (sub []byte, ok bool) {
	inner, ok := isString(value)
	if !ok || len(inner) > 6*MaxSubject {
		return nil, false
	}
	if sub, ok = text(inner); !ok || !validSubject(sub) {
		return nil, false
	}
	return sub, true
}

// validSubject tells whether sub may name a user: 1 to MaxSubject bytes of UTF-8,
// no control characters (C0, DEL and C1), and no U+FFFD: it is what decoders put in
// place of what they could not read, half a surrogate pair for one, so that two
// different names could arrive as one.
func validSubject(sub []byte) bool {
	if len(sub) == 0 || len(sub) > MaxSubject {
		return false
	}
	for i := 0; i < len(sub); {
		r, size := utf8.DecodeRune(sub[i:])
		if r < 0x20 || r >= 0x7f && r < 0xa0 || r == utf8.RuneError {
			return false
		}
		i += size
	}
	return true
}
