package e2e

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"flashgate/internal/apidoc"
)

// The sales of the table. Each has an item of the same id. They are made by these rows, which are part of the table.
var saleRows = []row{
	newSale("a sale of much", 101, "{before}", "{after}", `"quantity":1000,"maxPerUser":3`),
	newSale("of a single unit", 102, "{before}", "{after}", `"quantity":1`),
	newSale("of two units", 103, "{before}", "{after}", `"quantity":2,"maxPerUser":5`),
	newSale("that has not begun", 104, "{after}", "{later}", `"quantity":5`),
	newSale("that is going to be paused", 105, "{before}", "{after}", `"quantity":5`),
	newSale("that is over", 106, "{past}", "{before}", `"quantity":5`),
	newSale("that is going to end", 107, "{before}", "{after}", `"quantity":5`),
	newSale("that is cleared away when it ends", 108, "{past}", "{before}", `"quantity":5`),
	newSale("to pay for", 109, "{before}", "{after}", `"quantity":100,"maxPerUser":2`),
	newSale("that people change", 110, "{before}", "{after}", `"quantity":50`),
	newSale("that has no units, which is not unknown", 111, "{before}", "{after}", `"quantity":0`),
	newSale("for those who ask too often", 112, "{before}", "{after}", `"quantity":5`),
	{name: "everything that is left out is filled in", call: "POST /admin/sales", as: "admin",
		body:   `{"startsAt":"2026-11-27T20:00:00.123456+08:00","endsAt":"2036-11-27T00:00:00-05:30","items":[{"quantity":1,"price":"0.50","currency":"EUR"}]}`,
		status: 201, answers: map[string]string{"Location": "*"}, values: map[string]any{
			"id": anything, "name": "", "startsAt": "2026-11-27T12:00:00.123Z", "endsAt": "2036-11-27T05:30:00.000Z", "purchaseLimit": "per_item", "paymentWindow": "10m",
			"timeZone": "UTC", "paused": false, "items.0.id": anything, "items.0.shards": 13, "items.0.maxPerUser": 1, "items.0.stockModel": "counter", "items.0.price": "0.50",
			"items.0.sold": 0, "items.0.productId": 0, "items.0.sku": "", "items.0.retired": false,
		}},
	{name: "and everything that can be said is kept", call: "POST /admin/sales", as: "admin",
		body: `{"id":120,"name":"all of it","startsAt":"{before}","endsAt":"{after}","purchaseLimit":"per_item","paymentWindow":"90s","timeZone":"Asia/Tokyo",
			"items":[{"id":120,"productId":5,"sku":"S","quantity":7,"price":"19.80","currency":"USD","shards":2,"maxPerUser":2,"stockModel":"counter","approval":false,"safetyStock":0}]}`,
		status: 201, answers: map[string]string{"Location": "/admin/sales/120"}, values: map[string]any{
			"id": 120, "name": "all of it", "paymentWindow": "1m30s", "timeZone": "Asia/Tokyo", "items.0.productId": 5, "items.0.sku": "S", "items.0.shards": 2, "items.0.maxPerUser": 2,
		}},
	{name: "a sale of that id exists", call: "POST /admin/sales", as: "admin", status: 409, code: "ALREADY_EXISTS", says: "sale 101",
		body: `{"id":101,"startsAt":"{before}","endsAt":"{after}","items":[{"quantity":1,"price":"1","currency":"JPY"}]}`},
	{name: "an item of that id exists", call: "POST /admin/sales", as: "admin", status: 409, code: "ALREADY_EXISTS", says: "item 101",
		body: `{"id":199,"startsAt":"{before}","endsAt":"{after}","items":[{"id":101,"quantity":1,"price":"1","currency":"JPY"}]}`},
	{name: "two items of one id", call: "POST /admin/sales", as: "admin", status: 400, code: "BAD_REQUEST", says: "items[1].id",
		body: `{"startsAt":"{before}","endsAt":"{after}","items":[{"id":9,"quantity":1,"price":"1","currency":"JPY"},{"id":9,"quantity":1,"price":"1","currency":"JPY"}]}`},
	{name: "an end that is not later", call: "POST /admin/sales", as: "admin", status: 400, code: "BAD_REQUEST", says: "endsAt",
		body: `{"startsAt":"{before}","endsAt":"{before}","items":[{"quantity":1,"price":"1","currency":"JPY"}]}`},
	{name: "no body", call: "POST /admin/sales", as: "admin", status: 400, code: "BAD_REQUEST", says: "body"},
	{name: "a sale without the admin token", call: "POST /admin/sales", status: 401, code: "UNAUTHORIZED", body: "{}", answers: map[string]string{"WWW-Authenticate": "*"}},
	{name: "with a shopper's token", call: "POST /admin/sales", as: "1", status: 401, code: "UNAUTHORIZED", body: "{}"},
	{name: "a sale of more than a megabyte", call: "POST /admin/sales", as: "admin", status: 413, code: "TOO_LARGE", body: `{"name":"` + strings.Repeat("x", 1<<20) + `"}`},
	{name: "the sale is paused", call: "PATCH /admin/sales/105", as: "admin", body: `{"paused":true}`, status: 200, values: map[string]any{"paused": true}},
}

