package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"flashgate/internal/admin"
	"flashgate/internal/sale"
)

const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// buy puts a pending order of item 1001 into the database of a world.
func (w *world) buy(change func(*sale.Order)) sale.OrderID {
	o := sale.Order{
		ID: sale.NewOrderID(1001), ItemID: 1001, UserID: "alice", Quantity: 2, Price: "19.80", Currency: "EUR", Status: sale.Pending, KeyHash: "hash",
		Shard: 1, Epoch: 7, ReservedAt: someTime, CreatedAt: someTime.Add(time.Second), ExpiresAt: someTime.Add(time.Minute), Trace: trace,
	}
	change(&o)
	w.orders = append(w.orders, o)
	return o.ID
}

// now is a clock a little after someTime, in front of which orders can be paid.
func now(c *admin.Config) { c.Now = func() time.Time { return someTime.Add(30 * time.Second) } }

func TestShowOrder(t *testing.T) {
	const head = `,"itemId":1001,"userId":"alice","quantity":2,"price":"19.80","currency":"EUR",`
	const middle = `"shard":1,"epoch":7,"reservedAt":"2026-11-27T12:30:00.250Z",`
	const created = `"createdAt":"2026-11-27T12:30:01.250Z","expiresAt":"2026-11-27T12:31:00.250Z",`
	for _, test := range []struct {
		name     string
		order    func(*sale.Order)
		payments []admin.Payment
		want     string
	}{
		{
			"pending", func(*sale.Order) {}, nil,
			head + `"status":"PENDING","payable":true,"refundDue":false,"refundsDue":0,` + middle + created +
				`"paidAt":null,"endedAt":null,"refundedAt":null,"rejectReason":null,"trace":"` + trace + `","inDatabase":true,"payments":[]}`,
		},
		{
			"overdue, and not yet expired", func(o *sale.Order) { o.ExpiresAt = someTime.Add(30 * time.Second) }, nil,
			head + `"status":"PENDING","payable":false,"refundDue":false,"refundsDue":0,` + middle + strings.Replace(created, "31:00", "30:30", 1) +
				`"paidAt":null,"endedAt":null,"refundedAt":null,"rejectReason":null,"trace":"` + trace + `","inDatabase":true,"payments":[]}`,
		},
		{
			"paid at the second attempt", func(o *sale.Order) { o.Status, o.PaidAt, o.Trace = sale.Paid, someTime.Add(9*time.Second), "" },
			[]admin.Payment{
				{EventID: "e1", Amount: "39.60", Currency: "EUR", Effect: "failed", ReceivedAt: someTime.Add(8 * time.Second)},
				{EventID: "e2", Succeeded: true, Amount: "39.6", Currency: "EUR", Effect: "paid", ReceivedAt: someTime.Add(9 * time.Second)},
			},
			head + `"status":"PAID","payable":false,"refundDue":false,"refundsDue":0,` + middle + created +
				`"paidAt":"2026-11-27T12:30:09.250Z","endedAt":null,"refundedAt":null,"rejectReason":null,"trace":null,"inDatabase":true,"payments":[` +
				`{"eventId":"e1","status":"FAILED","amount":"39.60","currency":"EUR","effect":"failed","receivedAt":"2026-11-27T12:30:08.250Z","refundedAt":null},` +
				`{"eventId":"e2","status":"SUCCEEDED","amount":"39.6","currency":"EUR","effect":"paid","receivedAt":"2026-11-27T12:30:09.250Z","refundedAt":null}]}`,
		},
		{
			"expired, paid too late, and paid back", func(o *sale.Order) {
				o.Status, o.EndedAt, o.RefundedAt = sale.Expired, someTime.Add(61*time.Second), someTime.Add(time.Hour)
			},
			[]admin.Payment{{EventID: "e1", Succeeded: true, Amount: "39.60", Currency: "EUR", Effect: "refund_due", ReceivedAt: someTime.Add(2 * time.Minute), RefundedAt: someTime.Add(time.Hour)}},
			head + `"status":"EXPIRED","payable":false,"refundDue":false,"refundsDue":0,` + middle + created +
				`"paidAt":null,"endedAt":"2026-11-27T12:31:01.250Z","refundedAt":"2026-11-27T13:30:00.250Z","rejectReason":null,"trace":"` + trace + `","inDatabase":true,"payments":[` +
				`{"eventId":"e1","status":"SUCCEEDED","amount":"39.60","currency":"EUR","effect":"refund_due","receivedAt":"2026-11-27T12:32:00.250Z","refundedAt":"2026-11-27T13:30:00.250Z"}]}`,
		},
		{
			"rejected", func(o *sale.Order) {
				o.Status, o.EndedAt, o.ExpiresAt, o.RejectReason, o.RefundsDue = sale.Rejected, o.CreatedAt, time.Time{}, "no_room", 2
			}, nil,
			head + `"status":"REJECTED","payable":false,"refundDue":true,"refundsDue":2,` + middle + `"createdAt":"2026-11-27T12:30:01.250Z","expiresAt":null,` +
				`"paidAt":null,"endedAt":"2026-11-27T12:30:01.250Z","refundedAt":null,"rejectReason":"no_room","trace":"` + trace + `","inDatabase":true,"payments":[]}`,
		},
	} {
		w := newWorld()
		id := w.buy(test.order)
		w.payments[id] = test.payments
		for _, spelling := range []string{id.String(), strings.ToUpper(id.String())} {
			got := do(w.apiWith(t, now), "GET", "/admin/orders/"+spelling, "")
			if want := `{"orderId":"` + id.String() + `"` + test.want + "\n"; got.status != 200 || got.body != want {
				t.Errorf("%s: %d\n%s, want\n%s", test.name, got.status, got.body, want)
			}
		}
	}
}

