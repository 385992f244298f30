package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
)

func TestASaleIsReadBackAsItWasGiven(t *testing.T) {
	l := newLab(t)
	s := aSale(100, 0, sale.MaxQuantity)
	s.ID, s.Name, s.TimeZone, s.PurchaseLimit, s.PaymentWindow, s.Paused = 7, "Späti ☂", "Asia/Tokyo", sale.PerSale, 90*time.Second, true
	s.Items[0].ID, s.Items[1].ID, s.Items[2].ID = 1001, 3, sale.MaxID
	s.Items[0].Price, s.Items[1].Price, s.Items[2].Price = "19.80", "0", "99999999999999.9999"
	s.Items[1].Shards, s.Items[1].MaxPerUser, s.Items[1].Currency, s.Items[1].Paused, s.Items[1].Model = 256, 5, "EUR", true, sale.Direct
	want := s
	want.Items = slices.Clone(s.Items)
	for i := range want.Items {
		it := &want.Items[i]
		it.SaleID, it.StartsAt, it.EndsAt, it.SalePaused, it.PurchaseLimit, it.PaymentWindow = 7, s.StartsAt.UTC(), s.EndsAt.UTC(), true, sale.PerSale, s.PaymentWindow
	}
	want.StartsAt, want.EndsAt = s.StartsAt.UTC(), s.EndsAt.UTC()
	got := l.create(s)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("created\n%+v, want\n%+v", got, want)
	}
	slices.SortFunc(want.Items, func(a, b sale.Item) int { return int(min(max(a.ID-b.ID, -1), 1)) })
	if got, ok, err := l.Sale(t.Context(), 7); !ok || err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read\n%+v, want\n%+v\n%v, %v", got, want, ok, err)
	}
	if items, err := l.Catalogue(t.Context()); err != nil || !reflect.DeepEqual(items, want.Items) {
		t.Errorf("catalogue\n%+v, want\n%+v\n%v", items, want.Items, err)
	}
	if it, ok, err := l.Item(t.Context(), 1001); !ok || err != nil || it != want.Items[1] {
		t.Errorf("item\n%+v, %v, %v", it, ok, err)
	}
	if _, ok, err := l.Sale(t.Context(), 8); ok || err != nil {
		t.Errorf("no sale: %v, %v", ok, err)
	}
	if _, ok, err := l.Item(t.Context(), 8); ok || err != nil {
		t.Errorf("no item: %v, %v", ok, err)
	}
	l.exec(`UPDATE flash_sale_item SET retired_at = '2026-11-27T20:00:00+08:00' WHERE id = 3`)
	if it, _, err := l.Item(t.Context(), 3); err != nil || !it.RetiredAt.Equal(time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)) {
		t.Errorf("retired at %v, %v", it.RetiredAt, err)
	}
}

func TestIdsAreFilledIn(t *testing.T) {
	l := newLab(t)
	// People have chosen some ids that the sequences will come to.
	for id := int64(1); id <= 5; id++ {
		s := aSale(1, 1)
		s.ID, s.Items[0].ID, s.Items[1].ID = id, id, id+10
		l.create(s)
	}
	s := aSale(1, 1, 1)
	s.Items[1].ID = 6 // the next free one, claimed by the same sale
	s = l.create(s)
	if s.ID != 6 || s.Items[0].ID != 7 || s.Items[1].ID != 6 || s.Items[2].ID != 8 {
		t.Errorf("ids: sale %d, items %d, %d, %d", s.ID, s.Items[0].ID, s.Items[1].ID, s.Items[2].ID)
	}
	if s = l.create(aSale(1, 1, 1)); s.Items[0].ID != 9 || s.Items[1].ID != 10 || s.Items[2].ID != 16 {
		t.Errorf("ids: %d, %d, %d", s.Items[0].ID, s.Items[1].ID, s.Items[2].ID)
	}
	other := l.open()
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			s := aSale(1, 1)
			if i%3 == 0 {
				s.Items[1].ID = int64(20 + i) // in everybody's way
			}
			if _, err := []*DB{l.DB, other}[i%2].CreateSale(t.Context(), s); err != nil && !errors.As(err, new(*ExistsError)) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := lookup[int64](l, `SELECT count(*) FROM flash_sale s WHERE (SELECT count(*) FROM flash_sale_item i WHERE i.sale_id = s.id) < 2`); n != 0 {
		t.Errorf("%d sales without their items", n)
	}
}

