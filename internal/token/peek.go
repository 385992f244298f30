package token

import (
	"bytes"
	"encoding/base64"
)

// PeekSubject reads the subject of a token and checks nothing: not the signature, not
// the times. Anybody can write such a token; what it says may only ever lead to a
// closer look. For a token that Verify accepts it gives the subject that Verify gives;
// for any other, something or nothing.
//
// The payload is decoded into buf, and sub lies in it: it is good until buf is used
// again. PeekSubject does not allocate unless buf is too small for the payload (three
// quarters of a token's length is always enough) or there are escapes in the subject.
func PeekSubject(raw, buf []byte) (sub []byte, ok bool) {
	if len(raw) > MaxBytes {
		return nil, false
	}
	payload, ok := payloadOf(raw)
	if !ok {
		return nil, false
	}
	if n := segments.DecodedLen(len(payload)); n > len(buf) {
		buf = make([]byte, n)
	}
	n, err := segments.Decode(buf, payload)
	if err != nil {
		return nil, false
	}
	s, ok := newScanner(buf[:n])
	if !ok {
		return nil, false
	}
	var spelled [maxName]byte
	for {
		name, value, ok := s.next()
		if !ok {
			return nil, false
		}
		// Where the same name comes again, Verify refuses the token: the first will do.
		if string(plain(name, &spelled)) != "sub" {
			continue
		}
		return subjectOf(value)
	}
}

// segments is the encoding of a token's parts: base64url, no padding, no spare bits.
var segments = base64.RawURLEncoding.Strict()

// payloadOf gives the middle one of three segments.
func payloadOf(raw []byte) ([]byte, bool) {
	_, rest, ok := bytes.Cut(raw, dot)
	if !ok {
		return nil, false
	}
	payload, _, ok := bytes.Cut(rest, dot)
	return payload, ok
}

var dot = []byte{'.'}
