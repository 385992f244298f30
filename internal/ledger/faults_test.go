package ledger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"flashgate/internal/sale"
)

// faults breaks the transactions of a ledger. A hook that is nil breaks nothing; all of them get the number of the attempt, from 1.
type faults struct {
	begin  func(n int) error
	exec   func(n int) error                                 // instead of a statement
	commit func(ctx context.Context, n int, tx pgx.Tx) error // instead of COMMIT; it has to end the transaction
}

// breakWith lets every transaction of db meet faults, and returns the waits between attempts, which are not waited.
func breakWith(db *DB, f faults) *[]time.Duration {
	var waits []time.Duration
	var attempts atomic.Int64
	begin := db.begin
	db.begin = func(ctx context.Context) (pgx.Tx, error) {
		n := int(attempts.Add(1))
		if f.begin != nil {
			if err := f.begin(n); err != nil {
				return nil, err
			}
		}
		tx, err := begin(ctx)
		if err != nil {
			return nil, err
		}
		return &brokenTx{Tx: tx, n: n, faults: f}, nil
	}
	db.pause = func(ctx context.Context, d time.Duration) bool {
		waits = append(waits, d)
		return ctx.Err() == nil
	}
	return &waits
}

type brokenTx struct {
	pgx.Tx
	n      int
	faults faults
}

func (tx *brokenTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if tx.faults.exec != nil {
		if err := tx.faults.exec(tx.n); err != nil {
			return pgconn.CommandTag{}, err
		}
	}
	return tx.Tx.Exec(ctx, sql, args...)
}

func (tx *brokenTx) Commit(ctx context.Context) error {
	if tx.faults.commit != nil {
		return tx.faults.commit(ctx, tx.n, tx.Tx)
	}
	return tx.Tx.Commit(ctx)
}

// refuse rolls back and says err.
func refuse(tx pgx.Tx, err error) error {
	return errors.Join(err, tx.Rollback(context.Background()))
}

func state(code string) error {
	return &pgconn.PgError{Severity: "ERROR", Code: code, Message: "injected"}
}

func wrapped(err error) error { return fmt.Errorf("outer: %w", fmt.Errorf("inner: %w", err)) }

func TestConflictsAreRetried(t *testing.T) {
	l := newLab(t)
	l.exec(`CREATE TABLE effect (n int)`)
	for _, code := range []string{"40001", "40P01", "OC000", "OC001", "55P03", "57P01", "08006"} {
		for name, err := range map[string]error{"bare": state(code), "wrapped twice": wrapped(state(code))} {
			for _, place := range []string{"begin", "exec", "commit"} {
				t.Run(code+" "+name+" at "+place, func(t *testing.T) {
					l.exec(`TRUNCATE effect`)
					db := l.open()
					f, closures := faults{}, 0
					fail := func(n int) error {
						if n <= 3 {
							return err
						}
						return nil
					}
					switch place {
					case "begin":
						f.begin = fail
					case "exec":
						f.exec = fail
					case "commit":
						f.commit = func(ctx context.Context, n int, tx pgx.Tx) error {
							if err := fail(n); err != nil {
								return refuse(tx, err)
							}
							return tx.Commit(ctx)
						}
					}
					waits := breakWith(db, f)
					got := db.InTx(t.Context(), func(ctx context.Context, tx Tx) error {
						closures++
						_, err := tx.Exec(ctx, `INSERT INTO effect VALUES (1)`)
						return err
					})
					if got != nil {
						t.Fatal(got)
					}
					if n := lookup[int64](l, `SELECT count(*) FROM effect`); n != 1 {
						t.Errorf("%d effects", n)
					}
					if len(*waits) != 3 || !slices.IsSorted(*waits) || (*waits)[0] < 5*time.Millisecond {
						t.Errorf("waits: %v", *waits)
					}
					if place != "begin" && closures != 4 {
						t.Errorf("the function ran %d times", closures)
					}
				})
			}
		}
	}
}

