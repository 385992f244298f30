// Package shard keeps the free units of an item in k shards in Redis and hands them out: one user, one shard, one script
// that checks his mark and takes the unit. It never sells a unit twice and never strands one: where a shard is empty and
// another is not, units move; and "sold out" is said only when it was proven.
//
// # Calls
//
// Stock is safe for concurrent use. Reserve is the hot path; it returns by the end of its context, whatever Redis does.
// Everything else is a direct call that is bounded by its context and by Config.CallTimeout for each round trip; its
// errors wrap ErrNotLoaded, ErrWrongLayout or ErrUnreadable where that is what Redis answered, and name item and shard.
//
// # What happens to a request
//
//	Reserve ─ lane of (item, k, shard) ─ batch ─ reserve script ─┬─ won: publish, acknowledge, forget the outbox entry
//	             ▲                                               ├─ refused: answered
//	             └────────── mover of (item, k) ◄── home empty ──┘
//
// Requests of one lane collect while its previous call is in flight; there is no timer. A call runs under its own
// timeout, never under a request's context, because its winners must be published whether or not anybody waits for them.
// A request that gives up while it is queued is certainly never sent; one that gives up later gets Unknown and its order id.
//
// A reserve call that may have run is never repeated. Its outbox entry, written in the same instant as the units were
// taken, tells afterwards who won; while there is no such entry the call may yet run, and the answer is Unknown.
//
// # Reading guide
//
//	config.go      Config                         types.go       the types that callers see
//	keys.go        names of keys                  codec.go       marks, outbox entries, transfer records as text
//	connect.go     a client for a URL             scripts.go     how scripts are called, and what an error says about them
//	stock.go       Stock, New, Close              lanes.go       collecting what belongs to one call
//	reserve.go     Reserve and its waiters        batch.go       one call for a batch, and its answers
//	recover.go     after a lost reply             publish.go     events to the broker, outbox entries removed
//	mover.go       waiting for units of others    plan.go        which units go where
//	transfer.go    take, give, settle             proof.go       what is free, proven
//	correct.go     release, void, increase        load.go        fence, load, retire
//	read.go        reading without changing       announce.go    messages between gateways
//	metrics.go     the table below
//
// # Metrics
//
//	flashgate_shard_reserve_calls_total{result}    reserve scripts sent: ok, refused, lost
//	flashgate_shard_reserve_call_seconds           time of one reserve script, round trip included
//	flashgate_shard_batch_requests                 requests in one reserve script
//	flashgate_shard_outcomes_total{outcome}        answers of Reserve, by sale.Outcome
//	flashgate_shard_waiting_requests               requests that wait in this process for a reserve script
//	flashgate_shard_moves_total{result}            transfers between shards: done, unsettled (left to whoever comes next)
//	flashgate_shard_moved_units_total              units that arrived at another shard
//	flashgate_shard_proofs_total{result}           two-pass readings of all shards: empty, not_empty, unproven, failed
//	flashgate_shard_lost_replies_total{found}      reserve calls without a reply, by what was read back: entry, mark, nothing
//	flashgate_shard_publications_total{result}     batches handed to the publisher: acked, failed
//	flashgate_shard_unacked_entries_total          outbox entries that were left to the sweep though their events are in Kafka
package shard
