package admin_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"flashgate/internal/admin"
	"flashgate/internal/sale"
)

func TestAudit(t *testing.T) {
	w := newWorld()
	id := sale.NewOrderID(1001)
	w.entries = []admin.AuditEntry{
		{ID: 3, At: someTime, What: "sale.create", Subject: "sale:7", After: []byte(`{"id": 7, "quantity": 9007199254740993, "name": "a<b", "ends_at": {"a_b": 1}, "starts_at": "2026-11-27T14:00:00.5+02:00", "paid_at": null, "priced_at": "now", "sku": "2026-11-27T14:00:00+02:00", "items": [{"max_per_user": 1.50, "price": 499.00, "sku": "a_b"}, 7, [], null, [{"pay_by": {}}]]}`)},
		{ID: 5, At: someTime, What: "item.restock", Subject: "item:1001", Before: []byte(`{"quantity": 50}`), After: []byte(`{"quantity": 150}`)},
		{ID: 9, At: someTime, What: "sale.update", Subject: "sale:7", Before: []byte(`{"paused": false}`), After: []byte(`{"paused": true}`)},
		{ID: 12, At: someTime, What: "order.refunded", Subject: "order:" + id.String(), Before: []byte(`[]`), After: []byte(`null`)},
	}
	api := w.api(t)
	got := do(api, "GET", "/admin/audit?subject=sale:7", "")
	want := `{"entries":[` +
		`{"id":9,"at":"2026-11-27T12:30:00.250Z","what":"sale.update","subject":"sale:7","before":{"paused":false},"after":{"paused":true}},` +
		`{"id":3,"at":"2026-11-27T12:30:00.250Z","what":"sale.create","subject":"sale:7","before":null,"after":{"endsAt":{"aB":1},"id":7,"items":[{"maxPerUser":1.50,"price":"499.00","sku":"a_b"},7,[],null,[{"payBy":{}}]],"name":"a\u003cb","paidAt":null,"pricedAt":"now","quantity":9007199254740993,"sku":"2026-11-27T14:00:00+02:00","startsAt":"2026-11-27T12:00:00.500Z"}}` +
		`],"nextCursor":null}` + "\n"
	if got.status != 200 || got.body != want {
		t.Errorf("%d\n%s, want\n%s", got.status, got.body, want)
	}
	for _, test := range []struct {
		query string
		want  []int64
		pages int
	}{
		{"limit=100", []int64{12, 9, 5, 3}, 1}, {"limit=4", []int64{12, 9, 5, 3}, 1}, {"limit=3", []int64{12, 9, 5, 3}, 2}, {"limit=1", []int64{12, 9, 5, 3}, 4},
		{"subject=sale:7&limit=1", []int64{9, 3}, 2}, {"subject=item:1001", []int64{5}, 1}, {"subject=item:1002", nil, 1},
		{"subject=order:" + id.String(), []int64{12}, 1}, {"subject=order:" + strings.ToUpper(id.String()), []int64{12}, 1},
	} {
		var ids []int64
		pages := 0
		for target, more := "/admin/audit?"+test.query, true; more; pages++ {
			got := do(api, "GET", target, "")
			var view admin.AuditView
			if err := json.Unmarshal([]byte(got.body), &view); err != nil || got.status != 200 {
				t.Fatalf("GET %s: %d %s, %v", target, got.status, got.body, err)
			}
			for _, e := range view.Entries {
				ids = append(ids, e.ID)
			}
			if more = view.NextCursor != nil; more {
				target = "/admin/audit?" + test.query + "&cursor=" + *view.NextCursor
			}
		}
		if !slices.Equal(ids, test.want) || pages != test.pages {
			t.Errorf("%s: %v on %d pages, want %v on %d", test.query, ids, pages, test.want, test.pages)
		}
	}
	for _, test := range []struct{ query, message string }{
		{"subject=", "subject: must be sale:ID, item:ID, order:ID or dlq"},
		{"subject=sale", "subject: must be sale:ID"},
		{"subject=sale:07", "subject: must be sale:ID"},
		{"subject=Sale:7", "subject: must be sale:ID"},
		{"subject=item:x", "subject: must be sale:ID"},
		{"subject=order:7", "subject: must be sale:ID"},
		{"subject=user:alice", "subject: must be sale:ID"},
		{"subject=dlq:1", "subject: must be sale:ID"},
		{"cursor=", "cursor: is not one that an answer gave"},
		{"cursor=0", "cursor: is not one that an answer gave"},
		{"cursor=-5", "cursor: is not one that an answer gave"},
		{"limit=", "limit: must be an integer from 1 to 100"},
		{"limit=1000", "limit: must be an integer from 1 to 100"},
		{"what=sale.create", `"what": is not a parameter of this path`},
	} {
		refused(t, test.query, do(api, "GET", "/admin/audit?"+test.query, ""), 400, "BAD_REQUEST", test.message)
	}
	w.databaseDown = true
	refused(t, "database away", do(api, "GET", "/admin/audit", ""), 503, "UNAVAILABLE", "the database does not answer or refused")
}
