package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
)

func to[T any](v T) *T { return &v }

// lastChange is the newest audit row of a subject, its before and after decoded.
func (l *lab) lastChange(subject string) (what string, before, after map[string]any) {
	l.tb.Helper()
	rows, err := l.Audit(l.tb.Context(), AuditFilter{Subject: subject, Limit: 1})
	if err != nil || len(rows) != 1 {
		l.tb.Fatalf("audit of %s: %v, %v", subject, rows, err)
	}
	if err := errors.Join(json.Unmarshal(rows[0].Before, &before), json.Unmarshal(rows[0].After, &after)); err != nil {
		l.tb.Fatal(err)
	}
	return rows[0].What, before, after
}

func (l *lab) changes() int64 {
	l.tb.Helper()
	return lookup[int64](l, `SELECT count(*) FROM flash_sale_audit`)
}

func TestUpdateSale(t *testing.T) {
	l := newLab(t)
	s := aSale(1, 2)
	now := time.Now().UTC().Truncate(time.Microsecond)
	s.StartsAt, s.EndsAt = now.Add(time.Hour), now.Add(2*time.Hour)
	s = l.create(s)
	other := l.create(aSale(1))
	update := func(patch SalePatch, want PatchOutcome) sale.Sale {
		t.Helper()
		got, outcome, err := l.UpdateSale(t.Context(), s.ID, patch)
		if outcome != want || err != nil {
			t.Fatalf("update %+v: %v, want %v; %v", patch, outcome, want, err)
		}
		stored, _, err := l.Sale(t.Context(), s.ID)
		if err != nil || want == Patched && fmt.Sprint(got) != fmt.Sprint(stored) || want != Patched && fmt.Sprint(got) != fmt.Sprint(sale.Sale{}) {
			t.Fatalf("update %+v returned\n%+v, stored is\n%+v; %v", patch, got, stored, err)
		}
		return stored
	}
	// All at once: one audit row.
	rows := l.changes()
	got := update(SalePatch{Name: to("quiet"), StartsAt: to(now.Add(30 * time.Minute)), EndsAt: to(now.Add(3 * time.Hour)), Paused: to(true)}, Patched)
	if got.Name != "quiet" || !got.StartsAt.Equal(now.Add(30*time.Minute)) || !got.EndsAt.Equal(now.Add(3*time.Hour)) || !got.Paused {
		t.Errorf("changed: %+v", got)
	}
	if it := got.Items[1]; !it.SalePaused || !it.EndsAt.Equal(got.EndsAt) || len(got.Items) != 2 {
		t.Errorf("items: %+v", got.Items)
	}
	what, before, after := l.lastChange(fmt.Sprint("sale:", s.ID))
	if what != "sale.update" || before["name"] != "rush" || after["name"] != "quiet" || before["paused"] != false || after["paused"] != true ||
		before["ends_at"] == after["ends_at"] || l.changes() != rows+1 {
		t.Errorf("audit: %s\n%v\n%v", what, before, after)
	}
	// The same again, in whatever zone and with more digits than are kept: nothing changes, and no row says so.
	berlin := time.FixedZone("", 3600)
	for _, patch := range []SalePatch{{}, {Name: to("quiet"), Paused: to(true)}, {StartsAt: to(got.StartsAt.In(berlin).Add(999)), EndsAt: to(got.EndsAt)}} {
		update(patch, Patched)
	}
	if n := l.changes(); n != rows+1 {
		t.Errorf("%d audit rows for nothing", n-rows-1)
	}
	// The end stays behind the start.
	for _, patch := range []SalePatch{{EndsAt: to(got.StartsAt)}, {EndsAt: to(now)}, {StartsAt: to(got.EndsAt)},
		{StartsAt: to(now.Add(9 * time.Hour)), EndsAt: to(now.Add(8 * time.Hour)), Name: to("bad")}} {
		update(patch, BadWindow)
	}
	// It may begin at once. From then on the start is history.
	update(SalePatch{StartsAt: to(now.Add(-time.Minute)), Paused: to(false)}, Patched)
	for _, start := range []time.Time{now, now.Add(time.Hour), now.Add(-time.Hour)} {
		update(SalePatch{StartsAt: to(start), Name: to("late")}, AlreadyStarted)
	}
	update(SalePatch{StartsAt: to(now.Add(-time.Minute)), Name: to("loud")}, Patched) // said again, not changed
	// It ends early, and goes on.
	if got = update(SalePatch{EndsAt: to(now.Add(-time.Second))}, Patched); got.Items[0].StatusAt(time.Now()) != sale.Ended {
		t.Errorf("ended: %+v", got)
	}
	update(SalePatch{EndsAt: to(now.Add(-time.Minute))}, BadWindow)
	if got = update(SalePatch{EndsAt: to(now.Add(time.Hour))}, Patched); got.Items[0].StatusAt(time.Now()) != sale.OnSale {
		t.Errorf("extended: %+v", got)
	}
	// Not when one of its items is retired.
	l.exec(`UPDATE flash_sale_item SET retired_at = now() WHERE id = $1`, s.Items[1].ID)
	rows = l.changes()
	update(SalePatch{EndsAt: to(now.Add(2 * time.Hour))}, PatchRetired)
	update(SalePatch{Name: to("over")}, PatchRetired)
	if n := l.changes(); n != rows {
		t.Errorf("%d audit rows for what was refused", n-rows)
	}
	if _, outcome, err := l.UpdateSale(t.Context(), 999, SalePatch{Name: to("x")}); outcome != NoSuch || err != nil {
		t.Errorf("no sale: %v, %v", outcome, err)
	}
	if untouched, _, err := l.Sale(t.Context(), other.ID); err != nil || fmt.Sprint(untouched) != fmt.Sprint(other) {
		t.Errorf("another sale: %+v, %v", untouched, err)
	}
}