// TestShowOrderThatIsNotInTheDatabase looks for orders where they are before the consumer has written them.
func TestShowOrderThatIsNotInTheDatabase(t *testing.T) {
	event := func(id sale.OrderID) sale.Event {
		return sale.Event{
			OrderID: id, ItemID: 1001, UserID: "alice", Quantity: 2, Shard: 1, Epoch: 7, ReservedAt: someTime, Price: "19.80", Currency: "EUR", KeyHash: "hash", Trace: trace,
		}
	}
	id := sale.NewOrderID(1001)
	reserved := `{"orderId":"` + id.String() + `","itemId":1001,"userId":"alice","quantity":2,"price":"19.80","currency":"EUR","status":"PENDING","payable":false,` +
		`"refundDue":false,"refundsDue":0,"shard":1,"epoch":7,"reservedAt":"2026-11-27T12:30:00.250Z","createdAt":null,"expiresAt":null,"paidAt":null,"endedAt":null,` +
		`"refundedAt":null,"rejectReason":null,"trace":"` + trace + `","inDatabase":false,"payments":[]}` + "\n"
	notThere := fmt.Sprintf(`{"error":"NOT_FOUND","message":"order %s does not exist"}`+"\n", id)
	for _, test := range []struct {
		name   string
		change func(*world)
		status int
		want   string
		steps  []string
	}{
		{"reserved", func(w *world) { w.reserved = []sale.Event{event(id)} }, 200, reserved, []string{"order", "item", "find in item 1001"}},
		{"nowhere", func(*world) {}, 404, notThere, []string{"order", "item", "find in item 1001", "order"}},
		{
			"written, ended and released between the two looks", func(w *world) {
				w.find = func() { w.buy(func(o *sale.Order) { o.ID, o.Status, o.EndedAt = id, sale.Cancelled, someTime }) }
			}, 200, `"status":"CANCELLED"`, []string{"order", "item", "find in item 1001", "order", "payments"},
		},
		{
			"written while Redis is away", func(w *world) {
				w.redisDown = true
				w.find = func() { w.buy(func(o *sale.Order) { o.ID = id }) }
			}, 200, `"status":"PENDING"`, []string{"order", "item", "find in item 1001", "order", "payments"},
		},
		{
			"Redis is away", func(w *world) { w.redisDown = true }, 503,
			`{"error":"UNAVAILABLE","message":"the order is not in the database, and whether it is reserved cannot be read from Redis"}` + "\n",
			[]string{"order", "item", "find in item 1001", "order"},
		},
		{
			"the database is away", func(w *world) { w.databaseDown = true }, 503,
			`{"error":"UNAVAILABLE","message":"the database does not answer or refused"}` + "\n", []string{"order"},
		},
		{
			"the database goes away", func(w *world) { w.find = func() { w.databaseDown = true } }, 503,
			`{"error":"UNAVAILABLE","message":"the database does not answer or refused"}` + "\n", []string{"order", "item", "find in item 1001", "order"},
		},
		{"of an item that is retired", func(w *world) { it, _ := w.item(1001); it.RetiredAt = someTime }, 404, notThere, []string{"order", "item", "order"}},
		{"of an item that was never loaded", func(w *world) { it, _ := w.item(1001); it.Epoch = 0 }, 404, notThere, []string{"order", "item", "order"}},
		{"of an item that is not there", func(w *world) { clear(w.sales) }, 404, notThere, []string{"order", "item", "order"}},
	} {
		w := newWorld()
		w.put(1, 10)
		w.told()
		test.change(w)
		got := do(w.api(t), "GET", "/admin/orders/"+id.String(), "")
		if got.status != test.status || !strings.Contains(got.body, test.want) {
			t.Errorf("%s: %d\n%s, want %d\n%s", test.name, got.status, got.body, test.status, test.want)
		}
		if steps := w.told(); !slices.Equal(steps, test.steps) {
			t.Errorf("%s: the steps were %q, want %q", test.name, steps, test.steps)
		}
	}
	// An id without an item in it is nobody's.
	w := newWorld()
	refused(t, "any UUID", do(w.api(t), "GET", "/admin/orders/0b0b7a9e-5a8f-4c39-9f3c-0d6c2f0f8a11", ""), 404, "NOT_FOUND", "order 0b0b7a9e-5a8f-4c39-9f3c-0d6c2f0f8a11 does not exist")
	for _, bad := range []string{"1", "x", id.String()[1:], strings.Replace(id.String(), "-", "_", 1), id.String() + "0"} {
		refused(t, bad, do(w.api(t), "GET", "/admin/orders/"+bad, ""), 400, "BAD_REQUEST", "id: not a UUID")
		refused(t, bad, do(w.api(t), "POST", "/admin/orders/"+bad+"/refunded", ""), 400, "BAD_REQUEST", "id: not a UUID")
	}
	refused(t, "parameter", do(w.api(t), "GET", "/admin/orders/"+id.String()+"?full=1", ""), 400, "BAD_REQUEST", `"full": is not a parameter of this path`)
}

