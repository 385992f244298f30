// Package admin is the HTTP API with which people run sales, and its client for the shell commands. It is served on the admin listener of
// gateways (package ops) and asks for the admin token on every path.
//
// The server needs the ledger, the stock in Redis, the loader and the catalogue of the gateway through the small interfaces of ports.go.
// What it answers while Redis is away it answers with null: a number that nobody knows is not 0.
//
// # Reading guide
//
//	ports.go        what the API needs from others
//	admin.go        Config, New, Close
//	routes.go       method and path to handler, errors for what fits none
//	request.go      strict reading of bodies, ids, queries and keys
//	sale_input.go   a sale as it is asked for: defaults, limits, messages that name the field
//	view.go         sales and items as they are answered
//	sales.go        create, show, list
//	item.go         show: the numbers of database and Redis, put together
//	restock.go      add units
//	client.go       the typed client
package admin
