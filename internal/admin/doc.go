// Package admin is the HTTP API with which people run sales and answer for them, and its client for the shell commands. It is served on the admin
// listener of gateways (package ops) and asks for the admin token on every path.
//
// The server needs the ledger, the stock in Redis, the loader, the dead letters and the catalogue of the gateway through the small interfaces of
// ports.go. What it answers while Redis is away it answers with null: a number that nobody knows is not 0. A change that the database has is
// never answered with an error, unless the answer says that it was made.
//
// Answers name people; the log does not: its lines have the ids of sales, items and orders.
//
// # Reading guide
//
//	ports.go         what the API needs from others
//	admin.go         Config, New
//	routes.go        method and path to handler, errors for what fits none
//	request.go       strict reading of bodies, ids, queries, pages and keys
//	sale_input.go    a sale as it is asked for: defaults, limits, messages that name the field
//	change_input.go  likewise a change
//	view.go          sales and items as they are answered   view_order.go  orders
//	sales.go         create, show, list
//	change.go        change a sale or an item
//	item.go          show: the numbers of database and Redis, put together
//	restock.go       add units   reload.go  load anew, behind the answer if it takes long; Close
//	orders.go        what became of an order   refund.go  what has been paid back
//	audit.go         who changed what   letters.go  what could not be stored
//	guard.go         panics of what runs beside requests
//	client.go        the typed client   client_desk.go  its calls about changes, orders, audit and dead letters
package admin
