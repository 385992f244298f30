package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"flashgate/internal/pause"
)

// Retry bounds how often a transaction is attempted and how long is waited in between.
type Retry struct {
	Attempts int           // at most so many; default 8
	First    time.Duration // the first wait; each further one is twice as long; default 10 ms
	Longest  time.Duration // no wait is longer; default 640 ms
}

func (r Retry) withDefaults() Retry {
	if r.Attempts == 0 {
		r.Attempts = 8
	}
	if r.First == 0 {
		r.First = 10 * time.Millisecond
	}
	if r.Longest == 0 {
		r.Longest = 640 * time.Millisecond
	}
	return r
}

func (r Retry) waits() pause.Steps { return pause.Steps{First: r.First, Longest: r.Longest} }

// Tx is the transaction that InTx gives to its function.
type Tx struct {
	pgx.Tx
	// Unsure says that an earlier attempt sent its COMMIT and lost the reply. The function must look whether that attempt happened.
	Unsure bool
}

// end bounds COMMIT and ROLLBACK, which run to their end even if the caller has gone: a cancelled COMMIT would be one more unknown outcome.
const end = 5 * time.Second

// InTx runs fn in a READ COMMITTED transaction and commits it. The transaction is attempted again, after growing random waits and up to
// the configured limit, when it met a conflict (40001, 40P01, OC000, OC001, lock_timeout) or lost its connection, at any statement or at
// COMMIT; once more after a prepared statement became stale; and not at all for any other error.
//
// fn may therefore run several times: it must have no effect outside of the transaction and must not ask the pool for a second connection.
// After a COMMIT whose reply was lost it runs with Tx.Unsure. When the attempts end and the outcome is still unknown, InTx returns an
// *UnknownError.
//
// ctx bounds the whole; without a deadline it ends by the limits of attempts and of the server's timeouts, and waits for a free
// connection of the pool as long as it takes.
func (db *DB) InTx(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error {
	unsure := false
	err := db.attempt(ctx, func() error {
		outcome, err := db.once(ctx, unsure, fn)
		unsure = unsure && outcome != decided || outcome == lost
		return err
	})
	if err != nil && unsure {
		return &UnknownError{Err: err}
	}
	return err
}

// outcome of one attempt.
type outcome uint8

const (
	undecided outcome = iota // ended before fn was through: says nothing about earlier attempts
	decided                  // committed, or fn looked and refused
	lost                     // COMMIT was sent, its reply did not come
)

// once makes one attempt.
func (db *DB) once(ctx context.Context, unsure bool, fn func(ctx context.Context, tx Tx) error) (outcome, error) {
	tx, err := db.begin(ctx)
	if err != nil {
		return undecided, fmt.Errorf("begin: %w", err)
	}
	open := true
	defer func() {
		if open {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), end)
			defer cancel()
			// A failed rollback closes the connection, and the server rolls back. There is nothing to add to the error of fn.
			_ = tx.Rollback(ctx)
		}
	}()
	if err := fn(ctx, Tx{Tx: tx, Unsure: unsure}); err != nil {
		if Kind(err) == Permanent {
			return decided, err
		}
		return undecided, err
	}
	if ctx.Err() != nil {
		return undecided, ctx.Err()
	}
	open = false
	commit, cancel := context.WithTimeout(context.WithoutCancel(ctx), end)
	defer cancel()
	err = tx.Commit(commit)
	switch {
	case err == nil:
		return decided, nil
	case rolledBack(err):
		return undecided, fmt.Errorf("commit: %w", err)
	}
	return lost, fmt.Errorf("commit: %w", &lostCommit{err})
}

// lostCommit marks an error of COMMIT after which the transaction may have happened.
type lostCommit struct{ error }

func (e *lostCommit) Unwrap() error { return e.error }

// rolledBack reports whether an error of COMMIT leaves no doubt that the transaction did not happen: the server refused it in so many
// words, or never got to read it. A server that ends the connection (severity FATAL) may have committed before.
func rolledBack(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Severity == "ERROR" && pg.Code != "40003" // statement_completion_unknown
	}
	return errors.Is(err, pgx.ErrTxCommitRollback) || pgconn.SafeToRetry(err)
}

// attempt runs op until it succeeds, fails for good, or the attempts or ctx end. The error is the last one.
func (db *DB) attempt(ctx context.Context, op func() error) error {
	stale := false
	for n := 1; ; n++ {
		err := op()
		if err == nil {
			return nil
		}
		if stalePlan(err) && !stale && ctx.Err() == nil {
			stale = true // once: pgx has forgotten the statements of the connection by now
			continue
		}
		if n >= db.cfg.Retry.Attempts || !again(ctx, err) {
			return err
		}
		if !db.pause(ctx, db.cfg.Retry.waits().After(n)) {
			return err
		}
	}
}

// read runs a query that changes nothing, and again as InTx does.
func (db *DB) read(ctx context.Context, query func(ctx context.Context) error) error {
	return db.attempt(ctx, func() error { return query(ctx) })
}
