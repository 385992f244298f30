package ledger

import (
	"maps"
	"sync"
	"testing"
	"time"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
)

// load claims, takes the snapshot and ends the lease.
func (l *lab) load(item int64) (token int64) {
	l.tb.Helper()
	ctx := l.tb.Context()
	token, ok, err := l.ClaimLoad(ctx, item, 0)
	if err != nil || !ok {
		l.tb.Fatalf("claim: %v, %v", ok, err)
	}
	if _, ok, err := l.Snapshot(ctx, item, token); err != nil || !ok {
		l.tb.Fatalf("snapshot: %v, %v", ok, err)
	}
	if err := l.EndLoad(ctx, item, token); err != nil {
		l.tb.Fatal(err)
	}
	return token
}

func TestSnapshotHasTheLiveOrders(t *testing.T) {
	l := newLab(t)
	item := l.item(10)
	pending, paid, cancelled, expired := reserved(item, "pending"), reserved(item, "paid"), reserved(item, "cancelled"), reserved(item, "expired")
	pending.Quantity, pending.KeyHash, pending.Price = 3, "hash", "19.80"
	l.expect(l.write(pending, paid, cancelled, expired), Stored, Stored, Stored, Stored)
	l.exec(`UPDATE flash_sale_order SET status = 'PAID' WHERE user_id = 'paid'`)
	l.exec(`UPDATE flash_sale_order SET expires_at = now() WHERE user_id = 'expired'`)
	if n, err := l.Expire(t.Context(), 10); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if _, outcome, err := l.Cancel(t.Context(), cancelled.OrderID, "cancelled"); outcome != CancelDone || err != nil {
		t.Fatal(outcome, err)
	}
	token, ok, err := l.ClaimLoad(t.Context(), item, 0)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	snap, ok, err := l.Snapshot(t.Context(), item, token)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	want := map[string]sale.Mark{
		"pending": {OrderID: pending.OrderID, Quantity: 3, Price: "19.80", Currency: "JPY", ReservedAt: pending.ReservedAt, KeyHash: "hash"},
		"paid":    {OrderID: paid.OrderID, Quantity: 1, Price: "1980", Currency: "JPY", ReservedAt: paid.ReservedAt},
	}
	if !maps.Equal(snap.Marks, want) {
		t.Errorf("marks are\n%+v, want\n%+v", snap.Marks, want)
	}
	if snap.ItemID != item || snap.Token != token || snap.Shards != 13 || snap.Quantity != 10 || snap.Sold != 4 || snap.Free() != 6 {
		t.Errorf("snapshot is %+v", snap)
	}
	if it, _, err := l.Item(t.Context(), item); err != nil || it.Epoch != token || it.Claim != token {
		t.Errorf("item is %+v, %v", it, err)
	}
}

func TestOneLoaderAtATime(t *testing.T) {
	l := newLab(t)
	ctx := t.Context()
	item := l.item(10)
	first, ok, err := l.ClaimLoad(ctx, item, 0)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, ok, err := l.ClaimLoad(ctx, item, 0); ok || err != nil {
		t.Fatalf("claimed under another one's lease: %v, %v", ok, err)
	}
	if ok, err := l.RenewLoad(ctx, item, first); !ok || err != nil {
		t.Fatalf("renew: %v, %v", ok, err)
	}
	watch := func() LoadState {
		states, err := l.LoadWatch(ctx)
		if err != nil || len(states) != 1 {
			t.Fatal(states, err)
		}
		return states[0]
	}
	if w := watch(); w.Abandoned || w.Claim != first || w.Epoch != 0 {
		t.Errorf("under way: %+v", w)
	}
	// The loader is stopped; its lease runs out.
	l.exec(`UPDATE flash_sale_item SET lease_until = clock_timestamp()`)
	if w := watch(); !w.Abandoned {
		t.Errorf("stopped: %+v", w)
	}
	second, ok, err := l.ClaimLoad(ctx, item, 0)
	if !ok || err != nil || second <= first {
		t.Fatal(second, ok, err)
	}
	// It wakes up: too late for everything, and it must not touch the lease of the other.
	if ok, err := l.RenewLoad(ctx, item, first); ok || err != nil {
		t.Errorf("renewed an old claim: %v, %v", ok, err)
	}
	if err := l.EndLoad(ctx, item, first); err != nil {
		t.Error(err)
	}
	if _, ok, err := l.Snapshot(ctx, item, first); ok || err != nil {
		t.Errorf("snapshot of an old claim: %v, %v", ok, err)
	}
	if _, ok, err := l.ClaimLoad(ctx, item, 0); ok || err != nil {
		t.Errorf("the second loader lost its lease: %v, %v", ok, err)
	}
	if _, ok, err := l.Snapshot(ctx, item, second); !ok || err != nil {
		t.Errorf("snapshot: %v, %v", ok, err)
	}
	// A second snapshot of one epoch would count a restock in between twice: in its numbers and in the correction of that epoch.
	if _, ok, err := l.Snapshot(ctx, item, second); ok || err != nil {
		t.Errorf("second snapshot of one token: %v, %v", ok, err)
	}
	if w := watch(); w.Abandoned || w.Epoch != second {
		t.Errorf("loaded: %+v", w)
	}
	if err := l.EndLoad(ctx, item, second); err != nil {
		t.Error(err)
	}
	if third, ok, err := l.ClaimLoad(ctx, item, 0); !ok || err != nil || third != second+1 {
		t.Errorf("claim after the end: %d, %v, %v", third, ok, err)
	}
}

