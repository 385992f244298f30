package token

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

var (
	testNow    = time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC)
	testSecret = []byte("a secret of the tests, 39 bytes in all.")
)

func testClock() time.Time { return testNow }

// testKeys are a private key for each algorithm, made once.
var testKeys = sync.OnceValue(func() map[string]any {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	return map[string]any{HS256: testSecret, RS256: rsaKey, ES256: ecKey, EdDSA: edKey}
})

// newKey makes another private key for an algorithm.
func newKey(tb testing.TB, algorithm string) any {
	tb.Helper()
	switch algorithm {
	case RS256:
		return must(rsa.GenerateKey(rand.Reader, 2048))
	case ES256:
		return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	case EdDSA:
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return must(key, err)
	}
	tb.Fatalf("no key for %s", algorithm)
	return nil
}

// signedAs is a good token that names its key, unless kid is empty.
func signedAs(tb testing.TB, algorithm, kid string, key any) []byte {
	tb.Helper()
	header := fmt.Sprintf(`{"alg":%q,"kid":%q}`, algorithm, kid)
	if kid == "" {
		header = fmt.Sprintf(`{"alg":%q}`, algorithm)
	}
	return signed(tb, jwt.GetSigningMethod(algorithm), key, header, goodPayload())
}

// signedBySaying is a good token whose header claims what it likes.
func signedBySaying(tb testing.TB, used, claimed, kid string) []byte {
	tb.Helper()
	return signed(tb, jwt.GetSigningMethod(used), testKeys()[used], fmt.Sprintf(`{"alg":%q,"kid":%q}`, claimed, kid), goodPayload())
}

// publicPEM is the PKIX text of the public half of an algorithm's key.
func publicPEM(tb testing.TB, private any) []byte {
	tb.Helper()
	der, err := x509.MarshalPKIXPublicKey(private.(crypto.Signer).Public())
	if err != nil {
		tb.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// keysFor are the keys of a gateway that is configured for the algorithms.
func keysFor(tb testing.TB, algorithms ...string) *Keys {
	tb.Helper()
	var cfg KeyConfig
	for _, a := range algorithms {
		if a == HS256 {
			cfg.Secret = testSecret
		} else {
			cfg.PublicKeys = append(cfg.PublicKeys, publicPEM(tb, testKeys()[a])...)
		}
	}
	keys, err := NewKeys(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return keys
}

func newVerifier(tb testing.TB, cfg Config) *Verifier {
	tb.Helper()
	if cfg.Now == nil {
		cfg.Now = testClock
	}
	v, err := NewVerifier(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return v
}

func segment(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

// signed is a token of any header and payload, signed by method with key.
func signed(tb testing.TB, method jwt.SigningMethod, key any, header, payload string) []byte {
	tb.Helper()
	text := segment(header) + "." + segment(payload)
	sig, err := method.Sign(text, key)
	if err != nil {
		tb.Fatal(err)
	}
	return []byte(text + "." + base64.RawURLEncoding.EncodeToString(sig))
}

// signedBy is a token of any payload, signed properly with an algorithm's key.
func signedBy(tb testing.TB, algorithm, payload string) []byte {
	tb.Helper()
	return signed(tb, jwt.GetSigningMethod(algorithm), testKeys()[algorithm],
		fmt.Sprintf(`{"alg":%q,"typ":"JWT"}`, algorithm), payload)
}

// at is the NumericDate of a moment d from now.
func at(d time.Duration) int64 { return testNow.Add(d).Unix() }
