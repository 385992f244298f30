package gateway

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

var paymentSecret = []byte("whsec-0123456789abcdef0123456789abcdef")

// sumOf is the HMAC of a payment as the provider computes it.
func sumOf(secret []byte, stamp, body string) string {
	mac := hmac.New(sha256.New, secret)
	_, _ = fmt.Fprintf(mac, "%s.%s", stamp, body)
	return hex.EncodeToString(mac.Sum(nil))
}

// signedAt is the value of a Flashgate-Signature for a body, made at an instant.
func signedAt(at time.Time, body string) string {
	stamp := fmt.Sprint(at.Unix())
	return "t=" + stamp + ",v1=" + sumOf(paymentSecret, stamp, body)
}

// A signature made by another program (openssl dgst -sha256 -hmac): what is signed is t, a point and the body, byte for byte.
func TestSignatureOfAnotherProgram(t *testing.T) {
	const (
		body = `{"eventId":"e-1"}`
		sum  = "48383c712bd31870afaa1469f4cf635aecd76e3e70940c8b30a580dd84e680dc"
	)
	at := time.Unix(1735689600, 0)
	header := [][]byte{[]byte("t=1735689600,v1=" + sum)}
	if err := checkSignature(paymentSecret, header, []byte(body), at); err != nil {
		t.Error(err)
	}
	for _, other := range []string{`{"eventId":"e-2"}`, body + "\n", " " + body, "", body + body} {
		if err := checkSignature(paymentSecret, header, []byte(other), at); !errors.Is(err, errSignatureSum) {
			t.Errorf("body %q: %v", other, err)
		}
	}
	if err := checkSignature([]byte("another"), header, []byte(body), at); !errors.Is(err, errSignatureSum) {
		t.Errorf("another secret: %v", err)
	}
	for _, secret := range [][]byte{nil, {}} {
		// Without a secret the HMAC has an empty key, with which anybody can sign.
		lines := [][]byte{[]byte("t=1735689600,v1=" + sumOf(nil, "1735689600", body))}
		if err := checkSignature(secret, lines, []byte(body), at); !errors.Is(err, errNoSecret) {
			t.Errorf("no secret: %v", err)
		}
	}
}

// Five minutes either way are in, a nanosecond more is out, whatever the signature.
func TestSignatureWindow(t *testing.T) {
	signed := time.Unix(1735689600, 0)
	line := [][]byte{[]byte(signedAt(signed, "x"))}
	for off, want := range map[time.Duration]error{
		0:                          nil,
		5 * time.Minute:            nil,
		-5 * time.Minute:           nil,
		5*time.Minute + 1:          errSignatureTime,
		-5*time.Minute - 1:         errSignatureTime,
		24 * time.Hour:             errSignatureTime,
		time.Millisecond:           nil,
		290 * 365 * 24 * time.Hour: errSignatureTime, // near the longest Duration
	} {
		if err := checkSignature(paymentSecret, line, []byte("x"), signed.Add(off)); !errors.Is(err, want) {
			t.Errorf("%v off: %v, want %v", off, err, want)
		}
	}
	for _, stamp := range []string{"0", "99999999999"} { // farther away than a Duration can say
		lines := [][]byte{[]byte("t=" + stamp + ",v1=" + sumOf(paymentSecret, stamp, "x"))}
		if err := checkSignature(paymentSecret, lines, []byte("x"), time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)); !errors.Is(err, errSignatureTime) {
			t.Errorf("t=%s: %v", stamp, err)
		}
	}
}

