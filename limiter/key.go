package limiter

import (
	"encoding/binary"
	"hash/maphash"
)

// Key stands for a user in a [Table]: 64 bits, so that a look-up needs no string
// and no allocation, and a million known users need no copies of their names.
type Key uint64

// Keyer makes keys. Make one with NewKeyer and share it; it is immutable.
//
// The hash is seeded at random per Keyer. Two users share a key, and so a bucket,
// with a chance of about n/2^64 for a user among n others (1e-13 for a million);
// since nobody outside knows the seed, nobody can search for a name that collides
// with somebody else's. Keys of two Keyers, or of two processes, have nothing to
// do with each other.
type Keyer struct{ seed maphash.Seed }

// NewKeyer returns a Keyer with a fresh random seed.
func NewKeyer() Keyer { return Keyer{seed: maphash.MakeSeed()} }

// Key hashes the parts together with their lengths: ("a:b", "c") and
// ("a", "b:c") are different keys, as are ("ab") and ("a", "b"). It keeps nothing
// of parts and does not allocate.
func (k Keyer) Key(parts ...[]byte) Key {
	var h maphash.Hash
	h.SetSeed(k.seed)
	var length [8]byte
	for _, part := range parts {
		// The length first: without it the borders between parts would be lost,
		// and a separator of any kind could be part of a name.
		binary.LittleEndian.PutUint64(length[:], uint64(len(part)))
		_, _ = h.Write(length[:])
		_, _ = h.Write(part)
	}
	return Key(h.Sum64())
}
