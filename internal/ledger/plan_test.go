package ledger

import (
	"fmt"
	"testing"
	"time"

	"flashgate/internal/sale"
)

// The tables are empty when the statements are prepared and full a moment later, and nobody has looked at their contents yet. What each
// batch costs must not grow with what is there.
func TestPlansStayGoodWhileTablesFill(t *testing.T) {
	l := newLab(t, "pool_max_conns=1")
	const batches, size = 30, 100
	s := l.create(aSale(2*batches*size, 0))
	full, none := s.Items[0].ID, s.Items[1].ID
	l.exec(`ALTER TABLE flash_sale_order SET (autovacuum_enabled = off)`)
	l.exec(`ALTER TABLE flash_sale_correction SET (autovacuum_enabled = off)`)
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
	ids := make([]sale.OrderID, len(all))
	for i, e := range all {
		ids[i] = e.OrderID
		if i%10 == 0 {
			if _, _, err := l.Order(t.Context(), e.OrderID); err != nil {
				t.Fatal(err)
			}
			if _, _, err := l.LiveOrder(t.Context(), full, e.UserID); err != nil {
				t.Fatal(err)
			}
			if _, _, err := l.Cancel(t.Context(), e.OrderID, e.UserID); err != nil {
				t.Fatal(err)
			}
		}
		if i%100 == 0 {
			l.exec(`UPDATE flash_sale_order SET expires_at = now() WHERE id = ANY($1)`, uuids(ids[i:i+1]))
			if _, err := l.Expire(t.Context(), 10); err != nil {
				t.Fatal(err)
			}
			for _, c := range l.claim(10, time.Hour) {
				if err := l.PostponeCorrections(t.Context(), []int64{c.ID}, time.Hour); err != nil {
					t.Fatal(err)
				}
				if err := l.FinishCorrections(t.Context(), c.ID); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := l.LoadWatch(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, _, _, err := l.Standing(t.Context(), full, ids); err != nil {
		t.Fatal(err)
	}
	if _, err := l.pool.Exec(t.Context(), `SELECT pg_stat_force_next_flush()`); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"flash_sale_order", "flash_sale_correction"} {
		const statistics = `
SELECT seq_scan, (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes i WHERE i.relname = t.relname)::bigint FROM pg_stat_user_tables t WHERE relname = $1`
		var scans, read int64
		if err := l.pool.QueryRow(t.Context(), statistics, table).Scan(&scans, &read); err != nil {
			t.Fatal(err)
		}
		// Every event is looked for by its id and its user in some calls; nothing reads the rows of others.
		if limit := int64(8 * len(all)); scans > 0 || read > limit {
			t.Errorf("%s: %d scans of the whole table, %d index entries read, more than %d", table, scans, read, limit)
		}
	}
}
