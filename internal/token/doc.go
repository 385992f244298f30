// Package token verifies and signs bearer tokens: JSON Web Tokens (RFC 7519) signed
// with HS256, RS256, ES256 or EdDSA.
//
//   - [Keys] are the keys of the configuration, one per algorithm: which key a token
//     is held against follows from its algorithm, never the other way round.
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
package token
