package token

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"strings"
	"testing"
)

// members is a JSON Web Key in the making.
type members map[string]any

// with is a copy with some members changed; a nil one is left out.
func (m members) with(name string, value any, more ...any) members {
	out := maps.Clone(m)
	for more = append([]any{name, value}, more...); len(more) > 0; more = more[2:] {
		if out[more[0].(string)] = more[1]; more[1] == nil {
			delete(out, more[0].(string))
		}
	}
	return out
}

// jwkOf is the public half of a key; kid may be empty.
func jwkOf(key any, kid string) members {
	encode := func(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
	var m members
	switch public := key.(crypto.Signer).Public().(type) {
	case *rsa.PublicKey:
		m = members{"kty": "RSA", "n": encode(public.N.Bytes()), "e": encode(big.NewInt(int64(public.E)).Bytes())}
	case *ecdsa.PublicKey:
		point := must(public.Bytes())
		m = members{"kty": "EC", "crv": "P-256", "x": encode(point[1:33]), "y": encode(point[33:])}
	case ed25519.PublicKey:
		m = members{"kty": "OKP", "crv": "Ed25519", "x": encode(public)}
	}
	if kid != "" {
		m["kid"] = kid
	}
	return m
}

// setOf is the text of a key set.
func setOf(keys ...any) string {
	return string(must(json.Marshal(map[string]any{"keys": append([]any{}, keys...)})))
}

// Each key is taken for the algorithm of its kind, whatever harmless things are said of it.
func TestKeySetKeys(t *testing.T) {
	for _, algorithm := range []string{RS256, ES256, EdDSA} {
		m := jwkOf(testKeys()[algorithm], "k1")
		for name, member := range map[string]any{
			"plain":           m,
			"with all":        m.with("use", "sig", "alg", algorithm, "key_ops", []string{"verify"}),
			"two operations":  m.with("key_ops", []string{"sign", "verify"}),
			"other members":   m.with("x5c", []string{"AAAA"}, "exp", 1, "KTY", "oct", "D", "AAAA"),
			"nulls":           json.RawMessage(strings.TrimSuffix(string(must(json.Marshal(m))), "}") + `,"d":null,"k":null,"use":null,"key_ops":null,"alg":null}`),
			"an escaped name": json.RawMessage(strings.Replace(string(must(json.Marshal(m))), `"kty"`, `"\u006bty"`, 1)),
		} {
			keys, out, err := parseKeySet([]byte(setOf(member)))
			if err != nil || len(out) > 0 || len(keys) != 1 {
				t.Errorf("%s, %s: %d keys, %v, %v", algorithm, name, len(keys), out, err)
				continue
			}
			if k := keys[0]; k.algorithm != algorithm || k.id != "k1" || k.number != 1 || !same(k.key, testKeys()[algorithm].(crypto.Signer).Public()) {
				t.Errorf("%s, %s: %+v", algorithm, name, k)
			}
		}
	}
	padded := jwkOf(testKeys()[RS256], "k1")
	n := must(base64.RawURLEncoding.DecodeString(padded["n"].(string)))
	keys, out, err := parseKeySet([]byte(setOf(padded.with("n", base64.RawURLEncoding.EncodeToString(append([]byte{0}, n...))))))
	if err != nil || len(keys) != 1 {
		t.Errorf("a modulus with a sign byte: %v, %v", out, err)
	}
}

// What is no key for tokens is left out, for a reason that is said, and the key beside it stays.
func TestKeySetLeavesOut(t *testing.T) {
	r, ec, ed := jwkOf(testKeys()[RS256], "r"), jwkOf(testKeys()[ES256], "ec"), jwkOf(testKeys()[EdDSA], "ed")
	p384 := must(must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader)).PublicKey.Bytes())
	smallRSA := must(rsa.GenerateKey(rand.Reader, 1024)) //nolint:gosec // too small on purpose
	encode := func(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
	short := must(base64.RawURLEncoding.DecodeString(ec["x"].(string)))
	for name, c := range map[string]struct {
		member any
		want   string
	}{
		"a secret":           {members{"kty": "oct", "k": encode(testSecret), "alg": "HS256", "kid": "s"}, "a secret (oct)"},
		"private RSA":        {r.with("d", "AQAB"), "private part"},
		"a prime":            {r.with("p", "AQAB"), "private part"},
		"private EC":         {ec.with("d", "AQAB"), "private part"},
		"private Ed25519":    {ed.with("d", "AQAB"), "private part"},
		"for encryption":     {r.with("use", "enc"), `use is "enc"`},
		"another use":        {r.with("use", "SIG"), `use is "SIG"`},
		"only signs":         {r.with("key_ops", []string{"sign"}), "without verify"},
		"no operation":       {r.with("key_ops", []string{}), "without verify"},
		"operations as text": {r.with("key_ops", "verify"), "key_ops must be a list"},
		"RS512":              {r.with("alg", "RS512"), `alg is "RS512"`},
		"PS256":              {r.with("alg", "PS256"), `alg is "PS256"`},
		"RSA-OAEP":           {r.with("alg", "RSA-OAEP"), `alg is "RSA-OAEP"`},
		"RSA for HS256":      {r.with("alg", "HS256"), `alg is "HS256"`},
		"RSA for none":       {r.with("alg", "none"), `alg is "none"`},
		"EC for RS256":       {ec.with("alg", "RS256"), `alg is "RS256"`},
		"alg in lower case":  {ec.with("alg", "es256"), `alg is "es256"`},
		"1024 bits":          {jwkOf(smallRSA, "w"), "1024 bits, and must have at least 2048"},
		"8193 bits":          {r.with("n", encode(new(big.Int).SetBit(big.NewInt(1), 8192, 1).Bytes())), "8193 bits"},
		"a huge modulus":     {r.with("n", encode(make([]byte, 5000))), "n must be"},
		"an even modulus":    {r.with("n", encode(new(big.Int).Lsh(big.NewInt(1), 2047).Bytes())), "even"},
		"no modulus":         {r.with("n", nil), "n must be"},
		"padding":            {r.with("n", r["n"].(string)+"=="), "n must be"},
		"base64 of another":  {r.with("n", "+/"+r["n"].(string)[2:]), "n must be"},
		"exponent 1":         {r.with("e", "AQ"), "exponent"},
		"exponent 0":         {r.with("e", "AA"), "exponent"},
		"exponent 65536":     {r.with("e", "AQAA"), "exponent"},
		"exponent 2^31+1":    {r.with("e", encode([]byte{0x80, 0, 0, 1})), "below 2^31"},
		"exponent 2^64+1":    {r.with("e", encode([]byte{1, 0, 0, 0, 0, 0, 0, 0, 1})), "1 to 8 bytes"},
		"no exponent":        {r.with("e", nil), "e must be"},
		"P-384":              {members{"kty": "EC", "crv": "P-384", "x": encode(p384[1:49]), "y": encode(p384[49:])}, `curve is "P-384"`},
		"P-384 as P-256":     {members{"kty": "EC", "crv": "P-256", "x": encode(make([]byte, 48)), "y": encode(make([]byte, 48))}, "32 bytes"},
		"no curve":           {ec.with("crv", nil), `curve is ""`},
		"no y":               {ec.with("y", nil), "32 bytes"},
		"31 bytes":           {ec.with("x", encode(short[:31])), "32 bytes"},
		"not on the curve":   {ec.with("y", ec["x"]), "no point"},
		"infinity":           {ec.with("x", encode(make([]byte, 32)), "y", encode(make([]byte, 32))), "no point"},
		"OKP on P-256":       {ed.with("crv", "P-256"), "curve"},
		"EC on Ed25519":      {ec.with("crv", "Ed25519"), "curve"},
		"X25519":             {ed.with("crv", "X25519"), `curve is "X25519"`},
		"Ed448":              {ed.with("crv", "Ed448"), `curve is "Ed448"`},
		"31 bytes of OKP":    {ed.with("x", encode(make([]byte, 31))), "32 bytes"},
		"another kind":       {members{"kty": "AKP", "alg": "ML-DSA-65", "pub": "AAAA"}, `kty is "AKP"`},
		"no kind":            {r.with("kty", nil), `kty is ""`},
		"kind as a number":   {r.with("kty", 7), "kty must be a text"},
		"kid as a number":    {r.with("kid", 7), "kid must be a text"},
		"two moduli":         {json.RawMessage(strings.Replace(string(must(json.Marshal(r))), `{`, `{"n":"AQAB",`, 1)), "names n twice"},
		"a list":             {[]int{1}, "not a JSON object"},
		"a number":           {7, "not a JSON object"},
		"null":               {nil, "not a JSON object"},
		"nothing in it":      {members{}, `kty is ""`},
	} {
		good := jwkOf(testKeys()[ES256], "good")
		keys, out, err := parseKeySet([]byte(setOf(c.member, good)))
		if err != nil || len(keys) != 1 || keys[0].id != "good" || len(out) != 1 {
			t.Errorf("%s: keys %+v, left out %v, error %v", name, keys, out, err)
			continue
		}
		text := out[0].String()
		if !strings.Contains(text, c.want) || !strings.HasPrefix(text, "key 1: ") {
			t.Errorf("%s: %q, want %q", name, text, c.want)
		}
		if strings.Contains(text, string(testSecret)) || strings.Contains(text, r["n"].(string)) || strings.Contains(text, encode(testSecret)) {
			t.Errorf("%s: %q holds the key", name, text)
		}
	}
}