func TestRefunded(t *testing.T) {
	w := newWorld()
	due := w.buy(func(o *sale.Order) { o.Status, o.RefundsDue = sale.Cancelled, 1 })
	paid := w.buy(func(o *sale.Order) { o.Status = sale.Paid })
	w.payments[due] = []admin.Payment{{EventID: "e1", Succeeded: true, Amount: "39.60", Currency: "EUR", Effect: "refund_due", ReceivedAt: someTime}}
	api := w.api(t)
	post := func(id sale.OrderID, body string) answer {
		return do(api, "POST", "/admin/orders/"+id.String()+"/refunded", body)
	}
	first := post(due, "")
	var view admin.OrderDetailView
	if err := json.Unmarshal([]byte(first.body), &view); err != nil || first.status != 200 || view.RefundDue || view.RefundedAt == nil || len(view.Payments) != 1 {
		t.Errorf("refunded: %d %s, %v", first.status, first.body, err)
	}
	if again := post(due, "{}"); again.status != 200 || again.body != first.body {
		t.Errorf("again: %d %s", again.status, again.body)
	}
	if shown := do(api, "GET", "/admin/orders/"+due.String(), ""); shown.body != first.body {
		t.Errorf("shown as %s", shown.body)
	}
	refused(t, "nothing due", post(paid, ""), 409, "NOT_DUE", "no refund of order "+paid.String()+" is due")
	stranger := sale.NewOrderID(1001)
	refused(t, "no order", post(stranger, ""), 404, "NOT_FOUND", "order "+stranger.String()+" is not in the database")
	for body, message := range map[string]string{
		`{"eventIds":[]}`:           "eventIds: names no payment; leave it out to mark everything that is due",
		`{"eventIds":null}`:         "eventIds: must be an array, not null",
		`{"eventIds":"e1"}`:         "eventIds: must be an array, not a string",
		`{"eventIds":[1]}`:          "eventIds[0]: must be a string, not a number",
		`{"eventIds":["e1",""]}`:    "eventIds[1]: must be 1 to 128 visible ASCII characters",
		`{"eventIds":["e 1"]}`:      "eventIds[0]: must be 1 to 128 visible ASCII characters",
		`{"eventIds":["e1"],"x":1}`: "x: is not known here",
		`{"refundsDue":1}`:          "refundsDue: is not known here",
	} {
		refused(t, body, post(due, body), 400, "BAD_REQUEST", message)
	}
	refused(t, "body", post(due, `{"amount":"5"}`), 400, "BAD_REQUEST", "amount: is not known here")
	refused(t, "body", post(due, `[]`), 400, "BAD_REQUEST", "the body: must be a JSON object")
	refused(t, "body", post(due, strings.Repeat(" ", admin.MaxBody+1)), 413, "TOO_LARGE", "the body is larger")
	refused(t, "parameter", do(api, "POST", "/admin/orders/"+due.String()+"/refunded?x=1", ""), 400, "BAD_REQUEST", `"x": is not a parameter`)
	w.outcomeUnknown = true
	refused(t, "commit lost", post(due, ""), 503, "OUTCOME_UNKNOWN", "whether the change was stored is unknown")
	w.outcomeUnknown = false
	w.databaseDown = true
	refused(t, "database away", post(due, ""), 503, "UNAVAILABLE", "the database does not answer or refused; nothing was changed")
}

