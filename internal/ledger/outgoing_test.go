package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
)

// claimEvents takes up to n events.
func (l *lab) claimEvents(n int, lease time.Duration) []OutgoingEvent {
	l.tb.Helper()
	claimed, err := l.ClaimEvents(l.tb.Context(), n, n, lease)
	if err != nil {
		l.tb.Fatal(err)
	}
	return claimed
}

func (l *lab) finishEvents(events ...OutgoingEvent) {
	l.tb.Helper()
	var ids []int64
	for _, e := range events {
		ids = append(ids, e.ID)
	}
	if err := l.FinishEvents(l.tb.Context(), ids...); err != nil {
		l.tb.Fatal(err)
	}
}

func TestEventsSayWhatBecameTrue(t *testing.T) {
	l := newLab(t)
	ctx := t.Context()
	s := l.create(aSale(10, 0))
	item, none := s.Items[0].ID, s.Items[1].ID
	e := reserved(item, "alice")
	e.Quantity, e.Trace = 3, "00-trace-01"
	refused, unwritten := reserved(none, "bob"), reserved(item, "carol")
	l.expect(l.write(e, refused), Stored, RejectedNoRoom)
	if _, _, err := l.CancelUnwritten(ctx, unwritten); err != nil {
		t.Fatal(err)
	}
	l.pay(success(e, "1"))
	l.pay(success(e, "2"))
	done, err := l.Restock(ctx, none, 7, "")
	if err != nil {
		t.Fatal(err)
	}
	// Nothing is told of what changes nobody's order.
	l.exec(`UPDATE flash_sale_order SET expires_at = now()`)
	if n, err := l.Expire(ctx, 10); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	if _, err := l.Refunded(ctx, e.OrderID, nil); err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	if err := l.InTx(ctx, func(ctx context.Context, tx Tx) error {
		_, err := tx.Exec(ctx, `UPDATE flash_sale_order SET status = 'EXPIRED'`)
		return errors.Join(err, boom)
	}); !errors.Is(err, boom) {
		t.Fatal(err)
	}

	var got []OutgoingEvent
	for {
		claimed := l.claimEvents(100, time.Minute)
		if len(claimed) == 0 {
			break
		}
		got = append(got, claimed...)
		l.finishEvents(claimed...)
	}
	order := func(e sale.Event, kind string, status sale.OrderStatus) OutgoingEvent {
		return OutgoingEvent{Type: kind, Key: e.OrderID.String(), ItemID: e.ItemID, OrderID: e.OrderID, UserID: e.UserID, Quantity: e.Quantity,
			Status: string(status), Trace: e.Trace}
	}
	want := []OutgoingEvent{
		order(e, "order.created", sale.Pending), order(refused, "order.rejected", sale.Rejected), order(unwritten, "order.cancelled", sale.Cancelled),
		order(e, "order.paid", sale.Paid), order(e, "order.refund_due", sale.Paid),
		{Type: "stock.increased", Key: fmt.Sprint("item:", none), ItemID: none, OperationID: done.OperationID, Delta: 7, Quantity: 7},
	}
	slices.SortFunc(got, func(a, b OutgoingEvent) int { return int(a.ID - b.ID) })
	for i := range got {
		if age := time.Since(got[i].At); age < -time.Minute || age > time.Minute {
			t.Errorf("%s is of %v", got[i].Type, got[i].At)
		}
		if i > 0 && got[i].ID == got[i-1].ID {
			t.Errorf("event %d came twice", got[i].ID)
		}
		got[i].ID, got[i].At = 0, time.Time{}
	}
	// The first two were written by one statement, in the order of their items.
	if !slices.Equal(got, want) {
		t.Errorf("events are\n%+v, want\n%+v", got, want)
	}
	if n, oldest, err := l.WaitingEvents(ctx); n != 0 || oldest != 0 || err != nil {
		t.Errorf("waiting: %d, %v, %v", n, oldest, err)
	}
}

