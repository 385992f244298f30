package token

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
)

// setKey is a key of a key set that tokens may be held against.
type setKey struct {
	number int // place in the set, counted from 1
	keyID
	key any
}

// keyID is what a token names of its key.
type keyID struct{ algorithm, id string }

// ignored is a member of a key set that is no key for tokens, and why. Its text holds nothing of the key but, quoted
// and cut, the names of its kind.
type ignored struct {
	number int // place in the set, counted from 1
	reason error
}

func (i ignored) String() string { return fmt.Sprintf("key %d: %v", i.number, i.reason) }

// errPrivate is worth an alarm: whoever reads the set can sign.
var errPrivate = errors.New("it is published with its private part")

// maxSetKeys is far beyond what providers publish, and keeps every look at a set short.
const maxSetKeys = 256

var (
	errNoKeySet    = errors.New("it is not a JSON object with a list of keys")
	errTooManyKeys = fmt.Errorf("it holds more than %d keys", maxSetKeys)
	errNotObject   = errors.New("it is not a JSON object")
)

// parseKeySet reads a JSON Web Key Set (RFC 7517, 5). What is no key for one of the algorithms RS256, ES256 and EdDSA
// is left out and does no harm to the others: providers publish keys for encryption, and of kinds to come, in the
// same set. An error means that it is no key set at all.
func parseKeySet(data []byte) ([]setKey, []ignored, error) {
	members, err := keyList(data)
	if err != nil {
		return nil, nil, err
	}
	var (
		keys []setKey
		out  []ignored
	)
	for i, member := range members {
		k, err := readKey(member)
		if err != nil {
			out = append(out, ignored{i + 1, err})
			continue
		}
		k.number = i + 1
		keys = append(keys, k)
	}
	return keys, out, nil
}

func keyList(data []byte) ([]json.RawMessage, error) {
	s, ok := newScanner(data)
	if !ok || !json.Valid(data) {
		return nil, errNoKeySet
	}
	var list []byte
	for {
		raw, value, ok := s.next()
		if !ok {
			break
		}
		if name, ok := text(raw); !ok || string(name) != "keys" {
			continue
		}
		if list != nil || value[0] != '[' {
			return nil, errNoKeySet
		}
		list = value
	}
	var members []json.RawMessage
	if list == nil || json.Unmarshal(list, &members) != nil {
		return nil, errNoKeySet
	}
	if len(members) > maxSetKeys {
		return nil, errTooManyKeys
	}
	return members, nil
}

// jwk is a JSON Web Key (RFC 7517, 4; RFC 7518, 6; RFC 8037, 2), as far as it matters here.
type jwk struct {
	kty, use, alg, kid, crv string
	n, e, x, y              string
	keyOps                  []string // nil: absent
	private                 bool
}

// readKey reads a member of a key set, which is valid JSON.
func readKey(member []byte) (setKey, error) {
	k, err := readJWK(member)
	if err != nil {
		return setKey{}, err
	}
	key, err := k.public()
	if err != nil {
		return setKey{}, err
	}
	algorithm, err := algorithmOf(key)
	if err != nil {
		return setKey{}, err
	}
	if k.alg != "" && k.alg != algorithm {
		return setKey{}, fmt.Errorf("its alg is %.20q, and of this kind only %s is known", k.alg, algorithm)
	}
	return setKey{keyID: keyID{algorithm, k.kid}, key: key}, nil
}

func readJWK(member []byte) (jwk, error) {
	var k jwk
	s, ok := newScanner(member)
	if !ok {
		return k, errNotObject
	}
	texts := map[string]*string{
		"kty": &k.kty, "use": &k.use, "alg": &k.alg, "kid": &k.kid, "crv": &k.crv,
		"n": &k.n, "e": &k.e, "x": &k.x, "y": &k.y,
	}
	seen := map[string]bool{}
	for {
		raw, value, ok := s.next()
		if !ok {
			return k, nil
		}
		decoded, ok := text(raw)
		name := string(decoded)
		// Some libraries write every member that they know, and null where there is none.
		if !ok || string(value) == "null" {
			continue
		}
		into := texts[name]
		switch name {
		case "d", "p", "q", "dp", "dq", "qi", "oth", "k":
			k.private = true
			continue
		case "key_ops":
			if json.Unmarshal(value, &k.keyOps) != nil {
				return k, errors.New("its key_ops must be a list of texts")
			}
		default:
			if into == nil {
				continue
			}
			if !stringInto(into, value) {
				return k, fmt.Errorf("its %s must be a text", name)
			}
		}
		if seen[name] {
			return k, fmt.Errorf("it names %s twice", name)
		}
		seen[name] = true
	}
}

// public gives the key, if it is a public one and there to check signatures.
func (k *jwk) public() (any, error) {
	switch {
	case k.kty == "oct":
		return nil, errors.New("it is a secret (oct), and no secret is taken from a key set")
	case k.private:
		return nil, errPrivate
	case k.use != "" && k.use != "sig":
		return nil, fmt.Errorf("its use is %.20q, not sig", k.use)
	case k.keyOps != nil && !slices.Contains(k.keyOps, "verify"):
		return nil, errors.New("its key_ops are without verify")
	case k.kty == "RSA":
		return k.rsa()
	case k.kty == "EC" && k.crv == "P-256":
		return k.ec()
	case k.kty == "OKP" && k.crv == "Ed25519":
		return k.okp()
	case k.kty == "EC" || k.kty == "OKP":
		return nil, fmt.Errorf("its curve is %.20q, and must be P-256 of EC or Ed25519 of OKP", k.crv)
	}
	return nil, fmt.Errorf("its kty is %.20q, and must be RSA, EC or OKP", k.kty)
}

func (k *jwk) rsa() (any, error) {
	n, ok := decode([]byte(k.n))
	if !ok || len(n) == 0 || len(n) > maxRSABits/8+1 { // some write the sign's zero byte before the number
		return nil, fmt.Errorf("its n must be base64url without padding of %d to %d bits", minRSABits, maxRSABits)
	}
	e, ok := decode([]byte(k.e))
	if !ok || len(e) == 0 || len(e) > 8 {
		return nil, errors.New("its e must be base64url without padding of 1 to 8 bytes")
	}
	exponent := new(big.Int).SetBytes(e)
	if exponent.BitLen() > 31 {
		return nil, errors.New("its e must be below 2^31")
	}
	return &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(exponent.Int64())}, nil
}

func (k *jwk) ec() (any, error) {
	const size = 32
	x, xOK := decode([]byte(k.x))
	y, yOK := decode([]byte(k.y))
	if !xOK || !yOK || len(x) != size || len(y) != size {
		return nil, fmt.Errorf("its x and y must be base64url without padding of %d bytes each", size)
	}
	const uncompressed = 4 // SEC 1, 2.3.3
	key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), slices.Concat([]byte{uncompressed}, x, y))
	if err != nil {
		return nil, errors.New("its x and y are no point on P-256")
	}
	return key, nil
}

func (k *jwk) okp() (any, error) {
	x, ok := decode([]byte(k.x))
	if !ok || len(x) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("its x must be base64url without padding of %d bytes", ed25519.PublicKeySize)
	}
	return ed25519.PublicKey(x), nil
}
