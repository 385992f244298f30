// Package gateway is the HTTP edge of a sale: it decides in a fixed order whether a request may buy, asks for the units, and remembers per item
// that nothing is left, so that the crowd that comes too late costs next to nothing.
//
// # Reading guide
//
//   - ports.go: what the package needs from others, as small interfaces.
//   - gateway.go, listener.go, connections.go: building, serving; the limit on connections, and which ones there are. drain.go: stopping.
//   - handler.go, route.go: from the bytes of a request line to one of seven routes. purchase.go has the order of the checks.
//   - reserve.go: asking for units and waiting for the broker, within the request timeout whatever hangs (within.go).
//   - flag.go, winners.go: the sold-out flag and the set of those who may not be told "sold out"; watch.go keeps both true. late.go: the winners of what has ended.
//   - look.go: what happens to a request that may come from a winner, or asks for more than one user may have.
//   - catalogue.go: the items, re-read every second.
//   - item.go, orders.go, cancel.go, health.go: the other routes; lookup.go has their calls to Redis and the database, rowlook.go what is said
//     of an order while the database does not answer.
//   - payments.go, signature.go: the webhook of the payment provider, which proves by a signature who it is.
//   - answer.go, answers.go, json.go: every answer, most of them built once; cors.go: which pages may read them; cors_unread.go: likewise of
//     requests that could not be read.
//   - log.go: what is said about a request, and what never is.
//
// # What may be kept
//
// fasthttp reuses the memory of a request. Everything that outlives a handler, or is seen by another goroutine, is copied first (request.go);
// nothing else in this package holds on to bytes of a request.
package gateway
