package ledger

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"flashgate/internal/sale"
)

func (l *lab) claim(n int, lease time.Duration) []Correction {
	l.tb.Helper()
	claimed, err := l.ClaimCorrections(l.tb.Context(), n, lease)
	if err != nil {
		l.tb.Fatal(err)
	}
	return claimed
}

func TestCorrectionsSayWhatToDo(t *testing.T) {
	l := newLab(t)
	item := l.item(1)
	token := l.load(item)
	kept, noRoom, duplicate := reserved(item, "a"), reserved(item, "b"), reserved(item, "a")
	kept.Epoch, noRoom.Epoch, duplicate.Epoch = token, token, token
	noRoom.Quantity = 2
	l.expect(l.write(kept), Stored)
	l.expect(l.write(noRoom), RejectedNoRoom)
	l.expect(l.write(duplicate), RejectedDuplicate)
	restocked, err := l.Restock(t.Context(), item, 5, "")
	if err != nil {
		t.Fatal(err)
	}
	got := l.claim(10, time.Minute)
	want := []Correction{
		{Op: OpVoid, OrderID: noRoom.OrderID, UserID: "b", Units: 2},
		{Op: OpRelease, OrderID: duplicate.OrderID, UserID: "a", Units: 1},
		{Op: OpIncrease, Units: 5, OperationID: restocked.OperationID},
	}
	for i := range got {
		if got[i].CreatedAt.IsZero() || i > 0 && got[i].ID <= got[i-1].ID {
			t.Errorf("correction %d: %+v", i, got[i])
		}
		if i < len(want) {
			want[i].ID, want[i].CreatedAt, want[i].ItemID, want[i].Epoch = got[i].ID, got[i].CreatedAt, item, token
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("corrections are\n%+v, want\n%+v", got, want)
	}
	if got[2].ID != restocked.CorrectionID {
		t.Errorf("the restock names correction %d, it is %d", restocked.CorrectionID, got[2].ID)
	}
}

func TestACorrectionIsClaimedByOneRelay(t *testing.T) {
	l := newLab(t)
	s := l.create(aSale(0, 0))
	for i := range 50 {
		l.write(reserved(s.Items[(i+1)%2].ID, fmt.Sprint(i)))
	}
	claims := make([][]Correction, 4)
	var wg sync.WaitGroup
	for i := range claims {
		wg.Go(func() { claims[i] = l.claim(20, time.Hour) })
	}
	wg.Wait()
	seen := make(map[int64]bool)
	for _, claim := range claims {
		if !slices.IsSortedFunc(claim, func(a, b Correction) int { return cmp.Or(cmp.Compare(a.ItemID, b.ItemID), cmp.Compare(a.ID, b.ID)) }) {
			t.Errorf("not in order: %+v", claim)
		}
		for _, c := range claim {
			if seen[c.ID] {
				t.Errorf("correction %d was given to two", c.ID)
			}
			seen[c.ID] = true
		}
	}
	for _, c := range l.claim(50, time.Hour) {
		seen[c.ID] = true
	}
	if len(seen) != 50 {
		t.Errorf("%d claimed", len(seen))
	}
	// Whoever claimed them has died. They come again when the lease is over.
	l.exec(`UPDATE flash_sale_correction SET not_before = now()`)
	if n := len(l.claim(100, time.Hour)); n != 50 {
		t.Errorf("%d claimed again", n)
	}
}

// One relay has claimed, its COMMIT is under way; the other one neither waits nor gets the same.
func TestRelaysPassEachOther(t *testing.T) {
	l := newLab(t)
	item := l.item(0)
	l.write(reserved(item, "a"), reserved(item, "b"), reserved(item, "c"))
	other := l.open()
	var second []Correction
	breakWith(l.DB, faults{commit: func(ctx context.Context, _ int, tx pgx.Tx) (err error) {
		if second, err = other.ClaimCorrections(t.Context(), 3, time.Hour); err != nil {
			t.Error(err)
		}
		return tx.Commit(ctx)
	}})
	first := l.claim(2, time.Hour)
	if len(first) != 2 || len(second) != 1 || first[0].ID == second[0].ID || first[1].ID == second[0].ID {
		t.Errorf("first %+v, second %+v", first, second)
	}
}

func TestCorrectionsEndOrWait(t *testing.T) {
	l := newLab(t)
	s := l.create(aSale(0, 0))
	a, b := s.Items[0].ID, s.Items[1].ID
	l.write(reserved(a, "1"), reserved(a, "2"), reserved(b, "3"))
	claimed := l.claim(10, time.Hour)
	if len(claimed) != 3 {
		t.Fatal(claimed)
	}
	done := func(id int64) bool {
		ok, err := l.CorrectionDone(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	if done(claimed[0].ID) {
		t.Error("done before it was finished")
	}
	if err := l.FinishCorrections(t.Context(), claimed[0].ID, claimed[0].ID, 999); err != nil {
		t.Fatal(err)
	}
	if !done(claimed[0].ID) || done(claimed[1].ID) {
		t.Error("another one was finished")
	}
	// One item has no stock to correct: its correction waits, the other one's does not.
	if err := l.PostponeCorrections(t.Context(), []int64{claimed[1].ID}, time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := l.PostponeCorrections(t.Context(), []int64{claimed[2].ID}, 0); err != nil {
		t.Fatal(err)
	}
	if again := l.claim(10, 0); len(again) != 1 || again[0].ID != claimed[2].ID {
		t.Errorf("claimed again: %+v", again)
	}
	if err := l.FinishCorrections(t.Context()); err != nil {
		t.Error(err)
	}
	if err := l.PostponeCorrections(t.Context(), nil, 0); err != nil {
		t.Error(err)
	}
}

// Two relays whose leases overlap finish the same corrections in opposite orders.
func TestOverlappingRelaysDoNotDeadlock(t *testing.T) {
	l := newLab(t)
	item := l.item(0)
	l.forbidRetries(l.DB)
	for range 20 {
		var events []sale.Event
		for i := range 50 {
			events = append(events, reserved(item, fmt.Sprint(i)))
		}
		l.write(events...)
		var ids []int64
		for _, c := range l.claim(100, 0) {
			ids = append(ids, c.ID)
		}
		back := slices.Clone(ids)
		slices.Reverse(back)
		var wg sync.WaitGroup
		for _, call := range []func() error{
			func() error { return l.PostponeCorrections(t.Context(), back, 0) },
			func() error { return l.FinishCorrections(t.Context(), ids...) },
			func() error { return l.FinishCorrections(t.Context(), back...) },
		} {
			wg.Go(func() {
				if err := call(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	if n := lookup[int64](l, `SELECT count(*) FROM flash_sale_correction`); n != 0 {
		t.Errorf("%d left", n)
	}
}
