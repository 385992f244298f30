package e2e

var refundRows = []row{
	{name: "refunds that are due", call: "GET /admin/orders?status=REFUND_DUE&item=109", as: "admin", status: 200, values: map[string]any{
		"orders.0.refundDue": true, "orders.1.refundDue": true, "nextCursor": nil,
	}},
	{name: "a page of one", call: "GET /admin/orders?item=109&limit=1", as: "admin", status: 200, values: map[string]any{"orders.0.itemId": 109, "nextCursor": anything}},
	{name: "paid orders", call: "GET /admin/orders?item=109&status=PAID", as: "admin", status: 200, values: map[string]any{
		"orders.0.status": "PAID", "orders.0.paidAt": anything, "orders.0.userId": anything, "orders.0.inDatabase": true,
	}},
	{name: "a cursor that no answer gave", call: "GET /admin/orders?cursor=7", as: "admin", status: 400, code: "BAD_REQUEST", says: "cursor"},
	{name: "a status that is none", call: "GET /admin/orders?status=LOST", as: "admin", status: 400, code: "BAD_REQUEST", says: "status"},
	{name: "orders without the token", call: "GET /admin/orders", status: 401, code: "UNAUTHORIZED"},
	{name: "what became of an order", call: "GET /admin/orders/{twice}", as: "admin", status: 200, values: map[string]any{
		"orderId": "{twice}", "status": "PAID", "refundDue": true, "refundedAt": nil, "payments.0.effect": "paid", "payments.1.effect": "refund_due",
		"payments.1.amount": "1980", "payments.1.status": "SUCCEEDED", "userId": "32",
	}},
	{name: "no such order", call: "GET /admin/orders/{ghost}", as: "admin", status: 404, code: "NOT_FOUND"},
	{name: "an order id that is none", call: "GET /admin/orders/x", as: "admin", status: 400, code: "BAD_REQUEST", says: "id"},
	{name: "an order without the token", call: "GET /admin/orders/{twice}", status: 401, code: "UNAUTHORIZED"},
	{name: "paid back", call: "POST /admin/orders/{twice}/refunded", as: "admin", status: 200, values: map[string]any{"refundDue": false, "refundedAt": anything, "payments.1.refundedAt": anything}},
	{name: "paid back, said again", call: "POST /admin/orders/{twice}/refunded", as: "admin", body: "{}", status: 200, values: map[string]any{"refundDue": false}},
	{name: "nothing was due", call: "POST /admin/orders/{paid}/refunded", as: "admin", status: 409, code: "NOT_DUE"},
	{name: "of no order", call: "POST /admin/orders/{ghost}/refunded", as: "admin", status: 404, code: "NOT_FOUND"},
	{name: "of what is no id", call: "POST /admin/orders/x/refunded", as: "admin", status: 400, code: "BAD_REQUEST", says: "id"},
	{name: "a refund with words that nobody reads", call: "POST /admin/orders/{twice}/refunded", as: "admin", body: `{"amount":"1"}`, status: 400, code: "BAD_REQUEST", says: "amount"},
	{name: "a refund without the token", call: "POST /admin/orders/{twice}/refunded", status: 401, code: "UNAUTHORIZED"},
	{name: "a refund with too much to say", call: "POST /admin/orders/{twice}/refunded", as: "admin", body: "{large}", status: 413, code: "TOO_LARGE"},
	{name: "the buyer sees that nothing is due any more", call: "GET" + ordersPath + "/{twice}", as: "32", status: 200, values: map[string]any{"refundDue": false, "status": "PAID"}},
}