// Somebody chooses the very id that is next; his COMMIT is under way when a sale without ids comes.
func TestAnIdIsFreeUntilItIsUsed(t *testing.T) {
	l := newLab(t)
	chooser := l.open()
	var wg sync.WaitGroup
	breakWith(chooser, faults{commit: func(ctx context.Context, _ int, tx pgx.Tx) error {
		wg.Go(func() {
			if s, err := l.CreateSale(t.Context(), aSale(1)); err != nil || s.ID != 2 || s.Items[0].ID != 2 {
				t.Errorf("sale %d, items %+v, %v", s.ID, s.Items, err)
			}
		})
		devtest.Eventually(t, patience, func() bool {
			return len(all[int32](l, `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)) == 1
		}, "the other sale does not wait")
		return tx.Commit(ctx)
	}})
	s := aSale(1)
	s.ID, s.Items[0].ID = 1, 1
	if _, err := chooser.CreateSale(t.Context(), s); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

func TestTakenIdsAreRefused(t *testing.T) {
	l := newLab(t)
	first := aSale(1)
	first.ID, first.Items[0].ID = 1, 1001
	l.create(first)
	same, other, twice := aSale(1), aSale(1), aSale(1, 1)
	same.ID, same.Items[0].ID = 1, 1002
	other.ID, other.Items[0].ID = 2, 1001
	twice.Items[0].ID, twice.Items[1].ID = 5, 5
	for _, c := range []struct {
		sale sale.Sale
		want ExistsError
	}{{same, ExistsError{"sale", 1}}, {other, ExistsError{"item", 1001}}, {twice, ExistsError{"item", 5}}} {
		_, err := l.CreateSale(t.Context(), c.sale)
		var exists *ExistsError
		if !errors.As(err, &exists) || *exists != c.want || Kind(err) != Permanent {
			t.Errorf("%v, want %v", err, c.want)
		}
	}
	if n := lookup[int64](l, `SELECT count(*) FROM flash_sale`); n != 1 {
		t.Errorf("%d sales", n)
	}
	if n := lookup[int64](l, `SELECT count(*) FROM flash_sale_audit`); n != 1 {
		t.Errorf("%d audit rows", n)
	}
}

func TestTheSchemaRefusesWhatNobodyMayStore(t *testing.T) {
	l := newLab(t)
	for name, change := range map[string]func(*sale.Sale){
		"id above 2^53-1":       func(s *sale.Sale) { s.ID = sale.MaxID + 1 },
		"negative id":           func(s *sale.Sale) { s.ID = -1 },
		"end before start":      func(s *sale.Sale) { s.EndsAt = s.StartsAt },
		"no payment window":     func(s *sale.Sale) { s.PaymentWindow = 0 },
		"purchase limit":        func(s *sale.Sale) { s.PurchaseLimit = "" },
		"item id above 2^53-1":  func(s *sale.Sale) { s.Items[0].ID = sale.MaxID + 1 },
		"negative quantity":     func(s *sale.Sale) { s.Items[0].Quantity = -1 },
		"quantity above 2^53-1": func(s *sale.Sale) { s.Items[0].Quantity = 9007199254740993 },
		"price NaN":             func(s *sale.Sale) { s.Items[0].Price = "NaN" },
		"price infinite":        func(s *sale.Sale) { s.Items[0].Price = "Infinity" },
		"price with 5 digits":   func(s *sale.Sale) { s.Items[0].Price = "0.00001" },
		"price too high":        func(s *sale.Sale) { s.Items[0].Price = "100000000000000" },
		"no price":              func(s *sale.Sale) { s.Items[0].Price = "" },
		"currency":              func(s *sale.Sale) { s.Items[0].Currency = "yen" },
		"no shard":              func(s *sale.Sale) { s.Items[0].Shards = 0 },
		"too many shards":       func(s *sale.Sale) { s.Items[0].Shards = sale.MaxShards + 1 },
		"none per user":         func(s *sale.Sale) { s.Items[0].MaxPerUser = 0 },
		"NUL in the name":       func(s *sale.Sale) { s.Name = "\x00" },
	} {
		s := aSale(1)
		change(&s)
		if _, err := l.CreateSale(t.Context(), s); Kind(err) != Permanent {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := lookup[int64](l, `SELECT count(*) FROM flash_sale`); n != 0 {
		t.Errorf("%d sales", n)
	}
	// The last line of defence, should the ledger ever forget itself.
	item := l.item(5)
	for _, sql := range []string{
		`UPDATE flash_sale_item SET sold = quantity + 1 WHERE id = $1`, `UPDATE flash_sale_item SET sold = -1 WHERE id = $1`,
		`UPDATE flash_sale_item SET epoch = claim + 1 WHERE id = $1`,
	} {
		if _, err := l.sql.Exec(t.Context(), sql, item); err == nil || !strings.Contains(err.Error(), "23514") {
			t.Errorf("%s: %v", sql, err)
		}
	}
}

func TestSalesArePaged(t *testing.T) {
	l := newLab(t)
	for range 5 {
		l.create(aSale(1, 2))
	}
	l.create(aSale()) // number 6, without items
	var ids []int64
	for after := int64(0); ; {
		page, err := l.Sales(t.Context(), after, 4)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range page {
			ids = append(ids, s.ID)
			if want := map[bool]int{true: 0, false: 2}[s.ID == 6]; len(s.Items) != want {
				t.Errorf("sale %d has %d items", s.ID, len(s.Items))
			}
			after = s.ID
		}
		if len(page) == 0 {
			break
		}
	}
	if !slices.Equal(ids, []int64{1, 2, 3, 4, 5, 6}) {
		t.Errorf("ids %v", ids)
	}
}

func TestRestock(t *testing.T) {
	l := newLab(t)
	ctx := t.Context()
	item := l.item(50)
	first, err := l.Restock(ctx, item, 100, "k")
	if err != nil || first.Quantity != 150 || first.Repeated || first.OperationID == "" || first.CorrectionID == 0 {
		t.Errorf("%+v, %v", first, err)
	}
	again, err := l.Restock(ctx, item, 100, "k")
	if want := (Restocked{150, first.OperationID, first.CorrectionID, true}); err != nil || again != want {
		t.Errorf("again: %+v, want %+v, %v", again, want, err)
	}
	if _, err := l.Restock(ctx, item, 99, "k"); !errors.Is(err, ErrKeyReused) || Kind(err) != Permanent {
		t.Errorf("another quantity: %v", err)
	}
	for i, want := range []int64{151, 152} { // without a key each one counts
		if got, err := l.Restock(ctx, item, 1, ""); err != nil || got.Quantity != want || got.OperationID == first.OperationID {
			t.Errorf("restock %d: %+v, %v", i, got, err)
		}
	}
	other := l.item(0)
	if got, err := l.Restock(ctx, other, 100, "k"); err != nil || got.Quantity != 100 || got.Repeated {
		t.Errorf("the same key for another item: %+v, %v", got, err)
	}
	if _, err := l.Restock(ctx, 999, 1, ""); !errors.As(err, new(*NotFoundError)) || Kind(err) != Permanent {
		t.Errorf("no item: %v", err)
	}
	for units, want := range map[int64]error{sale.MaxQuantity - 151: ErrTooMany, sale.MaxQuantity: ErrTooMany, 1<<63 - 1: ErrTooMany} {
		if _, err := l.Restock(ctx, item, units, ""); !errors.Is(err, want) {
			t.Errorf("%d units: %v", units, err)
		}
	}
	for _, units := range []int64{0, -1} {
		if _, err := l.Restock(ctx, item, units, ""); Kind(err) != Permanent {
			t.Errorf("%d units: %v", units, err)
		}
	}
	l.exec(`UPDATE flash_sale_item SET retired_at = now() WHERE id = $1`, other)
	if _, err := l.Restock(ctx, other, 1, ""); !errors.Is(err, ErrRetired) {
		t.Errorf("retired: %v", err)
	}
	if got := lookup[int64](l, `SELECT quantity FROM flash_sale_item WHERE id = $1`, item); got != 152 {
		t.Errorf("quantity %d", got)
	}
	if got := lookup[int64](l, `SELECT sum(units)::bigint FROM flash_sale_correction WHERE item_id = $1 AND op = 'increase'`, item); got != 102 {
		t.Errorf("%d units to increase", got)
	}
	// To the last unit there may be.
	if got, err := l.Restock(ctx, item, sale.MaxQuantity-152, ""); err != nil || got.Quantity != sale.MaxQuantity {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestTheSameKeyAtOnceRestocksOnce(t *testing.T) {
	l := newLab(t)
	item := l.item(0)
	var wg sync.WaitGroup
	answers := make([]Restocked, 10)
	for i := range answers {
		wg.Go(func() {
			var err error
			if answers[i], err = l.Restock(t.Context(), item, 5, "k"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	first := 0
	for _, a := range answers {
		if !a.Repeated {
			first++
		}
		if a.Quantity != 5 || a.OperationID != answers[0].OperationID {
			t.Errorf("%+v", a)
		}
	}
	if first != 1 {
		t.Errorf("%d were the first", first)
	}
}

func TestEveryChangeIsAudited(t *testing.T) {
	l := newLab(t)
	s := l.create(aSale(50))
	if _, err := l.Restock(t.Context(), s.Items[0].ID, 100, "k"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Restock(t.Context(), s.Items[0].ID, 100, "k"); err != nil {
		t.Fatal(err)
	}
	rows, err := l.sql.Query(t.Context(), `SELECT what, subject, before, after FROM flash_sale_audit ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for rows.Next() {
		var what, subject string
		var before, after map[string]any
		if err := rows.Scan(&what, &subject, &before, &after); err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprint(what, " ", subject, " ", before["quantity"], " ", after["quantity"])
		if items, ok := after["items"].([]any); ok {
			item, err := json.Marshal(items[0].(map[string]any)["price"])
			line += fmt.Sprint(" ", after["name"], " ", string(item), err)
		}
		got = append(got, line)
	}
	want := []string{
		fmt.Sprintf("sale.create sale:%d <nil> <nil> rush 1980<nil>", s.ID),
		fmt.Sprintf("item.restock item:%d 50 150", s.Items[0].ID),
	}
	if rows.Err() != nil || !slices.Equal(got, want) {
		t.Errorf("audit\n%q, want\n%q, %v", got, want, rows.Err())
	}
}