func TestEventsOfOneKeyComeOneAfterAnother(t *testing.T) {
	l := newLab(t)
	item := l.item(10)
	a, b := reserved(item, "a"), reserved(item, "b")
	l.expect(l.write(a), Stored)
	l.expect(l.write(b), Stored)
	l.pay(success(a, "1"))
	l.pay(success(a, "2"))
	types := func(events []OutgoingEvent) (out []string) {
		for _, e := range events {
			out = append(out, e.UserID+" "+e.Type)
		}
		return out
	}
	expect := func(got []OutgoingEvent, want ...string) []OutgoingEvent {
		t.Helper()
		if !slices.Equal(types(got), want) {
			t.Fatalf("claimed %q, want %q", types(got), want)
		}
		return got
	}
	if n, oldest, err := l.WaitingEvents(t.Context()); n != 4 || oldest <= 0 || oldest > patience || err != nil {
		t.Errorf("waiting: %d, %v, %v", n, oldest, err)
	}
	expect(l.claimEvents(0, time.Hour))
	first := expect(l.claimEvents(1, time.Hour), "a order.created")
	second := expect(l.claimEvents(100, time.Hour), "b order.created")
	expect(l.claimEvents(100, time.Hour)) // the others have a predecessor
	l.finishEvents(second...)
	expect(l.claimEvents(100, time.Hour))
	if n, _, err := l.WaitingEvents(t.Context()); n != 3 || err != nil {
		t.Errorf("waiting: %d, %v", n, err)
	}
	// Whoever has the first one dies.
	l.exec(`UPDATE flash_sale_event SET not_before = now() WHERE id = $1`, first[0].ID)
	again := expect(l.claimEvents(100, time.Hour), "a order.created")
	if again[0] != first[0] {
		t.Errorf("claimed %+v, and before %+v", again[0], first[0])
	}
	l.finishEvents(again...)
	l.finishEvents(first...) // gone already
	l.finishEvents()
	third := expect(l.claimEvents(100, 0), "a order.paid") // a lease that is over at once
	l.finishEvents(expect(l.claimEvents(100, time.Hour), "a order.paid")...)
	fourth := expect(l.claimEvents(100, time.Hour), "a order.refund_due")
	if !third[0].At.Before(fourth[0].At) || first[0].At.After(third[0].At) {
		t.Errorf("times run backwards: %v, %v, %v", first[0].At, third[0].At, fourth[0].At)
	}
}

// Orders live and end while several relays tell it. One of them often forgets to finish, and its leases run out at once.
func TestRelaysTellEverythingInOrder(t *testing.T) {
	const orders = 300
	l := newLab(t, "pool_max_conns=10")
	l.forbidRetries(l.DB)
	s := l.create(aSale(orders, orders))
	var told sync.Map // key → *log
	type log struct {
		mu  sync.Mutex
		ids []int64
	}
	tell := func(claimed []OutgoingEvent) {
		for _, e := range claimed {
			v, _ := told.LoadOrStore(e.Key, &log{})
			v.(*log).mu.Lock()
			v.(*log).ids = append(v.(*log).ids, e.ID)
			v.(*log).mu.Unlock()
		}
	}
	working, stop := context.WithCancel(t.Context())
	var relays, life sync.WaitGroup
	for i := range 3 {
		relays.Go(func() {
			for {
				over := working.Err() != nil
				lease := time.Hour
				if i == 0 {
					lease = 0
				}
				claimed, err := l.ClaimEvents(t.Context(), 7, 0, lease)
				if err != nil {
					t.Error(err)
					return
				}
				if i == 0 && len(claimed) > 0 {
					// Its events are anybody's by now, so it may tell nothing of them. Alone it would go on like this for ever.
					if over {
						return
					}
					continue
				}
				if over && len(claimed) == 0 {
					return
				}
				var ids []int64
				tell(claimed)
				for _, e := range claimed {
					ids = append(ids, e.ID)
				}
				if err := l.FinishEvents(t.Context(), ids...); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var next atomic.Int64
	for range 4 {
		life.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(next.Load())))
			for n := int(next.Add(1)); n <= orders; n = int(next.Add(1)) {
				e := reserved(s.Items[n%2].ID, fmt.Sprint("u", n))
				steps := []func() error{
					func() error { _, _, err := l.Pay(t.Context(), success(e, fmt.Sprint(n, "a"))); return err },
					func() error { _, _, err := l.Pay(t.Context(), success(e, fmt.Sprint(n, "b"))); return err },
					func() error { _, _, err := l.Cancel(t.Context(), e.OrderID, e.UserID); return err },
					func() error { _, err := l.Restock(t.Context(), e.ItemID, 1, ""); return err },
				}
				random.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
				if _, err := l.Write(t.Context(), []sale.Event{e}); err != nil {
					t.Error(err)
				}
				for _, step := range steps {
					if err := step(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	life.Wait()
	stop()
	relays.Wait()
	devtest.Eventually(t, patience, func() bool {
		claimed := l.claimEvents(100, time.Hour) // what the others saw in the hands of the forgetful one
		tell(claimed)
		l.finishEvents(claimed...)
		return len(claimed) == 0
	}, "events are left")
	if n, _, err := l.WaitingEvents(t.Context()); n != 0 || err != nil {
		t.Errorf("%d left, %v", n, err)
	}
	seen := make(map[int64]bool)
	for _, v := range maps.Collect(told.Range) {
		if ids := v.(*log).ids; !slices.IsSorted(ids) {
			t.Errorf("told out of order: %v", ids)
		}
		for _, id := range v.(*log).ids {
			if seen[id] {
				t.Errorf("event %d was told twice", id)
			}
			seen[id] = true
		}
	}
	// Each order has three or four, and each restock one.
	if n := len(seen); n < 4*orders || n > 5*orders {
		t.Errorf("%d events told", n)
	}
	l.balance()
}