func TestRetriesEnd(t *testing.T) {
	l := newLab(t)
	attempts := 0
	waits := breakWith(l.DB, faults{begin: func(n int) error { attempts = n; return wrapped(state("40001")) }})
	_, err := l.Write(t.Context(), []sale.Event{reserved(1, "a")})
	if Kind(err) != Passing || attempts != 8 || len(*waits) != 7 || !slices.IsSorted((*waits)) || (*waits)[6] > 640*time.Millisecond {
		t.Errorf("%d attempts, waits %v: %v", attempts, *waits, err)
	}
	// A caller who has gone is not retried for.
	ctx, cancel := context.WithCancel(t.Context())
	db := l.open()
	breakWith(db, faults{begin: func(n int) error { attempts = n; cancel(); return state("40001") }})
	if err := db.InTx(ctx, nil); err == nil || attempts != 1 {
		t.Errorf("%d attempts: %v", attempts, err)
	}
}

func TestWhatIsWrongForGoodIsNotRetried(t *testing.T) {
	l := newLab(t)
	for code, kind := range map[string]ErrorKind{"23505": Permanent, "23514": Permanent, "22P02": Permanent, "22001": Permanent,
		"42P01": Passing, "57014": Passing, "0A000": Passing, "42501": Passing} {
		db := l.open()
		attempts := 0
		breakWith(db, faults{})
		err := db.InTx(t.Context(), func(context.Context, Tx) error { attempts++; return wrapped(state(code)) })
		if attempts != 1 || Kind(err) != kind {
			t.Errorf("%s: %d attempts, kind %s: %v", code, attempts, Kind(err), err)
		}
	}
}

// A real one: the type of a column changes under a prepared statement.
func TestAStalePlanIsRetriedOnce(t *testing.T) {
	l := newLab(t, "pool_max_conns=1")
	l.exec(`CREATE TABLE plan (n int)`)
	attempts := 0
	read := func() error {
		attempts = 0
		return l.InTx(t.Context(), func(ctx context.Context, tx Tx) error {
			attempts++
			rows, err := tx.Query(ctx, `SELECT n FROM plan WHERE $1::int > 0`, 1)
			rows.Close()
			return errors.Join(err, rows.Err())
		})
	}
	if err := read(); err != nil {
		t.Fatal(err)
	}
	l.exec(`ALTER TABLE plan ALTER n TYPE bigint`)
	if err := read(); err != nil || attempts != 2 {
		t.Errorf("%d attempts: %v", attempts, err)
	}
	stale := &pgconn.PgError{Severity: "ERROR", Code: "0A000", Message: "cached plan must not change result type"}
	attempts = 0
	err := l.InTx(t.Context(), func(context.Context, Tx) error { attempts++; return wrapped(stale) })
	if attempts != 2 || Kind(err) != Passing {
		t.Errorf("%d attempts: %v", attempts, err)
	}
}

// lostReplies are the two things that can be behind a COMMIT without a reply.
func lostReplies(first int) map[string]faults {
	return map[string]faults{
		"committed": {commit: func(ctx context.Context, n int, tx pgx.Tx) error {
			err := tx.Commit(ctx)
			if n <= first && err == nil {
				return wrapped(io.ErrUnexpectedEOF)
			}
			return err
		}},
		"not committed": {commit: func(ctx context.Context, n int, tx pgx.Tx) error {
			if n <= first {
				return refuse(tx, wrapped(io.ErrUnexpectedEOF))
			}
			return tx.Commit(ctx)
		}},
	}
}

