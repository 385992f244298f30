package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
)

func TestWriteStoresTheWholeEvent(t *testing.T) {
	l := newLab(t)
	s := aSale(10)
	s.Items[0].Price = "19.80"
	item := l.create(s).Items[0].ID
	e := reserved(item, "alice")
	e.Quantity, e.Price, e.Currency, e.KeyHash, e.Trace, e.Shard, e.Epoch = 3, "5", "EUR", "k", "00-a-b-01", 7, 0
	l.expect(l.write(e), Stored)
	o := l.row(e.OrderID)
	want := sale.Order{
		ID: e.OrderID, ItemID: item, UserID: "alice", Quantity: 3, Price: "5", Currency: "EUR", Status: sale.Pending, KeyHash: "k", Shard: 7,
		ReservedAt: e.ReservedAt, CreatedAt: o.CreatedAt, ExpiresAt: o.CreatedAt.Add(10 * time.Minute), Trace: "00-a-b-01",
	}
	if o != want {
		t.Errorf("order is\n%+v, want\n%+v", o, want)
	}
	if got := lookup[string](l, `SELECT sku || ' ' || trace FROM flash_sale_order`); got != "SKU-0 00-a-b-01" {
		t.Errorf("sku and trace are %q", got)
	}
	// Without a price it gets the item's, as it was when it was stored.
	e = reserved(item, "bob")
	e.Price, e.Currency = "", ""
	l.expect(l.write(e), Stored)
	if o := l.row(e.OrderID); o.Price != "19.80" || o.Currency != "JPY" {
		t.Errorf("price is %s %s", o.Price, o.Currency)
	}
	l.expect(l.write(e), Redelivered)
	if it, _, err := l.Item(t.Context(), item); err != nil || it.Sold != 4 {
		t.Errorf("sold is %d, %v", it.Sold, err)
	}
	l.balance()
}

func TestWriteRedelivery(t *testing.T) {
	l := newLab(t)
	item := l.item(10)
	e := reserved(item, "alice")
	for i, want := range []Written{Stored, Redelivered, Redelivered} {
		if got := l.write(e); got[0] != want {
			t.Errorf("delivery %d: %v, want %v", i+1, got[0], want)
		}
	}
	f := reserved(item, "bob")
	l.expect(l.write(f, e, f, f), Stored, Redelivered, Redelivered, Redelivered)
	// The row of an order that ended stands, too.
	if _, outcome, err := l.Cancel(t.Context(), e.OrderID, "alice"); outcome != CancelDone || err != nil {
		t.Fatal(outcome, err)
	}
	l.expect(l.write(e), Redelivered)
	if got := l.row(e.OrderID).Status; got != sale.Cancelled {
		t.Errorf("a redelivery made it %s", got)
	}
	if n := lookup[int64](l, `SELECT count(*) FROM flash_sale_order`); n != 2 {
		t.Errorf("%d rows", n)
	}
	// Where an event went, and who published it, is no part of what it says.
	e.Shard, e.Epoch, e.Trace, e.Price = 3, 9, "other", "1980.00"
	l.expect(l.write(e), Redelivered)
	if n := lookup[int64](l, `SELECT count(*) FROM flash_sale_conflict`); n != 0 {
		t.Errorf("%d conflicts", n)
	}
	l.balance()
}

func TestWriteConflict(t *testing.T) {
	changes := map[string]func(*sale.Event){
		"user":        func(e *sale.Event) { e.UserID = "mallory" },
		"quantity":    func(e *sale.Event) { e.Quantity = 2 },
		"price":       func(e *sale.Event) { e.Price = "1" },
		"currency":    func(e *sale.Event) { e.Currency = "EUR" },
		"key":         func(e *sale.Event) { e.KeyHash = "x" },
		"reserved at": func(e *sale.Event) { e.ReservedAt = e.ReservedAt.Add(time.Millisecond) },
	}
	l := newLab(t)
	item := l.item(100)
	rows := int64(0)
	for name, change := range changes {
		first := reserved(item, "user of "+name)
		second := first
		change(&second)
		l.expect(l.write(first, second), Stored, Conflict)
		l.expect(l.write(second), Conflict)
		l.expect(l.write(second, first, second), Conflict, Redelivered, Conflict)
		rows++
		if n := lookup[int64](l, `SELECT count(*) FROM flash_sale_conflict`); n != rows {
			t.Errorf("%s: %d conflicts recorded, want %d", name, n, rows)
		}
		if o := l.row(first.OrderID); o.UserID != first.UserID || o.Quantity != 1 || o.Status != sale.Pending {
			t.Errorf("%s: the first row does not stand: %+v", name, o)
		}
	}
	l.balance()
}

