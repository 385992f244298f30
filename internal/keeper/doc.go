// Package keeper keeps Redis and the database in step, and puts right what crashes and outages leave behind. It runs in every consumer process, as
// a set of loops that know nothing of each other:
//
//	sweep      publishes the events that gateways left in their outboxes, and removes the entries
//	give-up    part of the sweep: cancels reservations that could not be published for too long, whose units then return
//	expire     ends orders whose payment window is over
//	relay      carries corrections (release, void, increase) from the database to Redis
//	transfers  finishes moves of units between shards that a crash cut in two
//	events     tells the rest of the shop what became of orders and stock
//	retire     removes what is over from Redis
//	reconcile  compares Redis with the database, and raises an alarm; it puts nothing right
//	watch      finds out that the stock of an item is lost, foreign or unreadable, and has the loader bring it from the database
//
// # Several keepers
//
// Any number of keepers may run at once, and any of them may die, stall, or wake up again at any point. What decides then is in the database and
// the scripts: row locks and guarded statements, order ids, operation ids, epochs and tokens. Leases (see turn.go) only keep several keepers from
// doing the same work, and a keeper that cannot get or ask for one works without.
//
// # Servers that fail
//
// No loop ends because a server fails, and none waits for one without a bound: every call has a timeout, every item at most one goroutine for
// each loop (see crew.go), and the number of both is bounded. What an item needs is found out anew in every round, so nothing is remembered
// that could be lost. A panic at one item is caught, logged and counted.
//
// # Reading guide
//
//	config.go      Config                       ports.go        what it needs from others
//	keeper.go      New, Run, the sweep's round  catalogue.go    which items need looking after
//	crew.go        bounded work on items        turn.go         leases between keepers
//	pace.go        when an item is due again    guard.go        panics, and logging the same thing seldom
//	sweep.go       one sweep of an item         publish.go      publishing a backlog    giveup.go        give-up
//	expire.go      orders nobody paid for       transfers.go    moves that a crash cut in two
//	relay.go       claiming corrections         relay_shard.go  carrying them out
//	events.go      order events                 retire.go       the end of an item
//	reconcile.go   what does not add up
//	watch*.go      is a load due?               loader.go       Loader                  loader_claim.go  who may load, leases, take-over
//	                                                                                    loader_steps.go  fence, quiesce, drain, snapshot, load
//	                                                                                    loader_planned.go  loads that somebody wishes for
//
// # Metrics
//
//	flashgate_keeper_swept_reservations_total{result}    reservations found in an outbox: published, failed (left for later), given_up
//	flashgate_keeper_outbox_reservations                 reservations that the last sweep of each item left; 0 where another keeper sweeps
//	flashgate_keeper_outbox_oldest_seconds               age of the oldest of them
//	flashgate_keeper_expired_orders_total                orders that nobody paid for in time
//	flashgate_keeper_corrections_total{op,result}        attempts at a correction: done, absorbed (a load had counted it); postponed are
//	                                                     not_loaded, wrong_layout, unreadable, failed
//	flashgate_keeper_events_total{result}                order events handed to the broker: published, failed (tried again)
//	flashgate_keeper_events_waiting                      order events in the database that are not known to be in Kafka; every keeper counts them all, up to 100,000
//	flashgate_keeper_events_oldest_seconds               age of the oldest of them
//	flashgate_keeper_retired_items_total                 items that this process retired
//	flashgate_keeper_loads_total{reason,result}          loads: loaded, taken_over, failed; reasons: first, missing, unreadable, layout, epoch,
//	                                                     server, transfers, abandoned, planned, asked, repair, no_room and others that the ledger names
//	flashgate_keeper_drift_units{item}                   what nothing in flight explains, of items on sale; above 0: units are missing from Redis. Only of the keeper
//	                                                     whose turn it is, and of at most 200 items
//	flashgate_keeper_concerned_orders{item}              orders that are not in Redis as they should be; see package reconcile
//	flashgate_keeper_load_seconds                        from the claim until the stock is there
//	flashgate_keeper_alarms_total{alarm,item}            unreadable_entry, unreadable_outbox, give_up_refused, unreadable_correction, load_failed,
//	                                                     drift (counted when it changes),
//	                                                     and stock_missing, stock_unreadable, stock_layout, stock_epoch, stock_server: a load was
//	                                                     due because of a shard, which the log names; stock_transfers: because units in transfer
//	                                                     are lost; stock_no_room: because Redis
//	                                                     had more units than the database; items beyond the first 200 are "other"
//	flashgate_keeper_panics_total{loop}                  faults of the program that were caught
package keeper
