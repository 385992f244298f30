package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
)

func TestExpireTakesWhatIsDue(t *testing.T) {
	l := newLab(t)
	s := l.create(aSale(10, 10))
	a, b := s.Items[0].ID, s.Items[1].ID
	due1, due2, later, paid := reserved(a, "due1"), reserved(b, "due2"), reserved(a, "later"), reserved(a, "paid")
	due1.Quantity = 4
	l.expect(l.write(due1, due2, paid), Stored, Stored, Stored)
	l.exec(`UPDATE flash_sale_order SET expires_at = now()`)
	l.exec(`UPDATE flash_sale_order SET status = 'PAID' WHERE user_id = 'paid'`)
	l.expect(l.write(later), Stored)
	for limit, want := range map[int]int{0: 0, -1: 0} {
		if n, err := l.Expire(t.Context(), limit); n != want || err != nil {
			t.Errorf("limit %d: %d, %v", limit, n, err)
		}
	}
	for i, want := range []int{1, 1, 0} {
		if n, err := l.Expire(t.Context(), 1); n != want || err != nil {
			t.Errorf("sweep %d: %d, %v", i, n, err)
		}
	}
	for _, e := range []sale.Event{due1, due2} {
		if got := l.row(e.OrderID).Status; got != sale.Expired {
			t.Errorf("%s is %s", e.UserID, got)
		}
	}
	if got := l.row(later.OrderID).Status; got != sale.Pending {
		t.Errorf("an order that is not due is %s", got)
	}
	if got := l.row(paid.OrderID).Status; got != sale.Paid {
		t.Errorf("a paid order is %s", got)
	}
	l.balance()
}

// A thousand due orders, two sweepers, one of which loses its connection half-way, again and again.
func TestEachOrderExpiresOnce(t *testing.T) {
	l := newLab(t)
	s := l.create(aSale(1000, 1000))
	var events []sale.Event
	for i := range 1000 {
		events = append(events, reserved(s.Items[i%2].ID, fmt.Sprint("u", i)))
	}
	l.write(events...)
	l.makeDue(s.Items[0].ID)
	l.makeDue(s.Items[1].ID)
	killed := l.open("pool_max_conns=1")
	begin := killed.begin
	var transactions atomic.Int64
	killed.begin = func(ctx context.Context) (pgx.Tx, error) {
		tx, err := begin(ctx)
		if err == nil && transactions.Add(1)%2 == 1 {
			return &dyingTx{Tx: tx}, nil
		}
		return tx, err
	}
	var total atomic.Int64
	var wg sync.WaitGroup
	for _, db := range []*DB{l.DB, killed} {
		wg.Go(func() {
			for n := -1; n != 0; {
				var err error
				if n, err = db.Expire(t.Context(), 20); err != nil {
					t.Error(err)
					return
				}
				total.Add(int64(n))
			}
		})
	}
	wg.Wait()
	if total.Load() != 1000 {
		t.Errorf("%d expired", total.Load())
	}
	if n := lookup[int64](l, `SELECT coalesce(sum(units), 0)::bigint FROM flash_sale_correction WHERE op = 'release'`); n != 1000 {
		t.Errorf("%d units released", n)
	}
	if n := lookup[int64](l, `SELECT count(*) FROM flash_sale_order WHERE status = 'EXPIRED'`); n != 1000 {
		t.Errorf("%d rows expired", n)
	}
	if n, err := l.Expire(t.Context(), 100); n != 0 || err != nil {
		t.Errorf("one more sweep: %d, %v", n, err)
	}
	l.balance()
}

// dyingTx closes its connection when the orders have ended, before their units have been given back.
type dyingTx struct{ pgx.Tx }

func (tx *dyingTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	_ = tx.Conn().Close(ctx)
	return tx.Tx.SendBatch(ctx, b)
}

// The row of one item is held by somebody else for longer than anybody waits.
func TestOneItemDoesNotHoldUpTheOthers(t *testing.T) {
	l := newLab(t, "lock_timeout=20")
	s := l.create(aSale(1, 1))
	stuck, free := s.Items[0].ID, s.Items[1].ID
	l.expect(l.write(reserved(stuck, "a"), reserved(free, "a")), Stored, Stored)
	l.makeDue(stuck)
	l.makeDue(free)
	breakWith(l.DB, faults{}) // no waits
	tx, err := l.sql.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT FROM flash_sale_item WHERE id = $1 FOR UPDATE`, stuck); err != nil {
		t.Fatal(err)
	}
	if n, err := l.Expire(t.Context(), 10); n != 1 || Kind(err) != Passing {
		t.Errorf("%d, %v", n, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, patience, func() bool {
		n, err := l.Expire(t.Context(), 10)
		return n == 1 && err == nil
	}, "the order does not expire")
	l.balance()
}

// The payment window runs by the clock of the database, from the moment the row is there.
func TestThePaymentWindowEnds(t *testing.T) {
	l := newLab(t)
	s := aSale(1)
	s.PaymentWindow = 1000 // 1 µs
	e := reserved(l.create(s).Items[0].ID, "a")
	e.ReservedAt = e.ReservedAt.AddDate(1, 0, 0) // the clock of Redis decides nothing
	l.expect(l.write(e), Stored)
	devtest.Eventually(t, patience, func() bool {
		n, err := l.Expire(t.Context(), 10)
		return n == 1 && err == nil
	}, "the order does not expire")
	if got := l.row(e.OrderID).Status; got != sale.Expired {
		t.Error(got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Expire(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
