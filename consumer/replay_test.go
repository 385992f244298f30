package consumer_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"flashgate/consumer"
	"flashgate/internal/broker"
	"flashgate/internal/broker/brokertest"
	"flashgate/internal/devstack/devtest"
	"flashgate/internal/ledger"
	"flashgate/internal/sale"
)

// replay puts every dead letter that can be read back into the orders topic, as often as it is called, and waits until all is stored. It returns how many.
func (l *lab) replay() int {
	l.t.Helper()
	step, err := l.Admin(l.t).StoredLetters(brokertest.Context(l.t), broker.ReplayCursor{}, 1000, nil)
	if err != nil || step.Next != nil {
		l.t.Fatal(step.Next, err)
	}
	var records []*kgo.Record
	for i := range step.Letters {
		if record, _, err := step.Letters[i].Original(); err == nil {
			records = append(records, record)
		}
	}
	if err := errors.Join(l.dead.Replay(brokertest.Context(l.t), records)...); err != nil {
		l.t.Fatal(err)
	}
	l.settled()
	return len(records)
}

// corrections are what is to be done in Redis, in words.
func (l *lab) corrections() []string {
	return column[string](l, `SELECT op || ' ' || order_id::text FROM flash_sale_correction ORDER BY 1`)
}

// Reservations of an item that nobody knew: when it is there they become orders, once, unless a load has counted the item's units without them.
func TestReplayOfAnItemThatCameLater(t *testing.T) {
	for name, test := range map[string]struct {
		epoch int64
		want  string
	}{"of the same epoch": {1, "PENDING"}, "before a load": {2, "REJECTED"}} {
		t.Run(name, func(t *testing.T) {
			each(t, func(l *lab) {
				ctx, strange := brokertest.Context(l.t), l.events(3)
				for i := range strange {
					strange[i].ItemID, strange[i].OrderID = l.item+77, sale.NewOrderID(l.item+77)
				}
				l.send(strange)
				l.start()
				l.settled()
				if n := l.replay(); n != 3 {
					l.t.Errorf("%d letters were replayed", n)
				}
				// The item is not there yet: they come back as new letters.
				if n := len(l.Read(l.t, broker.DeadLetters)); n != 6 || l.orders() != 0 {
					l.t.Errorf("%d letters, %d orders", n, l.orders())
				}
				now := time.Now()
				_, err := l.db.CreateSale(ctx, sale.Sale{
					Name: "late", StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour), PurchaseLimit: sale.PerItem, PaymentWindow: time.Hour, TimeZone: "UTC",
					Items: []sale.Item{{ID: l.item + 77, ProductID: 1, SKU: "L", Quantity: 10, Price: "1980", Currency: "JPY", Shards: 13, MaxPerUser: 10, Model: sale.Counter}},
				})
				if err != nil {
					l.t.Fatal(err)
				}
				if _, err := l.sql.Exec(ctx, `UPDATE flash_sale_item SET epoch = $1, claim = $1 WHERE id = $2`, test.epoch, l.item+77); err != nil {
					l.t.Fatal(err)
				}
				for range 2 { // the second time finds rows
					if n := l.replay(); n != 6 {
						l.t.Errorf("%d letters were replayed", n)
					}
				}
				sold, voids := 3, []string(nil)
				if test.want == "REJECTED" {
					sold = 0
					for _, e := range strange {
						voids = append(voids, "void "+e.OrderID.String())
					}
					slices.Sort(voids)
				}
				if got := column[string](l, `SELECT status FROM flash_sale_order`); len(got) != 3 || slices.ContainsFunc(got, func(s string) bool { return s != test.want }) {
					l.t.Errorf("the orders are %v, want three that are %s", got, test.want)
				}
				if got := column[int](l, `SELECT sold::int FROM flash_sale_item WHERE id = $1`, l.item+77)[0]; got != sold {
					l.t.Errorf("%d sold, want %d", got, sold)
				}
				if got := l.corrections(); !slices.Equal(got, voids) {
					l.t.Errorf("corrections %v, want %v", got, voids)
				}
				if n := len(l.Read(l.t, broker.DeadLetters)); n != 6 {
					l.t.Errorf("%d letters in the end", n)
				}
			})
		})
	}
}

