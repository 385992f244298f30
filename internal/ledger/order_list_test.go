package ledger

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"flashgate/internal/sale"
)

func TestOrdersAreListed(t *testing.T) {
	l := newLab(t)
	s := l.create(aSale(100, 100, 0))
	a, b, none := s.Items[0].ID, s.Items[1].ID, s.Items[2].ID
	// Many were reserved in the same millisecond.
	at := time.Now().UTC().Truncate(time.Millisecond)
	var events []sale.Event
	for i := range 40 {
		e := reserved([]int64{a, b, a, none}[i%4], fmt.Sprint("u", i))
		e.ReservedAt = at.Add(time.Duration(i/10) * time.Millisecond)
		events = append(events, e)
	}
	l.write(events...)
	for i, e := range events {
		if i%4 == 3 {
			continue // refused
		}
		switch i % 5 {
		case 0:
			l.pay(success(e, fmt.Sprint(i)))
		case 1, 2:
			if _, _, err := l.Cancel(t.Context(), e.OrderID, e.UserID); err != nil {
				t.Fatal(err)
			}
			if i%5 == 1 {
				l.pay(success(e, fmt.Sprint(i)))
			}
		case 3:
			l.exec(`UPDATE flash_sale_order SET expires_at = now() WHERE id = $1`, [16]byte(e.OrderID))
		}
	}
	if _, err := l.Expire(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	var rows []sale.Order
	for _, e := range events {
		rows = append(rows, l.row(e.OrderID))
	}
	slices.SortFunc(rows, func(x, y sale.Order) int {
		if c := y.ReservedAt.Compare(x.ReservedAt); c != 0 {
			return c
		}
		return slices.Compare(y.ID[:], x.ID[:])
	})
	for _, status := range []string{"", "PENDING", "PAID", "EXPIRED", "CANCELLED", "REJECTED", StatusRefundDue} {
		for _, item := range []int64{0, a, b, none, 12345} {
			var want []sale.Order
			for _, o := range rows {
				if (item == 0 || o.ItemID == item) && (status == "" || string(o.Status) == status || status == StatusRefundDue && o.RefundDue()) {
					want = append(want, o)
				}
			}
			if item == 0 && len(want) == 0 {
				t.Fatalf("no order of %q to list", status)
			}
			for _, limit := range []int{0, 1, 3, 39, 40, 1000} {
				f := OrderFilter{Item: item, Status: status, Limit: limit}
				var got []sale.Order
				for page := 0; ; page++ {
					orders, next, err := l.Orders(t.Context(), f)
					if err != nil || page > len(want) || len(orders) > max(limit, 1) {
						t.Fatalf("page %d of %+v: %d orders, %v", page, f, len(orders), err)
					}
					got = append(got, orders...)
					if next == "" {
						break
					}
					if len(orders) != max(limit, 1) {
						t.Fatalf("page %d of %+v has %d orders and is not the last", page, f, len(orders))
					}
					f.After = next
				}
				if !slices.Equal(got, want) {
					t.Fatalf("%+v: %d orders\n%+v, want %d\n%+v", f, len(got), got, len(want), want)
				}
			}
		}
	}
}

// Orders that come while somebody reads are in front of what he has read.
func TestPagesDoNotShift(t *testing.T) {
	l := newLab(t)
	item := l.item(100)
	at := time.Now().UTC().Truncate(time.Millisecond)
	var want []sale.OrderID
	write := func(i int) sale.OrderID {
		e := reserved(item, fmt.Sprint("u", i))
		e.ReservedAt = at.Add(time.Duration(i) * time.Millisecond)
		l.expect(l.write(e), Stored)
		return e.OrderID
	}
	for i := range 10 {
		want = append([]sale.OrderID{write(i)}, want...)
	}
	var got []sale.OrderID
	f := OrderFilter{Limit: 3}
	for i := 10; ; i++ {
		orders, next, err := l.Orders(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range orders {
			got = append(got, o.ID)
		}
		write(i)
		if f.After = next; next == "" {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
}

func TestWhatNoListCanBe(t *testing.T) {
	l := newLab(t)
	good := cursor{time.Now(), sale.NewOrderID(1)}
	if c, err := parseCursor(good.String()); err != nil || c.id != good.id || !c.reservedAt.Equal(good.reservedAt.Truncate(time.Microsecond)) {
		t.Errorf("%+v became %+v, %v", good, c, err)
	}
	for _, text := range []string{"x", good.String()[1:], good.String() + "AAAA", "!" + good.String()[1:], cursor{time.Unix(0, 0), good.id}.String(),
		cursor{latest.AddDate(1, 0, 0), good.id}.String()} {
		if _, _, err := l.Orders(t.Context(), OrderFilter{After: text, Limit: 1}); !errors.Is(err, ErrBadCursor) || Kind(err) != Permanent {
			t.Errorf("cursor %q: %v", text, err)
		}
	}
	for _, status := range []string{"pending", "DONE", " PAID"} {
		if _, _, err := l.Orders(t.Context(), OrderFilter{Status: status, Limit: 1}); !errors.Is(err, ErrBadStatus) || Kind(err) != Permanent {
			t.Errorf("status %q: %v", status, err)
		}
	}
}
