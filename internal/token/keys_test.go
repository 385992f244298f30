package token

import (
	"bytes"
	"crypto"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"
)

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// certificate is a certificate of the key, which has been invalid for years.
func certificate(tb testing.TB, key crypto.Signer) []byte {
	tb.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Unix(1, 0), NotAfter: time.Unix(2, 0),
	}
	return block("CERTIFICATE", must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)))
}

// Every PEM form of every key is read, and verifies a token of its algorithm.
func TestKeysFromPEM(t *testing.T) {
	rsaKey := testKeys()[RS256].(*rsa.PrivateKey)
	cases := map[string]struct {
		algorithm string
		text      []byte
	}{
		"PKCS #1": {RS256, block("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&rsaKey.PublicKey))},
	}
	for _, a := range []string{RS256, ES256, EdDSA} {
		key := testKeys()[a]
		add := func(name string, text []byte) {
			cases[a+" "+name] = struct {
				algorithm string
				text      []byte
			}{a, text}
		}
		text := publicPEM(t, key)
		add("PKIX", text)
		add("certificate", certificate(t, key.(crypto.Signer)))
		add("with CRLF", bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n")))
		add("with comments", append(append([]byte("the key of the shop\n\n"), text...), "\nend\n"...))
		add("without the last line break", bytes.TrimSpace(text))
	}
	for name, c := range cases {
		keys, err := NewKeys(KeyConfig{PublicKeys: c.text})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := keys.Algorithms(); !slices.Equal(got, []string{c.algorithm}) {
			t.Errorf("%s: a key for %v, not %s", name, got, c.algorithm)
		}
		if _, err := newVerifier(t, Config{Keys: keys}).Verify(signedBy(t, c.algorithm, goodPayload())); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := keysFor(t, EdDSA, HS256, ES256, RS256).Algorithms(); !slices.Equal(got, algorithms) {
		t.Errorf("all keys in one file are for %v", got)
	}
}

func TestKeysNameWhatIsWrong(t *testing.T) {
	rsaKey := testKeys()[RS256].(*rsa.PrivateKey)
	ecKey := testKeys()[ES256].(*ecdsa.PrivateKey)
	smallRSA := must(rsa.GenerateKey(rand.Reader, 1024)) //nolint:gosec // too small on purpose
	p384 := must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))
	x25519 := must(ecdh.X25519().GenerateKey(rand.Reader))
	rsaPEM, ecPEM := publicPEM(t, rsaKey), publicPEM(t, ecKey)
	const private = "it is a private key"
	for name, c := range map[string]struct {
		text []byte
		want string
	}{
		"PKCS #8 RSA":       {block("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(rsaKey))), private},
		"PKCS #8 EC":        {block("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(ecKey))), private},
		"PKCS #8 Ed25519":   {block("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(testKeys()[EdDSA]))), private},
		"PKCS #1 private":   {block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsaKey)), private},
		"SEC 1":             {block("EC PRIVATE KEY", must(x509.MarshalECPrivateKey(ecKey))), private},
		"encrypted":         {block("ENCRYPTED PRIVATE KEY", []byte("x")), private},
		"OpenSSH":           {block("OPENSSH PRIVATE KEY", []byte("x")), private},
		"public, private":   {append(slices.Clone(rsaPEM), block("PRIVATE KEY", []byte("x"))...), "PEM block 2"},
		"RSA of 1024 bits":  {publicPEM(t, smallRSA), "1024 bits, and must have at least 2048"},
		"a small RSA cert":  {certificate(t, smallRSA), "1024 bits, and must have at least 2048"},
		"P-384":             {publicPEM(t, p384), "on P-384, and must be on P-256"},
		"X25519":            {block("PUBLIC KEY", must(x509.MarshalPKIXPublicKey(x25519.Public()))), "must be RSA, EC on P-256 or Ed25519"},
		"two RSA":           {append(slices.Clone(rsaPEM), certificate(t, rsaKey)...), "PEM block 2 is a second key for RS256"},
		"PKCS #1 as PKIX":   {block("PUBLIC KEY", x509.MarshalPKCS1PublicKey(&rsaKey.PublicKey)), "PEM block 1"},
		"rubbish":           {block("PUBLIC KEY", []byte("rubbish")), "PEM block 1"},
		"rubbish cert":      {block("CERTIFICATE", []byte("rubbish")), "PEM block 1"},
		"a request":         {block("CERTIFICATE REQUEST", []byte("x")), "must be a PUBLIC KEY"},
		"half a block":      {rsaPEM[:len(rsaPEM)/2], "PEM block 1 is damaged"},
		"half a second":     {append(slices.Clone(ecPEM), rsaPEM[:len(rsaPEM)/2]...), "PEM block 2 is damaged"},
		"no PEM":            {[]byte("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5"), "no PEM block"},
		"white space alone": {[]byte("\n"), "no PEM block"},
	} {
		_, err := NewKeys(KeyConfig{PublicKeys: c.text})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want an error with %q", name, err, c.want)
			continue
		}
		if !strings.HasPrefix(err.Error(), "load token public key: ") {
			t.Errorf("%s: %q does not say what could not be done", name, err)
		}
	}
}

func TestSecret(t *testing.T) {
	for name, c := range map[string]struct{ secret, want string }{
		"31 bytes":     {strings.Repeat("s", 31), "it has 31 bytes, and must have at least 32"},
		"a public key": {string(publicPEM(t, testKeys()[RS256])), "it is a PEM file"},
	} {
		_, err := NewKeys(KeyConfig{Secret: []byte(c.secret)})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want an error with %q", name, err, c.want)
		} else if strings.Contains(err.Error(), c.secret) {
			t.Errorf("%s: the error holds the secret", name)
		}
		if _, err := NewSigner(SignerConfig{Secret: []byte(c.secret)}); err == nil {
			t.Errorf("%s: a signer takes it", name)
		}
	}
	if _, err := NewKeys(KeyConfig{}); err == nil {
		t.Error("no keys at all are taken")
	}
	// The keys do not change with the caller's buffer.
	secret := bytes.Repeat([]byte("s"), MinSecret)
	keys, err := NewKeys(KeyConfig{Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	clear(secret)
	if key, _ := keys.Key(HS256, ""); key.([]byte)[0] != 's' {
		t.Error("the secret is the caller's buffer")
	}
}
