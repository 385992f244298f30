package token

import (
	"bytes"
	"crypto"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// For every payload that Verify accepts, properly signed, the subject is the one that
// PeekSubject gives, and the one that encoding/json finds under exactly that name.
func FuzzSubjectAgrees(f *testing.F) {
	for _, c := range claimCases() {
		f.Add([]byte(c.payload))
	}
	f.Add([]byte(goodPayload()))
	v := newVerifier(f, Config{Keys: keysFor(f, HS256), Leeway: DefaultLeeway})
	f.Fuzz(func(t *testing.T, payload []byte) {
		raw := signed(t, jwt.SigningMethodHS256, testSecret, `{"alg":"HS256"}`, string(payload))
		claims, err := v.Verify(raw)
		sub, ok := PeekSubject(raw, make([]byte, 256))
		if ok && !validSubject(sub) {
			t.Fatalf("PeekSubject gives %q", sub)
		}
		if err != nil {
			return
		}
		if !ok || string(sub) != claims.Subject {
			t.Fatalf("Verify gives %q, PeekSubject %q, %v", claims.Subject, sub, ok)
		}
		var members map[string]any // matches names exactly, as a struct would not
		if err := json.Unmarshal(payload, &members); err != nil {
			t.Fatalf("accepted, but not JSON: %v", err)
		}
		if members["sub"] != claims.Subject {
			t.Fatalf("Verify gives %q, encoding/json %v", claims.Subject, members["sub"])
		}
		if exp, ok := members["exp"].(float64); !ok || exp <= float64(testNow.Add(-DefaultLeeway).Unix()) || exp > maxSeconds {
			t.Fatalf("accepted with exp %v", members["exp"])
		}
	})
}

// Whatever arrives as a token: no panic, a typed refusal, and never a look at a key
// for anything but one of the four algorithms.
func FuzzVerify(f *testing.F) {
	f.Add([]byte("a.b.c"))
	f.Add(bytes.Repeat([]byte("."), 100))
	for _, a := range algorithms {
		f.Add(signedBy(f, a, goodPayload()))
	}
	f.Add([]byte(segment(`{"alg":"none"}`) + "." + segment(goodPayload()) + ".x"))
	f.Add([]byte(segment(`{"alg":"HS256","crit":["x"]}`) + "." + segment(goodPayload()) + ".x"))
	v := newVerifier(f, Config{Keys: keysFor(f, algorithms...), Issuer: "us", Audience: "ours", Leeway: time.Second})
	f.Fuzz(func(t *testing.T, raw []byte) {
		before := bytes.Clone(raw)
		var refused *Error
		if _, err := v.Verify(raw); !errors.As(err, &refused) || refused.Reason == "" {
			t.Fatalf("%q: %v", raw, err) // no seed has the issuer, and nobody can sign
		}
		PeekSubject(raw, make([]byte, 16))
		FromHeader(raw)
		if !bytes.Equal(raw, before) {
			t.Fatal("the token was written to")
		}
	})
}

// On valid JSON the scanner gives the same members as encoding/json, in order.
func FuzzScanner(f *testing.F) {
	for _, c := range claimCases() {
		f.Add([]byte(c.payload))
	}
	f.Add([]byte(`{"a":"\\","b":{"c":["}",{"d":"\""}]},"e":-1.5e+3,"f":true , "" : null }`))
	f.Add([]byte(`{"\u0073\u0075\u0062":1,"\u00C0":2,"al\u0067":3,"\u0063\u0072\u0069\u0074":4,"su\b":5,"sub\u0000":6}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, isObject := newScanner(data)
		type member struct {
			name  string
			value []byte
		}
		var got []member
		if isObject {
			for {
				raw, value, ok := s.next()
				if !ok {
					break
				}
				name, ok := text(raw)
				if !ok && json.Valid(data) {
					t.Fatalf("%q of valid JSON cannot be read", raw)
				}
				var buf [maxName]byte
				for _, known := range []string{"alg", "kid", "crit", "sub", "exp", "nbf", "iat", "iss", "aud"} {
					if is := string(plain(raw, &buf)) == known; ok && is != (string(name) == known) {
						t.Fatalf("%q is %q, and %v taken for %q", raw, name, is, known)
					}
				}
				got = append(got, member{string(name), value})
			}
		}
		dec := json.NewDecoder(bytes.NewReader(data))
		if first, err := dec.Token(); err != nil || !json.Valid(data) || first != json.Delim('{') {
			if isObject && json.Valid(data) {
				t.Fatal("taken for an object")
			}
			return
		}
		for _, m := range got {
			name, err := dec.Token()
			if err != nil || name != m.name {
				// Names that are not UTF-8 stay as they are here.
				if n, ok := name.(string); err != nil || !ok || n != string(bytes.ToValidUTF8([]byte(m.name), []byte("\ufffd"))) && !bytes.ContainsRune([]byte(n), '\ufffd') {
					t.Fatalf("member %q, encoding/json has %v, %v", m.name, name, err)
				}
			}
			var value json.RawMessage
			if err := dec.Decode(&value); err != nil || !bytes.Equal(value, m.value) {
				t.Fatalf("member %q is %q, encoding/json has %q, %v", m.name, m.value, value, err)
			}
		}
		if dec.More() {
			t.Fatalf("%d members found, and there are more", len(got))
		}
	})
}

// Whatever is configured as PEM: no panic, and either an error or whole blocks, each a key for its algorithm.
func FuzzPublicKeys(f *testing.F) {
	for _, a := range []string{RS256, ES256, EdDSA} {
		text := publicPEM(f, testKeys()[a])
		f.Add(text)
		f.Add(append([]byte("comment\n"), append(text, text[:len(text)/2]...)...))
		f.Add(append(certificate(f, testKeys()[a].(crypto.Signer)), text...))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, err := parsePublicKeys(data)
		if err != nil {
			return
		}
		found := 0
		for algorithm, list := range keys {
			for _, key := range list {
				if a, err := algorithmOf(key); err != nil || a != algorithm || len(list) > maxStaticKeys {
					t.Fatalf("%T as one of %d for %s: %v", key, len(list), algorithm, err)
				}
				found++
			}
		}
		if begun := bytes.Count(data, pemBegin); found == 0 || found > begun || begun != bytes.Count(data, pemEnd) {
			t.Fatalf("%d keys of %d blocks begun and %d ended", found, begun, bytes.Count(data, pemEnd))
		}
	})
}