var changeRows = []row{
	{name: "a sale", call: "GET /admin/sales/110", as: "admin", status: 200, values: map[string]any{"id": 110, "items.0.quantity": 50, "items.0.sold": 0}},
	{name: "no such sale", call: "GET /admin/sales/9", as: "admin", status: 404, code: "NOT_FOUND"},
	{name: "a sale's id that is none", call: "GET /admin/sales/0", as: "admin", status: 400, code: "BAD_REQUEST", says: "id"},
	{name: "a parameter that there is not", call: "GET /admin/sales/110?full=1", as: "admin", status: 400, code: "BAD_REQUEST", says: "full"},
	{name: "a sale without the token", call: "GET /admin/sales/110", status: 401, code: "UNAUTHORIZED"},
	{name: "sales", call: "GET /admin/sales?limit=2", as: "admin", status: 200, values: map[string]any{"sales.0.id": anything, "sales.1.id": anything, "nextCursor": anything}},
	{name: "sales behind one", call: "GET /admin/sales?limit=1&cursor=101", as: "admin", status: 200, values: map[string]any{"sales.0.id": 102, "nextCursor": "102"}},
	{name: "a hundred and one", call: "GET /admin/sales?limit=101", as: "admin", status: 400, code: "BAD_REQUEST", says: "limit"},
	{name: "a cursor that is none", call: "GET /admin/sales?cursor=x", as: "admin", status: 400, code: "BAD_REQUEST", says: "cursor"},
	{name: "sales without the token", call: "GET /admin/sales", status: 401, code: "UNAUTHORIZED"},

	{name: "an item", call: "GET /admin/items/101", as: "admin", status: 200, until: true, values: map[string]any{
		"id": 101, "saleId": 101, "quantity": 1000, "drift": 0, "pending": 0, "inTransfer": 0, "soldOut": false, "shards.2.shard": 2, "shards.0.stock": anything, "retired": false, "epoch": anything,
	}},
	{name: "no such item", call: "GET /admin/items/9", as: "admin", status: 404, code: "NOT_FOUND"},
	{name: "an item's id that is none", call: "GET /admin/items/-1", as: "admin", status: 400, code: "BAD_REQUEST", says: "id"},
	{name: "an item without the token", call: "GET /admin/items/101", status: 401, code: "UNAUTHORIZED"},

	{name: "rename, extend and pause", call: "PATCH /admin/sales/110", as: "admin", body: `{"name":"new","endsAt":"{later}","paused":true}`, status: 200, values: map[string]any{"name": "new", "paused": true}},
	{name: "shoppers see the pause", call: itemPath + "110", status: 200, until: true, values: map[string]any{"status": "PAUSED"}},
	{name: "resume", call: "PATCH /admin/sales/110", as: "admin", body: `{"paused":false}`, status: 200, values: map[string]any{"paused": false, "name": "new"}},
	{name: "change nothing", call: "PATCH /admin/sales/110", as: "admin", body: `{}`, status: 200, values: map[string]any{"id": 110}},
	{name: "move a start that has come", call: "PATCH /admin/sales/110", as: "admin", body: `{"startsAt":"{after}"}`, status: 409, code: "SALE_STARTED", says: "startsAt"},
	{name: "move one that has not", call: "PATCH /admin/sales/104", as: "admin", body: `{"startsAt":"{after}"}`, status: 200, values: map[string]any{"startsAt": anything}},
	{name: "an end before the start", call: "PATCH /admin/sales/104", as: "admin", body: `{"endsAt":"{before}"}`, status: 400, code: "BAD_REQUEST", says: "endsAt"},
	{name: "a start behind the end", call: "PATCH /admin/sales/104", as: "admin", body: `{"startsAt":"2099-01-01T00:00:00Z"}`, status: 400, code: "BAD_REQUEST", says: "startsAt"},
	{name: "change no sale", call: "PATCH /admin/sales/9", as: "admin", body: `{"paused":true}`, status: 404, code: "NOT_FOUND"},
	{name: "change a sale without the token", call: "PATCH /admin/sales/110", body: `{"paused":true}`, status: 401, code: "UNAUTHORIZED"},
	{name: "change a sale with too many words", call: "PATCH /admin/sales/110", as: "admin", body: "{large}", status: 413, code: "TOO_LARGE"},

	{name: "pause an item, and change its price and limit", call: "PATCH /admin/items/110", as: "admin", body: `{"paused":true,"price":"1780.50","maxPerUser":4}`, status: 200, values: map[string]any{"paused": true, "price": "1780.50", "maxPerUser": 4}},
	{name: "shoppers see the item's pause and price", call: itemPath + "110", status: 200, until: true, values: map[string]any{"status": "PAUSED", "price": "1780.50", "maxPerUser": 4}},
	{name: "resume an item with more units", call: "PATCH /admin/items/110", as: "admin", body: `{"paused":false,"quantity":60}`, status: 200, until: true, values: map[string]any{"paused": false, "quantity": 60, "available": 60}},
	{name: "the same number of shards is no change", call: "PATCH /admin/items/110", as: "admin", body: `{"shards":3}`, status: 200, values: map[string]any{"id": 110}},
	{name: "another number of shards", call: "PATCH /admin/items/110", as: "admin", body: `{"shards":5}`, status: 501, code: "NOT_IMPLEMENTED", says: "shards"},
	{name: "fewer units", call: "PATCH /admin/items/110", as: "admin", body: `{"quantity":1}`, status: 501, code: "NOT_IMPLEMENTED", says: "quantity"},
	{name: "change no item", call: "PATCH /admin/items/9", as: "admin", body: `{"paused":true}`, status: 404, code: "NOT_FOUND"},
	{name: "change an item without the token", call: "PATCH /admin/items/110", body: `{}`, status: 401, code: "UNAUTHORIZED"},
	{name: "change an item with too many words", call: "PATCH /admin/items/110", as: "admin", body: "{large}", status: 413, code: "TOO_LARGE"},

	{name: "restock", call: "POST /admin/items/110/restock", as: "admin", body: `{"quantity":20}`, header: []string{"Idempotency-Key", "r"}, status: 200, until: true, values: map[string]any{"itemId": 110, "quantity": 80, "available": 80}},
	{name: "restock again with the same key", call: "POST /admin/items/110/restock", as: "admin", body: `{"quantity":20}`, header: []string{"Idempotency-Key", "r"}, status: 200, until: true, values: map[string]any{"quantity": 80, "available": 80}},
	{name: "restock another quantity with it", call: "POST /admin/items/110/restock", as: "admin", body: `{"quantity":21}`, header: []string{"Idempotency-Key", "r"}, status: 422, code: "KEY_REUSED"},
	{name: "restock what had nothing", call: "POST /admin/items/111/restock", as: "admin", body: `{"quantity":100}`, header: []string{"Idempotency-Key", "zero"}, status: 200, until: true, values: map[string]any{"quantity": 100, "available": 100}},
	{name: "restock beyond all bounds", call: "POST /admin/items/110/restock", as: "admin", body: `{"quantity":9007199254740991}`, status: 400, code: "BAD_REQUEST", says: "quantity"},
	{name: "restock with an empty key", call: "POST /admin/items/110/restock", as: "admin", body: `{"quantity":1}`, header: []string{"Idempotency-Key", ""}, status: 400, code: "BAD_REQUEST", says: "Idempotency-Key"},
	{name: "restock no item", call: "POST /admin/items/9/restock", as: "admin", body: `{"quantity":1}`, status: 404, code: "NOT_FOUND"},
	{name: "restock without the token", call: "POST /admin/items/110/restock", body: `{"quantity":1}`, status: 401, code: "UNAUTHORIZED"},
	{name: "restock with too many words", call: "POST /admin/items/110/restock", as: "admin", body: "{large}", status: 413, code: "TOO_LARGE"},

	{name: "reload", call: "POST /admin/items/110/reload", as: "admin", until: true, status: 200, values: map[string]any{"id": 110, "available": 80}},
	{name: "reload no item", call: "POST /admin/items/9/reload", as: "admin", status: 404, code: "NOT_FOUND"},
	{name: "reload with a wish", call: "POST /admin/items/110/reload", as: "admin", body: `{"shards":4}`, status: 400, code: "BAD_REQUEST", says: "shards"},
	{name: "reload without the token", call: "POST /admin/items/110/reload", status: 401, code: "UNAUTHORIZED"},
	{name: "reload with too many words", call: "POST /admin/items/110/reload", as: "admin", body: "{large}", status: 413, code: "TOO_LARGE"},
}

