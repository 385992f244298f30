package ledger

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"flashgate/internal/devstack"
	"flashgate/internal/sale"
)

func TestConnectionsAreBounded(t *testing.T) {
	l := newLab(t)
	show := func(db *DB, name string) (value string) {
		if err := db.pool.QueryRow(t.Context(), `SELECT current_setting($1)`, name).Scan(&value); err != nil {
			t.Fatal(err)
		}
		return value
	}
	for name, want := range map[string]string{
		"statement_timeout": "10s", "lock_timeout": "2s", "idle_in_transaction_session_timeout": "2s", "timezone": "UTC", "enable_seqscan": "off", "jit": "off",
		"application_name": "flashgate",
	} {
		if got := show(l.DB, name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	own := l.open("statement_timeout=1234", "application_name=shop", "timezone=America/Chicago", "pool_max_conns=3")
	for name, want := range map[string]string{"statement_timeout": "1234ms", "application_name": "shop", "timezone": "UTC"} {
		if got := show(own, name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if n := own.pool.Config().MaxConns; n != 3 {
		t.Errorf("pool of %d", n)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, url := range []string{"", "postgres://u:secret@h:port/db", "postgres://u:secret@h/db?pool_max_conns=none"} {
		_, err := Open(t.Context(), Config{URL: url})
		if err == nil || !strings.HasPrefix(err.Error(), "read database URL: ") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", url, err)
		}
		if (Config{URL: url}).Validate() == nil {
			t.Errorf("%q is valid", url)
		}
	}
}

// A process that is stopped in the middle of a transaction must not hold the row of an item: the server ends it.
func TestAStoppedProcessReleasesTheItem(t *testing.T) {
	l := newLab(t)
	item := l.item(5)
	stopped := l.open("idle_in_transaction_session_timeout=100")
	held, resume := make(chan struct{}), make(chan struct{})
	attempts := 0
	var wg sync.WaitGroup
	wg.Go(func() {
		err := stopped.InTx(t.Context(), func(ctx context.Context, tx Tx) error {
			_, err := lockItem(ctx, tx, item)
			if attempts++; attempts == 1 && err == nil {
				close(held)
				<-resume
			}
			return err
		})
		if err != nil || attempts != 2 {
			t.Errorf("%d attempts: %v", attempts, err)
		}
	})
	<-held
	l.expect(l.write(reserved(item, "a")), Stored)
	close(resume)
	wg.Wait()
}

func TestNoTransactionAsksThePoolAgain(t *testing.T) {
	for _, c := range []struct{ conns, parallel int }{{1, 10}, {1, 40}, {4, 4}, {4, 5}, {4, 40}} {
		t.Run(fmt.Sprintf("%d connections, %d callers", c.conns, c.parallel), func(t *testing.T) {
			l := newLab(t, fmt.Sprintf("pool_max_conns=%d", c.conns))
			s := l.create(aSale(1000, 1000))
			a, b := s.Items[0].ID, s.Items[1].ID
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var wg sync.WaitGroup
			for i := range c.parallel {
				wg.Go(func() {
					if err := everyMethod(ctx, l.DB, a, b, fmt.Sprint("user ", i)); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			l.balance()
		})
	}
}

// everyMethod calls all there is.
func everyMethod(ctx context.Context, db *DB, a, b int64, user string) error {
	events := []sale.Event{reserved(a, user), reserved(b, user)}
	var errs []error
	check := func(err error) { errs = append(errs, err) }
	_, err := db.Write(ctx, events)
	check(err)
	_, _, err = db.Cancel(ctx, events[0].OrderID, user)
	check(err)
	_, _, err = db.CancelUnwritten(ctx, reserved(a, user))
	check(err)
	check(db.GiveUp(ctx, []sale.Event{reserved(b, user)}))
	_, err = db.Expire(ctx, 10)
	check(err)
	_, err = db.Restock(ctx, a, 1, user)
	check(err)
	_, err = db.CreateSale(ctx, aSale(1, 2))
	check(err)
	claimed, err := db.ClaimCorrections(ctx, 1, 0)
	check(err)
	for _, c := range claimed {
		check(db.PostponeCorrections(ctx, []int64{c.ID}, 0))
		_, err := db.CorrectionDone(ctx, c.ID)
		check(err)
	}
	_, err = db.Lease(ctx, "name", user, time.Second)
	check(err)
	_, err = db.Catalogue(ctx)
	check(err)
	_, _, err = db.Item(ctx, a)
	check(err)
	_, err = db.Sales(ctx, 0, 5)
	check(err)
	_, _, err = db.LiveOrder(ctx, b, user)
	check(err)
	_, _, _, err = db.Standing(ctx, a, []sale.OrderID{events[0].OrderID})
	check(err)
	if token, ok, err := db.ClaimLoad(ctx, b, 0); err != nil {
		check(err)
	} else if ok {
		_, err = db.RenewLoad(ctx, b, token)
		check(err)
		check(db.EndLoad(ctx, b, token))
	}
	_, err = db.LoadWatch(ctx)
	check(err)
	_, _, err = db.Pay(ctx, success(events[1], user[len("user "):]))
	check(err)
	_, err = db.Payments(ctx, events[1].OrderID)
	check(err)
	_, err = db.Refunded(ctx, events[0].OrderID, nil)
	check(err)
	_, _, err = db.Orders(ctx, OrderFilter{Limit: 3})
	check(err)
	it, ok, err := db.Item(ctx, b)
	check(err)
	if ok {
		_, _, err = db.UpdateSale(ctx, it.SaleID, SalePatch{Name: &user})
		check(err)
	}
	_, _, err = db.UpdateItem(ctx, b, ItemPatch{Paused: to(len(user)%2 == 0)})
	check(err)
	_, err = db.Audit(ctx, AuditFilter{Limit: 3})
	check(err)
	told, err := db.ClaimEvents(ctx, 3, 3, 0)
	check(err)
	for _, e := range told {
		check(db.FinishEvents(ctx, e.ID))
	}
	_, _, err = db.WaitingEvents(ctx)
	check(err)
	_, err = db.Retirable(ctx, 0)
	check(err)
	_, err = db.Retire(ctx, a, 0)
	check(err)
	_, err = db.Purge(ctx, time.Now(), PurgeDelete, false)
	check(err)
	return errors.Join(errs...)
}

func TestADatabaseThatIsDown(t *testing.T) {
	server, err := devstack.StartPostgres(t.Context(), devstack.PostgresConfig{Fsync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	}()
	url := server.DSN("postgres")
	if err := Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	db, err := Open(t.Context(), Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := db.CreateSale(t.Context(), aSale(10))
	if err != nil {
		t.Fatal(err)
	}
	item := s.Items[0].ID
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	breakWith(db, faults{}) // no waits
	e := reserved(item, "a")
	if _, err := db.Write(t.Context(), []sale.Event{e}); Kind(err) != Passing {
		t.Errorf("write: kind %s: %v", Kind(err), err)
	}
	if _, _, err := db.Order(t.Context(), e.OrderID); Kind(err) != Passing {
		t.Errorf("read: kind %s: %v", Kind(err), err)
	}
	if err := db.Ping(t.Context()); err == nil {
		t.Error("a dead server answers")
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w, err := db.Write(t.Context(), []sale.Event{e}); err != nil || w[0] != Stored {
		t.Errorf("after the restart: %v, %v", w, err)
	}
}

func TestInTxEndsWhatItBegan(t *testing.T) {
	l := newLab(t, "pool_max_conns=1")
	l.exec(`CREATE TABLE effect (n int)`)
	boom := errors.New("boom")
	insert := func(ctx context.Context, tx Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO effect VALUES (1)`)
		return err
	}
	err := l.InTx(t.Context(), func(ctx context.Context, tx Tx) error { return errors.Join(insert(ctx, tx), boom) })
	if !errors.Is(err, boom) {
		t.Error(err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = l.InTx(t.Context(), func(ctx context.Context, tx Tx) error {
			if err := insert(ctx, tx); err != nil {
				t.Error(err)
			}
			panic("in the function")
		})
	}()
	ctx, cancel := context.WithCancel(t.Context())
	err = l.InTx(ctx, func(ctx context.Context, tx Tx) error {
		defer cancel()
		return insert(ctx, tx)
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a caller who left before COMMIT: %v", err)
	}
	// The one connection is back each time, and in order.
	if err := l.InTx(t.Context(), insert); err != nil {
		t.Error(err)
	}
	if n := lookup[int64](l, `SELECT count(*) FROM effect`); n != 1 {
		t.Errorf("%d effects", n)
	}
	// Reading what others committed meanwhile is what every method relies on, whatever the default of the database is.
	l.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = serializable', current_database()); END $$`)
	var level string
	err = l.open().InTx(t.Context(), func(ctx context.Context, tx Tx) error {
		return tx.QueryRow(ctx, `SHOW transaction_isolation`).Scan(&level)
	})
	if err != nil || level != string(pgx.ReadCommitted) {
		t.Errorf("isolation %q, %v", level, err)
	}
}