func TestClaimsAreNeverGivenTwice(t *testing.T) {
	l := newLab(t)
	item := l.item(10)
	l.exec(`CREATE FUNCTION no_lease() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.lease_until := NULL; RETURN NEW; END $$`)
	l.exec(`CREATE TRIGGER no_lease BEFORE UPDATE ON flash_sale_item FOR EACH ROW EXECUTE FUNCTION no_lease()`)
	var mu sync.Mutex
	seen := make(map[int64]bool)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			token, ok, err := l.ClaimLoad(t.Context(), item, 0)
			mu.Lock()
			defer mu.Unlock()
			if err != nil || !ok || seen[token] {
				t.Errorf("token %d: %v, %v, seen before: %v", token, ok, err, seen[token])
			}
			seen[token] = true
		})
	}
	wg.Wait()
}

// The lease runs by the clock of the database, without a renewal for two seconds.
func TestALeaseRunsOut(t *testing.T) {
	l := newLab(t)
	item := l.item(10)
	if _, ok, err := l.ClaimLoad(t.Context(), item, 0); !ok || err != nil {
		t.Fatal(ok, err)
	}
	devtest.Eventually(t, patience, func() bool {
		_, ok, err := l.ClaimLoad(t.Context(), item, 0)
		return ok && err == nil
	}, "the lease of a loader that never renews does not end")
}

func TestLoadSettlesThatALoadWasDue(t *testing.T) {
	l := newLab(t)
	item := l.item(0)
	l.expect(l.write(reserved(item, "a")), RejectedNoRoom)
	due := func() string {
		states, err := l.LoadWatch(t.Context())
		if err != nil || len(states) != 1 {
			t.Fatal(states, err)
		}
		return states[0].Due
	}
	if due() != "no_room" {
		t.Error("no load is due")
	}
	l.load(item)
	if got := due(); got != "" {
		t.Errorf("after the load one is due: %s", got)
	}
}

func TestLoadWatchFollowsItemsThatAreNotRetired(t *testing.T) {
	l := newLab(t)
	upcoming, ended, live, retired, lots := aSale(1), aSale(1), aSale(1), aSale(1), aSale(1)
	upcoming.StartsAt, upcoming.EndsAt = time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
	for _, s := range []*sale.Sale{&ended, &live} {
		s.StartsAt, s.EndsAt = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	}
	lots.Items[0].Model = sale.Lots
	upcoming, live, retired = l.create(upcoming), l.create(live), l.create(retired)
	ended = l.create(ended)
	l.create(lots)
	l.expect(l.write(reserved(live.Items[0].ID, "a")), Stored)
	l.exec(`UPDATE flash_sale_item SET retired_at = now() WHERE sale_id = $1`, retired.ID)
	states, err := l.LoadWatch(t.Context())
	if err != nil || len(states) != 3 || states[0].ItemID != upcoming.Items[0].ID || states[1].ItemID != live.Items[0].ID || states[2].ItemID != ended.Items[0].ID {
		t.Errorf("watched: %+v, %v", states, err)
	}
	if _, ok, err := l.ClaimLoad(t.Context(), retired.Items[0].ID, 0); ok || err != nil {
		t.Errorf("claimed a retired item: %v, %v", ok, err)
	}
	if _, ok, err := l.ClaimLoad(t.Context(), 12345, 0); ok || err != nil {
		t.Errorf("claimed no item: %v, %v", ok, err)
	}
}

// A database that is younger than what Redis has seen claims above that, and not above what no loader can have written.
func TestAClaimIsAboveWhatTheShardsHaveSeen(t *testing.T) {
	l := newLab(t)
	item := l.item(10)
	last := int64(0)
	for _, c := range []struct{ above, want int64 }{{0, 1}, {300, 301}, {7, 302}, {1<<52 - 1, 1 << 52}} {
		token, ok, err := l.ClaimLoad(t.Context(), item, c.above)
		if !ok || err != nil || token != c.want {
			t.Fatalf("above %d: token %d, want %d; %v, %v", c.above, token, c.want, ok, err)
		}
		last = token
		if err := l.EndLoad(t.Context(), item, token); err != nil {
			t.Fatal(err)
		}
	}
	if token, ok, err := l.ClaimLoad(t.Context(), item, 1<<53-1); !ok || err != nil || token != last+1 {
		t.Errorf("above a token that is none: %d, %v, %v", token, ok, err)
	}
}
