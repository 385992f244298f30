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
// Who holds units already, and whose outbox entry still stands, is told so after his event has been published once more: the
// process that made the reservation may be gone (rule R2). An acknowledgement that this process sees only behind the record
// deadline is a yes to nobody: a load may have written the reservation off. What remains is a broker that is slow or away
// while the only copy of a shard is lost: then an order of which somebody was told has no row.
//
// # When Redis loses something
//
// A key may be evicted, deleted or overwritten. No stock is ErrNotLoaded; a number that cannot be read, another number of
// marks than was counted or fewer outbox entries are ErrUnreadable, and stay so until a load writes the shard anew. Read
// reports it, which makes the load due. Without all of its marks a shard reserves and releases nothing; what units it has can
// still be had by others. A single mark that cannot be read is its user's trouble alone: the others go on until the load, and
// the script that came upon it notes it for Read. (Meta hashes of before these counts lack them, and are loaded once.)
//
// Where outbox entries are missing, that one does not stand is no proof that its events are in Kafka. A user who asks again is
// then told of his order only after its event has been published from his mark, and one who only has it read is told nothing.
// An entry that stands and cannot be read is made anew from the marks that name it (Rebuild).
//
// # Reading guide
//
//	config.go      Config                         types.go       the types that callers see
//	keys.go        names of keys                  codec.go       marks, outbox entries, transfer records as text
//	connect*.go    a client for a URL             scripts.go     how scripts are called, and what an error says about them
//	stock.go       Stock, New, Close              lanes.go       collecting what belongs to one call
//	reserve.go     Reserve and its waiters        batch.go       one call for a batch, and its answers
//	recover.go     after a lost reply             publish.go     events to the broker, outbox entries removed
//	rebuild.go     outbox entries from marks      account.go     shards with their marks, each at one instant
//	mover.go       waiting for units of others    plan.go        which units go where
//	transfer.go    take, give, settle             proof.go       what is free, proven
//	correct.go     release, void, increase        load.go        fence, load
//	retire.go      what is left, and its removal  read.go        reading without changing
//	vacate.go      what a larger layout has left behind
//	announce.go    messages between gateways      metrics.go     the table below
//	server.go      who loaded it, who serves it   nodes.go       what each server says of itself
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
//	flashgate_shard_publications_total{result}     batches handed to the publisher: acked, failed, late (acked, and known too late)
//	flashgate_shard_unacked_entries_total          outbox entries that were left to the sweep though their events are in Kafka
package shard
