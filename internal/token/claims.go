package token

import (
	"encoding/json"
	"math"
	"strconv"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Claims is what a verified token says.
type Claims struct {
	// Subject is the user: 1 to MaxSubject bytes of UTF-8, no control characters.
	Subject string
}

// maxSeconds is the end of the year 9999. What is beyond it is milliseconds, or an
// overflow in the making.
const maxSeconds = 253402300799

// claimSet is the payload, read strictly, for the library to validate.
type claimSet struct {
	checkIss, checkAud bool // set before reading

	sub, iss      string
	aud           jwt.ClaimStrings
	exp, nbf, iat *jwt.NumericDate
	problem       *Error // the first claim that may not be
}

var _ jwt.ClaimsValidator = (*claimSet)(nil)

// read reads a payload. What cannot be read at all is refused here; what is wrong
// with a claim waits for Validate.
func (c *claimSet) read(data []byte) *Error {
	s, ok := newScanner(data)
	if !ok || !json.Valid(data) {
		return errJSON
	}
	var (
		buf                          [maxName]byte
		sub, exp, nbf, iat, iss, aud []byte
	)
	for {
		raw, value, ok := s.next()
		if !ok {
			break
		}
		var into *[]byte
		switch string(plain(raw, &buf)) {
		case "sub":
			into = &sub
		case "exp":
			into = &exp
		case "nbf":
			into = &nbf
		case "iat":
			into = &iat
		case "iss":
			into = &iss
		case "aud":
			into = &aud
		default:
			continue // another case is another claim, and means nothing here
		}
		if *into != nil {
			return errRepeated
		}
		*into = value
	}
	c.readTimes(exp, nbf, iat)
	c.readParties(iss, aud, sub)
	return nil
}

func (c *claimSet) readTimes(exp, nbf, iat []byte) {
	var ok bool
	if c.exp, ok = numericDate(exp); !ok || c.exp == nil || !c.exp.After(time.Unix(0, 0)) {
		c.fail(errExp)
	}
	if c.nbf, ok = numericDate(nbf); !ok {
		c.fail(errNbf)
	}
	if c.iat, ok = numericDate(iat); !ok {
		c.fail(errIat)
	}
}

func (c *claimSet) readParties(iss, aud, sub []byte) {
	if c.checkIss && (!stringInto(&c.iss, iss) || c.iss == "") {
		c.fail(errIss)
	}
	if c.checkAud && !c.readAudience(aud) {
		c.fail(errAud)
	}
	b, ok := subjectOf(sub)
	if !ok {
		c.fail(errSub)
	}
	c.sub = string(b)
}

// readAudience takes a string, or a list of strings and nothing else.
func (c *claimSet) readAudience(value []byte) bool {
	var one string
	if stringInto(&one, value) {
		c.aud = jwt.ClaimStrings{one}
		return true
	}
	var list []*string
	if len(value) == 0 || value[0] != '[' || json.Unmarshal(value, &list) != nil {
		return false
	}
	for _, s := range list {
		if s == nil { // null
			return false
		}
		c.aud = append(c.aud, *s)
	}
	return len(c.aud) > 0
}

// fail keeps the first problem.
func (c *claimSet) fail(e *Error) {
	if c.problem == nil {
		c.problem = e
	}
}

// numericDate reads seconds since 1970, which may have a fraction (RFC 7519, 2).
// Absent is nil and ok; what is there must be a number, not null nor text.
func numericDate(value []byte) (*jwt.NumericDate, bool) {
	if value == nil {
		return nil, true
	}
	if c := value[0]; c < '0' || c > '9' { // a minus too: there were no tokens then
		return nil, false
	}
	seconds, err := strconv.ParseFloat(string(value), 64)
	if err != nil || seconds > maxSeconds {
		return nil, false
	}
	whole, part := math.Modf(seconds)
	return &jwt.NumericDate{Time: time.Unix(int64(whole), int64(part*float64(time.Second)))}, true
}

// Validate is the library's hook for claims of one's own.
func (c *claimSet) Validate() error {
	if c.problem != nil {
		return c.problem
	}
	return nil
}

func (c *claimSet) GetExpirationTime() (*jwt.NumericDate, error) { return c.exp, nil }
func (c *claimSet) GetNotBefore() (*jwt.NumericDate, error)      { return c.nbf, nil }
func (c *claimSet) GetIssuedAt() (*jwt.NumericDate, error)       { return c.iat, nil }
func (c *claimSet) GetIssuer() (string, error)                   { return c.iss, nil }
func (c *claimSet) GetSubject() (string, error)                  { return c.sub, nil }
func (c *claimSet) GetAudience() (jwt.ClaimStrings, error)       { return c.aud, nil }