func TestUpdateItem(t *testing.T) {
	l := newLab(t)
	s := l.create(aSale(10, 10))
	id := s.Items[0].ID
	update := func(patch ItemPatch, want PatchOutcome) sale.Item {
		t.Helper()
		got, outcome, err := l.UpdateItem(t.Context(), id, patch)
		if outcome != want || err != nil {
			t.Fatalf("update %+v: %v, want %v; %v", patch, outcome, want, err)
		}
		stored, _, err := l.Item(t.Context(), id)
		if err != nil || want == Patched && got != (ItemUpdate{Item: stored}) || want == PatchRetired && got != (ItemUpdate{}) {
			t.Fatalf("update %+v returned\n%+v, stored is\n%+v; %v", patch, got, stored, err)
		}
		return stored
	}
	early := reserved(id, "early")
	early.Price = ""
	l.expect(l.write(early), Stored)
	token := l.load(id)

	rows := l.changes()
	got := update(ItemPatch{Quantity: to[int64](25), Price: to[sale.Price]("19.80"), MaxPerUser: to[int64](3), Paused: to(true)}, Patched)
	if got.Quantity != 25 || got.Price != "19.80" || got.MaxPerUser != 3 || !got.Paused || got.Sold != 1 {
		t.Errorf("changed: %+v", got)
	}
	what, before, after := l.lastChange(fmt.Sprint("item:", id))
	if what != "item.update" || before["quantity"] != 10. || after["quantity"] != 25. || before["paused"] != false || after["paused"] != true ||
		fmt.Sprint(before["price"], after["price"]) != "1980 19.8" || l.changes() != rows+1 {
		t.Errorf("audit: %s\n%v\n%v", what, before, after)
	}
	// What was added is a restock.
	if fixes := l.claim(10, time.Hour); len(fixes) != 1 || fixes[0].Op != OpIncrease || fixes[0].Units != 15 || fixes[0].Epoch != token || fixes[0].ItemID != id {
		t.Errorf("corrections: %+v", fixes)
	}
	if events := l.claimEvents(10, time.Hour); len(events) != 2 || events[1].Type != "stock.increased" || events[1].Delta != 15 || events[1].Quantity != 25 {
		t.Errorf("events: %+v", events)
	}
	// The same again changes nothing and adds nothing.
	for _, patch := range []ItemPatch{{}, {Quantity: to[int64](25), Price: to[sale.Price]("19.8")}, {MaxPerUser: to[int64](3), Paused: to(true)}} {
		update(patch, Patched)
	}
	if n := lookup[int64](l, `SELECT count(*) FROM flash_sale_correction`); n != 1 || l.changes() != rows+1 {
		t.Errorf("%d corrections, %d audit rows", n, l.changes()-rows)
	}
	// Not fewer units than are sold; all or nothing.
	update(ItemPatch{Quantity: to[int64](0), Shards: to(7), Paused: to(false)}, BelowSold)
	if _, _, err := l.UpdateItem(t.Context(), id, ItemPatch{Quantity: to(sale.MaxQuantity + 1)}); !errors.Is(err, ErrTooMany) {
		t.Errorf("too many units: %v", err)
	}
	for _, patch := range []ItemPatch{{MaxPerUser: to[int64](0)}, {Price: to[sale.Price]("-1")}, {Price: to[sale.Price]("x"), Paused: to(false)}} {
		if _, _, err := l.UpdateItem(t.Context(), id, patch); Kind(err) != Permanent {
			t.Errorf("%+v: %v", patch, err)
		}
	}
	if now := update(ItemPatch{}, Patched); now != got {
		t.Errorf("after what was refused: %+v", now)
	}
	// Orders keep their price.
	late := reserved(id, "late")
	late.Price, late.Epoch = "", token
	shown := reserved(id, "shown")
	shown.Price, shown.Epoch = "1980", token
	l.expect(l.write(late, shown), Stored, Stored)
	for e, want := range map[sale.OrderID]sale.Price{early.OrderID: "1980", late.OrderID: "19.80", shown.OrderID: "1980"} {
		if o := l.row(e); o.Price != want {
			t.Errorf("%s has price %s, want %s", o.UserID, o.Price, want)
		}
	}
	if it, _, err := l.Item(t.Context(), s.Items[1].ID); err != nil || it != s.Items[1] {
		t.Errorf("another item: %+v, %v", it, err)
	}
	l.exec(`UPDATE flash_sale_item SET retired_at = now() WHERE id = $1`, id)
	update(ItemPatch{Price: to[sale.Price]("1")}, PatchRetired)
	update(ItemPatch{Quantity: to[int64](30)}, PatchRetired)
	if _, outcome, err := l.UpdateItem(t.Context(), 999, ItemPatch{Paused: to(true)}); outcome != NoSuch || err != nil {
		t.Errorf("no item: %v, %v", outcome, err)
	}
	l.balance()
}

