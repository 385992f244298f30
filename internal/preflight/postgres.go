package preflight

import (
	"context"
	"errors"

	"flashgate/internal/ledger"
)

const applicationName = "flashgate-preflight"

func (f *flight) openDatabase(ctx context.Context) {
	const check = "postgresql"
	cfg := ledger.Config{URL: f.Database, ApplicationName: applicationName, Logger: f.Logger}
	pool, err := ledger.OpenPool(ctx, cfg)
	if err == nil {
		f.pool = pool
		err = pool.Ping(ctx)
	}
	if err != nil {
		f.report.add(check, NoGo, "FLASHGATE_DATABASE_URL: cannot be used: %v", err)
		return
	}
	db, err := ledger.Open(ctx, cfg)
	if err != nil {
		f.report.add(check, NoGo, "%v", err)
		return
	}
	f.ledger = db
	var version string
	var replica, readOnly bool
	err = pool.QueryRow(ctx, `SELECT current_setting('server_version'), pg_is_in_recovery(), current_setting('transaction_read_only')::boolean`).
		Scan(&version, &replica, &readOnly)
	switch {
	case err != nil:
		f.report.add(check, NoGo, "cannot be asked: %v", err)
	case replica || readOnly:
		f.report.add(check, NoGo, "version %s takes no writes: it is a replica, or read-only", version)
	default:
		f.report.add(check, Go, "version %s answers and takes writes", version)
	}
}

func (f *flight) schema(ctx context.Context) {
	if f.ledger == nil {
		return
	}
	const check = "schema"
	version, err := f.ledger.Schema(ctx)
	var older *ledger.SchemaError
	switch {
	case err != nil:
		f.report.add(check, NoGo, "cannot be read: %v", err)
	case errors.As(f.ledger.CheckSchema(ctx), &older):
		f.report.add(check, NoGo, "%v: run `flashgate migrate`", older)
	case version > ledger.SchemaVersion:
		f.report.add(check, Caution, "version %d is newer than this binary's %d; it works", version, ledger.SchemaVersion)
	default:
		f.report.add(check, Go, "version %d", version)
	}
}

// connections compares what a process may open with what the server has left.
func (f *flight) connections(ctx context.Context) {
	if f.ledger == nil {
		return
	}
	const check = "connections"
	pool := int(f.pool.Config().MaxConns)
	var most, reserved, used int
	err := f.pool.QueryRow(ctx, `
SELECT current_setting('max_connections')::int, current_setting('superuser_reserved_connections')::int,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')`).Scan(&most, &reserved, &used)
	if err != nil {
		f.report.add(check, Caution, "cannot be counted: %v", err)
		return
	}
	free := most - reserved - used
	need := pool + 1 // one more listens for changes
	verdict := Go
	switch {
	case free < need:
		verdict = NoGo
	case free < 2*need || pool < 4:
		verdict = Caution
	}
	f.report.add(check, verdict, "%d of %d are free; each further process opens up to %d (pool_max_conns=%d, and one that listens)", free, most-reserved, need, pool)
}