var deskRows = []row{
	{name: "what was done to an item, newest first", call: "GET /admin/audit?subject=item:110&limit=1", as: "admin", status: 200, values: map[string]any{
		"entries.0.what": "item.restock", "entries.0.subject": "item:110", "entries.0.before.quantity": 60, "entries.0.after.quantity": 80, "nextCursor": anything,
	}},
	{name: "to an order", call: "GET /admin/audit?subject=order:{twice}", as: "admin", status: 200, values: map[string]any{"entries.0.what": "order.refunded", "nextCursor": nil}},
	{name: "to what is no subject", call: "GET /admin/audit?subject=user:7", as: "admin", status: 400, code: "BAD_REQUEST", says: "subject"},
	{name: "the audit table without the token", call: "GET /admin/audit", status: 401, code: "UNAUTHORIZED"},
	{name: "dead letters", call: "GET /admin/dlq", as: "admin", status: 200, values: map[string]any{"nextCursor": nil}},
	{name: "a letter, not a page", call: "GET /admin/dlq?limit=0", as: "admin", status: 400, code: "BAD_REQUEST", says: "limit"},
	{name: "behind a cursor that is none", call: "GET /admin/dlq?cursor=x", as: "admin", status: 400, code: "BAD_REQUEST", says: "cursor"},
	{name: "dead letters without the token", call: "GET /admin/dlq", status: 401, code: "UNAUTHORIZED"},

	{name: "replay", call: "POST /admin/dlq/replay", as: "admin", status: 501, code: "NOT_IMPLEMENTED"},
	{name: "replay without the token", call: "POST /admin/dlq/replay", status: 401, code: "UNAUTHORIZED"},
	{name: "reconcile", call: "POST /admin/items/110/reconcile?fix=true", as: "admin", status: 501, code: "NOT_IMPLEMENTED"},
	{name: "reconcile without the token", call: "POST /admin/items/110/reconcile", status: 401, code: "UNAUTHORIZED"},
	{name: "approve", call: "POST /admin/orders/{paid}/approve", as: "admin", status: 501, code: "NOT_IMPLEMENTED"},
	{name: "approve without the token", call: "POST /admin/orders/{paid}/approve", status: 401, code: "UNAUTHORIZED"},
	{name: "refuse", call: "POST /admin/orders/{paid}/refuse", as: "admin", status: 501, code: "NOT_IMPLEMENTED"},
	{name: "refuse without the token", call: "POST /admin/orders/{paid}/refuse", status: 401, code: "UNAUTHORIZED"},
	{name: "metrics", call: "GET /metrics", status: 200},
}

// retiredRows come last: a sale is cleared away some seconds after it is over.
var retiredRows = []row{
	{name: "it is cleared away", call: "GET /admin/items/108", as: "admin", until: true, status: 200, values: map[string]any{"retired": true}},
	{name: "shoppers see its end", call: itemPath + "108", status: 200, values: map[string]any{"status": "ENDED"}},
	{name: "and cannot buy", call: "POST /api/flash-sales/items/108/purchase", as: "1", status: 410, code: "SALE_ENDED"},
	{name: "restock it", call: "POST /admin/items/108/restock", as: "admin", body: `{"quantity":1}`, status: 409, code: "RETIRED"},
	{name: "change it", call: "PATCH /admin/items/108", as: "admin", body: `{"price":"1"}`, status: 409, code: "RETIRED"},
	{name: "reload it", call: "POST /admin/items/108/reload", as: "admin", status: 409, code: "RETIRED"},
	{name: "extend its sale", call: "PATCH /admin/sales/108", as: "admin", body: `{"endsAt":"{later}"}`, status: 409, code: "RETIRED"},
}