// Somebody wants 20 units, somebody else 30, and others restock: nothing is lost, and every unit has its correction and its event.
func TestQuantitiesAddUp(t *testing.T) {
	l := newLab(t)
	id := l.item(10)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			var err error
			if i%2 == 0 {
				_, err = l.Restock(t.Context(), id, 1, "")
			} else if _, outcome, failed := l.UpdateItem(t.Context(), id, ItemPatch{Quantity: to(int64(10 + i))}); outcome != Patched {
				err = errors.Join(failed, fmt.Errorf("outcome %v", outcome))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	quantity := lookup[int64](l, `SELECT quantity FROM flash_sale_item`)
	corrected := lookup[int64](l, `SELECT sum(units)::bigint FROM flash_sale_correction WHERE op = 'increase'`)
	told := lookup[int64](l, `SELECT sum(delta)::bigint FROM flash_sale_event`)
	last := lookup[int64](l, `SELECT quantity FROM flash_sale_event ORDER BY id DESC LIMIT 1`)
	if quantity < 20 || corrected != quantity-10 || told != quantity-10 || last != quantity {
		t.Errorf("quantity %d, corrected by %d, told of %d up to %d", quantity, corrected, told, last)
	}
}

func TestAuditIsListed(t *testing.T) {
	l := newLab(t)
	id := l.item(1)
	for i := range 5 {
		if _, _, err := l.UpdateItem(t.Context(), id, ItemPatch{Paused: to(i%2 == 0)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Restock(t.Context(), id, 1, ""); err != nil {
		t.Fatal(err)
	}
	for subject, want := range map[string][]string{
		"":                       {"item.restock", "item.update", "item.update", "item.update", "item.update", "item.update", "sale.create"},
		fmt.Sprint("item:", id):  {"item.restock", "item.update", "item.update", "item.update", "item.update", "item.update"},
		fmt.Sprint("item:", 999): nil,
	} {
		for _, limit := range []int{0, 1, 2, 100} {
			f := AuditFilter{Subject: subject, Limit: limit}
			var got []string
			for {
				rows, err := l.Audit(t.Context(), f)
				if err != nil || len(rows) > max(limit, 1) {
					t.Fatalf("%+v: %v, %v", f, rows, err)
				}
				if len(rows) == 0 {
					break
				}
				for _, r := range rows {
					got = append(got, r.What)
					if strings.HasPrefix(r.What, "item") != json.Valid(r.Before) || !json.Valid(r.After) || time.Since(r.At).Abs() > time.Minute {
						t.Errorf("%+v", r)
					}
				}
				f.After = rows[len(rows)-1].ID
			}
			if !slices.Equal(got, want) {
				t.Errorf("%+v: %v, want %v", f, got, want)
			}
		}
	}
}

// A change that waited for somebody who changed nothing, across the start, comes too late to move it.
func TestStartIsNotMovedBehindALock(t *testing.T) {
	l := newLab(t)
	begins := time.Now().Add(2 * time.Second)
	s := l.create(sale.Sale{
		Name: "soon", StartsAt: begins, EndsAt: begins.Add(time.Hour), PurchaseLimit: sale.PerItem, PaymentWindow: time.Minute, TimeZone: "UTC",
		Items: []sale.Item{{Quantity: 1, Price: "1980", Currency: "JPY", Shards: 1, MaxPerUser: 1, Model: sale.Counter}},
	})
	holder, err := l.sql.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Rollback(t.Context()) //nolint:errcheck // done by then
	if _, err := holder.Exec(t.Context(), `SELECT FROM flash_sale WHERE id = $1 FOR UPDATE`, s.ID); err != nil {
		t.Fatal(err)
	}
	db := l.open("lock_timeout=60000")
	outcome := make(chan PatchOutcome, 1)
	go func() {
		later := begins.Add(30 * time.Minute)
		_, got, err := db.UpdateSale(t.Context(), s.ID, SalePatch{StartsAt: &later})
		if err != nil {
			t.Error(err)
		}
		outcome <- got
	}()
	devtest.Eventually(t, patience, func() bool {
		return len(all[int32](l, `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)) == 1
	}, "nobody waits for the lock")
	devtest.Eventually(t, patience, func() bool {
		return all[bool](l, `SELECT starts_at <= clock_timestamp() FROM flash_sale WHERE id = $1`, s.ID)[0]
	}, "the sale does not begin")
	if err := holder.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := <-outcome; got != AlreadyStarted {
		t.Errorf("outcome %v", got)
	}
}
