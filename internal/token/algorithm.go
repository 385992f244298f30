package token

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/golang-jwt/jwt/v5"
)

const (
	minRSABits = 2048 // RFC 7518, 3.3
	// maxRSABits bounds what a forged token can cost: a check takes four times as long for twice the bits.
	maxRSABits = 8192
)

// algorithmOf pins a public key to the one algorithm that it may be used with.
func algorithmOf(key any) (string, error) {
	switch key := key.(type) {
	case *rsa.PublicKey:
		bits := key.N.BitLen()
		switch {
		case bits < minRSABits:
			return "", fmt.Errorf("the RSA key has %d bits, and must have at least %d", bits, minRSABits)
		case bits > maxRSABits:
			return "", fmt.Errorf("the RSA key has %d bits, and must have at most %d", bits, maxRSABits)
		case key.N.Bit(0) == 0:
			return "", errors.New("the RSA key is none: its modulus is even")
		case key.E < 3 || key.E%2 == 0 || key.E > math.MaxInt32:
			// With an exponent of 1 everybody could sign.
			return "", errors.New("the RSA key is none: its exponent must be odd and from 3 to 2^31-1")
		}
		return RS256, nil
	case *ecdsa.PublicKey:
		if key.Curve != elliptic.P256() {
			return "", fmt.Errorf("the EC key is on %s, and must be on P-256", key.Curve.Params().Name)
		}
		return ES256, nil
	case ed25519.PublicKey:
		return EdDSA, nil
	}
	return "", errors.New("the key must be RSA, EC on P-256 or Ed25519")
}

// same tells whether two public keys are one.
func same(a, b any) bool {
	key, ok := a.(interface{ Equal(x crypto.PublicKey) bool })
	return ok && key.Equal(b)
}

// holds tells whether a key is among others.
func holds(keys []any, key any) bool {
	return slices.ContainsFunc(keys, func(k any) bool { return same(k, key) })
}

// given is the form in which a KeySource gives keys: nil for none, one as it is, several as a set of the library.
func given(keys []any) any {
	switch len(keys) {
	case 0:
		return nil
	case 1:
		return keys[0]
	}
	set := jwt.VerificationKeySet{}
	for _, k := range keys {
		set.Keys = append(set.Keys, k)
	}
	return set
}