func TestWriteAdmitsInReservationOrder(t *testing.T) {
	l := newLab(t)
	item := l.item(5)
	at := time.Now().Truncate(time.Millisecond)
	var events []sale.Event
	for i, quantity := range []int64{2, 2, 3, 1} { // reserved in this order: the third does not fit, the fourth does
		e := reserved(item, fmt.Sprint("u", i))
		e.ReservedAt, e.Quantity = at.Add(time.Duration(i)*time.Second), quantity
		events = append(events, e)
	}
	slices.Reverse(events)
	l.expect(l.write(events...), Stored, RejectedNoRoom, Stored, Stored)
	l.balance()
	watch, err := l.LoadWatch(t.Context())
	if err != nil || len(watch) != 1 || watch[0].Due != "no_room" || watch[0].DueSince.IsZero() {
		t.Errorf("load watch: %+v, %v", watch, err)
	}
	if o := l.row(events[1].OrderID); o.Status != sale.Rejected || !o.ExpiresAt.IsZero() {
		t.Errorf("refused order: %+v", o)
	}
	// Redelivered it stays refused, even if there is room by now.
	if _, err := l.Restock(t.Context(), item, 10, ""); err != nil {
		t.Fatal(err)
	}
	l.expect(l.write(events[1]), Redelivered)
}

// Redis sold a unit twice, and the two events reach two consumers at once.
func TestWriteIsTheSafetyNet(t *testing.T) {
	l := newLab(t)
	other := l.open()
	for round := range 20 {
		item := l.item(1)
		events := []sale.Event{reserved(item, "a"), reserved(item, "b")}
		results := make([]Written, 2)
		var wg sync.WaitGroup
		for i, db := range []*DB{l.DB, other} {
			wg.Go(func() {
				w, err := db.Write(t.Context(), events[i:i+1])
				if err != nil {
					t.Error(err)
					return
				}
				results[i] = w[0]
			})
		}
		wg.Wait()
		slices.Sort(results)
		if results[0] != Stored || results[1] != RejectedNoRoom {
			t.Fatalf("round %d: %v", round, results)
		}
		l.expect(l.write(reserved(item, "c")), RejectedNoRoom)
	}
	l.balance()
}

func TestWriteStale(t *testing.T) {
	l := newLab(t)
	item := l.item(5)
	old, late := reserved(item, "a"), reserved(item, "b")
	l.expect(l.write(old), Stored)
	token := l.load(item)
	if token != 1 {
		t.Fatalf("token %d", token)
	}
	fresh := reserved(item, "c")
	fresh.Epoch = token
	l.expect(l.write(old, late, fresh), Redelivered, RejectedStale, Stored)
	if got := all[int64](l, `SELECT epoch FROM flash_sale_correction WHERE op = 'void'`); !slices.Equal(got, []int64{token}) {
		t.Errorf("epochs of the corrections: %v", got)
	}
	l.balance()
}

func TestWriteDuplicate(t *testing.T) {
	l := newLab(t)
	item := l.item(10)
	first, second := reserved(item, "a"), reserved(item, "a")
	second.ReservedAt = first.ReservedAt.Add(time.Second)
	third := reserved(item, "a")
	third.ReservedAt = first.ReservedAt.Add(2 * time.Second)
	l.expect(l.write(second, first), RejectedDuplicate, Stored) // in one batch
	l.expect(l.write(third), RejectedDuplicate)                 // with a row
	l.balance()
	// An order that ended is in nobody's way.
	if _, outcome, err := l.Cancel(t.Context(), first.OrderID, "a"); outcome != CancelDone || err != nil {
		t.Fatal(outcome, err)
	}
	l.expect(l.write(reserved(item, "a")), Stored)
	l.balance()
}

