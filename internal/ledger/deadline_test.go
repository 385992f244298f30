package ledger

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"flashgate/internal/sale"
)

// A payment and something that ends the order meet, a thousand times: one of them wins, each time, and the other one knows. Several of each kind
// work at once on a few orders at a time, in the same order, so that they meet in earnest.
func TestAPaymentAndTheEndHaveOneWinner(t *testing.T) {
	const rounds, together = 1000, 40
	for name, c := range map[string]struct {
		ended  sale.OrderStatus
		payers int // so many that both sides are about as fast
		end    func(l *lab, events []sale.Event, n int) error
	}{
		"expiry": {sale.Expired, 3, func(l *lab, _ []sale.Event, _ int) error {
			_, err := l.Expire(t.Context(), 2)
			return err
		}},
		"cancel": {sale.Cancelled, 1, func(l *lab, events []sale.Event, n int) error {
			o, outcome, err := l.Cancel(t.Context(), events[n].OrderID, events[n].UserID)
			known := outcome == CancelDone && o.Status == sale.Cancelled || outcome == CancelRefused && o.Status == sale.Paid
			if err == nil && !known {
				err = fmt.Errorf("cancel: %v, %+v", outcome, o)
			}
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, "pool_max_conns=8")
			l.forbidRetries(l.DB)
			s := l.create(aSale(rounds))
			item := s.Items[0].ID
			var events []sale.Event
			results := make(map[sale.OrderID]sale.PaymentResult)
			for range rounds / together {
				var crowd []sale.Event
				for i := range together {
					e := reserved(item, fmt.Sprint("u", len(events)+i))
					e.ReservedAt = e.ReservedAt.AddDate(0, 0, -1)
					crowd = append(crowd, e)
				}
				l.write(crowd...)
				l.makeDue(item)
				meet(t, l, crowd, results, c.payers, c.end)
				events = append(events, crowd...)
			}
			paid := 0
			for n, e := range events {
				o, result := l.row(e.OrderID), results[e.OrderID]
				sequence, releases := []string{"created", "paid"}, int64(0)
				switch {
				case o.Status == sale.Paid && !o.RefundDue() && result == (sale.PaymentResult{Status: sale.Paid}):
					paid++
				case o.Status == c.ended && o.RefundDue() && result == (sale.PaymentResult{Status: c.ended, RefundDue: true}):
					sequence, releases = []string{"created", strings.ToLower(string(c.ended)), "refund_due"}, 1
				default:
					t.Errorf("round %d: %+v, answered %+v", n, o, result)
				}
				if got := l.told(e.OrderID.String()); !slices.Equal(got, sequence) {
					t.Errorf("round %d: told %v, want %v", n, got, sequence)
				}
				if got := lookup[int64](l, `SELECT count(*) FROM flash_sale_correction WHERE order_id = $1`, [16]byte(e.OrderID)); got != releases {
					t.Errorf("round %d: %d releases", n, got)
				}
			}
			if sold := lookup[int64](l, `SELECT sold FROM flash_sale_item`); sold != int64(paid) {
				t.Errorf("sold %d, paid %d", sold, paid)
			}
			if paid == 0 || paid == rounds {
				t.Errorf("%d of %d were paid: they did not meet", paid, rounds)
			}
			t.Logf("%d of %d were paid in time", paid, rounds)
			l.balance()
		})
	}
}

// meet pays orders and ends them, at once.
func meet(t *testing.T, l *lab, crowd []sale.Event, results map[sale.OrderID]sale.PaymentResult, payers int,
	end func(*lab, []sale.Event, int) error,
) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	begin := make(chan struct{})
	run := func(workers int, work func(n int) error) {
		var next atomic.Int64
		for range workers {
			wg.Go(func() {
				<-begin
				for n := int(next.Add(1)) - 1; n < len(crowd); n = int(next.Add(1)) - 1 {
					if err := work(n); err != nil {
						t.Errorf("%s: %v", crowd[n].UserID, err)
						return
					}
				}
			})
		}
	}
	run(payers, func(n int) error {
		result, outcome, err := l.Pay(t.Context(), success(crowd[n], crowd[n].UserID))
		mu.Lock()
		defer mu.Unlock()
		results[crowd[n].OrderID] = result
		if err == nil && outcome != PayDone {
			err = fmt.Errorf("pay: %v", outcome)
		}
		return err
	})
	run(3, func(n int) error { return end(l, crowd, n) })
	close(begin)
	wg.Wait()
}