func TestALostCommitReplyIsResolved(t *testing.T) {
	for name, f := range lostReplies(1) {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			item := l.item(2)
			before := reserved(item, "before")
			l.expect(l.write(before), Stored)
			other := l.open()
			faulty := func() *DB { db := l.open(); breakWith(db, f); return db }

			conflict := before
			conflict.UserID = "other"
			late := reserved(item, "late")
			late.ReservedAt = late.ReservedAt.Add(time.Second)
			w, err := faulty().Write(t.Context(), []sale.Event{reserved(item, "a"), before, late, conflict})
			if err != nil {
				t.Fatal(err)
			}
			l.expect(w, Stored, Redelivered, RejectedNoRoom, Conflict)
			l.balance()

			done, err := faulty().Restock(t.Context(), item, 5, "")
			if err != nil || done.Quantity != 7 || done.Repeated {
				t.Errorf("restock without a key: %+v, %v", done, err)
			}
			done, err = faulty().Restock(t.Context(), item, 5, "key")
			if err != nil || done.Quantity != 12 || done.Repeated {
				t.Errorf("restock with a key: %+v, %v", done, err)
			}
			s := aSale(1)
			s.ID, s.Items[0].ID = 77, 7777
			if s, err = faulty().CreateSale(t.Context(), s); err != nil || s.ID != 77 || s.Items[0].ID != 7777 {
				t.Errorf("create sale: %+v, %v", s, err)
			}
			e := reserved(item, "cancelled")
			l.expect(l.write(e), Stored)
			if _, outcome, err := faulty().Cancel(t.Context(), e.OrderID, e.UserID); outcome != CancelDone || err != nil {
				t.Errorf("cancel: %v, %v", outcome, err)
			}
			e = reserved(item, "unwritten")
			if _, outcome, err := faulty().CancelUnwritten(t.Context(), e); outcome != CancelDone || err != nil {
				t.Errorf("cancel unwritten: %v, %v", outcome, err)
			}
			if err := faulty().GiveUp(t.Context(), []sale.Event{reserved(item, "given up")}); err != nil {
				t.Error(err)
			}
			l.makeDue(item)
			if n, err := faulty().Expire(t.Context(), 10); n != 2 || err != nil {
				t.Errorf("expired %d, %v", n, err)
			}
			l.balance()

			e = reserved(item, "paid")
			l.expect(l.write(e), Stored)
			for i, due := range []bool{false, true} {
				result, outcome, err := faulty().Pay(t.Context(), success(e, fmt.Sprint(i)))
				if result != (sale.PaymentResult{Status: sale.Paid, RefundDue: due}) || outcome != PayDone || err != nil {
					t.Errorf("pay: %+v, %v, %v", result, outcome, err)
				}
			}
			l.balance()
			if r, err := faulty().Refunded(t.Context(), e.OrderID, nil); r.Outcome != RefundDone || r.Order.RefundDue() || r.Order != l.row(e.OrderID) || err != nil {
				t.Errorf("refunded: %+v, %v", r, err)
			}
			l.pay(success(e, "named"))
			if r, err := faulty().Refunded(t.Context(), e.OrderID, []string{"named"}); r.Outcome != RefundDone || r.Order.RefundDue() || r.Order != l.row(e.OrderID) || err != nil {
				t.Errorf("refunded by name: %+v, %v", r, err)
			}
			l.balance()
			rows := l.changes()
			if it, outcome, err := faulty().UpdateItem(t.Context(), item, ItemPatch{Quantity: to[int64](20)}); outcome != Patched || it.Quantity != 20 || err != nil {
				t.Errorf("update item: %+v, %v, %v", it, outcome, err)
			}
			sold := lookup[int64](l, `SELECT sale_id FROM flash_sale_item WHERE id = $1`, item)
			if s, outcome, err := faulty().UpdateSale(t.Context(), sold, SalePatch{Paused: to(true)}); outcome != Patched || !s.Paused || err != nil {
				t.Errorf("update sale: %+v, %v, %v", s, outcome, err)
			}
			if done, err := faulty().Retire(t.Context(), l.create(over(1)).Items[0].ID, 0); !done || err != nil {
				t.Errorf("retire: %v, %v", done, err)
			}
			change, err := faulty().BeginReload(t.Context(), item)
			if err == nil {
				err = faulty().EndReload(t.Context(), item, change)
			}
			if loads, _, after := l.epochs(item); loads != 1 || after == nil || err != nil {
				t.Errorf("%d loads, after %v; %v", loads, after, err)
			}
			if n := l.changes() - rows; n != 5 { // one sale was created
				t.Errorf("%d changes", n)
			}
			if n := lookup[int64](l, `SELECT sum(delta)::bigint FROM flash_sale_event WHERE key = $1`, fmt.Sprint("item:", item)); n != 18 {
				t.Errorf("%d units told", n)
			}
			claimed, err := faulty().ClaimEvents(t.Context(), 5, 5, time.Hour)
			if err != nil {
				t.Error(err)
			}
			for _, e := range claimed {
				if err := faulty().PostponeEvents(t.Context(), []int64{e.ID}, []time.Duration{time.Hour}); err != nil {
					t.Error(err)
				}
				if err := faulty().FinishEvents(t.Context(), e.ID); err != nil {
					t.Error(err)
				}
			}

			// A claim or a snapshot that may be somebody else's by now is not taken over; another one follows.
			if token, ok, err := faulty().ClaimLoad(t.Context(), item, 0); err != nil || ok != (name == "not committed") {
				t.Errorf("claim: %d, %v, %v", token, ok, err)
			}
			l.exec(`UPDATE flash_sale_item SET lease_until = NULL`)
			token, ok, err := other.ClaimLoad(t.Context(), item, 0)
			if !ok || err != nil {
				t.Fatal(ok, err)
			}
			if _, ok, err := faulty().Snapshot(t.Context(), item, token); err != nil || ok != (name == "not committed") {
				t.Errorf("snapshot: %v, %v", ok, err)
			}
		})
	}
}

