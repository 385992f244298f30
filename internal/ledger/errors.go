package ledger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// ErrorKind says what the caller of this package can do about an error.
type ErrorKind uint8

// The kinds of errors.
const (
	// Passing: the database is down, slow, busy or not as this binary expects it. The same call may succeed later, nothing of it
	// happened, and it is never a reason to give up an event.
	Passing ErrorKind = iota + 1
	// Permanent: the values of the call are refused, now and later. Nothing of it happened.
	Permanent
	// Unknown: the reply to COMMIT was lost, so the call may have happened. Repeating it is safe for every method that says so.
	Unknown
)

// String returns the name used in logs and metrics.
func (k ErrorKind) String() string {
	switch k {
	case Passing:
		return "passing"
	case Permanent:
		return "permanent"
	case Unknown:
		return "unknown"
	}
	return "none"
}

// Kind classifies an error of this package, however often it is wrapped; 0 for nil. Whatever is not known to be about the values counts
// as Passing: trouble with the database must never cost an event.
func Kind(err error) ErrorKind {
	var refused interface{ refused() }
	var pg *pgconn.PgError
	switch {
	case err == nil:
		return 0
	case errors.As(err, new(*UnknownError)):
		return Unknown
	case errors.As(err, &refused):
		return Permanent
	case errors.As(err, &pg) && refusesValues(pg.Code):
		return Permanent
	}
	return Passing
}

// refusesValues reports whether a SQLSTATE is about the values: data exceptions and violated constraints.
func refusesValues(code string) bool {
	return strings.HasPrefix(code, "22") || strings.HasPrefix(code, "23")
}

// PermanentError says that events cannot be stored, whenever they are tried.
type PermanentError struct {
	At  []int // positions of the events at fault; empty where the database did not say which: halve the batch
	Err error
}

func (e *PermanentError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong with the events.
func (e *PermanentError) Unwrap() error { return e.Err }

func (e *PermanentError) refused() {}

// permanentAt makes err a *PermanentError about the events at the given positions, unless it is one already.
func permanentAt(err error, at []int) error {
	if errors.As(err, new(*PermanentError)) {
		return err
	}
	return &PermanentError{At: at, Err: err}
}

// UnknownError says that the reply to COMMIT was lost and that it could not be found out in time whether the transaction happened.
type UnknownError struct{ Err error }

func (e *UnknownError) Error() string { return "outcome unknown: " + e.Err.Error() }

// Unwrap returns why the outcome is unknown.
func (e *UnknownError) Unwrap() error { return e.Err }

// ExistsError says that a sale or an item with this id exists already.
type ExistsError struct {
	What string // "sale" or "item"
	ID   int64
}

func (e *ExistsError) Error() string { return fmt.Sprintf("%s %d exists already", e.What, e.ID) }

func (e *ExistsError) refused() {}

// NotFoundError says that there is no sale or item with this id.
type NotFoundError struct {
	What string // "sale" or "item"
	ID   int64
}

func (e *NotFoundError) Error() string { return fmt.Sprintf("%s %d does not exist", e.What, e.ID) }

func (e *NotFoundError) refused() {}

// refusal is a sentinel error about the values of a call.
type refusal string

func (r refusal) Error() string { return string(r) }

func (refusal) refused() {}

// Refusals of Restock.
const (
	// ErrKeyReused: the idempotency key was used for the same item with another quantity.
	ErrKeyReused = refusal("the idempotency key was used with another quantity")
	// ErrTooMany: the item would have more units than sale.MaxQuantity.
	ErrTooMany = refusal("the item would have more than 9007199254740991 units")
	// ErrRetired: the item is retired, nothing of it is sold any more.
	ErrRetired = refusal("the item is retired")
)

// errRaced makes InTx run a transaction again: another one changed what it had read, in a place that the item's lock does not cover.
var errRaced = errors.New("another transaction was faster")

// connectionLost reports whether err says that there is no connection to the server (any more), rather than what the server answered.
func connectionLost(err error) bool {
	var network net.Error
	return errors.As(err, new(*pgconn.ConnectError)) || errors.As(err, &network) || errors.Is(err, pgconn.ErrConnClosed) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || pgconn.SafeToRetry(err) || pgconn.Timeout(err)
}

// stalePlan reports whether a prepared statement no longer fits the table: a migration changed the type of a result under it. pgx forgets
// the statement, so that the next attempt prepares it anew.
func stalePlan(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "0A000" && strings.Contains(pg.Message, "cached plan")
}

// again reports whether what failed with err is worth another attempt.
func again(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false // nobody waits for it
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		switch pg.Code {
		case "40001", "40P01", // serialization failure, deadlock
			"OC000", "OC001", // conflicts of optimistic concurrency, data and schema (Aurora DSQL)
			"55P03",                            // lock_timeout: somebody holds the item's row for long
			"57P01", "57P02", "57P03", "57P05", // the server stops, crashed, starts, or closed an idle connection
			"25P03", // idle_in_transaction_session_timeout: we were stopped in the middle
			"53300": // too many connections
			return true
		}
		return strings.HasPrefix(pg.Code, "08")
	}
	return errors.Is(err, errRaced) || errors.As(err, new(*lostCommit)) || connectionLost(err)
}
