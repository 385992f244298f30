package token

import (
	"bytes"
	"encoding/json"
)

// FromHeader finds the token in the value of an Authorization header: the scheme
// Bearer in any case, one or more spaces, and the token without any white space
// (RFC 9110, 11.4). The token is a part of authorization. Whether it is a good one is
// for Verify to say.
func FromHeader(authorization []byte) (raw []byte, ok bool) {
	const scheme = "bearer"
	if len(authorization) <= len(scheme) || !bytes.EqualFold(authorization[:len(scheme)], []byte(scheme)) {
		return nil, false
	}
	rest := authorization[len(scheme):]
	raw = bytes.TrimLeft(rest, " ")
	if len(raw) == len(rest) || len(raw) == 0 || bytes.ContainsAny(raw, " \t\r\n") {
		return nil, false
	}
	return raw, true
}

// joseHeader is what matters of a token's header.
type joseHeader struct{ algorithm, id string }

// readHeader decodes the header (RFC 7515, 4), before anything is believed of it.
func readHeader(segment []byte) (joseHeader, *Error) {
	var h joseHeader
	decoded, ok := decode(segment)
	if !ok {
		return h, errShape
	}
	s, ok := newScanner(decoded)
	if !ok || !json.Valid(decoded) {
		return h, errHeader
	}
	var (
		buf           [maxName]byte
		algorithm, id bool
	)
	for {
		raw, value, ok := s.next()
		if !ok {
			break
		}
		switch string(plain(raw, &buf)) {
		case "alg":
			if algorithm || !stringInto(&h.algorithm, value) {
				return h, errHeader
			}
			algorithm = true
		case "kid":
			if id || !stringInto(&h.id, value) {
				return h, errHeader
			}
			id = true
		case "crit":
			// No extension is known here, and one that is critical must be (4.1.11).
			return h, errCritical
		}
	}
	if !algorithm {
		return h, errHeader
	}
	return h, nil
}

// stringInto copies a value into dst if it is a string.
func stringInto(dst *string, value []byte) bool {
	inner, ok := isString(value)
	if !ok {
		return false
	}
	b, ok := text(inner)
	if !ok {
		return false
	}
	*dst = string(b)
	return true
}
