package devstack_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"flashgate/internal/devstack"
	"flashgate/internal/devstack/devtest"
)

// query runs one statement that returns one text value.
func query(tb testing.TB, dsn, sql string) string {
	tb.Helper()
	out, err := tryQuery(dsn, sql)
	must(tb, err)
	return out
}

// tryQuery is query for a server that may be away.
func tryQuery(dsn, sql string) (out string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx) //nolint:errcheck // the statement counts
	return out, conn.QueryRow(ctx, sql).Scan(&out)
}

// execute runs statements that return nothing.
func execute(tb testing.TB, dsn, sql string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	must(tb, err)
	defer conn.Close(ctx) //nolint:errcheck // the statement counts
	_, err = conn.Exec(ctx, sql)
	must(tb, err)
}

func startPostgres(tb testing.TB, cfg devstack.PostgresConfig) *devstack.Postgres {
	tb.Helper()
	p, err := devstack.StartPostgres(startContext(tb), cfg)
	must(tb, err)
	tb.Cleanup(func() { must(tb, p.Stop()) })
	return p
}

func TestPostgresKeepsDataBetweenRuns(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(devstack.OpenTempDir(t), "pg")
	first := startPostgres(t, devstack.PostgresConfig{Dir: dir, Fsync: true})
	must(t, first.EnsureDatabase(startContext(t), "shop"))
	must(t, first.EnsureDatabase(startContext(t), "shop"))
	execute(t, first.DSN("shop"), "CREATE TABLE unit (name text); INSERT INTO unit VALUES ('kept')")
	if got := query(t, first.DSN("shop"), "SHOW fsync"); got != "on" {
		t.Errorf("fsync is %s", got)
	}
	must(t, first.Stop())
	must(t, first.Stop())

	second := startPostgres(t, devstack.PostgresConfig{Dir: dir, Fsync: true})
	if got := query(t, second.DSN("shop"), "SELECT name FROM unit"); got != "kept" {
		t.Errorf("after a restart the table holds %q", got)
	}
	must(t, second.Kill())
	must(t, second.Restart(startContext(t)))
	if got := query(t, second.DSN("shop"), "SELECT name FROM unit"); got != "kept" {
		t.Errorf("after a crash the table holds %q", got)
	}
}

func TestPostgresOfAKilledParentIsTakenOver(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(devstack.OpenTempDir(t), "pg")
	parent := startProgram(t, "postgres", dir)
	execute(t, parent.DSN, "CREATE TABLE unit (name text); INSERT INTO unit VALUES ('kept')")
	parent.kill()

	p := startPostgres(t, devstack.PostgresConfig{Dir: dir, Fsync: true})
	if got := query(t, p.DSN("postgres"), "SELECT name FROM unit"); got != "kept" {
		t.Errorf("the table holds %q", got)
	}
}

// After a crash of the machine the recorded process id may belong to anybody, in the
// worst case to the server of another directory, which PostgreSQL itself steps back for.
func TestPostgresIgnoresPidFileOfAnotherServer(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(devstack.OpenTempDir(t), "pg")
	must(t, startPostgres(t, devstack.PostgresConfig{Dir: dir}).Stop())
	elsewhere := query(t, devtest.Postgres(t).DSN("postgres"), "SHOW data_directory")
	stale, err := os.ReadFile(filepath.Join(elsewhere, "postmaster.pid"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "data", "postmaster.pid"), stale, 0o644))

	p := startPostgres(t, devstack.PostgresConfig{Dir: dir})
	if got := query(t, p.DSN("postgres"), "SELECT 'up'"); got != "up" {
		t.Errorf("it says %q", got)
	}
}

func TestPostgresRefusesDataOfAnotherVersion(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(devstack.OpenTempDir(t), "pg")
	must(t, os.MkdirAll(filepath.Join(dir, "data"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "data", "PG_VERSION"), []byte("9\n"), 0o644))
	for _, download := range []bool{false, true} {
		_, err := devstack.StartPostgres(startContext(t), devstack.PostgresConfig{Dir: dir, Download: download})
		if err == nil || !strings.Contains(err.Error(), "written by PostgreSQL 9") {
			t.Errorf("download %v: the error is %v", download, err)
		}
	}
}

func TestPostgresDirectoryIsNotShared(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(devstack.OpenTempDir(t), "pg")
	startPostgres(t, devstack.PostgresConfig{Dir: dir})
	_, err := devstack.StartPostgres(startContext(t), devstack.PostgresConfig{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "another process uses it") {
		t.Errorf("the error is %v", err)
	}
}

func TestPostgresRefusesConnectionsWithoutPassword(t *testing.T) {
	t.Parallel()
	dsn := devtest.Postgres(t).DSN("postgres")
	cfg, err := pgx.ParseConfig(dsn)
	must(t, err)
	cfg.Password = "guess"
	conn, err := pgx.ConnectConfig(startContext(t), cfg)
	if err == nil {
		t.Errorf("a guessed password opened the database: %v", conn.Close(context.Background()))
	}
}

func TestPostgresTemporaryDirectoryGoesWithTheServer(t *testing.T) {
	t.Parallel()
	p := startPostgres(t, devstack.PostgresConfig{})
	data := query(t, p.DSN("postgres"), "SHOW data_directory")
	for setting, want := range map[string]string{"fsync": "off", "max_connections": "200", "TimeZone": "UTC", "server_encoding": "UTF8"} {
		if got := query(t, p.DSN("postgres"), "SHOW "+setting); got != want {
			t.Errorf("%s is %s, want %s", setting, got, want)
		}
	}
	must(t, p.Stop())
	if _, err := os.Stat(filepath.Dir(data)); !os.IsNotExist(err) {
		t.Errorf("%s after Stop: %v", filepath.Dir(data), err)
	}
	if err := p.Restart(startContext(t)); err == nil {
		t.Error("a stopped server was restarted")
	}
}

func TestPostgresDoneTellsOfItsEnd(t *testing.T) {
	t.Parallel()
	p := startPostgres(t, devstack.PostgresConfig{})
	done := p.Done()
	select {
	case <-done:
		t.Fatal("done while it runs")
	default:
	}
	must(t, p.Kill())
	<-done
}

func TestDatabasesAreFreshAndDropped(t *testing.T) {
	t.Parallel()
	var dsns []string
	prepared, template := 0, devtest.Name("template")
	for range 2 {
		t.Run("", func(t *testing.T) {
			dsn := devtest.DatabaseLike(t, template, func(_ context.Context, dsn string) error {
				prepared++
				execute(t, dsn, "CREATE TABLE unit (name text)")
				return nil
			})
			if got := query(t, dsn, "SELECT count(*)::text FROM unit"); got != "0" {
				t.Errorf("a fresh database holds %s rows", got)
			}
			execute(t, dsn, "INSERT INTO unit VALUES ('mine')")
			dsns = append(dsns, dsn)
		})
	}
	if prepared != 1 || dsns[0] == dsns[1] {
		t.Errorf("prepared %d times, databases %v", prepared, dsns)
	}
	if conn, err := pgx.Connect(startContext(t), dsns[0]); err == nil {
		t.Errorf("the database outlived its test: %v", conn.Close(context.Background()))
	}
}
