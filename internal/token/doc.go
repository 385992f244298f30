// Package token verifies and signs bearer tokens: JSON Web Tokens (RFC 7519) signed
// with HS256, RS256, ES256 or EdDSA.
//
//   - [Keys] are the keys of the configuration: which of them a token is held against
//     follows from its algorithm, never the other way round.
//   - [KeySet] are the keys that a provider publishes and changes, beside those.
//   - [Verifier] checks a token and gives its [Claims].
//   - [PeekSubject] reads the subject without checking anything, for decisions that
//     only lead to a closer look.
//   - [Signer] makes tokens, for the shell and the load generator.
//   - [FromHeader] finds the token in an Authorization header.
//
// golang-jwt makes and checks signatures and validates times, issuer and audience. What
// is stricter here than there is the reading: encoding/json takes the last of two members of
// the same name, and members whose names differ in case; two readers of such a token
// could see two users. Here a repeated claim is refused and "SUB" is not "sub", and
// every reader in this package goes through the same scanner.
//
// Key sets are read and fetched here as well, with the standard library. The usual
// libraries for them refuse a whole set for one key of a kind that they do not know, or
// download in goroutines of their own, or on the way of a request, by rules that do not
// keep a flood of made-up key ids from the provider; what they would leave to do is the
// greater part.
//
// # Reading guide
//
//	verify.go   Verifier                      claims.go  what the payload says    subject.go  sub
//	header.go   header of a token, or of HTTP peek.go    reading without checks   scan.go     JSON objects
//	errors.go   refusals and their reasons    metrics.go counters                 sign.go     Signer
//	keys.go     keys of the configuration     pem.go     their text
//	keyset.go   KeySet: settings, rules       keyset_run.go  when it is fetched   keyset_fetch.go  download
//	keyring.go  which key for which token     jwk.go     the text of a set        algorithm.go     which algorithm for which key
//
// # Metrics
//
//	flashgate_token_refused_total{reason}         tokens refused: malformed, algorithm, key, signature, expired, not_yet, claims,
//	                                              pending
//	flashgate_token_jwks_refreshes_total{result}  attempts to fetch the key set: ok, unreachable, interrupted, redirect, status,
//	                                              too_large, malformed, no_keys
//	flashgate_token_jwks_keys                     keys of the set that tokens are held against
//	flashgate_token_jwks_age_seconds              since the set was fetched, or since the start as long as it never was
package token
