package gateway

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"time"
)

const (
	headerSignature = "Flashgate-Signature"

	// signatureWindow is how far the time of a signature may be off, in either direction: whoever has recorded a request can repeat it for that long.
	signatureWindow = 5 * time.Minute
	// stampDigits is the longest time that is read, in seconds since 1970: it lasts until the year 5138 and cannot overflow anything.
	stampDigits = 11
)

// Why a signature was refused, for the log. The caller is told none of it.
var (
	errNoSecret       = errors.New("no payment secret is configured")
	errSignatureLines = errors.New("there must be exactly one Flashgate-Signature")
	errSignatureForm  = errors.New("Flashgate-Signature must be t=UNIXSECONDS,v1=HEX, with one v1 or more")
	errSignatureTime  = errors.New("the time of the signature is more than five minutes off")
	errSignatureSum   = errors.New("the signature does not match")
)

// checkSignature returns nil if one of the signatures in lines, which are those of the header, was made with secret over body at a time near now;
// otherwise why not. It looks at body only to hash it. Without a secret nothing is ever signed.
func checkSignature(secret []byte, lines [][]byte, body []byte, now time.Time) error {
	if len(secret) == 0 {
		return errNoSecret
	}
	if len(lines) != 1 {
		// Which of two counts would be a matter of taste, and a proxy in front may have another.
		return errSignatureLines
	}
	s, ok := parseSignature(lines[0])
	if !ok {
		return errSignatureForm
	}
	if off := now.Sub(s.at); off > signatureWindow || off < -signatureWindow {
		return errSignatureTime
	}
	mac := hmac.New(sha256.New, secret)
	_, _ = mac.Write(s.stamp)
	_, _ = mac.Write([]byte{'.'})
	_, _ = mac.Write(body)
	want := mac.Sum(nil)
	// All of them are compared, each in constant time: how long it takes says nothing about which one came near.
	fits := false
	for _, sum := range s.sums {
		if hmac.Equal(sum, want) {
			fits = true
		}
	}
	if !fits {
		return errSignatureSum
	}
	return nil
}

// signature is the value of a Flashgate-Signature header.
type signature struct {
	stamp []byte // the time as it was written, which is what was signed
	at    time.Time
	sums  [][]byte // of sha256.Size bytes each; several while the provider changes its secret
}

// parseSignature reads t=UNIXSECONDS,v1=HEX[,v1=HEX…]. There is one way to write it: t first and once, a plain decimal; then v1 alone; no spaces.
func parseSignature(value []byte) (signature, bool) {
	fields := bytes.Split(value, []byte{','})
	stamp, ok := bytes.CutPrefix(fields[0], []byte("t="))
	if !ok || len(fields) < 2 || len(stamp) < 1 || len(stamp) > stampDigits || (stamp[0] == '0' && len(stamp) > 1) {
		return signature{}, false
	}
	for _, c := range stamp {
		if c < '0' || c > '9' {
			return signature{}, false
		}
	}
	seconds, err := strconv.ParseInt(string(stamp), 10, 64)
	if err != nil {
		return signature{}, false
	}
	s := signature{stamp: stamp, at: time.Unix(seconds, 0)}
	for _, field := range fields[1:] {
		text, ok := bytes.CutPrefix(field, []byte("v1="))
		if !ok || len(text) != hex.EncodedLen(sha256.Size) {
			return signature{}, false
		}
		sum := make([]byte, sha256.Size)
		if _, err := hex.Decode(sum, text); err != nil {
			return signature{}, false
		}
		s.sums = append(s.sums, sum)
	}
	return s, true
}