func TestSignatureForm(t *testing.T) {
	at := time.Unix(1735689600, 0)
	good := sumOf(paymentSecret, "1735689600", "x")
	bad := sumOf([]byte("old"), "1735689600", "x")
	other := sumOf(paymentSecret, "+1735689600", "x")
	for _, c := range []struct {
		lines []string
		want  error
	}{
		{[]string{"t=1735689600,v1=" + good}, nil},
		{[]string{"t=1735689600,v1=" + strings.ToUpper(good)}, nil},
		{[]string{"t=1735689600,v1=" + bad + ",v1=" + good}, nil}, // the provider changes its secret
		{[]string{"t=1735689600,v1=" + good + ",v1=" + bad}, nil},
		{[]string{"t=1735689600,v1=" + bad + ",v1=" + bad}, errSignatureSum},
		{[]string{"t=1735689600,v1=" + bad}, errSignatureSum},

		{nil, errSignatureLines},
		{[]string{"t=1735689600,v1=" + good, "t=1735689600,v1=" + good}, errSignatureLines},
		{[]string{"t=1735689600,v1=" + good, ""}, errSignatureLines},
		{[]string{""}, errSignatureForm},
		{[]string{"t=1735689600"}, errSignatureForm},
		{[]string{"v1=" + good}, errSignatureForm},
		{[]string{"v1=" + good + ",t=1735689600"}, errSignatureForm},
		{[]string{"t=1735689600,v1=" + good + ",t=1735689600"}, errSignatureForm},
		{[]string{"t=1735689600,v1=" + good + ","}, errSignatureForm},
		{[]string{",t=1735689600,v1=" + good}, errSignatureForm},
		{[]string{"t=1735689600,v1=" + good + ",v0=" + good}, errSignatureForm},
		{[]string{"t=1735689600,V1=" + good}, errSignatureForm},
		{[]string{"T=1735689600,v1=" + good}, errSignatureForm},
		{[]string{"t=1735689600, v1=" + good}, errSignatureForm},
		{[]string{"t=1735689600;v1=" + good}, errSignatureForm},
		{[]string{"t=1735689600 ,v1=" + good}, errSignatureForm},
		{[]string{"t = 1735689600,v1=" + good}, errSignatureForm},
		{[]string{"t=1735689600,v1=" + good[:63]}, errSignatureForm},
		{[]string{"t=1735689600,v1=" + good + "0"}, errSignatureForm},
		{[]string{"t=1735689600,v1=" + good[:63] + "g"}, errSignatureForm},
		{[]string{"t=1735689600,v1="}, errSignatureForm},
		{[]string{"t=1735689600,v1=0x" + good[:62]}, errSignatureForm},
		{[]string{"t=1735689600,v1=\"" + good + "\""}, errSignatureForm},
		{[]string{"t=,v1=" + good}, errSignatureForm},
		{[]string{"t=+1735689600,v1=" + other}, errSignatureForm},
		{[]string{"t=-1735689600,v1=" + other}, errSignatureForm},
		{[]string{"t=01735689600,v1=" + sumOf(paymentSecret, "01735689600", "x")}, errSignatureForm},
		{[]string{"t=1735689600.0,v1=" + sumOf(paymentSecret, "1735689600.0", "x")}, errSignatureForm},
		{[]string{"t=1735689600000,v1=" + sumOf(paymentSecret, "1735689600000", "x")}, errSignatureForm}, // milliseconds
		{[]string{"t=18446744075445241216,v1=" + good}, errSignatureForm},                                // 2^64 more
	} {
		var lines [][]byte
		for _, l := range c.lines {
			lines = append(lines, []byte(l))
		}
		if err := checkSignature(paymentSecret, lines, []byte("x"), at); !errors.Is(err, c.want) {
			t.Errorf("%q: %v, want %v", c.lines, err, c.want)
		}
	}
}

// Whatever the header is: what is taken is spelled in the one way that there is, and holds a sum of the secret over exactly these bytes.
func FuzzSignature(f *testing.F) {
	now := time.Unix(1735689600, 0)
	f.Add([]byte(signedAt(now, "x")), []byte("x"))
	f.Add([]byte(signedAt(now, "x")+",v1="+strings.Repeat("00", 32)), []byte("x"))
	f.Add([]byte("t=1735689600,v1="), []byte(""))
	f.Add([]byte("t=99999999999,v1="+strings.Repeat("0", 64)), []byte("{}"))
	f.Fuzz(func(t *testing.T, line, body []byte) {
		s, ok := parseSignature(line)
		err := checkSignature(paymentSecret, [][]byte{line}, body, now)
		if !ok {
			if !errors.Is(err, errSignatureForm) {
				t.Fatalf("%q cannot be read, and: %v", line, err)
			}
			return
		}
		spelled := fmt.Appendf(nil, "t=%d", s.at.Unix())
		for _, sum := range s.sums {
			spelled = fmt.Appendf(spelled, ",v1=%x", sum)
		}
		if len(s.sums) == 0 || !bytes.EqualFold(spelled, line) || line[0] != 't' || bytes.Contains(line, []byte("V1")) {
			t.Fatalf("%q was read as %q", line, spelled)
		}
		want := sumOf(paymentSecret, string(s.stamp), string(body))
		near := s.at.Sub(now).Abs() <= 5*time.Minute
		if fits := bytes.Contains(bytes.ToLower(line), []byte(",v1="+want)) && near; fits != (err == nil) {
			t.Fatalf("%q over %q: %v", line, body, err)
		}
		// The same signature over other bytes is none.
		if err == nil && checkSignature(paymentSecret, [][]byte{line}, append(body, 'x'), now) == nil {
			t.Fatalf("%q fits two bodies", line)
		}
	})
}