func newSale(name string, id int, from, to, item string) row {
	n := strconv.Itoa(id)
	return row{
		name: name, call: "POST /admin/sales", as: "admin", status: 201, answers: map[string]string{"Location": "/admin/sales/" + n, "Cache-Control": "no-store"},
		body: `{"id":` + n + `,"name":"` + name + `","startsAt":"` + from + `","endsAt":"` + to + `","items":[{"id":` + n + `,"sku":"SKU","price":"1980","currency":"JPY","shards":3,` + item + `}]}`,
	}
}

const itemPath = "GET /api/flash-sales/items/"

var itemRows = []row{
	{name: "an item on sale", call: itemPath + "101", status: 200, answers: map[string]string{"Cache-Control": "public, max-age=1"}, values: map[string]any{
		"itemId": 101, "saleId": 101, "status": "ON_SALE", "price": "1980", "currency": "JPY", "maxPerUser": 3, "startsAt": anything, "endsAt": anything, "serverTime": anything,
	}},
	{name: "before its start", call: itemPath + "104", status: 200, values: map[string]any{"status": "UPCOMING"}},
	{name: "paused", call: itemPath + "105", status: 200, values: map[string]any{"status": "PAUSED"}},
	{name: "over", call: itemPath + "106", status: 200, values: map[string]any{"status": "ENDED"}},
	{name: "for a page of the shop", call: itemPath + "101", header: []string{"Origin", pageOrigin}, status: 200,
		answers: map[string]string{"Vary": "Origin", "Access-Control-Allow-Origin": pageOrigin, "Access-Control-Expose-Headers": "Location, Retry-After"}},
	{name: "an item that does not exist", call: itemPath + "9", status: 404, code: "NOT_FOUND", answers: map[string]string{"Cache-Control": "no-store"}},
	{name: "an id that is none", call: itemPath + "0101", status: 400, code: "BAD_REQUEST", says: "item id"},
	{name: "the process runs, for operators", call: "GET /livez", desk: true, status: 200, values: map[string]any{"status": "ok"}},
	{name: "and is ready, for operators", call: "GET /readyz", desk: true, until: true, status: 200, values: map[string]any{"status": "ready"}},
	{name: "the process runs", call: "GET /livez", status: 200, values: map[string]any{"status": "ok"}},
	{name: "and sells", call: "GET /readyz", status: 200, values: map[string]any{"status": "ready"}, until: true},
}

