// Package limiter says how often somebody may ask, and who somebody is.
//
//   - [Rate] is one setting: so many events per second, minute or hour, and how
//     many at once.
//   - [Table] keeps a token bucket (golang.org/x/time/rate) per user or per
//     address, in bounded memory.
//   - [Keyer] turns a user, or several parts, into a key of such a table.
//   - [Resolver] finds the address of the client behind a CDN or load balancer,
//     and [BucketKey] the part of it that is one customer's line.
//
// Limits hold per process: n gateways allow up to n times the rate. Nothing here
// starts a goroutine, and everything but [Rate.UnmarshalText] is safe for
// concurrent use once it is built.
package limiter
