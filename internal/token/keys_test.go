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
	"crypto/x509/pkix"
	"encoding/hex"
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

// issued is a certificate of key, signed by another.
func issued(tb testing.TB, name string, key crypto.Signer, by string, signer crypto.Signer, authority bool) []byte {
	tb.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: authority, BasicConstraintsValid: true,
	}
	parent := &x509.Certificate{Subject: pkix.Name{CommonName: by}}
	return block("CERTIFICATE", must(x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)))
}

func der(tb testing.TB, key any) []byte {
	tb.Helper()
	return unblock(publicPEM(tb, key))
}

func unblock(text []byte) []byte {
	b, _ := pem.Decode(text)
	return b.Bytes
}

func utf16(text []byte) []byte {
	out := []byte{0xff, 0xfe}
	for _, c := range text {
		out = append(out, c, 0)
	}
	return out
}

// rsaOf is the text of an RSA key that nobody would make.
func rsaOf(tb testing.TB, n *big.Int, e int) []byte {
	tb.Helper()
	return block("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&rsa.PublicKey{N: n, E: e}))
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
		add("with a byte order mark", append([]byte("\ufeff"), text...))
		add("twice", append(slices.Clone(text), certificate(t, key.(crypto.Signer))...))
		add("self-signed authority", issued(t, "us", key.(crypto.Signer), "us", key.(crypto.Signer), true))
		add("issued by another", issued(t, "us", key.(crypto.Signer), "them", newKey(t, ES256).(crypto.Signer), false))
		add("among others", slices.Concat(publicPEM(t, newKey(t, EdDSA)), text, publicPEM(t, newKey(t, ES256))))
	}
	for name, c := range cases {
		keys, err := NewKeys(KeyConfig{PublicKeys: c.text})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := keys.Algorithms(); !slices.Equal(got, []string{c.algorithm}) && !strings.HasSuffix(name, "among others") {
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

// While the keys of the configuration rotate, the old and the new one count, and no other.
func TestKeysRotateInOneFile(t *testing.T) {
	for _, algorithm := range []string{RS256, ES256, EdDSA} {
		old, next := testKeys()[algorithm], newKey(t, algorithm)
		keys, err := NewKeys(KeyConfig{PublicKeys: slices.Concat(publicPEM(t, old), publicPEM(t, next))})
		if err != nil {
			t.Fatal(err)
		}
		v := newVerifier(t, Config{Keys: keys})
		for name, c := range map[string]struct {
			key  any
			want Reason
		}{"old": {old, ""}, "new": {next, ""}, "other": {newKey(t, algorithm), ReasonSignature}} {
			for _, kid := range []string{"", "k1"} {
				if _, err := v.Verify(signedAs(t, algorithm, kid, c.key)); ReasonOf(err) != c.want {
					t.Errorf("%s %s, kid %q: %v, want %q", algorithm, name, kid, err, c.want)
				}
			}
		}
	}
}

func TestKeysNameWhatIsWrong(t *testing.T) {
	rsaKey := testKeys()[RS256].(*rsa.PrivateKey)
	ecKey := testKeys()[ES256].(*ecdsa.PrivateKey)
	smallRSA := must(rsa.GenerateKey(rand.Reader, 1024)) //nolint:gosec // too small on purpose
	p384 := must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))
	x25519 := must(ecdh.X25519().GenerateKey(rand.Reader))
	rsaPEM, ecPEM := publicPEM(t, rsaKey), publicPEM(t, ecKey)
	var fiveKeys []byte
	for range maxStaticKeys + 1 {
		fiveKeys = append(fiveKeys, publicPEM(t, newKey(t, EdDSA))...)
	}
	root, between := newKey(t, ES256).(crypto.Signer), newKey(t, ES256).(crypto.Signer)
	authority := issued(t, "root", root, "root", root, true)
	intermediate := issued(t, "between", between, "root", root, true)
	leaf := issued(t, "signer", newKey(t, ES256).(crypto.Signer), "root", root, false)
	// SubjectPublicKeyInfo of a point on a curve that only wallets use.
	secp256k1 := must(hex.DecodeString("3056301006072a8648ce3d020106052b8104000a034200" +
		"0479be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798483ada7726a3c4655da4fbfc0e1108a8fd17b448a68554199c47d08ffb10d4b8"))
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
		"encrypted":         {block("ENCRYPTED PRIVATE KEY", []byte("x")), "it is an encrypted private key"},
		"OpenSSH":           {block("OPENSSH PRIVATE KEY", []byte("x")), private},
		"public, private":   {append(slices.Clone(rsaPEM), block("PRIVATE KEY", []byte("x"))...), "PEM block 2"},
		"RSA of 1024 bits":  {publicPEM(t, smallRSA), "1024 bits, and must have at least 2048"},
		"a small RSA cert":  {certificate(t, smallRSA), "1024 bits, and must have at least 2048"},
		"P-384":             {publicPEM(t, p384), "on P-384, and must be on P-256"},
		"X25519":            {block("PUBLIC KEY", must(x509.MarshalPKIXPublicKey(x25519.Public()))), "must be RSA, EC on P-256 or Ed25519"},
		"five keys":         {fiveKeys, "PEM block 5 (\"PUBLIC KEY\"): there are more than 4 keys for EdDSA"},
		"RSA of 8193 bits":  {rsaOf(t, new(big.Int).SetBit(big.NewInt(1), 8192, 1), 65537), "8193 bits, and must have at most 8192"},
		"even modulus":      {rsaOf(t, new(big.Int).Lsh(big.NewInt(1), 2047), 65537), "its modulus is even"},
		"exponent 1":        {rsaOf(t, rsaKey.N, 1), "exponent must be odd and from 3"},
		"exponent 65536":    {rsaOf(t, rsaKey.N, 65536), "exponent must be odd and from 3"},
		"secp256k1":         {block("PUBLIC KEY", secp256k1), "unsupported elliptic curve"},
		"more in the key":   {block("PUBLIC KEY", append(der(t, ecKey), 0)), "trailing data"},
		"more in PKCS #1":   {block("RSA PUBLIC KEY", append(x509.MarshalPKCS1PublicKey(&rsaKey.PublicKey), 0)), "trailing data"},
		"more in the cert":  {block("CERTIFICATE", append(unblock(certificate(t, ecKey)), 0)), "trailing data"},
		"more on the line":  {slices.Concat(bytes.TrimSpace(ecPEM), []byte("garbage\n")), "PEM block 1 is damaged"},
		"bytes behind":      {append(slices.Clone(ecPEM), 0xde, 0xad, 0), "it is not text"},
		"DER":               {der(t, ecKey), "openssl pkey -pubin -inform DER"},
		"UTF-16":            {utf16(ecPEM), "it is not text"},
		"damaged first":     {append(bytes.Replace(rsaPEM, []byte("\nMII"), []byte("\n!!!"), 1), ecPEM...), "PEM block 1 is damaged"},
		"headless first":    {append(slices.Clone(rsaPEM[30:]), ecPEM...), "PEM block 1 is damaged"},
		"headless last":     {append(slices.Clone(ecPEM), rsaPEM[30:]...), "PEM block 2 is damaged"},
		"old encryption":    {pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED"}, Bytes: []byte("x")}), "it is an encrypted private key"},
		"a chain":           {append(slices.Clone(leaf), authority...), "keep the signer's alone"},
		"a chain, reversed": {append(slices.Clone(authority), leaf...), "keep the signer's alone"},
		"an intermediate":   {intermediate, "keep the signer's alone"},
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
