package consumer_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"flashgate/consumer"
	"flashgate/internal/broker/brokertest"
	"flashgate/internal/devstack/devtest"
	"flashgate/internal/ledger"
)

// The orders have been deleted, the topic still has their records, and the group has lost its offsets. It passes over them all, and nothing is left
// of it: no order, no word to others, no correction, no dead letter.
func TestRecordsOfDeletedOrdersAreLetGo(t *testing.T) {
	each(t, func(l *lab) {
		ctx := brokertest.Context(t)
		events := l.events(200)
		l.send(events)
		first := l.start()
		l.settled()
		l.exactly(events)
		first.stop(t)
		for _, change := range []string{
			`UPDATE flash_sale_order SET status = 'PAID', paid_at = now()`, `UPDATE flash_sale_item SET retired_at = now()`, `DELETE FROM flash_sale_event`,
		} {
			if _, err := l.sql.Exec(ctx, change); err != nil {
				t.Fatal(err)
			}
		}
		if r, err := l.db.Purge(ctx, time.Now().Add(time.Minute), ledger.PurgeDelete, false); err != nil || r.Orders != 200 {
			t.Fatal(r, err)
		}
		registry := prometheus.NewRegistry()
		l.Config.Group = devtest.Name("group")
		l.start(func(c *consumer.Config) { c.Registerer = registry })
		l.settled()
		if n := column[int64](l, `
SELECT (SELECT count(*) FROM flash_sale_order) + (SELECT count(*) FROM flash_sale_event) + (SELECT count(*) FROM flash_sale_correction)
    + (SELECT count(*) FROM flash_sale_conflict)`)[0]; n != 0 {
			t.Errorf("%d rows came back", n)
		}
		if n := len(l.letters()); n != 0 {
			t.Errorf("%d dead letters", n)
		}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "flashgate_consumer_records_total" && m.GetLabel()[0].GetValue() == "purged" && m.GetCounter().GetValue() == 200 {
					return
				}
			}
		}
		t.Error("200 records are not counted as purged")
	})
}