// TestRefundedByName has two operators pay back the same payment, and another one come in between their words.
func TestRefundedByName(t *testing.T) {
	w := newWorld()
	due := w.buy(func(o *sale.Order) { o.Status, o.RefundsDue = sale.Paid, 1 })
	late := func(event string) admin.Payment {
		return admin.Payment{EventID: event, Succeeded: true, Amount: "39.60", Currency: "EUR", Effect: "refund_due", ReceivedAt: someTime}
	}
	w.payments[due] = []admin.Payment{{EventID: "e0", Succeeded: true, Amount: "39.60", Currency: "EUR", Effect: "paid", ReceivedAt: someTime}, late("e1")}
	var log bytes.Buffer
	api := w.apiWith(t, func(c *admin.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	target := "/admin/orders/" + due.String() + "/refunded"
	for i, body := range []string{`{"eventIds":["e1"]}`, `{"eventIds":["e1"]}`, `{"eventIds":["e1","e1"]}`} {
		want := `"refundDue":false,"refundsDue":0,`
		if i > 0 {
			want = `"refundDue":true,"refundsDue":1,`
		}
		if got := do(api, "POST", target, body); got.status != 200 || !strings.Contains(got.body, want) {
			t.Errorf("said %d times before: %d %s", i, got.status, got.body)
		}
		if i == 0 {
			w.payments[due] = append(w.payments[due], late("e2"))
			w.orders[w.at(due)].RefundsDue++
		}
	}
	for _, event := range []string{"e0", "e9"} {
		refused(t, event, do(api, "POST", target, `{"eventIds":["e2","`+event+`"]}`), 409, "NOT_DUE",
			"eventIds: "+event+" is no payment of order "+due.String()+" that has to be paid back; nothing was marked")
	}
	if p := w.payments[due][2]; !p.RefundedAt.IsZero() {
		t.Errorf("a payment that nobody paid back is marked: %+v", p)
	}
	if n := strings.Count(log.String(), "order refunded"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, &log)
	}
}

// TestRefundedAndThenTheDatabaseGoesAway must not say that nothing was changed.
func TestRefundedAndThenTheDatabaseGoesAway(t *testing.T) {
	w := newWorld()
	due := w.buy(func(o *sale.Order) { o.RefundsDue = 1 })
	api := w.apiWith(t, func(c *admin.Config) { c.Orders = forgetful{w} })
	refused(t, "refunded", do(api, "POST", "/admin/orders/"+due.String()+"/refunded", ""), 503, "UNAVAILABLE", "the refund is marked, but the order could not be read afterwards")
}

// forgetful is a world whose database goes away when something has been refunded.
type forgetful struct{ *world }

func (f forgetful) Payments(ctx context.Context, id sale.OrderID) ([]admin.Payment, error) {
	f.databaseDown = true
	return f.world.Payments(ctx, id)
}

func TestListOrders(t *testing.T) {
	w := newWorld()
	var all, ofOther, due []string
	for i := range 5 {
		id := w.buy(func(o *sale.Order) {
			o.Status = []sale.OrderStatus{sale.Pending, sale.Paid, sale.Expired, sale.Cancelled, sale.Rejected}[i]
			if i >= 3 {
				o.RefundsDue = 1
			}
			if i%2 == 1 {
				o.ItemID = 1002
			}
		})
		all = append(all, id.String())
		if i%2 == 1 {
			ofOther = append(ofOther, id.String())
		}
		if i >= 3 {
			due = append(due, id.String())
		}
	}
	api := w.apiWith(t, now)
	// walk asks for page after page.
	walk := func(query string) (ids []string, pages int) {
		target := "/admin/orders?" + query
		for {
			got := do(api, "GET", target, "")
			var view admin.OrdersView
			if err := json.Unmarshal([]byte(got.body), &view); err != nil || got.status != 200 {
				t.Fatalf("GET %s: %d %s, %v", target, got.status, got.body, err)
			}
			for _, o := range view.Orders {
				ids = append(ids, o.OrderID)
			}
			if pages++; view.NextCursor == nil {
				return ids, pages
			}
			target = "/admin/orders?" + query + "&cursor=" + *view.NextCursor
		}
	}
	for _, test := range []struct {
		query string
		want  []string
		pages int
	}{
		{"limit=100", all, 1}, {"limit=2", all, 3}, {"limit=5", all, 1}, {"item=1002&limit=1", ofOther, 2}, {"item=7", nil, 1},
		{"status=PENDING", all[:1], 1}, {"status=PAID", all[1:2], 1}, {"status=EXPIRED", all[2:3], 1}, {"status=CANCELLED", all[3:4], 1},
		{"status=REJECTED", all[4:], 1}, {"status=REFUND_DUE", due, 1}, {"status=REFUND_DUE&item=1001&limit=1", all[4:], 1},
	} {
		if ids, pages := walk(test.query); !slices.Equal(ids, test.want) || pages != test.pages {
			t.Errorf("%s: %v on %d pages, want %v on %d", test.query, ids, pages, test.want, test.pages)
		}
	}
	one := do(api, "GET", "/admin/orders?status=PENDING", "")
	want := `{"orders":[{"orderId":"` + all[0] + `","itemId":1001,"userId":"alice","quantity":2,"price":"19.80","currency":"EUR","status":"PENDING","payable":true,` +
		`"refundDue":false,"refundsDue":0,"shard":1,"epoch":7,"reservedAt":"2026-11-27T12:30:00.250Z","createdAt":"2026-11-27T12:30:01.250Z","expiresAt":"2026-11-27T12:31:00.250Z",` +
		`"paidAt":null,"endedAt":null,"refundedAt":null,"rejectReason":null,"trace":"` + trace + `","inDatabase":true}],"nextCursor":null}` + "\n"
	if one.body != want {
		t.Errorf("a list is\n%s, want\n%s", one.body, want)
	}
	w.told()
	do(api, "GET", "/admin/orders", "")
	if steps := w.told(); !slices.Equal(steps, []string{"orders {Item:0 Status: Cursor: Limit:20}"}) {
		t.Errorf("by default asked for %v", steps)
	}
	for _, test := range []struct{ query, message string }{
		{"item=0", "item: not a decimal integer"},
		{"item=", "item: not a decimal integer"},
		{"item=1001x", "item: not a decimal integer"},
		{"status=", "status: must be one of PENDING, PAID, EXPIRED, CANCELLED, REJECTED, REFUND_DUE"},
		{"status=paid", "status: must be one of"},
		{"status=PAID&status=PAID", "status: comes twice"},
		{"limit=0", "limit: must be an integer from 1 to 100"},
		{"limit=101", "limit: must be an integer from 1 to 100"},
		{"limit=1.0", "limit: must be an integer from 1 to 100"},
		{"cursor=", "cursor: is not one that an answer gave"},
		{"cursor=x", "cursor: is not one that an answer gave"},
		{"user=alice", `"user": is not a parameter of this path`},
		{"itemId=1", `"itemId": is not a parameter of this path`},
	} {
		refused(t, test.query, do(api, "GET", "/admin/orders?"+test.query, ""), 400, "BAD_REQUEST", test.message)
	}
}
