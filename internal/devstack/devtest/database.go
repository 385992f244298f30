package devtest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// names numbers everything that Name makes.
var names atomic.Int64

// Name makes a name that no other test of this binary uses: for topics, groups and the
// like.
func Name(prefix string) string {
	return fmt.Sprintf("%s-%d", prefix, names.Add(1))
}

// Database makes an empty database for one test and returns its connection string. It is
// dropped, with whoever is still connected, when the test is over.
func Database(tb testing.TB) string {
	tb.Helper()
	return copyOf(tb, "")
}

// templates are the databases that DatabaseLike copies, by name.
var templates sync.Map // string → *template

type template struct {
	once sync.Once
	name string
	err  error
}

// DatabaseLike is Database, but starts with what prepare has put into an empty one, such
// as the schema: prepare runs once per test binary and name, and its database is copied
// for each test. It must leave no connection open.
func DatabaseLike(tb testing.TB, name string, prepare func(ctx context.Context, dsn string) error) string {
	tb.Helper()
	stored, _ := templates.LoadOrStore(name, &template{name: Name(name)})
	t := stored.(*template)
	server := Postgres(tb)
	t.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		if t.err = server.CreateDatabase(ctx, t.name, ""); t.err == nil {
			t.err = prepare(ctx, server.DSN(t.name))
		}
	})
	if t.err != nil {
		tb.Fatalf("prepare database %s: %v", name, t.err)
	}
	return copyOf(tb, t.name)
}

func copyOf(tb testing.TB, template string) string {
	tb.Helper()
	server := Postgres(tb)
	name := Name("test")
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := server.CreateDatabase(ctx, name, template); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		if err := server.DropDatabase(ctx, name); err != nil {
			tb.Error(err)
		}
	})
	return server.DSN(name)
}
