// Package consumer is the order writer: it reads reservations from Kafka and stores them in the ledger, in batches. Any number of processes may run it
// side by side, as members of one consumer group.
//
// What it promises:
//
//   - An offset is committed after the records before it are in the database, or in the dead-letter topic. A record may be handled again, after a
//     crash or a rebalance; the ledger recognises it.
//   - Trouble with the database holds the records up and never sets them aside.
//   - A record that cannot be understood, or that the ledger refuses for good, goes to the dead-letter topic and holds up nobody. If it cannot
//     go there, its partition waits, and only that one.
//
// # Reading guide
//
//	consumer.go   Config, New, Run
//	session.go    one life of a group member: poll, handle, commit, leave
//	instance.go   leaving as a static member      orphans.go  partitions that nobody reads
//	write.go      a batch into the ledger: waiting out the database, finding the events that it refuses
//	letters.go    dead letters, and the reservations that they end
//	assignment.go which partitions are ours, and how far each has come
//	health.go     ready or not      lag.go  how far behind      metrics.go  flashgate_consumer_*
package consumer
