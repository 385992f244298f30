package sale

import (
	"errors"
	"unicode"
	"unicode/utf8"
)

// MaxUserID is the longest user id (a token's `sub`) in bytes.
const MaxUserID = 64

// ErrBadUser is returned for a user id that is empty, too long, not UTF-8 or holds a control character.
var ErrBadUser = errors.New("must be 1 to 64 bytes of UTF-8 without control characters")

// CheckUser returns ErrBadUser unless user may be a user id. Separators inside Redis values rely on this check.
func CheckUser(user string) error {
	if len(user) < 1 || len(user) > MaxUserID || !utf8.ValidString(user) {
		return ErrBadUser
	}
	for _, r := range user {
		if unicode.IsControl(r) {
			return ErrBadUser
		}
	}
	return nil
}

// Home returns the shard, 0 to shards-1, to which a user is pinned: a decimal id within int64 (no sign, no leading zero) by its value modulo
// the number of shards, every other id by its 64-bit FNV-1a hash modulo the number of shards. The mark of a purchase lives in that shard alone,
// so one script can check it and take the unit. It does not allocate.
func Home[T ~string | ~[]byte](user T, shards int) int {
	if n, ok := parseDecimal(user); ok {
		return int(n % int64(shards))
	}
	return int(HashUser(user) % uint64(shards))
}

// HashUser is the 64-bit FNV-1a hash of a user id (http://www.isthe.com/chongo/tech/comp/fnv/). It does not allocate.
func HashUser[T ~string | ~[]byte](user T) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for i := 0; i < len(user); i++ {
		h ^= uint64(user[i])
		h *= prime
	}
	return h
}
