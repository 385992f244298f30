package token

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// The algorithms.
const (
	HS256 = "HS256"
	RS256 = "RS256"
	ES256 = "ES256"
	EdDSA = "EdDSA"
)

var algorithms = []string{HS256, RS256, ES256, EdDSA}

// MinSecret is the shortest HS256 secret in bytes: what the hash gives (RFC 7518, 3.2).
const MinSecret = 32

// KeySource finds the key that a token must be signed with. Verify calls it for every
// token, forged ones included: it answers from memory, is safe for concurrent use, and
// gives for an algorithm only keys that are for that algorithm.
type KeySource interface {
	// Key gives the key for one of the four algorithms and the token's key id, ""
	// where it has none: []byte for HS256, *rsa.PublicKey for RS256,
	// *ecdsa.PublicKey for ES256, ed25519.PublicKey for EdDSA, or a
	// jwt.VerificationKeySet of such. Not ok: there is none.
	Key(algorithm, id string) (key any, ok bool)
	// Pending reports whether there may be keys for an algorithm that this source has yet
	// to get.
	Pending(algorithm string) bool
}

// KeyConfig is where the keys of the configuration come from. At least one is set.
type KeyConfig struct {
	// Secret is the HS256 key, at least MinSecret bytes.
	Secret []byte
	// PublicKeys is PEM text with one public key or several: PKIX (PUBLIC KEY),
	// PKCS #1 (RSA PUBLIC KEY) or the CERTIFICATE of the signer, whose dates and uses
	// are not looked at. RSA of 2048 to 8192 bits is for RS256, P-256 for ES256,
	// Ed25519 for EdDSA. A token is held against every key of its algorithm, in the
	// order of the text: while keys rotate, the old and the new one are in it, and
	// there are at most 4 of an algorithm. Comments between the blocks are allowed.
	PublicKeys []byte
}

// Keys are the keys of the configuration. Immutable, safe for concurrent use.
type Keys struct {
	byAlgorithm map[string][]any
	given       map[string]any // the same as Key gives them, made once
}

var _ KeySource = (*Keys)(nil)

// NewKeys reads the keys. Errors say what is wrong and hold nothing of a secret.
func NewKeys(cfg KeyConfig) (*Keys, error) {
	k := &Keys{byAlgorithm: map[string][]any{}, given: map[string]any{}}
	if len(cfg.Secret) == 0 && len(cfg.PublicKeys) == 0 {
		return nil, errors.New("load token keys: there is neither a secret nor a public key")
	}
	if len(cfg.Secret) > 0 {
		if err := checkSecret(cfg.Secret); err != nil {
			return nil, fmt.Errorf("load token secret: %w", err)
		}
		k.byAlgorithm[HS256] = []any{bytes.Clone(cfg.Secret)}
	}
	if len(cfg.PublicKeys) > 0 {
		keys, err := parsePublicKeys(cfg.PublicKeys)
		if err != nil {
			return nil, fmt.Errorf("load token public key: %w", err)
		}
		maps.Copy(k.byAlgorithm, keys)
	}
	for algorithm, keys := range k.byAlgorithm {
		k.given[algorithm] = given(keys)
	}
	return k, nil
}

func checkSecret(secret []byte) error {
	if len(secret) < MinSecret {
		return fmt.Errorf("it has %d bytes, and must have at least %d", len(secret), MinSecret)
	}
	// The text of a public key as a secret would let everybody sign who knows that
	// key, and everybody does.
	if bytes.Contains(secret, []byte("-----BEGIN ")) {
		return errors.New("it is a PEM file; a public key is configured as such, not as the secret")
	}
	return nil
}

// Key gives the keys of the algorithm, whatever the id: keys of the configuration have
// none.
func (k *Keys) Key(algorithm, _ string) (any, bool) {
	key, ok := k.given[algorithm]
	return key, ok
}

// Pending implements KeySource: all keys of the configuration are there from the start.
func (k *Keys) Pending(string) bool { return false }

// Algorithms are those that have a key, in the order HS256, RS256, ES256, EdDSA.
func (k *Keys) Algorithms() []string {
	return slices.DeleteFunc(slices.Clone(algorithms), func(a string) bool { return k.given[a] == nil })
}
