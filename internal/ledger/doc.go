// Package ledger is PostgreSQL, where the truth is: the catalogue of sales and items, the orders and their payments, the corrections that the
// stock in Redis needs, the events that the rest of the shop is told, and the record of what people changed. It owns the schema and every
// statement on it.
//
// A DB is safe for concurrent use, and several processes may use one database: what excludes what is decided by row locks, guarded updates
// and unique indexes, never by this process alone. Every method is bounded by its context and by the server's timeouts (see Config), retries
// what passes by itself (see InTx), and says by Kind whether its error is passing or for good.
//
// # What always holds
//
//   - sold of an item is the units of its live orders, raised and lowered in the transaction that stores or ends them, and never above
//     quantity.
//   - A user has at most one live order per item, or per sale where the sale says so.
//   - An order that has ended stays ended. Whatever ends or refuses one writes, in the same transaction, the one correction that Redis
//     needs: release where the unit goes back, void where it never existed.
//   - Money that comes in for a PENDING order makes it PAID; for any other one a refund is due, and stays due until somebody says that it has been
//     paid. An event of the payment provider has one effect, and one answer.
//   - Whatever becomes of an order is told: the outgoing event is written by a trigger on the orders, in the same transaction. Those of one order
//     have ids in the order in which they became true.
//   - A correction carries the epoch of its item, read while the item's row is locked. A load makes a new epoch under the same lock, so each
//     correction is either in the load's numbers or of an epoch that is not older.
//
// # Lock order
//
// A transaction takes what it needs of these, in this order: the advisory lock of CreateSale, rows of flash_sale, rows of flash_sale_item by
// id, rows of flash_sale_order, rows of flash_sale_correction by id, rows of flash_sale_payment and flash_sale_event. Orders become live and end
// only under the lock of their item; that is why the reads that follow it are still true at COMMIT. The one thing that it does not cover is a
// purchase limit over a whole sale: there the unique index decides between two items, and the loser is attempted again.
//
// What happens to money takes the row of the order alone: it changes neither sold nor whether an order is live. Expire passes over an order that
// is being paid; Cancel waits for it; either finds it PAID, or is found by the payment.
//
// # Statements and plans
//
// A sale fills empty tables within seconds, and a plan is made before the server knows of it. Statements are therefore written so that only one
// index fits (see pool.go): a join against a list is a LATERAL with LIMIT 1, and the state of an order that is named by its id is compared in
// a CASE.
//
// # Times and amounts
//
// Every time is a timestamptz, and read in UTC wherever the process runs. now() of the server decides payment windows and leases; the time of
// a reservation is kept as Redis told it and only orders reservations among each other. Prices keep the digits that they were given.
//
// # Reading guide
//
//	pool.go         configuration and connections     retry.go        transactions that are attempted again
//	errors.go       kinds of errors                   migrate.go      the schema, in migrations/
//	catalogue.go    items with their sales            sales.go        creating and listing sales
//	update_sale.go  changing a sale, and ...          update_item.go  ... an item
//	restock.go      more units, once per key          items.go        locking items
//	audit.go        the row that each change leaves   audit_list.go   reading them
//	orders.go       reading orders                    order_list.go   pages of them
//	event.go        what an order id stands for       write.go        a batch of events: read, ...
//	write_decide.go ... decide, ...                   write_store.go  ... store
//	transitions.go  cancel and give up                expire.go       the end of the payment window
//	pay.go          what the payment provider says    payments.go     reading it
//	refund.go       what has been paid back           audit_reload.go the row of a load that was asked for
//	corrections.go  the outbox for Redis              outgoing.go     the outbox for the rest of the shop
//	load.go         claims, epochs and snapshots of a load
//	retire.go       the end of an item                purge.go        the end of its orders
//	standing.go     an item and some of its orders    listen.go       notifications
//	lease.go        leases that save double work
package ledger
