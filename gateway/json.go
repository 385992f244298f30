package gateway

import (
	"encoding/json"
	"strconv"
	"time"

	"flashgate/internal/sale"
)

// The bodies are short and of few shapes, so they are appended by hand: what a shopper's request costs is mostly this and the headers.

// timeLayout is RFC 3339 in UTC with milliseconds.
const timeLayout = `"2006-01-02T15:04:05.000Z"`

func appendTime(dst []byte, t time.Time) []byte { return t.UTC().AppendFormat(dst, timeLayout) }

func appendInt(dst []byte, n int64) []byte { return strconv.AppendInt(dst, n, 10) }

// appendString appends s quoted. Plain text, nearly everything, is copied; the rest is left to encoding/json.
func appendString(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			quoted, err := json.Marshal(s)
			if err != nil { // a string cannot fail
				quoted = []byte(`""`)
			}
			return append(dst, quoted...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}

// orderIDMember is the member orderId with a comma in front.
func orderIDMember(id sale.OrderID) []byte {
	return append(id.AppendTo([]byte(`,"orderId":"`)), '"')
}

// appendBool appends true or false.
func appendBool(dst []byte, b bool) []byte { return strconv.AppendBool(dst, b) }
