package token

import "errors"

// Reason is why a token was refused, as a metrics label.
type Reason string

// The reasons. There will not be many more: each is a series of a metric.
const (
	ReasonMalformed Reason = "malformed" // not a token, or one with a part that cannot be read
	ReasonAlgorithm Reason = "algorithm" // none, or one without a key
	ReasonKey       Reason = "key"       // it names a key (kid) that is not known
	ReasonSignature Reason = "signature"
	ReasonExpired   Reason = "expired"
	ReasonNotYet    Reason = "not_yet" // nbf or iat in the future
	ReasonClaims    Reason = "claims"  // a claim is missing, of the wrong type or another's
	ReasonPending   Reason = "pending" // the key set that may have its key has not been fetched yet: nobody knows whether it is good
)

// Error is the refusal of a token. It never holds anything of the token, so it may
// be logged. Trying the same token again helps only where the reason is pending, not_yet, or key: a
// provider that has just begun to sign with a new one is asked for it (see [KeySet]).
type Error struct {
	Reason Reason
	detail string
}

func (e *Error) Error() string { return "verify token: " + e.detail }

// ReasonOf is the reason of an error of Verify; "" for any other error.
func ReasonOf(err error) Reason {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

var reasons = []Reason{
	ReasonMalformed, ReasonAlgorithm, ReasonKey, ReasonSignature, ReasonExpired, ReasonNotYet, ReasonClaims, ReasonPending,
}

// Refusals are made once: a flood of bad tokens should not cost garbage, too.
var (
	errTooLong   = &Error{ReasonMalformed, "it is longer than 8192 bytes"}
	errShape     = &Error{ReasonMalformed, "it is not three segments of base64url"}
	errHeader    = &Error{ReasonMalformed, "its header is not a JSON object with one alg, or names a parameter twice"}
	errCritical  = &Error{ReasonMalformed, "its header demands an extension (crit)"}
	errJSON      = &Error{ReasonMalformed, "its payload is not a JSON object"}
	errRepeated  = &Error{ReasonMalformed, "its payload names a claim twice"}
	errAlgorithm = &Error{ReasonAlgorithm, "there is no key for its algorithm, or several in a key set and it names none (kid)"}
	errKey       = &Error{ReasonKey, "the key that it names (kid) is not known"}
	errSignature = &Error{ReasonSignature, "the signature does not match"}
	errExpired   = &Error{ReasonExpired, "it has expired"}
	errNotYet    = &Error{ReasonNotYet, "it is not valid yet (nbf or iat)"}
	errExp       = &Error{ReasonClaims, "exp must be a number of seconds, above 0"}
	errNbf       = &Error{ReasonClaims, "nbf must be a number of seconds"}
	errIat       = &Error{ReasonClaims, "iat must be a number of seconds"}
	errIss       = &Error{ReasonClaims, "iss must be the configured issuer"}
	errAud       = &Error{ReasonClaims, "aud must be, or hold, the configured audience"}
	errSub       = &Error{ReasonClaims, "sub must be a string of 1 to 64 bytes without control characters"}
	errPending   = &Error{ReasonPending, "the key set that may have its key has not been fetched yet"}
	errClaims    = &Error{ReasonClaims, "its claims are not accepted"}
)
