package sale

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
)

// MaxID is the largest id of an item or a sale: 2^53-1, the largest integer that JavaScript, Lua and an order id's item field keep exactly.
const MaxID int64 = 1<<53 - 1

// ErrBadID is returned for text that is not a plain decimal between 1 and MaxID.
var ErrBadID = errors.New("not a decimal integer between 1 and 9007199254740991 without sign or leading zero")

// ParseID reads the id of an item or a sale strictly: ASCII digits, no sign, no leading zero, 1 to MaxID. It does not allocate.
func ParseID[T ~string | ~[]byte](text T) (int64, error) {
	n, ok := parseDecimal(text)
	if !ok || n < 1 || n > MaxID {
		return 0, ErrBadID
	}
	return n, nil
}

// parseDecimal reads a canonical non-negative decimal that fits an int64.
func parseDecimal[T ~string | ~[]byte](text T) (int64, bool) {
	if len(text) == 0 || len(text) > 19 || (text[0] == '0' && len(text) > 1) {
		return 0, false
	}
	var n uint64
	for i := 0; i < len(text); i++ {
		c := text[i] - '0'
		if c > 9 {
			return 0, false
		}
		n = n*10 + uint64(c)
	}
	if n > 1<<63-1 {
		return 0, false
	}
	return int64(n), true
}

// OrderID identifies one reservation and the order that comes of it. It is a UUID version 8 whose 122 free bits are, most
// significant first, 53 bits of item id and 69 random bits: an order that is not yet in the database is found in Redis by its id
// alone. An id is made once per attempt and never used again (rule R1).
type OrderID [16]byte

// NewOrderID makes a fresh id for a reservation of item, which must be between 1 and MaxID.
// It panics when the system has no randomness, as crypto/rand does.
func NewOrderID(item int64) OrderID {
	var id OrderID
	_, _ = rand.Read(id[:]) // never returns an error; it crashes the program instead
	// 48 bits of the item id in front of the version, 5 more behind it.
	var head [8]byte
	binary.BigEndian.PutUint64(head[:], uint64(item)<<11)
	copy(id[:6], head[:6])
	id[6] = 0x80 | head[6]>>4
	id[7] = head[6]<<4&0x80 | id[7]&0x7f
	// The item's last five bits are head[6]'s upper five: four stand beside the version, one on top of byte 7.
	id[8] = 0x80 | id[8]&0x3f
	return id
}

// Item returns the item id inside the order id; ok is false when the id is not one that NewOrderID can have made.
func (id OrderID) Item() (item int64, ok bool) {
	if id[6]>>4 != 8 || id[8]>>6 != 2 {
		return 0, false
	}
	n := uint64(binary.BigEndian.Uint16(id[:2]))<<37 | uint64(binary.BigEndian.Uint32(id[2:6]))<<5 | uint64(id[6]&0x0f)<<1 | uint64(id[7]>>7)
	return int64(n), n >= 1
}

// IsZero reports whether id is the zero value, which no reservation has.
func (id OrderID) IsZero() bool { return id == OrderID{} }

// String returns the canonical form of 36 characters, in lower case.
func (id OrderID) String() string {
	var buf [36]byte
	return string(id.AppendTo(buf[:0]))
}

// AppendTo appends the canonical form to dst and returns the extended slice.
func (id OrderID) AppendTo(dst []byte) []byte {
	var out [36]byte
	hex.Encode(out[0:8], id[0:4])
	out[8] = '-'
	hex.Encode(out[9:13], id[4:6])
	out[13] = '-'
	hex.Encode(out[14:18], id[6:8])
	out[18] = '-'
	hex.Encode(out[19:23], id[8:10])
	out[23] = '-'
	hex.Encode(out[24:36], id[10:16])
	return append(dst, out[:]...)
}

// MarshalText implements encoding.TextMarshaler.
func (id OrderID) MarshalText() ([]byte, error) { return id.AppendTo(nil), nil }

// UnmarshalText implements encoding.TextUnmarshaler with the rules of ParseOrderID.
func (id *OrderID) UnmarshalText(text []byte) error {
	parsed, err := ParseOrderID(text)
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}

// ParseOrderID reads the 8-4-4-4-12 form, in either case. It accepts any UUID: whether it can be an order's is Item's answer.
func ParseOrderID[T ~string | ~[]byte](text T) (OrderID, error) {
	var id OrderID
	if len(text) != 36 || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
		return OrderID{}, errors.New("not a UUID of the form 8-4-4-4-12")
	}
	at := 0
	for i := 0; i < 36; {
		if text[i] == '-' {
			i++
			continue
		}
		hi, ok1 := unhex(text[i])
		lo, ok2 := unhex(text[i+1])
		if !ok1 || !ok2 {
			return OrderID{}, fmt.Errorf("not a UUID: no hexadecimal digits at position %d", i)
		}
		id[at] = hi<<4 | lo
		at++
		i += 2
	}
	return id, nil
}

func unhex(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}
