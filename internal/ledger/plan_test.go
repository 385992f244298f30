package ledger

import (
	"fmt"
	"testing"
	"time"

	"flashgate/internal/sale"
)

// The tables are empty when the statements are prepared and full a moment later, and nobody has looked at their contents yet. What each
// call costs must not grow with what is there.
func TestPlansStayGoodWhileTablesFill(t *testing.T) {
	l := newLab(t, "pool_max_conns=1")
	const batches, size = 30, 100
	s := l.create(aSale(2*batches*size, 0, 100))
	full, none, warm := s.Items[0].ID, s.Items[1].ID, s.Items[2].ID
	for _, table := range []string{"order", "correction", "event", "payment"} {
		l.exec(`ALTER TABLE flash_sale_` + table + ` SET (autovacuum_enabled = off)`)
	}
	// The server settles for a plan after five of them.
	for i := range 8 {
		a, b, c := reserved(warm, fmt.Sprint("a", i)), reserved(warm, fmt.Sprint("b", i)), reserved(warm, fmt.Sprint("c", i))
		l.write(a, b, c)
		useEverything(t, l, a, b, c)
	}
	var all []sale.Event
	for b := range batches {
		var events []sale.Event
		for i := range size {
			events = append(events, reserved(full, fmt.Sprint(b, "-", i)))
		}
		l.write(append(events, reserved(none, fmt.Sprint(b)))...)
		all = append(all, events...)
	}
	l.write(all...)
	if err := l.GiveUp(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(all); i += 30 {
		useEverything(t, l, all[i], all[i+1], all[i+2])
	}
	var ids []sale.OrderID
	for _, e := range all {
		ids = append(ids, e.OrderID)
	}
	if _, _, _, err := l.Standing(t.Context(), full, ids); err != nil {
		t.Fatal(err)
	}
	l.makeDue(full)
	if n, err := l.Expire(t.Context(), len(all)); n < len(all)/2 || err != nil {
		t.Fatal(n, err)
	}
	// Every event is looked for by its id and its user in some calls; nothing reads the rows of others. Events are told a few at a time, and each
	// look passes over those that are under way. A page of the table or of an index is read for each row found, written or changed, and for each
	// of its index entries, from the root to the leaf.
	for table, limit := range map[string]struct{ entries, pages int }{
		"flash_sale_order":      {20 * len(all), 100 * len(all)},
		"flash_sale_correction": {8 * len(all), 50 * len(all)},
		"flash_sale_event":      {8 * len(all), 50 * len(all)},
		"flash_sale_payment":    {len(all), 10 * len(all)},
	} {
		entries, scans := l.entriesRead(table)
		pages := l.pagesRead(table)
		if scans > 0 || entries > int64(limit.entries) || pages > int64(limit.pages) {
			t.Errorf("%s: %d scans of the whole table, %d index entries read, and %d pages, more than %+v", table, scans, entries, pages, limit)
		}
		t.Logf("%s: %d index entries and %d pages read", table, entries, pages)
	}
}

// A load reads the live orders of its item, and holds its row meanwhile; the reconciliation reads them every minute. Those of other items, which
// are as many as were ever paid, cost neither anything.
func TestALoadReadsTheOrdersOfItsItemAlone(t *testing.T) {
	l := newLab(t, "pool_max_conns=1")
	const batches, size = 20, 250
	s := l.create(aSale(batches*size, 10))
	full, small := s.Items[0].ID, s.Items[1].ID
	l.exec(`ALTER TABLE flash_sale_order SET (autovacuum_enabled = off)`)
	for b := range batches {
		var events []sale.Event
		for i := range size {
			events = append(events, reserved(full, fmt.Sprint(b, "-", i)))
		}
		l.write(events...)
	}
	l.write(reserved(small, "a"), reserved(small, "b"))
	token, ok, err := l.ClaimLoad(t.Context(), small, 0)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	for name, read := range map[string]func() (int, error){
		"snapshot": func() (int, error) { s, _, err := l.Snapshot(t.Context(), small, token); return len(s.Marks), err },
		"totals":   func() (int, error) { totals, _, err := l.Totals(t.Context(), small); return int(totals.Live), err },
		"books":    func() (int, error) { b, _, err := l.Books(t.Context(), small, nil); return len(b.Live), err },
	} {
		entries, scans := l.entriesRead("flash_sale_order")
		n, err := read()
		if err != nil || n != 2 {
			t.Errorf("%s: %d, %v", name, n, err)
		}
		more, again := l.entriesRead("flash_sale_order")
		if again > scans || more-entries > 20 {
			t.Errorf("%s: %d scans of the whole table, %d index entries read", name, again-scans, more-entries)
		}
	}
}

// useEverything calls what is called for single orders, and by people, and by relays: a is cancelled, b expires, c is paid.
func useEverything(t *testing.T, l *lab, a, b, c sale.Event) {
	ctx := t.Context()
	var errs []error
	check := func(err error) { errs = append(errs, err) }
	for _, e := range []sale.Event{a, b, c} {
		_, _, err := l.Order(ctx, e.OrderID)
		check(err)
		_, _, err = l.LiveOrder(ctx, e.ItemID, e.UserID)
		check(err)
	}
	_, _, err := l.Cancel(ctx, a.OrderID, a.UserID)
	check(err)
	l.exec(`UPDATE flash_sale_order SET expires_at = now() WHERE id = $1`, [16]byte(b.OrderID))
	_, err = l.Expire(ctx, 10)
	check(err)
	for _, p := range []sale.Payment{success(a, "a"+a.UserID), failure(c, "f"+c.UserID), success(c, "c"+c.UserID), success(c, "c"+c.UserID)} {
		l.pay(p)
	}
	_, err = l.Payments(ctx, c.OrderID)
	check(err)
	for _, e := range []sale.Event{a, b} {
		_, err = l.Refunded(ctx, e.OrderID, []string{"a" + a.UserID})
		check(err)
		_, err = l.Refunded(ctx, e.OrderID, nil)
		check(err)
	}
	for _, f := range []OrderFilter{{}, {Item: a.ItemID}, {Status: "EXPIRED"}, {Item: a.ItemID, Status: "CANCELLED"}, {Status: StatusRefundDue},
		{Item: a.ItemID, Status: StatusRefundDue}} {
		f.Limit = 5
		_, next, err := l.Orders(ctx, f)
		check(err)
		f.After = next
		_, _, err = l.Orders(ctx, f)
		check(err)
	}
	for _, c := range l.claim(10, time.Hour) {
		check(l.PostponeCorrections(ctx, []int64{c.ID}, time.Hour))
		check(l.FinishCorrections(ctx, c.ID))
	}
	l.finishEvents(l.claimEvents(10, time.Hour)...)
	_, err = l.LoadWatch(ctx)
	check(err)
	_, err = l.Retirable(ctx, 0)
	check(err)
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// entriesRead is how many index entries of a table have been read, and how often it was read from end to end.
func (l *lab) entriesRead(table string) (entries, scans int64) {
	l.tb.Helper()
	l.statistics(`
SELECT (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes i WHERE i.relname = t.relname)::bigint, seq_scan FROM pg_stat_user_tables t
WHERE relname = $1`, table, &entries, &scans)
	return entries, scans
}

// pagesRead is how many pages of a table and its indexes have been looked at.
func (l *lab) pagesRead(table string) (pages int64) {
	l.tb.Helper()
	l.statistics(`
SELECT heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read FROM pg_statio_user_tables WHERE relname = $1`, table, &pages)
	return pages
}

// statistics reads what the server has counted, by the one connection of the ledger: its own counts are in.
func (l *lab) statistics(query, table string, to ...any) {
	l.tb.Helper()
	if _, err := l.pool.Exec(l.tb.Context(), `SELECT pg_stat_force_next_flush()`); err != nil {
		l.tb.Fatal(err)
	}
	if err := l.pool.QueryRow(l.tb.Context(), query, table).Scan(to...); err != nil {
		l.tb.Fatal(err)
	}
}