func TestAnOutcomeThatCannotBeFoundOut(t *testing.T) {
	l := newLab(t)
	item := l.item(5)
	for name, f := range lostReplies(1) {
		db := l.open()
		f.begin = func(n int) error { // the database goes away with the reply
			if n > 1 {
				return io.EOF
			}
			return nil
		}
		breakWith(db, f)
		e := reserved(item, name)
		_, err := db.Write(t.Context(), []sale.Event{e})
		if Kind(err) != Unknown {
			t.Errorf("%s: kind %s: %v", name, Kind(err), err)
		}
		if w := l.write(e); w[0] != map[string]Written{"committed": Redelivered, "not committed": Stored}[name] {
			t.Errorf("%s: redelivered: %v", name, w)
		}
	}
	l.balance()
}

// A caller who leaves while COMMIT is under way gets its outcome, which would be unknown if COMMIT left with him.
func TestCommitRunsToItsEnd(t *testing.T) {
	l := newLab(t)
	item := l.item(1)
	ctx, cancel := context.WithCancel(t.Context())
	breakWith(l.DB, faults{commit: func(ctx context.Context, _ int, tx pgx.Tx) error {
		cancel()
		return tx.Commit(ctx)
	}})
	if w, err := l.Write(ctx, []sale.Event{reserved(item, "a")}); err != nil || w[0] != Stored {
		t.Errorf("%v, %v", w, err)
	}
}

// The connection is cut in the middle, by the server.
func TestACutConnectionIsRetried(t *testing.T) {
	l := newLab(t)
	item := l.item(5)
	attempts := 0
	err := l.InTx(t.Context(), func(ctx context.Context, tx Tx) error {
		attempts++
		if _, err := tx.Exec(ctx, `UPDATE flash_sale_item SET quantity = quantity + 1 WHERE id = $1`, item); err != nil {
			return err
		}
		if attempts == 1 {
			l.exec(`SELECT pg_terminate_backend($1)`, int32(tx.Conn().PgConn().PID()))
		}
		_, err := tx.Exec(ctx, `UPDATE flash_sale_item SET quantity = quantity + 1 WHERE id = $1`, item)
		return err
	})
	if err != nil || attempts != 2 {
		t.Errorf("%d attempts: %v", attempts, err)
	}
	if q := lookup[int64](l, `SELECT quantity FROM flash_sale_item`); q != 7 {
		t.Errorf("quantity %d", q)
	}
}
