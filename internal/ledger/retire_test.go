package ledger

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"flashgate/internal/sale"
)

// over is a sale that ended an hour ago.
func over(quantities ...int64) sale.Sale {
	s := aSale(quantities...)
	s.StartsAt, s.EndsAt = s.StartsAt.Add(-3*time.Hour), s.EndsAt.Add(-2*time.Hour)
	return s
}

func (l *lab) retirable(after time.Duration) []int64 {
	l.tb.Helper()
	items, err := l.Retirable(l.tb.Context(), after)
	if err != nil {
		l.tb.Fatal(err)
	}
	return items
}

// retire retires an item that may be retired.
func (l *lab) retire(item int64) {
	l.tb.Helper()
	if done, err := l.Retire(l.tb.Context(), item, 0); !done || err != nil {
		l.tb.Fatalf("retire item %d: %v, %v", item, done, err)
	}
}

func TestRetire(t *testing.T) {
	l := newLab(t)
	ctx := t.Context()
	s := l.create(over(10, 10, 10, 10, 10))
	done, pending, correction, loading, paid := s.Items[0].ID, s.Items[1].ID, s.Items[2].ID, s.Items[3].ID, s.Items[4].ID
	open := l.item(10)
	if got := l.retirable(2 * time.Hour); len(got) != 0 {
		t.Errorf("too early: %v", got)
	}
	if got, want := l.retirable(time.Hour-time.Minute), []int64{done, pending, correction, loading, paid}; !slices.Equal(got, want) {
		t.Errorf("retirable: %v, want %v", got, want)
	}
	e, bought := reserved(pending, "a"), reserved(paid, "a")
	l.expect(l.write(e, bought), Stored, Stored)
	l.pay(success(bought, "1"))
	restocked, err := l.Restock(ctx, correction, 1, "")
	if err != nil {
		t.Fatal(err)
	}
	token, ok, err := l.ClaimLoad(ctx, loading, 0)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	refused := func(items ...int64) {
		t.Helper()
		for _, item := range items {
			if done, err := l.Retire(ctx, item, 0); done || err != nil {
				t.Errorf("item %d: %v, %v", item, done, err)
			}
			if it, _, err := l.Item(ctx, item); err != nil || !it.RetiredAt.IsZero() {
				t.Errorf("item %d: %+v, %v", item, it, err)
			}
		}
	}
	rows := l.changes()
	if got, want := l.retirable(0), []int64{done, paid}; !slices.Equal(got, want) {
		t.Errorf("retirable: %v, want %v", got, want)
	}
	refused(pending, correction, loading, open)
	if done, err := l.Retire(ctx, 999, 0); done || err != nil {
		t.Errorf("no item: %v, %v", done, err)
	}
	if n := l.changes(); n != rows {
		t.Errorf("%d audit rows for what was refused", n-rows)
	}
	for range 3 {
		l.retire(done)
		l.retire(paid)
	}
	what, before, after := l.lastChange(fmt.Sprint("item:", done))
	if what != "item.retire" || before["retired_at"] != nil || after["retired_at"] == nil || l.changes() != rows+2 {
		t.Errorf("audit: %s\n%v\n%v", what, before, after)
	}
	// What stood in the way goes.
	if _, _, err := l.Cancel(ctx, e.OrderID, e.UserID); err != nil {
		t.Fatal(err)
	}
	refused(pending) // now a correction
	if err := l.EndLoad(ctx, loading, token); err != nil {
		t.Fatal(err)
	}
	for _, c := range l.claim(10, 0) {
		if err := l.FinishCorrections(ctx, c.ID); err != nil {
			t.Fatal(err)
		}
	}
	if ok, err := l.CorrectionDone(ctx, restocked.CorrectionID); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if got, want := l.retirable(0), []int64{pending, correction, loading}; !slices.Equal(got, want) {
		t.Errorf("retirable: %v, want %v", got, want)
	}
	for _, item := range l.retirable(0) {
		l.retire(item)
	}
	// Of a retired item nothing is sold, loaded or corrected; a payment that is late is a refund.
	late := reserved(done, "late")
	l.expect(l.write(late), RejectedRetired)
	if got := l.pay(success(late, "2")); got != (sale.PaymentResult{Status: sale.Rejected, RefundDue: true}) {
		t.Errorf("late payment: %+v", got)
	}
	if _, ok, err := l.ClaimLoad(ctx, loading, 0); ok || err != nil {
		t.Errorf("claim of a retired item: %v, %v", ok, err)
	}
	if n := lookup[int64](l, `SELECT count(*) FROM flash_sale_correction`); n != 0 {
		t.Errorf("%d corrections", n)
	}
}

// A sale is extended while its item is being retired, two hundred times: it is one or the other.
func TestASaleIsExtendedOrItsItemRetired(t *testing.T) {
	const rounds = 200
	l := newLab(t, "pool_max_conns=8")
	var sales []sale.Sale
	for range rounds {
		sales = append(sales, l.create(over(1)))
	}
	retired := 0
	for n, s := range sales {
		var done bool
		var outcome PatchOutcome
		var wg sync.WaitGroup
		wg.Go(func() {
			var err error
			if done, err = l.Retire(t.Context(), s.Items[0].ID, 0); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			var err error
			if _, outcome, err = l.UpdateSale(t.Context(), s.ID, SalePatch{EndsAt: to(time.Now().Add(time.Hour))}); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		it, _, err := l.Item(t.Context(), s.Items[0].ID)
		if err != nil || done == it.RetiredAt.IsZero() || done != (outcome == PatchRetired) || !done && outcome != Patched || done == it.EndsAt.After(time.Now()) {
			t.Fatalf("round %d: retired %v, outcome %v, %+v, %v", n, done, outcome, it, err)
		}
		if done {
			retired++
		}
	}
	t.Logf("%d of %d were retired", retired, rounds)
}

// Whoever ends a sale early has as long to think again as after an end that was planned, even if he sets an end that lies far back.
func TestRetireWaitsAfterAnEndThatWasMoved(t *testing.T) {
	l := newLab(t)
	now := time.Now()
	s := l.create(sale.Sale{
		Name: "moved", StartsAt: now.Add(-48 * time.Hour), EndsAt: now.Add(time.Hour), PurchaseLimit: sale.PerItem, PaymentWindow: time.Hour, TimeZone: "UTC",
		Items: []sale.Item{{Quantity: 1, Price: "1", Currency: "EUR", Shards: 1, MaxPerUser: 1, Model: sale.Counter}},
	})
	end := now.Add(-47 * time.Hour)
	if _, outcome, err := l.UpdateSale(t.Context(), s.ID, SalePatch{EndsAt: &end}); outcome != Patched || err != nil {
		t.Fatal(outcome, err)
	}
	if got := l.retirable(24 * time.Hour); len(got) != 0 {
		t.Errorf("retirable at once: %v", got)
	}
	if done, err := l.Retire(t.Context(), s.Items[0].ID, 24*time.Hour); done || err != nil {
		t.Errorf("retired at once: %v, %v", done, err)
	}
	if _, err := l.pool.Exec(t.Context(), `UPDATE flash_sale SET end_moved_at = now() - interval '25 hours' WHERE id = $1`, s.ID); err != nil {
		t.Fatal(err)
	}
	if got := l.retirable(24 * time.Hour); len(got) != 1 {
		t.Errorf("a day later: retirable %v", got)
	}
	if done, err := l.Retire(t.Context(), s.Items[0].ID, 24*time.Hour); !done || err != nil {
		t.Errorf("a day later: retired %v, %v", done, err)
	}
}
