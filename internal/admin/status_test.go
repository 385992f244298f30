package admin_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"flashgate/internal/admin"
	"flashgate/internal/sale"
)

// TestEveryStatus has a request for each status of each route, and sees that every answer has the form that it should.
func TestEveryStatus(t *testing.T) {
	due, paid, reserved, nobody := sale.NewOrderID(1001), sale.NewOrderID(1001), sale.NewOrderID(1001), sale.NewOrderID(1001)
	prepared := func() *world {
		w := newWorld()
		w.put(1, 10)
		w.put(2, 10).RetiredAt = someTime
		w.buy(func(o *sale.Order) { o.ID, o.Status, o.RefundsDue = due, sale.Expired, 1 })
		w.buy(func(o *sale.Order) { o.ID, o.Status = paid, sale.Paid })
		w.payments[due] = []admin.Payment{{EventID: "late", Succeeded: true, Amount: "1", Currency: "JPY", Effect: "refund_due", ReceivedAt: someTime}}
		w.reserved = []sale.Event{{OrderID: reserved, ItemID: 1001, UserID: "alice", Quantity: 1}}
		return w
	}
	databaseDown := func(w *world) { w.databaseDown = true }
	unknown := func(w *world) { w.outcomeUnknown = true }
	redisDown := func(w *world) { w.redisDown = true }
	kafkaDown := func(w *world) { w.kafka = true }
	noLetter := func(w *world) {
		w.desk.replay = func(admin.Replay) (admin.Replayed, error) { return admin.Replayed{}, admin.ErrNoLetter }
	}
	outsold := func(w *world) { w.sales[1].Items[0].Sold = 10 }
	began := func(w *world) { w.began = true }
	slow := func(w *world) {
		w.desk.reload = func(ctx context.Context, _ int64) error { <-ctx.Done(); return ctx.Err() }
	}
	late := func(w *world) { w.loads = func(sale.Item) error { return errAway } }
	restocked := func(w *world) { w.restocks["k"], w.units["k"] = admin.Restock{}, 7 }
	const newSale = `{"startsAt":"2026-11-27T12:00:00Z","endsAt":"2026-11-27T13:00:00Z","items":[{"quantity":1,"price":"1","currency":"JPY"}]}`
	big := strings.Repeat(" ", admin.MaxBody+1)
	for _, test := range []struct {
		method, target, body string
		change               func(*world)
		status               int
		code                 string
	}{
		{"POST", "/admin/sales", newSale, nil, 201, ""},
		{"POST", "/admin/sales", newSale, late, 202, ""},
		{"POST", "/admin/sales", `{}`, nil, 400, "BAD_REQUEST"},
		{"POST", "/admin/sales", `{"id":1,` + newSale[1:], nil, 409, "ALREADY_EXISTS"},
		{"POST", "/admin/sales", big, nil, 413, "TOO_LARGE"},
		{"POST", "/admin/sales", newSale, unknown, 503, "OUTCOME_UNKNOWN"},
		{"POST", "/admin/sales", newSale, redisDown, 503, "UNAVAILABLE"},
		{"GET", "/admin/sales", "", nil, 200, ""},
		{"GET", "/admin/sales?limit=x", "", nil, 400, "BAD_REQUEST"},
		{"GET", "/admin/sales", "", databaseDown, 503, "UNAVAILABLE"},
		{"DELETE", "/admin/sales", "", nil, 405, "METHOD_NOT_ALLOWED"},

		{"GET", "/admin/sales/1", "", nil, 200, ""},
		{"GET", "/admin/sales/x", "", nil, 400, "BAD_REQUEST"},
		{"GET", "/admin/sales/9", "", nil, 404, "NOT_FOUND"},
		{"GET", "/admin/sales/1", "", databaseDown, 503, "UNAVAILABLE"},
		{"PATCH", "/admin/sales/1", `{"paused":true}`, nil, 200, ""},
		{"PATCH", "/admin/sales/1", `{"paused":null}`, nil, 400, "BAD_REQUEST"},
		{"PATCH", "/admin/sales/9", `{"paused":true}`, nil, 404, "NOT_FOUND"},
		{"PATCH", "/admin/sales/1", `{"startsAt":"2026-11-27T11:00:00Z"}`, began, 409, "SALE_STARTED"},
		{"PATCH", "/admin/sales/2", `{"paused":true}`, nil, 409, "RETIRED"},
		{"PATCH", "/admin/sales/1", big, nil, 413, "TOO_LARGE"},
		{"PATCH", "/admin/sales/1", `{"paused":true}`, unknown, 503, "OUTCOME_UNKNOWN"},
		{"PATCH", "/admin/sales/1", `{"paused":true}`, databaseDown, 503, "UNAVAILABLE"},
		{"PUT", "/admin/sales/1", `{}`, nil, 405, "METHOD_NOT_ALLOWED"},

		{"GET", "/admin/items/1001", "", nil, 200, ""},
		{"GET", "/admin/items/1001", "", redisDown, 200, ""},
		{"GET", "/admin/items/x", "", nil, 400, "BAD_REQUEST"},
		{"GET", "/admin/items/9", "", nil, 404, "NOT_FOUND"},
		{"GET", "/admin/items/1001", "", databaseDown, 503, "UNAVAILABLE"},
		{"PATCH", "/admin/items/1001", `{"paused":true}`, nil, 200, ""},
		{"PATCH", "/admin/items/1001", `{"paused":true}`, redisDown, 200, ""},
		{"PATCH", "/admin/items/1001", `{"paused":1}`, nil, 400, "BAD_REQUEST"},
		{"PATCH", "/admin/items/9", `{"paused":true}`, nil, 404, "NOT_FOUND"},
		{"PATCH", "/admin/items/1002", `{"paused":true}`, nil, 409, "RETIRED"},
		{"PATCH", "/admin/items/1001", big, nil, 413, "TOO_LARGE"},
		{"PATCH", "/admin/items/1001", `{"shards":3}`, nil, 200, ""},
		{"PATCH", "/admin/items/1001", `{"quantity":9}`, nil, 200, ""},
		{"PATCH", "/admin/items/1001", `{"shards":3}`, redisDown, 202, ""},
		{"PATCH", "/admin/items/1001", `{"quantity":9}`, outsold, 409, "BELOW_SOLD"},
		{"PATCH", "/admin/items/1001", `{"paused":true}`, unknown, 503, "OUTCOME_UNKNOWN"},
		{"PATCH", "/admin/items/1001", `{"paused":true}`, databaseDown, 503, "UNAVAILABLE"},
		{"DELETE", "/admin/items/1001", "", nil, 405, "METHOD_NOT_ALLOWED"},

		{"POST", "/admin/items/1001/restock", `{"quantity":5}`, nil, 200, ""},
		{"POST", "/admin/items/1001/restock", `{"quantity":5}`, redisDown, 200, ""},
		{"POST", "/admin/items/1001/restock", `{"quantity":0}`, nil, 400, "BAD_REQUEST"},
		{"POST", "/admin/items/9/restock", `{"quantity":5}`, nil, 404, "NOT_FOUND"},
		{"POST", "/admin/items/1002/restock", `{"quantity":5}`, nil, 409, "RETIRED"},
		{"POST", "/admin/items/1001/restock", big, nil, 413, "TOO_LARGE"},
		{"POST", "/admin/items/1001/restock", `{"quantity":5}`, restocked, 422, "KEY_REUSED"},
		{"POST", "/admin/items/1001/restock", `{"quantity":5}`, unknown, 503, "OUTCOME_UNKNOWN"},
		{"POST", "/admin/items/1001/restock", `{"quantity":5}`, databaseDown, 503, "UNAVAILABLE"},
		{"GET", "/admin/items/1001/restock", "", nil, 405, "METHOD_NOT_ALLOWED"},

		{"POST", "/admin/items/1001/reload", "", nil, 200, ""},
		{"POST", "/admin/items/1001/reload", "", slow, 202, ""},
		{"POST", "/admin/items/1001/reload", "[]", nil, 400, "BAD_REQUEST"},
		{"POST", "/admin/items/9/reload", "", nil, 404, "NOT_FOUND"},
		{"POST", "/admin/items/1002/reload", "", nil, 409, "RETIRED"},
		{"POST", "/admin/items/1001/reload", big, nil, 413, "TOO_LARGE"},
		{"POST", "/admin/items/1001/reload", "", redisDown, 503, "UNAVAILABLE"},
		{"GET", "/admin/items/1001/reload", "", nil, 405, "METHOD_NOT_ALLOWED"},
		{"POST", "/admin/items/1001/reconcile", "", nil, 200, ""},
		{"POST", "/admin/items/1001/reconcile?fix=true", "", redisDown, 200, ""},
		{"POST", "/admin/items/1001/reconcile?fix=yes", "", nil, 400, "BAD_REQUEST"},
		{"POST", "/admin/items/1001/reconcile", "[]", nil, 400, "BAD_REQUEST"},
		{"POST", "/admin/items/9/reconcile", "", nil, 404, "NOT_FOUND"},
		{"POST", "/admin/items/1002/reconcile", "", nil, 409, "RETIRED"},
		{"POST", "/admin/items/1001/reconcile", big, nil, 413, "TOO_LARGE"},
		{"POST", "/admin/items/1001/reconcile", "", databaseDown, 503, "UNAVAILABLE"},
		{"POST", "/admin/items/1001/reconcile?x=1", "", nil, 400, "BAD_REQUEST"},
		{"GET", "/admin/items/1001/reconcile", "", nil, 405, "METHOD_NOT_ALLOWED"},

		{"GET", "/admin/orders", "", nil, 200, ""},
		{"GET", "/admin/orders?status=x", "", nil, 400, "BAD_REQUEST"},
		{"GET", "/admin/orders", "", databaseDown, 503, "UNAVAILABLE"},
		{"POST", "/admin/orders", "", nil, 405, "METHOD_NOT_ALLOWED"},
		{"GET", "/admin/orders/" + paid.String(), "", nil, 200, ""},
		{"GET", "/admin/orders/" + reserved.String(), "", nil, 200, ""},
		{"GET", "/admin/orders/7", "", nil, 400, "BAD_REQUEST"},
		{"GET", "/admin/orders/" + nobody.String(), "", nil, 404, "NOT_FOUND"},
		{"GET", "/admin/orders/" + nobody.String(), "", redisDown, 503, "UNAVAILABLE"},
		{"GET", "/admin/orders/" + paid.String(), "", databaseDown, 503, "UNAVAILABLE"},
		{"DELETE", "/admin/orders/" + paid.String(), "", nil, 405, "METHOD_NOT_ALLOWED"},
		{"POST", "/admin/orders/" + due.String() + "/refunded", "", nil, 200, ""},
		{"POST", "/admin/orders/7/refunded", "", nil, 400, "BAD_REQUEST"},
		{"POST", "/admin/orders/" + nobody.String() + "/refunded", "", nil, 404, "NOT_FOUND"},
		{"POST", "/admin/orders/" + paid.String() + "/refunded", "", nil, 409, "NOT_DUE"},
		{"POST", "/admin/orders/" + due.String() + "/refunded", `{"eventIds":["late"]}`, nil, 200, ""},
		{"POST", "/admin/orders/" + due.String() + "/refunded", `{"eventIds":["late","later"]}`, nil, 409, "NOT_DUE"},
		{"POST", "/admin/orders/" + due.String() + "/refunded", `{"eventIds":[]}`, nil, 400, "BAD_REQUEST"},
		{"POST", "/admin/orders/" + due.String() + "/refunded", big, nil, 413, "TOO_LARGE"},
		{"POST", "/admin/orders/" + due.String() + "/refunded", "", unknown, 503, "OUTCOME_UNKNOWN"},
		{"POST", "/admin/orders/" + due.String() + "/refunded", "", databaseDown, 503, "UNAVAILABLE"},
		{"GET", "/admin/orders/" + due.String() + "/refunded", "", nil, 405, "METHOD_NOT_ALLOWED"},
		{"POST", "/admin/orders/" + due.String() + "/approve", "", nil, 501, "NOT_IMPLEMENTED"},
		{"POST", "/admin/orders/" + due.String() + "/approve?x=1", "", nil, 400, "BAD_REQUEST"},
		{"GET", "/admin/orders/" + due.String() + "/approve", "", nil, 405, "METHOD_NOT_ALLOWED"},
		{"POST", "/admin/orders/" + due.String() + "/refuse", "", nil, 501, "NOT_IMPLEMENTED"},
		{"POST", "/admin/orders/" + due.String() + "/refuse?x=1", "", nil, 400, "BAD_REQUEST"},
		{"GET", "/admin/orders/" + due.String() + "/refuse", "", nil, 405, "METHOD_NOT_ALLOWED"},

		{"GET", "/admin/audit", "", nil, 200, ""},
		{"GET", "/admin/audit?subject=x", "", nil, 400, "BAD_REQUEST"},
		{"GET", "/admin/audit", "", databaseDown, 503, "UNAVAILABLE"},
		{"DELETE", "/admin/audit", "", nil, 405, "METHOD_NOT_ALLOWED"},
		{"GET", "/admin/dlq", "", nil, 200, ""},
		{"GET", "/admin/dlq?cursor=x", "", nil, 400, "BAD_REQUEST"},
		{"GET", "/admin/dlq", "", kafkaDown, 503, "UNAVAILABLE"},
		{"DELETE", "/admin/dlq", "", nil, 405, "METHOD_NOT_ALLOWED"},
		{"POST", "/admin/dlq/replay", "", nil, 200, ""},
		{"POST", "/admin/dlq/replay", `{"partition":1}`, nil, 400, "BAD_REQUEST"},
		{"POST", "/admin/dlq/replay", `{"partition":1,"offset":7}`, noLetter, 404, "NOT_FOUND"},
		{"POST", "/admin/dlq/replay", big, nil, 413, "TOO_LARGE"},
		{"POST", "/admin/dlq/replay", "", kafkaDown, 503, "UNAVAILABLE"},
		{"POST", "/admin/dlq/replay?x=1", "", nil, 400, "BAD_REQUEST"},
		{"GET", "/admin/dlq/replay", "", nil, 405, "METHOD_NOT_ALLOWED"},
		{"GET", "/admin/none", "", nil, 404, "NOT_FOUND"},
	} {
		name := test.method + " " + test.target + " " + test.body[:min(len(test.body), 60)]
		synctest.Test(t, func(t *testing.T) {
			w := prepared()
			if test.change != nil {
				test.change(w)
			}
			api := w.api(t)
			var headers []string
			if test.code == "KEY_REUSED" {
				headers = []string{"Idempotency-Key: k"}
			}
			got := do(api, test.method, test.target, test.body, headers...)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if err := api.Close(ctx); err != nil {
				t.Error(err)
			}
			var e struct{ Error, Message string }
			if err := json.Unmarshal([]byte(got.body), &e); err != nil || got.status != test.status || e.Error != test.code || (e.Message == "") == (test.code != "") && test.status != 202 {
				t.Errorf("%s: %d %s, want %d %s", name, got.status, got.body, test.status, test.code)
			}
			for header, want := range map[string]bool{"Retry-After": test.status == 503, "Allow": test.status == 405, "Location": test.status == 201 || test.status == 202 && test.target == "/admin/sales"} {
				if (got.header.Get(header) != "") != want {
					t.Errorf("%s: %s is %q", name, header, got.header.Get(header))
				}
			}
			if got.header.Get("Content-Type") != "application/json" || got.header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s: the headers are %v", name, got.header)
			}
			// Nobody gets any of it without the token.
			if got := do(api, test.method, test.target, test.body, "Authorization: Bearer wrong"); got.status != 401 || !strings.Contains(got.body, `"UNAUTHORIZED"`) {
				t.Errorf("%s, without the token: %d %s", name, got.status, got.body)
			}
		})
	}
}
