package devstack_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"flashgate/internal/devstack"
	"flashgate/internal/devstack/devtest"
)

// closedDir makes a directory that nobody but its owner may enter, in one that everybody
// may, as mktemp -d does.
func closedDir(tb testing.TB, base string) string {
	tb.Helper()
	dir := filepath.Join(base, "closed")
	must(tb, os.Mkdir(dir, 0o700))
	return dir
}

// A newcomer may be root and work in his home directory, or in what mktemp -d has made.
func TestPostgresServesInClosedDirectory(t *testing.T) {
	t.Parallel()
	for name, place := range map[string]func(tb testing.TB, base string) string{
		"above":     func(tb testing.TB, base string) string { return filepath.Join(closedDir(tb, base), "a", "pg") },
		"itself":    closedDir,
		"temporary": func(tb testing.TB, _ string) string { return tb.TempDir() },
		"behind a link": func(tb testing.TB, base string) string {
			link := filepath.Join(base, "link")
			must(tb, os.Symlink(closedDir(tb, base), link))
			return filepath.Join(link, "pg")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := place(t, devstack.OpenTempDir(t))
			cfg := devstack.PostgresConfig{Dir: dir, Fsync: true}
			first := startPostgres(t, cfg)
			must(t, first.CreateDatabase(startContext(t), "shop", ""))
			execute(t, first.DSN("shop"), "CREATE TABLE unit (name text); INSERT INTO unit VALUES ('kept')")
			must(t, first.Kill())
			must(t, first.Restart(startContext(t)))
			execute(t, first.DSN("shop"), "CHECKPOINT")
			must(t, first.Stop())

			second := startPostgres(t, cfg)
			if got := query(t, second.DSN("shop"), "SELECT name FROM unit"); got != "kept" {
				t.Errorf("after a restart the table holds %q", got)
			}
			// The settings are read again by path, long after the start.
			loaded := "SELECT pg_conf_load_time()::text"
			before := query(t, second.DSN("shop"), loaded)
			execute(t, second.DSN("shop"), "ALTER SYSTEM SET work_mem = '7MB'")
			execute(t, second.DSN("shop"), "SELECT pg_reload_conf()")
			devtest.Eventually(t, time.Minute, func() bool { return query(t, second.DSN("shop"), loaded) != before }, "a reload")
			if got := query(t, second.DSN("shop"), "SHOW work_mem"); got != "7MB" {
				t.Errorf("work_mem is %s after a reload", got)
			}
		})
	}
}

// PostgreSQL ends every session and recovers when one of its processes crashes.
func TestPostgresInClosedDirectoryRecoversFromACrashedSession(t *testing.T) {
	t.Parallel()
	p := startPostgres(t, devstack.PostgresConfig{Dir: filepath.Join(closedDir(t, devstack.OpenTempDir(t)), "pg"), Fsync: true})
	dsn := p.DSN("postgres")
	execute(t, dsn, "CREATE TABLE unit (name text); INSERT INTO unit VALUES ('kept')")
	started := query(t, dsn, "SELECT pg_postmaster_start_time()::text")
	writer, err := strconv.Atoi(query(t, dsn, "SELECT pid::text FROM pg_stat_activity WHERE backend_type = 'walwriter'"))
	must(t, err)
	victim, err := os.FindProcess(writer)
	must(t, err)
	must(t, victim.Kill())

	devtest.Eventually(t, time.Minute, func() bool {
		got, err := tryQuery(dsn, "SELECT pid::text FROM pg_stat_activity WHERE backend_type = 'walwriter'")
		return err == nil && got != strconv.Itoa(writer)
	}, "a new process in place of %d", writer)
	if got := query(t, dsn, "SELECT name FROM unit"); got != "kept" {
		t.Errorf("the table holds %q", got)
	}
	if got := query(t, dsn, "SELECT pg_postmaster_start_time()::text"); got != started {
		t.Errorf("another server answers, started %s", got)
	}
}