func TestNoKeySet(t *testing.T) {
	good := string(must(json.Marshal(jwkOf(testKeys()[ES256], "good"))))
	for _, body := range []string{
		"", " ", "{}", "[]", "null", "7", `"keys"`, `{"keys":null}`, `{"keys":{}}`, `{"keys":"x"}`, `{"KEYS":[]}`, good, "[" + good + "]",
		`{"keys":[` + good + `]`, `{"keys":[` + good + `]}{}`, `{"keys":[` + good + `],}`, `{"keys":[],"keys":[` + good + `]}`,
		`{"keys":[` + good + `],"k\u0065ys":[]}`, "<html>no such page</html>", strings.Repeat("[", 100_000), `{"keys":` + strings.Repeat("[", 100_000),
		`{"keys":[` + strings.Repeat("1,", maxSetKeys) + `1]}`,
	} {
		if keys, _, err := parseKeySet([]byte(body)); err == nil {
			t.Errorf("%.60q is taken for a set of %d keys", body, len(keys))
		}
	}
	if keys, out, err := parseKeySet([]byte(` { "issuer" : "x", "k\u0065ys" : [ ] } `)); err != nil || len(keys)+len(out) != 0 {
		t.Errorf("an empty set: %v, %v, %v", keys, out, err)
	}
}