// One reservation of three units, and three of the things that can happen to it, each told twice, in each of the 90 orders: one release or none.
func TestUnitsReturnOnceWhateverThePaymentsSay(t *testing.T) {
	l := newLab(t, "pool_max_conns=6")
	step := map[byte]func(sale.Event) error{
		'x': func(e sale.Event) error {
			l.exec(`UPDATE flash_sale_order SET expires_at = now() WHERE id = $1`, [16]byte(e.OrderID))
			_, err := l.Expire(t.Context(), 100)
			return err
		},
		'c': func(e sale.Event) error { _, _, err := l.Cancel(t.Context(), e.OrderID, e.UserID); return err },
		'g': func(e sale.Event) error { return l.GiveUp(t.Context(), []sale.Event{e}) },
		'f': func(e sale.Event) error { _, _, err := l.Pay(t.Context(), failure(e, "f-"+e.UserID)); return err },
		's': func(e sale.Event) error { _, _, err := l.Pay(t.Context(), success(e, "s-"+e.UserID)); return err },
	}
	type trial struct {
		letters string
		event   sale.Event
	}
	var trials []trial
	for _, three := range []string{"ccffxx", "ccssxx", "ffssxx", "ccffss", "ggssxx"} {
		letters := arrangements(three)
		if len(letters) != 90 {
			t.Fatalf("%d arrangements of %s", len(letters), three)
		}
		// Each its own item, so that a sold that is wrong shows where.
		s := aSale(make([]int64, len(letters))...)
		for i := range s.Items {
			s.Items[i].Quantity = 3
		}
		for i, it := range l.create(s).Items {
			e := reserved(it.ID, fmt.Sprint("u", it.ID))
			e.Quantity = 3
			trials = append(trials, trial{letters[i], e})
		}
	}
	var wg sync.WaitGroup
	queue := make(chan trial)
	for range 6 {
		wg.Go(func() {
			for tr := range queue {
				l.expect(l.write(tr.event), Stored)
				for i := range len(tr.letters) {
					if err := step[tr.letters[i]](tr.event); err != nil {
						t.Errorf("%s: %v", tr.letters, err)
					}
				}
			}
		})
	}
	for _, tr := range trials {
		queue <- tr
	}
	close(queue)
	wg.Wait()
	for _, tr := range trials {
		want := expectedOf(tr.letters)
		o := l.row(tr.event.OrderID)
		if o.Status != want.status || o.RefundDue() != want.due {
			t.Errorf("%s: %s, refund due %v; want %+v", tr.letters, o.Status, o.RefundDue(), want)
		}
		if got := l.told(tr.event.OrderID.String()); !slices.Equal(got, want.told) {
			t.Errorf("%s: told %v, want %v", tr.letters, got, want.told)
		}
		releases, sold := []string{"release 3"}, int64(0)
		if want.status == sale.Paid || want.status == sale.Pending {
			releases, sold = nil, 3
		}
		if got := all[string](l, `SELECT op || ' ' || units FROM flash_sale_correction WHERE order_id = $1`, [16]byte(tr.event.OrderID)); !slices.Equal(got, releases) {
			t.Errorf("%s: corrections %v", tr.letters, got)
		}
		if got := lookup[int64](l, `SELECT sold FROM flash_sale_item WHERE id = $1`, tr.event.ItemID); got != sold {
			t.Errorf("%s: sold %d", tr.letters, got)
		}
	}
	l.balance()
}

// expected is what becomes of an order.
type expected struct {
	status sale.OrderStatus
	due    bool
	told   []string
}

// expectedOf says it in the shortest way: the first of expiry, cancellation and success decides, and a success behind an end is a refund, once.
func expectedOf(letters string) expected {
	want := expected{status: sale.Pending, told: []string{"created"}}
	succeeded := false
	for _, letter := range letters {
		status, word := sale.Pending, ""
		switch letter {
		case 'x':
			status, word = sale.Expired, "expired"
		case 'c':
			status, word = sale.Cancelled, "cancelled"
		case 's':
			status, word = sale.Paid, "paid"
			if want.status != sale.Pending && !succeeded {
				want.due = true
				want.told = append(want.told, "refund_due")
			}
			succeeded = true
		}
		if word != "" && want.status == sale.Pending {
			want.status = status
			want.told = append(want.told, word)
		}
	}
	return want
}