var purchaseRows = []row{
	buys("one unit", 101, "1", "", 202, "", row{keep: "first", answers: map[string]string{"Location": "/api/flash-sales/orders/{first}", "Cache-Control": "no-store"}, values: map[string]any{"status": "PENDING", "orderId": anything}}),
	buys("with an empty object", 101, "2", "{}", 202, "", row{}),
	buys("three units with a key", 101, "3", `{"quantity":3}`, 202, "", row{keep: "third", header: []string{"Idempotency-Key", "k"}}),
	buys("the same again", 101, "3", `{"quantity":3}`, 202, "", row{header: []string{"Idempotency-Key", "k"}, values: map[string]any{"orderId": "{third}"}}),
	buys("the same key for less", 101, "3", `{"quantity":2}`, 422, "KEY_REUSED", row{header: []string{"Idempotency-Key", "k"}}),
	buys("another key", 101, "3", "", 409, "ALREADY_PURCHASED", row{header: []string{"Idempotency-Key", "l"}, values: map[string]any{"orderId": "{third}"}}),
	buys("no key", 101, "3", "", 409, "ALREADY_PURCHASED", row{values: map[string]any{"orderId": "{third}"}}),
	buys("more than a user may have", 101, "4", `{"quantity":4}`, 400, "BAD_REQUEST", row{says: "quantity: must be between 1 and 3"}),
	buys("with a trace that is none", 101, "5", "", 202, "", row{header: []string{"Traceparent", "00-0-0-0"}}),
	buys("without a token", 101, "", "", 401, "UNAUTHORIZED", row{answers: map[string]string{"WWW-Authenticate": `Bearer realm="flashgate"`}}),
	buys("with a token that is none", 101, "", "", 401, "UNAUTHORIZED", row{header: []string{"Authorization", "Bearer a.b.c"}, answers: map[string]string{"WWW-Authenticate": `Bearer realm="flashgate", error="invalid_token"`}}),
	buys("before the start", 104, "1", "", 403, "NOT_STARTED", row{values: map[string]any{"startsAt": anything}}),
	buys("during a pause", 105, "1", "", 403, "SALE_PAUSED", row{}),
	buys("what does not exist", 9, "1", "", 404, "NOT_FOUND", row{}),
	buys("after the end", 106, "1", "", 410, "SALE_ENDED", row{answers: map[string]string{"Cache-Control": "no-store"}}),
	buys("the last unit", 102, "1", "", 202, "", row{keep: "last", header: []string{"Idempotency-Key", "k"}}),
	buys("nothing is left", 102, "2", "", 410, "SOLD_OUT", row{}),
	{name: "which shows", call: itemPath + "102", status: 200, values: map[string]any{"status": "SOLD_OUT"}, until: true},
	buys("the winner again", 102, "1", "", 202, "", row{header: []string{"Idempotency-Key", "k"}, until: true, values: map[string]any{"orderId": "{last}"}}),
	buys("the winner without his key", 102, "1", "", 409, "ALREADY_PURCHASED", row{values: map[string]any{"orderId": "{last}"}}),
	buys("nothing is left, without a token", 102, "", "", 410, "SOLD_OUT", row{}),
	buys("nothing was ever there", 111, "1", "", 410, "SOLD_OUT", row{}),
	buys("more than is left", 103, "1", `{"quantity":3}`, 409, "INSUFFICIENT_STOCK", row{values: map[string]any{"available": 2}}),
	buys("in a sale that is about to end", 107, "1", "", 202, "", row{keep: "ended", header: []string{"Idempotency-Key", "k"}}),
	{name: "it ends", call: "PATCH /admin/sales/107", as: "admin", body: `{"endsAt":"{before}","startsAt":null}`, status: 400, code: "BAD_REQUEST", says: "startsAt"},
	{name: "it ends, by its end alone", call: "PATCH /admin/sales/107", as: "admin", body: `{"endsAt":"{now}"}`, status: 200, values: map[string]any{"endsAt": anything}},
	buys("the winner after the end", 107, "1", "", 202, "", row{header: []string{"Idempotency-Key", "k"}, until: true, values: map[string]any{"orderId": "{ended}"}}),
	buys("the winner after the end, without his key", 107, "1", "", 409, "ALREADY_PURCHASED", row{values: map[string]any{"orderId": "{ended}"}}),
	buys("somebody else after the end", 107, "2", "", 410, "SALE_ENDED", row{}),
}

// buys is a purchase; more has what is special about it.
func buys(name string, item int, user, body string, status int, code string, more row) row {
	more.name, more.call, more.as, more.body = "buy: "+name, "POST /api/flash-sales/items/"+strconv.Itoa(item)+"/purchase", user, body
	more.status, more.code = status, code
	return more
}

const ordersPath = " /api/flash-sales/orders"

var orderRows = []row{
	{name: "an order becomes payable", call: "GET" + ordersPath + "/{first}", as: "1", until: true, status: 200, values: map[string]any{
		"orderId": "{first}", "itemId": 101, "quantity": 1, "price": "1980", "currency": "JPY", "status": "PENDING", "payable": true, "refundDue": false, "expiresAt": anything, "reservedAt": anything,
	}, answers: map[string]string{"Cache-Control": "no-store"}},
	{name: "the order of an item", call: "GET" + ordersPath + "?itemId=101", as: "3", status: 200, values: map[string]any{"orderId": "{third}", "quantity": 3}},
	{name: "somebody else's", call: "GET" + ordersPath + "/{first}", as: "2", status: 404, code: "NOT_FOUND"},
	{name: "no such order", call: "GET" + ordersPath + "/{nobody}", as: "1", status: 404, code: "NOT_FOUND"},
	{name: "an id that is none", call: "GET" + ordersPath + "/7", as: "1", status: 400, code: "BAD_REQUEST", says: "order id"},
	{name: "without a token", call: "GET" + ordersPath + "/{first}", status: 401, code: "UNAUTHORIZED", answers: map[string]string{"WWW-Authenticate": `Bearer realm="flashgate"`}},
	{name: "no live order of the item", call: "GET" + ordersPath + "?itemId=103", as: "1", status: 404, code: "NOT_FOUND"},
	{name: "no such item", call: "GET" + ordersPath + "?itemId=9", as: "1", status: 404, code: "NOT_FOUND"},
	{name: "which item", call: "GET" + ordersPath, as: "1", status: 400, code: "BAD_REQUEST", says: "itemId"},
	{name: "of an item, without a token", call: "GET" + ordersPath + "?itemId=101", status: 401, code: "UNAUTHORIZED"},
}

