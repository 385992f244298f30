package ledger

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/pause"
	"flashgate/internal/sale"
)

// Batches for the items [a, b] and [b, a], with everything else that changes the same rows, on pools that are too small for all of them.
// Everybody locks in the same order, so nobody is ever the victim of a deadlock, not even one that a retry would hide.
func TestOppositeBatchesDoNotDeadlock(t *testing.T) {
	const rounds, stock = 500, 700
	for _, conns := range []int{1, 4} {
		t.Run(fmt.Sprint(conns, " connections"), func(t *testing.T) {
			l := newLab(t)
			s := l.create(aSale(stock, stock))
			a, b := s.Items[0].ID, s.Items[1].ID
			params := fmt.Sprintf("pool_max_conns=%d", conns)
			consumers := []*DB{l.open(params), l.open(params)}
			for _, db := range consumers {
				l.forbidRetries(db)
			}
			var decided [Purged + 1]atomic.Int64
			round := func(n int) error {
				user := fmt.Sprint("u", n)
				events := []sale.Event{reserved(a, user), reserved(b, user), reserved(a, user+"x"), reserved(b, user+"x")}
				if n%2 == 1 {
					events[0], events[1], events[2], events[3] = events[1], events[0], events[3], events[2]
				}
				db, ctx := consumers[n/2%2], t.Context()
				written, err := db.Write(ctx, events)
				if err != nil {
					return err
				}
				for _, w := range written {
					decided[w].Add(1)
				}
				switch n % 9 {
				case 0:
					_, _, err = db.Cancel(ctx, events[0].OrderID, user)
				case 1:
					_, err = db.Expire(ctx, 10)
				case 2:
					_, err = db.Restock(ctx, events[0].ItemID, 1, user)
				case 3:
					err = db.GiveUp(ctx, events)
				case 4:
					var claimed []Correction
					if claimed, err = db.ClaimCorrections(ctx, 3, 0); err == nil && len(claimed) > 0 {
						err = db.PostponeCorrections(ctx, []int64{claimed[0].ID}, 0)
					}
				case 5:
					_, err = db.Refunded(ctx, events[1].OrderID, nil)
				case 6:
					_, _, err = db.UpdateItem(ctx, events[0].ItemID, ItemPatch{Quantity: to(stock + int64(n))})
				case 7:
					_, _, err = db.UpdateSale(ctx, s.ID, SalePatch{Name: to(user)})
				case 8:
					_, err = db.Retire(ctx, events[0].ItemID, 0)
				}
				if err != nil {
					return err
				}
				// Four orders are told to be paid by the same event.
				if _, _, err = db.Pay(ctx, success(events[0], fmt.Sprint("event-", n/4))); err != nil {
					return err
				}
				claimed, err := db.ClaimEvents(ctx, 3, 3, 0)
				if err == nil && len(claimed) > 2 {
					if err = db.PostponeEvents(ctx, []int64{claimed[2].ID, claimed[1].ID}, []time.Duration{0, 0}); err == nil {
						err = db.FinishEvents(ctx, claimed[1].ID, claimed[0].ID)
					}
				}
				return err
			}
			var next atomic.Int64
			var wg sync.WaitGroup
			for range 40 {
				wg.Go(func() {
					for n := int(next.Add(1)); n <= rounds; n = int(next.Add(1)) {
						if err := round(n); err != nil {
							t.Errorf("round %d: %v", n, err)
							return
						}
						if n%50 == 0 {
							l.makeDue(a)
							l.makeDue(b)
						}
					}
				})
			}
			wg.Wait()
			l.balance()
			if n := decided[Stored].Load() + decided[RejectedNoRoom].Load(); n != 4*rounds {
				t.Errorf("%d events decided", n)
			}
			if n := lookup[int64](l, `SELECT count(*) FROM flash_sale_order`); n != 4*rounds {
				t.Errorf("%d rows", n)
			}
		})
	}
}

// Somebody who does not keep the order meets the ledger: the deadlock is real, and reaches no caller.
func TestARealDeadlockReachesNobody(t *testing.T) {
	l := newLab(t, "deadlock_timeout=10")
	s := l.create(aSale(100, 100))
	a, b := s.Items[0].ID, s.Items[1].ID
	lockRow := func(ctx context.Context, tx pgx.Tx, id int64) error {
		_, err := tx.Exec(ctx, `SELECT FROM flash_sale_item WHERE id = $1 FOR UPDATE`, id)
		return err
	}
	held := func(id int64) bool {
		return len(all[int64](l, `SELECT id FROM flash_sale_item WHERE id = $1 FOR UPDATE SKIP LOCKED`, id)) == 0
	}
	var victims atomic.Int64
	l.pause = func(ctx context.Context, d time.Duration) bool {
		victims.Add(1)
		return pause.For(ctx, d)
	}
	for n := range 10 {
		holds, once := make(chan struct{}), sync.Once{}
		var wg sync.WaitGroup
		wg.Go(func() {
			err := l.InTx(t.Context(), func(ctx context.Context, tx Tx) error {
				if err := lockRow(ctx, tx, b); err != nil {
					return err
				}
				once.Do(func() {
					close(holds)
					devtest.Eventually(t, patience, func() bool { return held(a) }, "the writer does not come")
				})
				return lockRow(ctx, tx, a)
			})
			if err != nil {
				t.Error(err)
			}
		})
		<-holds
		l.expect(l.write(reserved(a, fmt.Sprint(n)), reserved(b, fmt.Sprint(n))), Stored, Stored)
		wg.Wait()
	}
	if victims.Load() < 10 {
		t.Errorf("%d victims: there was no deadlock", victims.Load())
	}
	l.balance()
}
