// Package sale is the vocabulary of flashgate: items, sales, orders, reservations, events and outcomes, with the rules
// that need no server to be stated. It imports the standard library alone, and every other package may import it.
package sale
