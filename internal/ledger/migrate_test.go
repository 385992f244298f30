package ledger

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"

	"flashgate/internal/devstack/devtest"
)

func TestMigrate(t *testing.T) {
	dsn := devtest.Database(t)
	l := &lab{tb: t, dsn: dsn}
	db := l.open()
	var schema *SchemaError
	if err := db.CheckSchema(t.Context()); !errors.As(err, &schema) || *schema != (SchemaError{0, SchemaVersion}) ||
		!strings.Contains(err.Error(), fmt.Sprintf("version 0, this binary needs version %d", SchemaVersion)) {
		t.Errorf("empty database: %v", err)
	}
	// Several processes at once.
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := Migrate(t.Context(), dsn); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := db.CheckSchema(t.Context()); err != nil {
		t.Error(err)
	}
	if v, err := db.Schema(t.Context()); v != SchemaVersion || err != nil {
		t.Errorf("version %d, %v", v, err)
	}
	// Again, over data.
	if _, err := db.CreateSale(t.Context(), aSale(1)); err != nil {
		t.Fatal(err)
	}
	if err := Migrate(t.Context(), dsn); err != nil {
		t.Error(err)
	}
	if s, err := db.Sales(t.Context(), 0, 10); len(s) != 1 || err != nil {
		t.Errorf("after the second migration: %v, %v", s, err)
	}
	// A newer binary has been here: its schema has what this one needs.
	if _, err := db.pool.Exec(t.Context(), `INSERT INTO flash_sale_schema (version_id, is_applied) VALUES ($1, true)`, SchemaVersion+1); err != nil {
		t.Fatal(err)
	}
	if err := db.CheckSchema(t.Context()); err != nil {
		t.Errorf("newer schema: %v", err)
	}
	if err := Migrate(t.Context(), dsn); err != nil {
		t.Errorf("newer schema: %v", err)
	}
	if v, err := db.Schema(t.Context()); v != SchemaVersion+1 || err != nil {
		t.Errorf("version %d, %v", v, err)
	}
	// An older one.
	if _, err := db.pool.Exec(t.Context(), `DELETE FROM flash_sale_schema WHERE version_id >= $1`, SchemaVersion); err != nil {
		t.Fatal(err)
	}
	if err := db.CheckSchema(t.Context()); !errors.As(err, &schema) || schema.Have != SchemaVersion-1 {
		t.Errorf("older schema: %v", err)
	}
}

func TestMigrationsAreNumbered(t *testing.T) {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		if !strings.HasPrefix(name, fmt.Sprintf("migrations/%05d_", i+1)) {
			t.Errorf("%s is not number %d", name, i+1)
		}
	}
	if int64(len(names)) != SchemaVersion {
		t.Errorf("%d migrations, SchemaVersion is %d", len(names), SchemaVersion)
	}
}

// Whoever reads a time without a zone reads another time than was written, sooner or later.
func TestEveryTimeHasAZone(t *testing.T) {
	l := newLab(t)
	if bad := all[string](l, `
SELECT table_name || '.' || column_name FROM information_schema.columns
WHERE table_schema = 'public' AND table_name LIKE 'flash_sale%' AND table_name <> 'flash_sale_schema'
  AND data_type IN ('timestamp without time zone', 'time without time zone', 'date')`); len(bad) > 0 {
		t.Errorf("columns without a time zone: %v", bad)
	}
}

func TestMigrateSaysWhatIsWrong(t *testing.T) {
	for url, want := range map[string]string{
		"":                                "read database URL: ",
		"postgres://u:secret@h:port/db":   "read database URL: ",
		"postgres://u:secret@127.0.0.1:1": "migrate database: ",
	} {
		if err := Migrate(t.Context(), url); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", url, err)
		}
	}
}
