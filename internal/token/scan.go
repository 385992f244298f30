package token

import (
	"bytes"
	"encoding/json"
)

// scanner walks the members of one JSON object, at its top level alone. It checks
// only what it needs to find the borders: on valid JSON it gives exactly the members,
// on anything else something or an end, without a panic and without leaving data.
// Names and values are parts of data, as they stand there.
type scanner struct {
	data []byte
	pos  int
}

// newScanner starts behind the opening brace; ok is false if data is no object.
func newScanner(data []byte) (s scanner, ok bool) {
	s.data = data
	s.space()
	return s, s.skip('{')
}

// next gives the next member: its name without the quotes, escapes and all, and its
// value. ok is false behind the last one, and where the object breaks off.
func (s *scanner) next() (name, value []byte, ok bool) {
	s.space()
	s.skip(',')
	s.space()
	name, ok = s.str()
	if !ok {
		return nil, nil, false
	}
	s.space()
	if !s.skip(':') {
		return nil, nil, false
	}
	s.space()
	start := s.pos
	if !s.value() {
		return nil, nil, false
	}
	return name, s.data[start:s.pos], true
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

func (s *scanner) skip(c byte) bool {
	if s.pos < len(s.data) && s.data[s.pos] == c {
		s.pos++
		return true
	}
	return false
}

// str reads a string and gives what is between its quotes.
func (s *scanner) str() ([]byte, bool) {
	if !s.skip('"') {
		return nil, false
	}
	for start := s.pos; s.pos < len(s.data); s.pos++ {
		switch s.data[s.pos] {
		case '"':
			s.pos++
			return s.data[start : s.pos-1], true
		case '\\':
			s.pos++
		}
	}
	return nil, false
}

// value moves behind a value of any kind.
func (s *scanner) value() bool {
	depth, start := 0, s.pos
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case '"':
			if _, ok := s.str(); !ok {
				return false
			}
			if depth == 0 {
				return true
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 { // the object around a number or a word ends
				return s.pos > start
			}
			if depth--; depth == 0 {
				s.pos++
				return true
			}
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return s.pos > start
			}
		}
		s.pos++
	}
	return false
}

// maxName is the longest name that any reader here looks for.
const maxName = len("crit")

// plain gives the meaning of a name: itself if there are no escapes in it, else what
// they spell, if that is short and ASCII as every name that counts is; nil for any
// other. It works in buf and does not allocate: whoever sends a token without a good
// signature can put hundreds of escaped names in it.
func plain(raw []byte, buf *[maxName]byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	name := buf[:0]
	for len(raw) > 0 {
		if len(name) == maxName {
			return nil
		}
		c := raw[0]
		if c != '\\' {
			name, raw = append(name, c), raw[1:]
			continue
		}
		// The short escapes (\n, \", …) spell none of the characters of a known name.
		if len(raw) < 6 || raw[1] != 'u' || raw[2] != '0' || raw[3] != '0' {
			return nil
		}
		high, ok := hexDigit(raw[4])
		low, ok2 := hexDigit(raw[5])
		if !ok || !ok2 || high > 7 {
			return nil
		}
		name, raw = append(name, high<<4|low), raw[6:]
	}
	return name
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10, true
	}
	return 0, false
}

// text gives the meaning of a string that stands between quotes. It allocates, and
// copies, only if there are escapes in it.
func text(raw []byte) ([]byte, bool) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw, true
	}
	quoted := make([]byte, 0, len(raw)+2)
	quoted = append(append(append(quoted, '"'), raw...), '"')
	var s string
	if json.Unmarshal(quoted, &s) != nil {
		return nil, false
	}
	return []byte(s), true
}

// isString tells whether a value is a string, and gives what is between its quotes.
func isString(value []byte) ([]byte, bool) {
	if len(value) < 2 || value[0] != '"' {
		return nil, false
	}
	return value[1 : len(value)-1], true
}