// Whatever a source answers: no panic, and every key that is taken is one that its algorithm may be used with, and that
// encoding/json reads from the same place.
func FuzzKeySet(f *testing.F) {
	for _, a := range []string{RS256, ES256, EdDSA} {
		m := jwkOf(testKeys()[a], "k")
		f.Add([]byte(setOf(m)))
		f.Add([]byte(setOf(m, m.with("kid", nil), m.with("use", "enc"), m.with("d", "AQAB"))))
	}
	f.Add([]byte(`{"keys":[{"kty":"oct","k":"AQAB"},{"kty":null},7,[],{"\u006bty":"RSA"}]}`))
	static := keysFor(f, HS256, RS256)
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, out, err := parseKeySet(data)
		if err != nil {
			if keys != nil || out != nil {
				t.Fatal("keys of what is no set")
			}
			return
		}
		var set map[string]json.RawMessage
		if err := json.Unmarshal(data, &set); err != nil {
			t.Fatalf("taken for a set, but not JSON: %v", err)
		}
		var list []json.RawMessage
		if err := json.Unmarshal(set["keys"], &list); err != nil || len(keys)+len(out) != len(list) {
			t.Fatalf("%d keys and %d left out of %d, %v", len(keys), len(out), len(list), err)
		}
		for _, k := range keys {
			if algorithm, err := algorithmOf(k.key); err != nil || algorithm != k.algorithm || algorithm == HS256 {
				t.Fatalf("%T for %s: %v", k.key, k.algorithm, err)
			}
			var m map[string]any
			if err := json.Unmarshal(list[k.number-1], &m); err != nil {
				t.Fatal(err)
			}
			if use, ok := m["use"].(string); ok && use != "sig" && use != "" || m["d"] != nil || m["k"] != nil {
				t.Fatalf("taken: %v", m)
			}
			if err := readsLike(k.key, m); err != nil {
				t.Fatal(err)
			}
		}
		ring, more := newKeyring(keys, static)
		if ring.size > len(keys) || len(more) > len(keys) {
			t.Fatalf("%d of %d keys can be used, and %d not", ring.size, len(keys), len(more))
		}
		for id, key := range ring.named {
			if algorithm, err := algorithmOf(key); err != nil || algorithm != id.algorithm || id.id == "" {
				t.Fatalf("%T under %+v", key, id)
			}
		}
		if key, _ := ring.find(HS256, "k"); !strings.HasPrefix(string(key.([]byte)), "a secret") {
			t.Fatal("the set changes the secret")
		}
	})
}

// readsLike compares a key with the members of its JSON Web Key.
func readsLike(key any, m map[string]any) error {
	number := func(name string) *big.Int {
		text, _ := m[name].(string)
		b, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			return nil
		}
		return new(big.Int).SetBytes(b)
	}
	switch key := key.(type) {
	case *rsa.PublicKey:
		if n, e := number("n"), number("e"); n != nil && e != nil && n.Cmp(key.N) == 0 && e.Cmp(big.NewInt(int64(key.E))) == 0 {
			return nil
		}
	case *ecdsa.PublicKey:
		point, err := key.Bytes()
		x, y := number("x"), number("y")
		if err == nil && x != nil && y != nil && x.Cmp(new(big.Int).SetBytes(point[1:33])) == 0 && y.Cmp(new(big.Int).SetBytes(point[33:])) == 0 {
			return nil
		}
	case ed25519.PublicKey:
		if x := number("x"); x != nil && x.Cmp(new(big.Int).SetBytes(key)) == 0 {
			return nil
		}
	default:
		return errors.New("an unknown kind of key")
	}
	return fmt.Errorf("encoding/json reads another key from %v", m)
}
