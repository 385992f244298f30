package ledger

import (
	"slices"
	"testing"
	"time"
)

// due makes every event due that nobody has, as if its wait were over.
func (l *lab) due() {
	l.tb.Helper()
	l.exec(`UPDATE flash_sale_event SET not_before = now(), retry_at = CASE WHEN retry_at IS NOT NULL THEN now() END`)
}

func (l *lab) postponeEvents(wait time.Duration, events ...OutgoingEvent) {
	l.tb.Helper()
	var ids []int64
	for _, e := range events {
		ids = append(ids, e.ID)
	}
	if err := l.PostponeEvents(l.tb.Context(), wait, ids...); err != nil {
		l.tb.Fatal(err)
	}
}

func typesOf(events []OutgoingEvent) (out []string) {
	for _, e := range events {
		out = append(out, e.UserID+" "+e.Type)
	}
	return out
}

func TestAnEventThatFailedIsPutOffWithItsKey(t *testing.T) {
	l := newLab(t)
	item := l.item(10)
	a, b := reserved(item, "a"), reserved(item, "b")
	l.expect(l.write(a), Stored)
	l.expect(l.write(b), Stored)
	l.pay(success(a, "1"))
	claim := func(fresh, again int, lease time.Duration, want ...string) []OutgoingEvent {
		t.Helper()
		got, err := l.ClaimEvents(t.Context(), fresh, again, lease)
		if err != nil || !slices.Equal(typesOf(got), want) {
			t.Fatalf("claimed %q, %v, want %q", typesOf(got), err, want)
		}
		return got
	}
	both := claim(10, 10, 0, "a order.created", "b order.created")
	l.postponeEvents(time.Hour, both[0])
	claim(10, 10, 0, "b order.created") // neither the first of a, nor what is behind it
	if n := lookup[int64](l, `SELECT count(*) FROM flash_sale_event WHERE not_before > now() + interval '59 minutes' AND retry_at = not_before AND attempts = 1`); n != 2 {
		t.Errorf("%d events of a are put off", n)
	}
	// What happens to a now waits, too, and is put off with the rest of it.
	l.pay(success(a, "2"))
	claim(10, 10, 0, "b order.created")
	l.due()
	claim(10, 0, 0, "b order.created")
	first := claim(0, 10, time.Hour, "a order.created")
	if first[0].Attempts != 1 {
		t.Errorf("told in vain %d times", first[0].Attempts)
	}
	// A wait that is shorter than the lease does not shorten it: somebody may be about to tell it.
	l.postponeEvents(time.Millisecond, first...)
	if n := lookup[int64](l, `SELECT count(*) FROM flash_sale_event WHERE not_before > now() + interval '59 minutes' AND retry_at = not_before AND attempts = 2`); n != 1 {
		t.Errorf("%d events keep their lease", n)
	}
	if n := lookup[int64](l, `SELECT count(*) FROM flash_sale_event WHERE retry_at IS NOT NULL AND order_id = $1`, [16]byte(a.OrderID)); n != 3 {
		t.Errorf("%d events of a are put off", n)
	}
	l.due()
	for _, want := range []string{"a order.created", "a order.paid", "a order.refund_due"} {
		l.finishEvents(claim(0, 10, time.Hour, want)...)
	}
	l.finishEvents(claim(10, 10, time.Hour, "b order.created")...)
	l.postponeEvents(time.Hour, both...) // gone
	l.postponeEvents(time.Hour)
	if n, _, err := l.WaitingEvents(t.Context()); n != 0 || err != nil {
		t.Errorf("%d left, %v", n, err)
	}
}

// What failed takes turns: the one that waits for the longest comes first, whatever its id.
func TestEventsThatFailedTakeTurns(t *testing.T) {
	l := newLab(t)
	item := l.item(10)
	for _, user := range []string{"a", "b", "c"} {
		l.expect(l.write(reserved(item, user)), Stored)
	}
	l.postponeEvents(0, l.claimEvents(10, 0)...)
	var got []string
	for range 6 {
		claimed, err := l.ClaimEvents(t.Context(), 0, 1, 0)
		if err != nil || len(claimed) != 1 {
			t.Fatal(claimed, err)
		}
		got = append(got, claimed[0].UserID)
		l.postponeEvents(0, claimed...)
	}
	if want := []string{"a", "b", "c", "a", "b", "c"}; !slices.Equal(got, want) {
		t.Errorf("turns: %v", got)
	}
}

// 60,000 events of 20,000 keys cannot be told: most wait, some are being tried. A claim reads what it takes and what is being tried, and not the rest;
// whether its plan was made when the table was empty or full, looked at or not.
func TestAClaimReadsLittleOfWhatCannotBeTold(t *testing.T) {
	const bad, tried, good, n = 20_000, 300, 3_000, 250
	l := newLab(t, "pool_max_conns=1")
	l.exec(`ALTER TABLE flash_sale_event SET (autovacuum_enabled = off)`)
	l.claimEvents(n, time.Hour)
	insert := func(from, to, each int, attempts int, retryAt, notBefore string) {
		l.exec(`
INSERT INTO flash_sale_event (key, type, item_id, order_id, user_id, status, quantity, attempts, retry_at, not_before)
SELECT md5(k::text)::uuid::text, 'order.created', 1, md5(k::text)::uuid, 'u', 'PENDING', 1, $4, `+retryAt+`, `+notBefore+`
FROM generate_series($1::int, $2::int) k, generate_series(1, $3) e ORDER BY e, k`, from, to, each, attempts)
	}
	insert(1, tried, 1, 1, `now()`, `now() + interval '1 hour'`) // somebody has them
	insert(1, tried, 1, 1, `now()`, `now()`)                     // and these wait behind them
	insert(tried+1, bad, 3, 1, `now() + interval '1 minute' + k * interval '1 ms'`, `now() + interval '1 minute' + k * interval '1 ms'`)
	insert(bad+1, bad+good, 1, 0, `NULL`, `now()`)
	for round := range 10 {
		if round == 5 {
			l.exec(`ANALYZE flash_sale_event`)
			l.pool.Reset()
		}
		before, _ := l.entriesRead("flash_sale_event")
		claimed := l.claimEvents(n, time.Hour)
		after, scans := l.entriesRead("flash_sale_event")
		if len(claimed) != n || claimed[0].ID <= 3*bad-tried {
			t.Fatalf("round %d: %d claimed, from %d on", round, len(claimed), claimed[0].ID)
		}
		if limit := int64(2*n*(round+1) + 4*tried + 2*n); after-before > limit || scans > 0 {
			t.Errorf("round %d: %d index entries read, more than %d; %d scans of the whole table", round, after-before, limit, scans)
		}
	}
}

func TestWaitingEventsAreCountedUpToABound(t *testing.T) {
	l := newLab(t)
	l.exec(`
INSERT INTO flash_sale_event (key, type, item_id, order_id, user_id, status, quantity)
SELECT k::text, 'order.created', 1, gen_random_uuid(), 'u', 'PENDING', 1 FROM generate_series(1, $1 + 5) k`, MaxWaitingEvents)
	if n, oldest, err := l.WaitingEvents(t.Context()); n != MaxWaitingEvents || oldest <= 0 || err != nil {
		t.Errorf("waiting: %d, %v, %v", n, oldest, err)
	}
	l.exec(`DELETE FROM flash_sale_event WHERE key::int % 2 = 0`)
	if n, _, err := l.WaitingEvents(t.Context()); n != (MaxWaitingEvents+6)/2 || err != nil {
		t.Errorf("waiting: %d, %v", n, err)
	}
}
