// Package reconcile compares what Redis holds of an item with what the database says, and names the orders behind a difference. It changes nothing: what
// puts a difference right is a load.
//
// # The sum
//
// Every unit of an item is in one place: free in a shard, in a transfer between two, or held by a mark. A mark is of a live order, of a reservation that
// the database does not know yet, or of an order that has ended and whose release waits to be carried out; units of a restock wait in the
// database until they are added. So
//
//	drift = quantity − free − in transfer − units of marks − units of restocks that wait − units of live orders without a mark
//
// is 0 however much is in flight. Marks that wait to be voided are left out: their units never existed. As sold is the sum of the live orders, this is
// quantity − sold − free − reserved − in transfer, with the marks of live orders counted in sold, and all others in reserved.
//
// # Why one reading proves nothing
//
// Redis and the database cannot be read at one instant, and the shards of Redis not either; each shard is (shard.Accounts), and so is the
// database (ledger.Books). Redis is read first. What can happen in between, and why it does not happen to the same order, or by the same number, again:
//
//   - A reservation is made behind the reading of its shard and stored before that of the database: a live row without a mark. The next reading of the
//     shard comes later, and finds the mark, or the order has ended. So a row that is live and without its mark in two readings that follow each
//     other has none. Until that is known its units are taken for free ones that have been sold since.
//   - An order ends, and its release is carried out and forgotten, between the two: a mark of an ended order for which nothing waits. The next
//     reading finds that mark gone. One that stays belongs to nobody: a correction is only forgotten when it has been carried out.
//   - A unit moves from a shard that was read to one that was not, or the other way: it counts twice or not at all. It would have to move in step with the
//     readings, whose waits grow, to look the same each time.
//   - A transfer has been given and not settled, or a restock added and its correction not yet forgotten: the unit counts twice until its gateway or a
//     keeper has finished, a second or two if one of them has died. So surplus units are only believed as far as no transfer or restock
//     under way explains them.
//   - The item is being loaded: marks of before and numbers of behind it may meet. Nothing is said of an item whose shards are not all loaded, of its
//     epoch and layout, or whose load is under way; and readings are only compared with readings of the same epoch.
//
// A mark without a row is in flight as long as its event can still arrive: while an outbox entry holds it, a gateway may still be about to publish it, or
// the order writers have not read what was in the orders topic after both were seen to be over. See lost.go.
//
//	reconcile.go  Checker, Check    reading.go  one reading, judged    report.go  what several add up to    lost.go  reservations whose event is nowhere
//	unknown.go  why nothing can be said
package reconcile
