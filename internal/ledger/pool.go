package ledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"flashgate/internal/pause"
)

// Config of a DB.
type Config struct {
	// URL is the connection string, a URL or key=value pairs, as pgx reads it; pool_max_conns in it sets the size of the pool (default: the
	// number of CPUs, at least 4). A run-time parameter that it names itself, such as statement_timeout, wins over the ones below.
	URL string
	// ApplicationName is shown in pg_stat_activity. Default "flashgate".
	ApplicationName string
	// StatementTimeout ends a statement on the server. Default 10 s; negative: no limit.
	StatementTimeout time.Duration
	// LockTimeout ends the wait for a row of an item. Default 2 s.
	LockTimeout time.Duration
	// IdleInTransactionTimeout is when the server ends a transaction whose process has stopped, so that it cannot hold the row of an item.
	// Default 2 s.
	IdleInTransactionTimeout time.Duration
	Retry                    Retry
	Logger                   *slog.Logger // default: none
}

// WithDefaults returns the configuration with every unset field filled in.
func (c Config) WithDefaults() Config {
	if c.ApplicationName == "" {
		c.ApplicationName = "flashgate"
	}
	if c.StatementTimeout == 0 {
		c.StatementTimeout = 10 * time.Second
	}
	if c.LockTimeout == 0 {
		c.LockTimeout = 2 * time.Second
	}
	if c.IdleInTransactionTimeout == 0 {
		c.IdleInTransactionTimeout = 2 * time.Second
	}
	c.Retry = c.Retry.withDefaults()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate returns what is wrong with a configuration. It connects to nothing.
func (c Config) Validate() error {
	_, err := c.pool()
	return err
}

func (c Config) pool() (*pgxpool.Config, error) {
	if c.URL == "" {
		return nil, errors.New("read database URL: it is empty")
	}
	p, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		return nil, fmt.Errorf("read database URL: %w", err)
	}
	params := p.ConnConfig.RuntimeParams
	set := func(name, value string) {
		if _, ok := params[name]; !ok {
			params[name] = value
		}
	}
	set("application_name", c.ApplicationName)
	set("statement_timeout", milliseconds(c.StatementTimeout))
	set("lock_timeout", milliseconds(c.LockTimeout))
	set("idle_in_transaction_session_timeout", milliseconds(c.IdleInTransactionTimeout))
	// A sale fills an empty table within seconds. The plan of a prepared statement that was made when the table was empty reads it from end to
	// end, and is kept until the next ANALYZE, which comes a minute later: batches of 1,000 then took seconds instead of 50 ms. Without
	// such scans every plan uses an index from the first row on. The statements help by having no join that could be turned round.
	set("enable_seqscan", "off")
	// What cannot do without something that is switched off counts as very expensive, and would be compiled each time, for tenths of a second.
	set("jit", "off")
	// Not negotiable: the audit table shows times as the session prints them.
	params["timezone"] = "UTC"
	p.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		// Without this, times come in the zone of the process.
		conn.TypeMap().RegisterType(&pgtype.Type{
			Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC},
		})
		return nil
	}
	return p, nil
}

// milliseconds is a timeout as PostgreSQL reads it; 0 is none.
func milliseconds(d time.Duration) string {
	return strconv.FormatInt(max(d.Milliseconds(), 0), 10)
}

// DB is the ledger: a pool of connections to PostgreSQL. It is safe for concurrent use.
type DB struct {
	cfg   Config
	pool  *pgxpool.Pool
	begin func(context.Context) (pgx.Tx, error) // seam: every transaction starts here
	pause func(context.Context, time.Duration) bool
}

// Open makes a ledger from a configuration, which it checks. It does not connect: that happens at the first call, so a process may start
// before its database does. ctx is only read for values.
func Open(ctx context.Context, cfg Config) (*DB, error) {
	cfg = cfg.WithDefaults()
	pool, err := OpenPool(ctx, cfg)
	if err != nil {
		return nil, err
	}
	db := &DB{cfg: cfg, pool: pool, pause: pause.For}
	db.begin = func(ctx context.Context) (pgx.Tx, error) {
		// Said aloud, because the default of a database can be another: under the item's lock, a statement must see what others have
		// committed before it.
		return pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	}
	return db, nil
}

// OpenPool makes the pool that a ledger of this configuration works with: the same names, limits and times, for who has questions of his own.
// Like [Open] it does not connect. The caller closes it.
func OpenPool(ctx context.Context, cfg Config) (*pgxpool.Pool, error) {
	p, err := cfg.WithDefaults().pool()
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("make database pool: %w", err)
	}
	return pool, nil
}

// Ping asks the server for a sign of life. It makes one attempt.
func (db *DB) Ping(ctx context.Context) error {
	if err := db.pool.Ping(ctx); err != nil {
		return fmt.Errorf("ping database: %w", err)
	}
	return nil
}

// Close waits until every borrowed connection is back and closes the pool. It may be called again.
func (db *DB) Close() { db.pool.Close() }