func TestWritePerSale(t *testing.T) {
	l := newLab(t)
	s := aSale(100, 100)
	s.PurchaseLimit = sale.PerSale
	s = l.create(s)
	a, b := s.Items[0].ID, s.Items[1].ID
	first, second := reserved(a, "u"), reserved(b, "u")
	second.ReservedAt = first.ReservedAt.Add(time.Second)
	l.expect(l.write(second, first), RejectedDuplicate, Stored)
	l.expect(l.write(reserved(b, "u"), reserved(a, "v")), RejectedDuplicate, Stored)
	l.balance()
	// The locks of two items do not exclude each other: here the unique index decides, and the loser looks again. First so that the other one
	// is certain to come between reading and writing, then as it happens.
	one, other, slow := l.open("application_name=racer"), l.open("application_name=racer"), l.open()
	begin, attempts := slow.begin, 0
	slow.begin = func(ctx context.Context) (pgx.Tx, error) {
		tx, err := begin(ctx)
		attempts++
		return &overtakenTx{Tx: tx, overtake: func() {
			if attempts == 1 {
				l.expect(l.write(reserved(b, "w")), Stored)
			}
		}}, err
	}
	got, err := slow.Write(t.Context(), []sale.Event{reserved(a, "w"), reserved(a, "x")})
	if err != nil || attempts != 2 {
		t.Errorf("%d attempts: %v", attempts, err)
	}
	l.expect(got, RejectedDuplicate, Stored)
	l.balance()
	for round := range 20 {
		var wg sync.WaitGroup
		results := make([][]Written, 2)
		for i, item := range []int64{a, b} {
			var events []sale.Event
			for u := range 20 {
				events = append(events, reserved(item, fmt.Sprintf("r%d-%d", round, u)))
			}
			wg.Go(func() {
				var err error
				if results[i], err = []*DB{one, other}[i].Write(t.Context(), events); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		for u := range 20 {
			pair := []Written{results[0][u], results[1][u]}
			slices.Sort(pair)
			if !slices.Equal(pair, []Written{Stored, RejectedDuplicate}) && !slices.Equal(pair, []Written{RejectedNoRoom, RejectedDuplicate}) &&
				!slices.Equal(pair, []Written{RejectedNoRoom, RejectedNoRoom}) {
				t.Fatalf("round %d, user %d: %v", round, u, pair)
			}
		}
		l.exec(`UPDATE flash_sale_item SET quantity = quantity + 20`)
	}
	l.balance()
	// They wait for each other's users in the same order. A session reports its deadlocks when it ends, at the latest.
	one.Close()
	other.Close()
	devtest.Eventually(t, patience, func() bool {
		return len(all[int32](l, `SELECT pid FROM pg_stat_activity WHERE application_name = 'racer'`)) == 0
	}, "the sessions do not end")
	if n := lookup[int64](l, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
}

// overtakenTx lets somebody else in before its second pipeline, the one that writes.
type overtakenTx struct {
	pgx.Tx
	overtake func()
	sent     int
}

func (tx *overtakenTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if tx.sent++; tx.sent == 2 {
		tx.overtake()
	}
	return tx.Tx.SendBatch(ctx, b)
}

func TestWriteToARetiredItem(t *testing.T) {
	l := newLab(t)
	item := l.item(10)
	l.exec(`UPDATE flash_sale_item SET retired_at = now()`)
	e, f := reserved(item, "a"), reserved(item, "b")
	l.expect(l.write(e), RejectedRetired)
	if err := l.GiveUp(t.Context(), []sale.Event{f}); err != nil {
		t.Fatal(err)
	}
	l.expect(l.write(f), Redelivered)
	if n := lookup[int64](l, `SELECT count(*) FROM flash_sale_correction`); n != 0 {
		t.Errorf("%d corrections for keys that are gone", n)
	}
}

func TestWriteRefusesWhatCannotBeStored(t *testing.T) {
	l := newLab(t)
	item := l.item(10)
	good := func() sale.Event { return reserved(item, "good") }
	changed := func(change func(*sale.Event)) sale.Event {
		e := reserved(item, "bad")
		change(&e)
		return e
	}
	for name, bad := range map[string]sale.Event{
		"unknown item":     reserved(999, "u"),
		"other item":       changed(func(e *sale.Event) { e.ItemID++ }),
		"no order id":      changed(func(e *sale.Event) { e.OrderID = sale.OrderID{} }),
		"no user":          changed(func(e *sale.Event) { e.UserID = "" }),
		"NUL in the user":  changed(func(e *sale.Event) { e.UserID = "a\x00b" }),
		"user not UTF-8":   changed(func(e *sale.Event) { e.UserID = "\xff" }),
		"no quantity":      changed(func(e *sale.Event) { e.Quantity = 0 }),
		"huge quantity":    changed(func(e *sale.Event) { e.Quantity = sale.MaxQuantity + 1 }),
		"price":            changed(func(e *sale.Event) { e.Price = "NaN" }),
		"currency":         changed(func(e *sale.Event) { e.Currency = "yen" }),
		"negative shard":   changed(func(e *sale.Event) { e.Shard = -1 }),
		"too high a shard": changed(func(e *sale.Event) { e.Shard = sale.MaxShards }),
		"negative epoch":   changed(func(e *sale.Event) { e.Epoch = -1 }),
		"time before 2000": changed(func(e *sale.Event) { e.ReservedAt = time.Time{} }),
		"time after 9999":  changed(func(e *sale.Event) { e.ReservedAt = time.UnixMilli(1<<62 - 1) }),
	} {
		for _, call := range []func() error{
			func() error { _, err := l.Write(t.Context(), []sale.Event{good(), bad, good(), bad}); return err },
			func() error { return l.GiveUp(t.Context(), []sale.Event{good(), bad, good(), bad}) },
		} {
			err := call()
			var permanent *PermanentError
			if !errors.As(err, &permanent) || !slices.Equal(permanent.At, []int{1, 3}) || Kind(err) != Permanent {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, _, err := l.CancelUnwritten(t.Context(), bad); Kind(err) != Permanent {
			t.Errorf("%s: cancel: %v", name, err)
		}
	}
	if n := lookup[int64](l, `SELECT count(*) FROM flash_sale_order`); n != 0 {
		t.Errorf("%d rows of refused batches", n)
	}
	// What the database alone refuses: known when there is one event, else somebody has to halve the batch.
	l.exec(`ALTER TABLE flash_sale_order ADD CHECK (user_id <> 'refused')`)
	for n := range 2 {
		_, err := l.Write(t.Context(), []sale.Event{reserved(item, "refused"), good()}[:n+1])
		var permanent *PermanentError
		if !errors.As(err, &permanent) || len(permanent.At) != 1-n {
			t.Errorf("%d events: %v", n+1, err)
		}
	}
	l.balance()
}