var cancelRows = []row{
	buys("to cancel", 101, "21", "", 202, "", row{keep: "regret"}),
	{name: "somebody else cancels", call: "DELETE" + ordersPath + "/{regret}", as: "22", status: 404, code: "NOT_FOUND"},
	{name: "without a token", call: "DELETE" + ordersPath + "/{regret}", status: 401, code: "UNAUTHORIZED"},
	{name: "an id that is none", call: "DELETE" + ordersPath + "/x", as: "21", status: 400, code: "BAD_REQUEST", says: "order id"},
	{name: "cancelled", call: "DELETE" + ordersPath + "/{regret}", as: "21", status: 200, values: map[string]any{"status": "CANCELLED", "payable": false, "orderId": "{regret}"}},
	{name: "cancelled again", call: "DELETE" + ordersPath + "/{regret}", as: "21", status: 200, values: map[string]any{"status": "CANCELLED"}},
	{name: "and read", call: "GET" + ordersPath + "/{regret}", as: "21", status: 200, values: map[string]any{"status": "CANCELLED", "payable": false}},
	{name: "no live order any more", call: "GET" + ordersPath + "?itemId=101", as: "21", status: 404, code: "NOT_FOUND"},
	buys("again", 101, "21", "", 202, "", row{}),
}

const paymentPath = "POST /api/flash-sales/payments"

// event is the body of a payment.
func event(id, order, status, amount, currency string) string {
	text, _ := json.Marshal(map[string]string{"eventId": id, "orderId": order, "status": status, "amount": amount, "currency": currency})
	return string(text)
}

// signature is the header of a payment.
func signature(at time.Time, secret string, body []byte) string {
	stamp := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(stamp + "."))
	mac.Write(body)
	return "t=" + stamp + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}

func pays(name, body string, status int, code string, more row) row {
	more.name, more.call, more.body, more.status, more.code = "pay: "+name, paymentPath, body, status, code
	if more.as == "" && len(more.header) == 0 {
		more.as = "provider"
	}
	return more
}

