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
	var waits []time.Duration
	for _, e := range events {
		ids, waits = append(ids, e.ID), append(waits, wait)
	}
	if err := l.PostponeEvents(l.tb.Context(), ids, waits); err != nil {
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
	if n := lookup[int64](l, `SELECT count(*) FROM flash_sale_event WHERE retry_at > now() AND attempts = 1`); n != 3 {
		t.Errorf("%d events of a are put off", n)
	}
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
	// Of stock the same; and each of several waits as long as it is told to.
	restock := func() {
		if _, err := l.Restock(t.Context(), item, 5, ""); err != nil {
			t.Fatal(err)
		}
	}
	restock()
	l.expect(l.write(reserved(item, "c")), Stored)
	some := claim(10, 10, 0, " stock.increased", "c order.created")
	if err := l.PostponeEvents(t.Context(), []int64{some[1].ID, some[0].ID}, []time.Duration{0, time.Hour}); err != nil {
		t.Fatal(err)
	}
	restock()
	claim(10, 0, 0)
	some = append(some, claim(0, 10, 0, "c order.created")...)
	l.due()
	l.finishEvents(claim(0, 1, 0, " stock.increased")[0], some[2])
	if next := claim(0, 10, 0, " stock.increased"); next[0].Attempts != 1 || next[0].ID <= some[1].ID {
		t.Errorf("%+v is next", next)
	} else {
		l.finishEvents(next...)
	}
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

// 60,000 events of 20,000 keys cannot be told: most wait, among them what happened since, some are being tried. A claim reads what it takes and what
// is being tried, and not the rest; whether its plan was made when the table was empty or full, looked at or not. Nor does writing or putting off read
// more than what it writes.
func TestAClaimReadsLittleOfWhatCannotBeTold(t *testing.T) {
	const bad, tried, good, n = 20_000, 300, 3_000, 250
	l := newLab(t, "pool_max_conns=1")
	item := l.item(1)
	for _, table := range []string{"order", "event"} {
		l.exec(`ALTER TABLE flash_sale_` + table + ` SET (autovacuum_enabled = off)`)
	}
	insert := func(from, to int, attempts int, retryAt, notBefore string) {
		l.exec(`
INSERT INTO flash_sale_event (key, type, item_id, order_id, user_id, status, quantity, attempts, retry_at, not_before)
SELECT md5(k::text)::uuid::text, 'order.created', 1, md5(k::text)::uuid, 'u', 'PENDING', 1, $3, `+retryAt+`, `+notBefore+`
FROM generate_series($1::int, $2::int) k ORDER BY k`, from, to, attempts)
	}
	// read is how many index entries of the events something reads; it reads the whole table never.
	read := func(what string, work func()) int64 {
		t.Helper()
		before, scansBefore := l.entriesRead("flash_sale_event")
		work()
		after, scans := l.entriesRead("flash_sale_event")
		if scans > scansBefore {
			t.Errorf("%s: the whole table was read", what)
		}
		return after - before
	}
	query := func(statement string, args ...any) {
		t.Helper()
		if _, err := l.pool.Exec(t.Context(), statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	// Every plan is made when nothing is there, and kept: the server settles for one after five of them.
	later := func(from, to int) {
		for _, change := range []string{`status = 'EXPIRED', ended_at = now()`, `refunds_due = 1, refund_due = true`} {
			query(`UPDATE flash_sale_order SET `+change+` WHERE id = ANY(ARRAY(SELECT md5(k::text)::uuid FROM generate_series($1::int, $2::int) k))`, from, to)
		}
	}
	for range 8 {
		l.claimEvents(n, time.Hour)
		l.postponeEvents(time.Hour, OutgoingEvent{})
		later(0, 0)
	}

	insert(1, tried, 1, `now()`, `now() + interval '1 hour'`) // somebody has them
	insert(1, tried, 1, `now()`, `now()`)                     // and these wait behind them
	l.exec(`
INSERT INTO flash_sale_order (id, item_id, user_id, quantity, status, limit_key, sku, price, currency, shard, epoch, reserved_at, expires_at)
SELECT md5(k::text)::uuid, $3, 'u' || k, 1, 'PENDING', 'item', '', 1, 'EUR', 0, 0, now(), now() FROM generate_series($1::int, $2::int) k`, tried+1, bad, item)
	for first := tried; first < bad; first += n {
		claimed := l.claimEvents(n, 0)
		entries := read("put off", func() { l.postponeEvents(time.Hour, claimed...) })
		if limit := int64(8 * n); len(claimed) == 0 || entries > limit {
			t.Fatalf("%d of %d: %d index entries read to put off %d, more than %d", first, bad, entries, len(claimed), limit)
		}
	}
	if entries, limit := read("write", func() { later(tried+1, bad) }), int64(4*bad); entries > limit {
		t.Errorf("%d index entries read to write %d events, more than %d", entries, 2*(bad-tried), limit)
	}
	insert(bad+1, bad+good, 0, `NULL`, `now()`)
	for round := range 10 {
		if round == 5 {
			l.exec(`ANALYZE flash_sale_event`)
			l.pool.Reset()
		}
		var claimed []OutgoingEvent
		entries := read("claim", func() { claimed = l.claimEvents(n, time.Hour) })
		if len(claimed) != n || claimed[0].ID <= 3*bad-tried {
			t.Fatalf("round %d: %d claimed, from %d on", round, len(claimed), claimed[0].ID)
		}
		if limit := int64(2*n*(round+1) + 4*tried + 2*n); entries > limit {
			t.Errorf("round %d: %d index entries read, more than %d", round, entries, limit)
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
