package ledger

import (
	"testing"
	"time"
)

// The broker was away for long: 100,000 events wait, five of each order. A claim reads what it takes and those that wait behind them, whether
// its plan was made when the table was empty or full, looked at or not.
func TestAClaimReadsLittleOfWhatWaits(t *testing.T) {
	const keys, each, n = 20_000, 5, 500
	for name, interleaved := range map[string]bool{"order by order": false, "interleaved": true} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, "pool_max_conns=1")
			l.exec(`ALTER TABLE flash_sale_event SET (autovacuum_enabled = off)`)
			if claimed := l.claimEvents(n, time.Hour); len(claimed) != 0 {
				t.Fatal(claimed)
			}
			l.exec(`
INSERT INTO flash_sale_event (key, type, item_id, order_id, user_id, status, quantity)
SELECT md5(k::text)::uuid::text, 'order.created', 1, md5(k::text)::uuid, 'u', 'PENDING', 1
FROM generate_series(1, $1) k, generate_series(1, $2) e ORDER BY CASE WHEN $3 THEN e ELSE k END, k`, keys, each, interleaved)
			for round := range 12 {
				if round == 8 {
					l.exec(`ANALYZE flash_sale_event`)
					l.pool.Reset()
				}
				before, _ := l.entriesRead("flash_sale_event")
				claimed := l.claimEvents(n, time.Hour)
				after, scans := l.entriesRead("flash_sale_event")
				if len(claimed) != n {
					t.Fatalf("round %d: %d claimed", round, len(claimed))
				}
				// An entry of each row that is passed over or taken, one of its first, one to take it. Rows taken in earlier rounds lie in front.
				passed := int64(n)
				if !interleaved {
					passed *= each
				}
				if limit := passed*2*int64(round+1) + 2*n; after-before > limit || scans > 0 {
					t.Errorf("round %d: %d index entries read, more than %d; %d scans of the whole table", round, after-before, limit, scans)
				}
				if round%4 == 3 { // the broker is back
					l.finishEvents(claimed...)
				}
			}
		})
	}
}
