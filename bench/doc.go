// Package bench puts a crowd in front of a gateway and reports what became of it: the answers by code, the rate, the time each answer took, and
// whether the invariants of a sale held afterwards. A run that sold nothing, or that broke an invariant, is an error, however fast it was.
//
// The generator is a closed loop: each of its workers waits for an answer before it sends the next request. Its percentiles describe the time of
// an answer at that concurrency; they are not the latency at an arrival rate, because a stalled server makes this generator stop as well.
package bench
