package token

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	// MaxBytes is the longest token that is looked at.
	MaxBytes = 8192

	// DefaultLeeway is how far clocks of issuers are usually off.
	DefaultLeeway = 30 * time.Second
	// MaxLeeway keeps a slip from making expired tokens good for days.
	MaxLeeway = time.Hour
)

// Config of a Verifier.
type Config struct {
	// Keys to hold tokens against. Required.
	Keys KeySource
	// Issuer and Audience, where set, must be the token's iss, and its aud or one
	// of them.
	Issuer, Audience string
	// Leeway is how far exp may lie back, and nbf and iat ahead. 0 to MaxLeeway;
	// zero is none (DefaultLeeway is what the configuration sets by default).
	Leeway time.Duration
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// Registerer gets the counter flashgate_token_refused_total{reason}. Nil: nothing is
	// registered. Verifiers with the same one share the counter.
	Registerer prometheus.Registerer
}

// WithDefaults fills in the clock.
func (c Config) WithDefaults() Config {
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Validate says what is wrong with the configuration, defaults filled in.
func (c Config) Validate() error {
	switch {
	case c.Keys == nil:
		return errors.New("there are no keys")
	case c.Leeway < 0 || c.Leeway > MaxLeeway:
		return fmt.Errorf("the leeway must be from 0 to %v, not %v", MaxLeeway, c.Leeway)
	case c.Now == nil:
		return errors.New("there is no clock")
	}
	return nil
}

// Verifier checks tokens. Immutable, safe for concurrent use.
type Verifier struct {
	keys               KeySource
	checkIss, checkAud bool
	validator          *jwt.Validator
	refused            map[Reason]prometheus.Counter
}

// NewVerifier makes a verifier.
func NewVerifier(cfg Config) (*Verifier, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("make token verifier: %w", err)
	}
	refused, err := newRefusals(cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("make token verifier: %w", err)
	}
	options := []jwt.ParserOption{
		jwt.WithExpirationRequired(),
		jwt.WithIssuedAt(),
		jwt.WithLeeway(cfg.Leeway),
		jwt.WithTimeFunc(cfg.Now),
	}
	if cfg.Issuer != "" {
		options = append(options, jwt.WithIssuer(cfg.Issuer))
	}
	if cfg.Audience != "" {
		options = append(options, jwt.WithAudience(cfg.Audience))
	}
	return &Verifier{
		keys:      cfg.Keys,
		checkIss:  cfg.Issuer != "",
		checkAud:  cfg.Audience != "",
		validator: jwt.NewValidator(options...),
		refused:   refused,
	}, nil
}

// Verify checks a token, in this order: size and shape; the header, and that there is
// a key for its algorithm; the signature; only then what the payload says: exp
// (required), nbf and iat, issuer and audience where configured, the subject. Any
// error is an *Error, and is counted. It keeps nothing of raw, and does not block.
//
// The library's parser is left out: it decodes header and payload before it looks at
// the signature, and what it makes of repeated names would have to be checked beside
// it all the same. With it, an HS256 check took 10.5 µs instead of 5.3.
func (v *Verifier) Verify(raw []byte) (Claims, error) {
	claims, refused := v.verify(raw)
	if refused != nil {
		v.refused[refused.Reason].Inc()
		return Claims{}, refused
	}
	return claims, nil
}

func (v *Verifier) verify(raw []byte) (Claims, *Error) {
	if len(raw) > MaxBytes {
		return Claims{}, errTooLong
	}
	first, last, ok := shape(raw)
	if !ok {
		return Claims{}, errShape
	}
	header, refused := readHeader(raw[:first])
	if refused != nil {
		return Claims{}, refused
	}
	method := methods[header.algorithm]
	if method == nil {
		return Claims{}, errAlgorithm
	}
	key, ok := v.keys.Key(header.algorithm, header.id)
	switch {
	case !ok && header.id != "":
		return Claims{}, v.unless(header.algorithm, errKey)
	case !ok:
		return Claims{}, v.unless(header.algorithm, errAlgorithm)
	}
	signature, ok := decode(raw[last+1:])
	if !ok {
		return Claims{}, errShape
	}
	if !matches(method, string(raw[:last]), signature, key) {
		return Claims{}, v.unless(header.algorithm, errSignature)
	}
	payload, ok := decode(raw[first+1 : last])
	if !ok {
		return Claims{}, errShape
	}
	set := claimSet{checkIss: v.checkIss, checkAud: v.checkAud}
	if refused := set.read(payload); refused != nil {
		return Claims{}, refused
	}
	if err := v.validator.Validate(&set); err != nil {
		return Claims{}, refusal(err)
	}
	return Claims{Subject: set.sub}, nil
}

// unless is how a token ends that no known key is good for: refused, unless keys are still to come. Its bearer has to hear then that he should try
// again, as he would throw away a token that is called bad.
func (v *Verifier) unless(algorithm string, refused *Error) *Error {
	if v.keys.Pending(algorithm) {
		return errPending
	}
	return refused
}

// methods are the only ones there are; each takes only keys of its own Go type.
var methods = map[string]jwt.SigningMethod{
	HS256: jwt.SigningMethodHS256,
	RS256: jwt.SigningMethodRS256,
	ES256: jwt.SigningMethodES256,
	EdDSA: jwt.SigningMethodEdDSA,
}

// matches tells whether the signature was made with the key, or with one of several.
func matches(method jwt.SigningMethod, text string, signature []byte, key any) bool {
	set, several := key.(jwt.VerificationKeySet)
	if !several {
		return method.Verify(text, signature, key) == nil
	}
	return slices.ContainsFunc(set.Keys, func(k jwt.VerificationKey) bool {
		return method.Verify(text, signature, k) == nil
	})
}

// decode gives the bytes of a segment, in a buffer of their own.
func decode(segment []byte) ([]byte, bool) {
	decoded := make([]byte, segments.DecodedLen(len(segment)))
	n, err := segments.Decode(decoded, segment)
	return decoded[:n], err == nil
}

// shape finds the two dots between three segments of base64url, none of them empty.
// The decoder would skip line breaks, so that one token had many spellings.
func shape(raw []byte) (first, last int, ok bool) {
	first, last = -1, -1
	for i, c := range raw {
		switch {
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_':
		case c == '.' && first < 0 && i > 0:
			first = i
		case c == '.' && first >= 0 && last < 0 && i > first+1:
			last = i
		default:
			return 0, 0, false
		}
	}
	return first, last, last > 0 && last+1 < len(raw)
}

// refusal translates an error of the library's validator.
func refusal(err error) *Error {
	var own *Error
	switch {
	case errors.As(err, &own): // of claimSet.Validate
		return own
	case errors.Is(err, jwt.ErrTokenExpired):
		return errExpired
	case errors.Is(err, jwt.ErrTokenNotValidYet), errors.Is(err, jwt.ErrTokenUsedBeforeIssued):
		return errNotYet
	case errors.Is(err, jwt.ErrTokenInvalidIssuer):
		return errIss
	case errors.Is(err, jwt.ErrTokenInvalidAudience):
		return errAud
	}
	return errClaims
}