var paymentRows = []row{
	buys("to pay for", 109, "31", `{"quantity":2}`, 202, "", row{keep: "paid"}),
	buys("to pay for twice", 109, "32", "", 202, "", row{keep: "twice"}),
	buys("to pay for after cancelling", 109, "33", "", 202, "", row{keep: "late"}),
	{name: "until it is payable", call: "GET" + ordersPath + "/{paid}", as: "31", until: true, status: 200, values: map[string]any{"payable": true}},
	{name: "and the second", call: "GET" + ordersPath + "/{twice}", as: "32", until: true, status: 200, values: map[string]any{"payable": true}},
	pays("a failed attempt", event("f1", "{paid}", "FAILED", "3960", "JPY"), 200, "", row{values: map[string]any{"orderId": "{paid}", "status": "PENDING", "refundDue": false}}),
	pays("the price of one", event("e1", "{paid}", "SUCCEEDED", "1980", "JPY"), 422, "AMOUNT_MISMATCH", row{}),
	pays("in another currency", event("e1", "{paid}", "SUCCEEDED", "3960", "USD"), 422, "AMOUNT_MISMATCH", row{}),
	pays("the price, in other words", event("e1", "{paid}", "SUCCEEDED", "3960.00", "JPY"), 200, "", row{values: map[string]any{"orderId": "{paid}", "status": "PAID", "refundDue": false}}),
	pays("told again", event("e1", "{paid}", "SUCCEEDED", "3960", "JPY"), 200, "", row{values: map[string]any{"status": "PAID", "refundDue": false}}),
	pays("the same event of another order", event("e1", "{twice}", "SUCCEEDED", "1980", "JPY"), 422, "EVENT_REUSED", row{}),
	pays("once", event("e2", "{twice}", "SUCCEEDED", "1980", "JPY"), 200, "", row{values: map[string]any{"status": "PAID", "refundDue": false}}),
	pays("twice", event("e3", "{twice}", "SUCCEEDED", "1980", "JPY"), 200, "", row{values: map[string]any{"status": "PAID", "refundDue": true}}),
	{name: "a paid order is not cancelled", call: "DELETE" + ordersPath + "/{paid}", as: "31", status: 409, code: "NOT_CANCELLABLE", values: map[string]any{"status": "PAID"}},
	{name: "one is cancelled", call: "DELETE" + ordersPath + "/{late}", as: "33", status: 200, values: map[string]any{"status": "CANCELLED"}},
	pays("after the cancellation", event("e4", "{late}", "SUCCEEDED", "1980", "JPY"), 200, "", row{values: map[string]any{"status": "CANCELLED", "refundDue": true}}),
	pays("for an order that does not exist", event("e5", "{ghost}", "SUCCEEDED", "1980", "JPY"), 404, "NOT_FOUND", row{}),
	pays("for what cannot be an order", event("e5", "00000000-0000-4000-8000-000000000000", "SUCCEEDED", "1980", "JPY"), 404, "NOT_FOUND", row{}),
	pays("unsigned", event("e6", "{paid}", "SUCCEEDED", "3960", "JPY"), 401, "UNAUTHORIZED", row{header: []string{"X-Nothing", ""}, answers: map[string]string{"WWW-Authenticate": `Flashgate-Signature realm="flashgate"`}}),
	pays("with a shopper's token", event("e6", "{paid}", "SUCCEEDED", "3960", "JPY"), 401, "UNAUTHORIZED", row{as: "31"}),
	pays("signed for another amount", event("e6", "{paid}", "SUCCEEDED", "3960", "JPY"), 401, "UNAUTHORIZED", row{header: []string{"Flashgate-Signature", "{otherSignature}"}}),
	pays("signed ten minutes ago", "{}", 401, "UNAUTHORIZED", row{header: []string{"Flashgate-Signature", "{oldSignature}"}}),
	pays("signed in ten minutes", "{}", 401, "UNAUTHORIZED", row{header: []string{"Flashgate-Signature", "{earlySignature}"}}),
	pays("without anything in it", "{}", 400, "BAD_REQUEST", row{says: "eventId"}),
}

// badSignatures are names for headers that rows send where they do not fit.
func badSignatures() map[string]string {
	now := time.Now()
	return map[string]string{
		"otherSignature": signature(now, paymentSecret, []byte(`{"amount":"1"}`)),
		"oldSignature":   signature(now.Add(-10*time.Minute), paymentSecret, []byte("{}")),
		"earlySignature": signature(now.Add(10*time.Minute), paymentSecret, []byte("{}")),
	}
}

// decoded reads an answer as the other tests of this package do.
func decoded(a apidoc.Answer) answer {
	d := answer{status: a.Status, header: a.Header, text: string(a.Body)}
	_ = json.Unmarshal(a.Body, &d.body)
	return d
}

var limitRows = []row{
	{name: "the limited gateway learns of the item", call: itemPath + "112", at: "limited", status: 200, until: true},
	buys("within the limits", 112, "41", "", 202, "", row{at: "limited"}),
	buys("one user too often", 112, "41", "", 429, "RATE_LIMITED", row{at: "limited", header: []string{"X-Forwarded-For", "192.0.2.1"}, answers: map[string]string{"Retry-After": "*", "Cache-Control": "no-store"}}),
	buys("an address the last time", 112, "42", "", 202, "", row{at: "limited", header: []string{"X-Forwarded-For", "192.0.2.1"}}),
	buys("an address too often", 112, "43", "", 429, "RATE_LIMITED", row{at: "limited", header: []string{"X-Forwarded-For", "192.0.2.1"}, answers: map[string]string{"Retry-After": "*"}}),
	{name: "an order, once", call: "GET" + ordersPath + "?itemId=101", as: "41", at: "limited", status: 404, code: "NOT_FOUND"},
	{name: "too often", call: "GET" + ordersPath + "?itemId=101", as: "41", at: "limited", status: 429, code: "RATE_LIMITED", answers: map[string]string{"Retry-After": "*"}},
	{name: "an order, too often", call: "GET" + ordersPath + "/{first}", as: "41", at: "limited", status: 429, code: "RATE_LIMITED", answers: map[string]string{"Retry-After": "*"}},
	{name: "a cancellation, too often", call: "DELETE" + ordersPath + "/{first}", as: "41", at: "limited", status: 429, code: "RATE_LIMITED", answers: map[string]string{"Retry-After": "*"}},
}
