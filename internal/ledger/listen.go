package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"flashgate/internal/pause"
)

// Topics of Listen.
const (
	TopicCatalogue   = "flashgate_catalogue"   // sales or items were made or changed, or an item was loaded
	TopicCorrections = "flashgate_corrections" // there are corrections to carry out
)

// notify sends a topic to all listeners when the transaction commits. Several in one transaction arrive as one.
const notify = `SELECT pg_notify($1, '')`

const (
	// listenProbe is how long a silent connection is trusted before the server is asked for a sign of life.
	listenProbe   = 15 * time.Second
	listenTimeout = 5 * time.Second // for connecting, LISTEN and the sign of life
)

// listenWaits are the waits between attempts to connect again.
var listenWaits = pause.Steps{First: 100 * time.Millisecond, Longest: 5 * time.Second}

// Listen calls fn with the topic of every notification until ctx ends, and with "" each time it has (re)connected: notifications may have
// been missed before. It holds one connection of its own, which does not count for the pool, and calls fn from one goroutine, its own; a
// slow fn delays the next call. Nothing that depends on being told at all may depend on it: look by yourself now and then.
func (db *DB) Listen(ctx context.Context, fn func(topic string)) {
	for n := 1; ; n++ {
		connected, err := db.listen(ctx, fn)
		if ctx.Err() != nil {
			return
		}
		if connected {
			n = 1
		}
		db.cfg.Logger.WarnContext(ctx, "cannot listen to the database", "error", err)
		if !db.pause(ctx, listenWaits.After(n)) {
			return
		}
	}
}

// listen serves one connection. It returns when that fails, or ctx ends.
func (db *DB) listen(ctx context.Context, fn func(topic string)) (connected bool, err error) {
	conn, err := db.connectListener(ctx)
	if err != nil {
		return false, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx) // what is left of it is of no use either way
	}()
	fn("")
	for {
		wait, cancel := context.WithTimeout(ctx, listenProbe)
		n, err := conn.WaitForNotification(wait)
		cancel()
		switch {
		case err == nil:
			fn(n.Channel)
		case ctx.Err() != nil:
			return true, ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			// Silence. A peer that vanished without a word is found only by speaking to it.
			if err := db.probe(ctx, conn); err != nil {
				return true, err
			}
		default:
			return true, fmt.Errorf("wait for notification: %w", err)
		}
	}
}

func (db *DB) connectListener(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, db.pool.Config().ConnConfig)
	if err != nil {
		return nil, fmt.Errorf("connect to listen: %w", err)
	}
	if _, err := conn.Exec(ctx, `LISTEN `+TopicCatalogue+`; LISTEN `+TopicCorrections); err != nil {
		_ = conn.Close(ctx)
		return nil, fmt.Errorf("listen: %w", err)
	}
	return conn, nil
}

func (db *DB) probe(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	if err := conn.Ping(ctx); err != nil {
		return fmt.Errorf("probe listening connection: %w", err)
	}
	return nil
}
