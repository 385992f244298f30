package token

import (
	"bytes"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

func goodPayload() string { return fmt.Sprintf(`{"sub":"u1","exp":%d}`, at(time.Hour)) }

// Each algorithm is held against its own key and no other.
func TestAlgorithmIsPinnedByTheKey(t *testing.T) {
	for _, configured := range algorithms {
		v := newVerifier(t, Config{Keys: keysFor(t, configured)})
		for _, used := range algorithms {
			_, err := v.Verify(signedBy(t, used, goodPayload()))
			if used == configured && err != nil {
				t.Errorf("%s with its key: %v", used, err)
			}
			if used != configured && ReasonOf(err) != ReasonAlgorithm {
				t.Errorf("%s, configured %s: %v", used, configured, err)
			}
		}
	}
	all := newVerifier(t, Config{Keys: keysFor(t, algorithms...)})
	for _, claimed := range algorithms {
		for _, used := range algorithms {
			raw := signed(t, jwt.GetSigningMethod(used), testKeys()[used], fmt.Sprintf(`{"alg":%q}`, claimed), goodPayload())
			_, err := all.Verify(raw)
			if used == claimed && err != nil || used != claimed && ReasonOf(err) != ReasonSignature {
				t.Errorf("signed with %s, says %s: %v", used, claimed, err)
			}
		}
	}
}

// The public key is known to everybody: its text, in any form, is no HS256 secret.
func TestPublicKeyIsNoSecret(t *testing.T) {
	text := publicPEM(t, testKeys()[RS256])
	public := &testKeys()[RS256].(*rsa.PrivateKey).PublicKey
	pkix, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	forms := map[string][]byte{
		"PEM": text, "PEM without the line break": bytes.TrimSpace(text), "PKIX": pkix,
		"PKCS1": x509.MarshalPKCS1PublicKey(public), "modulus": public.N.Bytes(), "nothing": {},
	}
	for name, secret := range forms {
		raw := signed(t, jwt.SigningMethodHS256, secret, `{"alg":"HS256"}`, goodPayload())
		if _, err := newVerifier(t, Config{Keys: keysFor(t, RS256)}).Verify(raw); ReasonOf(err) != ReasonAlgorithm {
			t.Errorf("%s, public key configured: %v", name, err)
		}
		if _, err := newVerifier(t, Config{Keys: keysFor(t, HS256, RS256)}).Verify(raw); ReasonOf(err) != ReasonSignature {
			t.Errorf("%s, both configured: %v", name, err)
		}
		asRS := signed(t, jwt.SigningMethodHS256, secret, `{"alg":"RS256"}`, goodPayload())
		if _, err := newVerifier(t, Config{Keys: keysFor(t, RS256)}).Verify(asRS); ReasonOf(err) != ReasonSignature {
			t.Errorf("%s, said to be RS256: %v", name, err)
		}
	}
}

func TestVerifyHeader(t *testing.T) {
	v := newVerifier(t, Config{Keys: keysFor(t, algorithms...)})
	for header, want := range map[string]Reason{
		`{"alg":"HS256"}`:                            "",
		`{"alg":"HS256","typ":"JWT","kid":"k1"}`:     "",
		` { "typ":null, "alg" : "HS256" } `:          "",
		`{"alg":"HS256","ALG":"none"}`:               "",
		`{"alg":"none"}`:                             ReasonAlgorithm,
		`{"alg":"None"}`:                             ReasonAlgorithm,
		`{"alg":"NONE"}`:                             ReasonAlgorithm,
		`{"alg":""}`:                                 ReasonAlgorithm,
		`{"alg":"hs256"}`:                            ReasonAlgorithm,
		`{"alg":"HS384"}`:                            ReasonAlgorithm,
		`{"alg":"HS512"}`:                            ReasonAlgorithm,
		`{"alg":"RS512"}`:                            ReasonAlgorithm,
		`{"alg":"PS256"}`:                            ReasonAlgorithm,
		`{"alg":"ES384"}`:                            ReasonAlgorithm,
		`{"alg":"HS256 "}`:                           ReasonAlgorithm,
		`{}`:                                         ReasonMalformed,
		`{"ALG":"HS256"}`:                            ReasonMalformed,
		`{"alg":null}`:                               ReasonMalformed,
		`{"alg":256}`:                                ReasonMalformed,
		`{"alg":["HS256"]}`:                          ReasonMalformed,
		`{"alg":"none","alg":"HS256"}`:               ReasonMalformed,
		`{"alg":"HS256","alg":"none"}`:               ReasonMalformed,
		`{"alg":"HS256","\u0061lg":"HS256"}`:         ReasonMalformed,
		`{"alg":"HS256","kid":7}`:                    ReasonMalformed,
		`{"alg":"HS256","kid":"a","kid":"b"}`:        ReasonMalformed,
		`{"alg":"HS256","crit":["exp"],"exp":1}`:     ReasonMalformed,
		`{"alg":"HS256","crit":[]}`:                  ReasonMalformed,
		`{"alg":"HS256","b64":false,"crit":["b64"]}`: ReasonMalformed,
		`{"alg":"HS256","cr\u0069t":["b64"]}`:        ReasonMalformed,
		`[]`:                                         ReasonMalformed,
		`null`:                                       ReasonMalformed,
		`"HS256"`:                                    ReasonMalformed,
		`{"alg":"HS256"`:                             ReasonMalformed,
		`{"alg":"HS256",}`:                           ReasonMalformed,
		`{"alg":"HS256"}{}`:                          ReasonMalformed,
	} {
		_, err := v.Verify(signed(t, jwt.SigningMethodHS256, testSecret, header, goodPayload()))
		if ReasonOf(err) != want || (err == nil) != (want == "") {
			t.Errorf("%s: %v, want %q", header, err, want)
		}
	}
}

func TestVerifyShape(t *testing.T) {
	v := newVerifier(t, Config{Keys: keysFor(t, HS256)})
	good := string(signedBy(t, HS256, goodPayload()))
	parts := strings.Split(good, ".")
	for name, raw := range map[string]string{
		"empty":                  "",
		"two segments":           parts[0] + "." + parts[1],
		"four segments":          good + "." + parts[2],
		"five segments":          good + ".a.b",
		"empty signature":        parts[0] + "." + parts[1] + ".",
		"none, empty signature":  segment(`{"alg":"none"}`) + "." + parts[1] + ".",
		"empty payload":          parts[0] + ".." + parts[2],
		"empty header":           "." + parts[1] + "." + parts[2],
		"dots":                   "..",
		"padding":                good + "=",
		"base64 of another kind": parts[0] + "." + parts[1] + "." + "+/" + parts[2][2:],
		"a space before":         " " + good,
		"a space behind":         good + " ",
		"a line break in it":     parts[0] + "." + parts[1] + "." + parts[2][:5] + "\r\n" + parts[2][5:],
		"a line break behind":    good + "\n",
		"NUL":                    good + "\x00",
		"not ASCII":              good + "é",
		"the scheme before":      "Bearer " + good,
		"one letter a segment":   "a.a.a",
		"8192 dots":              strings.Repeat(".", MaxBytes),
		"100,000 dots":           strings.Repeat(".", 100_000),
		"100,000 letters":        strings.Repeat("a", 100_000),
		"one byte too many":      parts[0] + "." + strings.Repeat("a", MaxBytes-len(parts[0])) + ".",
	} {
		if _, err := v.Verify([]byte(raw)); ReasonOf(err) != ReasonMalformed {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, n := range []int{100, MaxBytes, 100_000, 10_000_000} {
		raw := bytes.Repeat([]byte("."), n)
		if allocs := testing.AllocsPerRun(10, func() { _, _ = v.Verify(raw) }); allocs != 0 {
			t.Errorf("%d dots cost %v allocations", n, allocs)
		}
	}
}

// A token of exactly the longest length passes, one byte more does not.
func TestVerifyLength(t *testing.T) {
	v := newVerifier(t, Config{Keys: keysFor(t, HS256)})
	sizes := map[int]error{}
	for pad := 5800; pad < 6200; pad++ {
		raw := signedBy(t, HS256, strings.TrimSuffix(goodPayload(), "}")+`,"pad":"`+strings.Repeat("x", pad)+`"}`)
		_, sizes[len(raw)] = v.Verify(raw)
		if _, ok := PeekSubject(raw, nil); ok != (sizes[len(raw)] == nil) {
			t.Errorf("%d bytes: PeekSubject says %v", len(raw), ok)
		}
	}
	for size, err := range sizes {
		if size <= MaxBytes && err != nil || size > MaxBytes && ReasonOf(err) != ReasonMalformed {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	if _, tried := sizes[MaxBytes]; !tried {
		t.Error("the longest length was not tried")
	}
}

// Any change of any byte is noticed.
func TestVerifyTampered(t *testing.T) {
	for _, algorithm := range algorithms {
		v := newVerifier(t, Config{Keys: keysFor(t, algorithm)})
		raw := signedBy(t, algorithm, goodPayload())
		for i := range raw {
			changed := bytes.Clone(raw)
			for _, c := range []byte("AB") { // differ in the lowest bit, which may be a spare one
				if changed[i] = c; bytes.Equal(changed, raw) {
					continue
				}
				if _, err := v.Verify(changed); err == nil {
					t.Errorf("%s: byte %d can be %q as well", algorithm, i, c)
				}
			}
		}
	}
}

func TestErrorsHoldNothingOfTheToken(t *testing.T) {
	v := newVerifier(t, Config{Keys: keysFor(t, HS256), Audience: "ours"})
	mark := "S3CRETMARK"
	for _, raw := range [][]byte{
		signed(t, jwt.SigningMethodHS256, testSecret, `{"alg":"`+mark+`"}`, goodPayload()),
		signed(t, jwt.SigningMethodHS256, testSecret, `{"alg":"HS256","crit":["`+mark+`"]}`, goodPayload()),
		signed(t, jwt.SigningMethodHS256, []byte("another"), `{"alg":"HS256"}`, `{"sub":"`+mark+`"}`),
		signedBy(t, HS256, `{"sub":"`+mark+`",`+mark),
		signedBy(t, HS256, `{"sub":"`+mark+`","exp":"`+mark+`"}`),
		signedBy(t, HS256, fmt.Sprintf(`{"sub":"%s","exp":%d,"aud":"%s"}`, mark, at(time.Hour), mark)),
		[]byte(mark), []byte(mark + "." + mark + "." + mark), []byte("e30." + mark + "." + mark),
	} {
		_, err := v.Verify(raw)
		var refused *Error
		if !errors.As(err, &refused) {
			t.Fatalf("%v is no *Error", err)
		}
		for _, part := range append(strings.Split(string(raw), "."), mark) {
			if strings.Contains(err.Error(), part) {
				t.Errorf("%q holds %q", err, part)
			}
		}
		if !strings.HasPrefix(err.Error(), "verify token: ") {
			t.Errorf("%q does not say what could not be done", err)
		}
	}
	if ReasonOf(errors.New("x")) != "" || ReasonOf(nil) != "" || ReasonOf(fmt.Errorf("x: %w", errExpired)) != ReasonExpired {
		t.Error("ReasonOf is wrong")
	}
}

// idSource has keys by id, as a key set has.
type idSource map[string]any

func (s idSource) Key(algorithm, id string) (any, bool) {
	k, ok := s[algorithm+" "+id]
	return k, ok
}

func (s idSource) Pending(string) bool { return false }

func TestKeySourceGetsTheID(t *testing.T) {
	rsaKey := testKeys()[RS256].(*rsa.PrivateKey)
	v := newVerifier(t, Config{Keys: idSource{
		"RS256 new":   &rsaKey.PublicKey,
		"HS256 both":  jwt.VerificationKeySet{Keys: []jwt.VerificationKey{[]byte("old"), testSecret}},
		"RS256 wrong": testSecret, // a source that breaks its word
	}})
	for header, want := range map[string]Reason{
		`{"alg":"RS256","kid":"new"}`:   "",
		`{"alg":"RS256","kid":"old"}`:   ReasonKey,
		`{"alg":"RS256"}`:               ReasonAlgorithm,
		`{"alg":"RS256","kid":"wrong"}`: ReasonSignature,
	} {
		_, err := v.Verify(signed(t, jwt.SigningMethodRS256, rsaKey, header, goodPayload()))
		if ReasonOf(err) != want {
			t.Errorf("%s: %v, want %q", header, err, want)
		}
	}
	if _, err := v.Verify(signed(t, jwt.SigningMethodHS256, testSecret, `{"alg":"HS256","kid":"both"}`, goodPayload())); err != nil {
		t.Errorf("one of two keys: %v", err)
	}
}

func TestVerifierConfig(t *testing.T) {
	keys := keysFor(t, HS256)
	for name, cfg := range map[string]Config{
		"no keys":         {},
		"negative leeway": {Keys: keys, Leeway: -1},
		"a day of leeway": {Keys: keys, Leeway: 24 * time.Hour},
	} {
		if _, err := NewVerifier(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestVerifyIsSafeForConcurrentUse(t *testing.T) {
	v := newVerifier(t, Config{Keys: keysFor(t, algorithms...)})
	var tokens [][]byte
	for _, a := range algorithms {
		tokens = append(tokens, signedBy(t, a, goodPayload()))
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 40 {
				if c, err := v.Verify(tokens[i%len(tokens)]); err != nil || c.Subject != "u1" {
					t.Errorf("%+v, %v", c, err)
				}
			}
		})
	}
	wg.Wait()
}

// Verify keeps nothing of the request's buffer.
func TestClaimsOutliveTheBuffer(t *testing.T) {
	v := newVerifier(t, Config{Keys: keysFor(t, HS256)})
	raw := signedBy(t, HS256, goodPayload())
	claims, err := v.Verify(raw)
	clear(raw)
	if err != nil || claims.Subject != "u1" {
		t.Errorf("%+v, %v", claims, err)
	}
}
