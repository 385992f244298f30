package token

import (
	"errors"
	"maps"
	"slices"
)

// keyring is what tokens are held against: the keys of a key set, beside those of the configuration. Immutable: it is
// replaced whole.
//
// A token that names a key of the set is held against that key alone, even if a key of the configuration would fit. One
// that names a key which is not there is held against the keys of the configuration, which have no ids. One that names
// none is held against those, and against the set's only key of its algorithm. Where the set has several, nothing tells
// which of them is meant, and to try each would let a forged token cost as much as there are keys.
type keyring struct {
	static  *Keys
	named   map[keyID]any
	unnamed map[string]any // by algorithm: for tokens that name no key
	size    int            // keys of the set
}

var (
	errSameID = errors.New("another key of its algorithm has the same kid")
	errNoID   = errors.New("it has no kid, and is not the only key of its algorithm")
)

// newKeyring takes those keys of a set that a token can single out, and gives the others back.
func newKeyring(set []setKey, static *Keys) (*keyring, []ignored) {
	// The same key may come twice, as one with an id and one without.
	byAlgorithm, byID := map[string][]any{}, map[keyID][]any{}
	for _, k := range set {
		if !holds(byAlgorithm[k.algorithm], k.key) {
			byAlgorithm[k.algorithm] = append(byAlgorithm[k.algorithm], k.key)
		}
		if !holds(byID[k.keyID], k.key) {
			byID[k.keyID] = append(byID[k.keyID], k.key)
		}
	}
	r := &keyring{static: static, named: map[keyID]any{}, unnamed: maps.Clone(static.given)}
	var out []ignored
	usable := map[string][]any{}
	for _, k := range set {
		switch {
		case k.id == "" && len(byAlgorithm[k.algorithm]) > 1:
			out = append(out, ignored{k.number, errNoID})
			continue
		case len(byID[k.keyID]) > 1:
			out = append(out, ignored{k.number, errSameID})
			continue
		case k.id != "":
			r.named[k.keyID] = k.key
		}
		if !holds(usable[k.algorithm], k.key) {
			usable[k.algorithm] = append(usable[k.algorithm], k.key)
			r.size++
		}
	}
	for algorithm, keys := range byAlgorithm {
		if len(keys) == 1 && !holds(static.byAlgorithm[algorithm], keys[0]) {
			r.unnamed[algorithm] = given(slices.Concat(static.byAlgorithm[algorithm], keys))
		}
	}
	return r, out
}

// find gives what a token is held against. here tells whether that comes of the set, as far as it could.
func (r *keyring) find(algorithm, id string) (key any, here bool) {
	if id == "" {
		key = r.unnamed[algorithm]
		return key, key != nil
	}
	if key, here = r.named[keyID{algorithm, id}]; here {
		return key, true
	}
	key, _ = r.static.Key(algorithm, id)
	return key, false
}

// algorithms are those of the set and of the configuration.
func (r *keyring) algorithms() []string {
	return slices.DeleteFunc(slices.Clone(algorithms), func(a string) bool {
		if r.static.given[a] != nil {
			return false
		}
		for id := range r.named {
			if id.algorithm == a {
				return false
			}
		}
		return r.unnamed[a] == nil
	})
}