// A reservation that the ledger refused was settled: its row is CANCELLED and its unit is on its way back. A replay finds that row and changes nothing.
func TestReplayOfASettledReservation(t *testing.T) {
	each(t, func(l *lab) {
		events := l.events(5)
		s := newSeam(l.db)
		s.set(func(_ context.Context, batch []sale.Event) error {
			if slices.ContainsFunc(batch, func(e sale.Event) bool { return e.OrderID == events[2].OrderID }) {
				return &ledger.PermanentError{Err: errors.New("value out of range")}
			}
			return nil
		})
		l.send(events)
		w := l.start(with(s))
		l.settled()
		w.stop(l.t)
		release := []string{"release " + events[2].OrderID.String()}
		if got := l.corrections(); !slices.Equal(got, release) {
			l.t.Fatalf("corrections %v", got)
		}
		l.start() // the ledger takes everything now
		for range 2 {
			if n := l.replay(); n != 1 {
				l.t.Errorf("%d letters were replayed", n)
			}
		}
		if got := column[string](l, `SELECT status FROM flash_sale_order WHERE id::text = $1`, events[2].OrderID.String()); !slices.Equal(got, []string{"CANCELLED"}) {
			l.t.Errorf("the order is %v", got)
		}
		if sold := column[int](l, `SELECT sold::int FROM flash_sale_item WHERE id = $1`, l.item)[0]; sold != 4 || l.orders() != 5 || !slices.Equal(l.corrections(), release) {
			l.t.Errorf("%d sold, %d orders, corrections %v", sold, l.orders(), l.corrections())
		}
		if n := len(l.letters()); n != 1 {
			l.t.Errorf("%d letters", n)
		}
	})
}

// Poison in front of a database that is away: nothing is set aside because of the database, and the poison once.
func TestPoisonWhileTheDatabaseIsAway(t *testing.T) {
	each(t, func(l *lab) {
		records, good, reasons := poisoned(l)
		s := newSeam(l.db)
		s.set(func(context.Context, []sale.Event) error { return errors.New("connection refused") })
		l.Write(l.t, records...)
		w := l.start(with(s))
		for range 5 {
			s.called(l.t)
		}
		w.stop(l.t)
		if at := l.committed()[records[0].Partition]; at > records[0].Offset {
			l.t.Errorf("offset %d was committed, and the record at %d is not stored", at, records[0].Offset)
		}
		for _, letter := range l.Read(l.t, broker.DeadLetters) {
			if brokertest.Header(letter, broker.DeadReason) == broker.ReasonRefused || strings.Contains(brokertest.Header(letter, broker.DeadError), "connection") {
				l.t.Errorf("set aside because of the database: %v", letter.Headers)
			}
		}
		s.set(nil)
		l.start(with(s))
		l.settled()
		l.exactly(good)
		if n := len(l.letters()); n != len(reasons) {
			l.t.Errorf("%d letters, want %d", n, len(reasons))
		}
	})
}

// unsettled is a ledger whose GiveUp is away.
type unsettled struct {
	consumer.Ledger
	fail  func() bool
	calls chan struct{}
}

func (u unsettled) GiveUp(ctx context.Context, events []sale.Event) error {
	if u.fail() {
		u.calls <- struct{}{}
		return errors.New("connection refused")
	}
	return u.Ledger.GiveUp(ctx, events)
}

// The letter is written and its reservation cannot be ended, as the database has gone: the offset stays in front of it until it is, and a process that
// stops in between leaves a second letter at worst, never a reservation that nobody ends.
func TestLetterWithoutItsEnd(t *testing.T) {
	each(t, func(l *lab) {
		events := l.events(1)
		s := newSeam(l.db)
		s.set(func(context.Context, []sale.Event) error {
			return &ledger.PermanentError{Err: errors.New("value out of range")}
		})
		records := encode(events)
		l.Write(l.t, records...)
		away := unsettled{s, func() bool { return true }, make(chan struct{}, 100_000)}
		w := l.start(func(c *consumer.Config) { c.Ledger = away })
		for range 3 {
			select {
			case <-away.calls:
			case <-time.After(timeout):
				l.t.Fatal("the reservation is not ended")
			}
		}
		w.stop(l.t)
		if at := l.committed()[records[0].Partition]; at > records[0].Offset {
			l.t.Errorf("offset %d was committed, and the reservation at %d has not ended", at, records[0].Offset)
		}
		if n := len(l.Read(l.t, broker.DeadLetters)); n != 1 {
			l.t.Errorf("%d letters of one process", n)
		}
		l.start(with(s))
		l.settled()
		if n := len(l.Read(l.t, broker.DeadLetters)); n < 1 || n > 2 {
			l.t.Errorf("%d letters", n)
		}
		devtest.Eventually(l.t, timeout, func() bool { return slices.Equal(l.corrections(), []string{"release " + events[0].OrderID.String()}) }, "the unit is released")
	})
}
