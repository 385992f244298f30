package ledger

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

// SchemaVersion is the version of the schema that this binary needs: the number of its last migration.
const SchemaVersion int64 = 6

const (
	// schemaTable holds the version. It is not goose's default, because the database may be shared with a shop that uses goose itself.
	schemaTable = "flash_sale_schema"
	// migrationLock is the advisory lock under which one process at a time migrates: "flash" in ASCII.
	migrationLock int64 = 0x666c617368
	// migrationWait is how long, in seconds, a process waits for another one that migrates.
	migrationWait = 300
)

// Migrate brings the schema to SchemaVersion; a newer one is left alone. Any number of processes may call it at once: one does the work
// under an advisory lock, the others wait for it, up to five minutes. Migrations take nothing away that binaries of the version before need, and
// hold up nobody for longer than a change of the catalogue takes: what reads whole tables, indexes above all, runs beside the work. A statement that
// would have to wait for long behind somebody else's transaction, and make everybody else wait behind it, fails instead, and Migrate can be called
// again, as after any error.
func Migrate(ctx context.Context, url string) error { return migrate(ctx, url, SchemaVersion) }

// migrate brings the schema to a version, or leaves a newer one alone.
func migrate(ctx context.Context, url string, version int64) error {
	cfg := Config{URL: url, ApplicationName: "flashgate migrate", StatementTimeout: -1, IdleInTransactionTimeout: -1}.WithDefaults()
	pool, err := cfg.pool()
	if err != nil {
		return err
	}
	conns := stdlib.OpenDB(*pool.ConnConfig)
	defer conns.Close() //nolint:errcheck // nothing is pending
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockID(migrationLock), lock.WithLockTimeout(1, migrationWait))
	if err != nil {
		return fmt.Errorf("make migration lock: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, conns, files,
		goose.WithSessionLocker(locker), goose.WithTableName(schemaTable), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	if _, err := provider.UpTo(ctx, version); err != nil {
		return fmt.Errorf("migrate database: %w", err)
	}
	return nil
}

// SchemaError says that the schema is older than this binary needs.
type SchemaError struct{ Have, Need int64 }

func (e *SchemaError) Error() string {
	return fmt.Sprintf("the database schema is version %d, this binary needs version %d: run `flashgate migrate`", e.Have, e.Need)
}

// CheckSchema returns a *SchemaError when the schema is older than SchemaVersion, and nil when it is that or newer: a newer one has what
// this binary needs.
func (db *DB) CheckSchema(ctx context.Context) error {
	have, err := db.Schema(ctx)
	if err != nil {
		return err
	}
	if have < SchemaVersion {
		return &SchemaError{Have: have, Need: SchemaVersion}
	}
	return nil
}

// Schema returns the version of the schema in the database, 0 when there is none.
func (db *DB) Schema(ctx context.Context) (int64, error) {
	var version int64
	err := db.read(ctx, func(ctx context.Context) error {
		return db.pool.QueryRow(ctx, `SELECT coalesce(max(version_id), 0) FROM `+schemaTable+` WHERE is_applied`).Scan(&version)
	})
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "42P01" { // no such table
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read schema version: %w", err)
	}
	return version, nil
}
