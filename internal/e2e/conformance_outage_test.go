package e2e

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kmsg"

	"flashgate/internal/apidoc"
	"flashgate/internal/devstack"
	"flashgate/internal/devstack/devtest"
)

// unreachable are the documented answers that no test of running processes can bring about, each with the reason.
var unreachable = func() map[apidoc.Case]string {
	list := map[apidoc.Case]string{}
	for _, operation := range []string{
		"POST /api/flash-sales/items/{itemId}/purchase", "GET /api/flash-sales/items/{itemId}", "GET /api/flash-sales/orders", "GET /api/flash-sales/orders/{orderId}",
		"DELETE /api/flash-sales/orders/{orderId}", "POST /api/flash-sales/payments", "GET /livez", "GET /readyz",
	} {
		list[apidoc.Case{Operation: operation, Status: 500, Code: "INTERNAL"}] = "it takes a panic, and none is known; package gateway has a test that makes one"
	}
	return list
}()

// outages takes away one server after the other from a system of its own, without a consumer: what is reserved stays in Redis.
func outages(t *testing.T, document *apidoc.Document, seen *apidoc.Coverage) {
	database := privatePostgres(t)
	redis := devtest.Redis(t)
	broker := devtest.Kfake(t)
	s := newShopOn(t, database.DSN("away"), redis.URL(), strings.Join(broker.Brokers(), ","), "FLASHGATE_PAYMENT_SECRET="+paymentSecret,
		"FLASHGATE_RATE_USER=off", "FLASHGATE_RATE_IP=off", "FLASHGATE_RATE_READ=off", "FLASHGATE_OUTBOX_LIMIT=1", "FLASHGATE_REQUEST_TIMEOUT=2s").open(1, 0)
	w := newWorld(s, document, seen, "")
	var rows []row
	for id := 301; id <= 304; id++ {
		rows = append(rows, newSale("for outages", id, "{before}", "{after}", `"quantity":10`))
	}
	rows = append(rows, row{name: "ready", call: "GET /readyz", until: true, status: 200})
	w.play(t, rows)

	refuse(broker, kmsg.NewPtrProduceRequest()).Store(true)
	w.play(t, brokerRows)
	redisCommand(t, redis, "INCRBY {item:301:0}:stock 3")
	w.play(t, []row{
		{name: "units that do not exist", call: "POST /admin/items/301/reconcile", as: "admin", status: 200, values: map[string]any{"id": 301, "drift": -3, "fixed": false}},
		{name: "their repair has to wait for the broker", call: "POST /admin/items/301/reconcile?fix=true", as: "admin", status: 202, values: map[string]any{"id": 301, "pending": true}},
	})
	reloaded := w.aside(t, row{name: "a load that has to wait for the broker", call: "POST /admin/items/301/reload", as: "admin", status: 202, values: map[string]any{"id": 301, "pending": true}})
	w.stock(t, redis)
	reloaded()
	w.redisAway(t, redis)
	w.blind(t)
	w.play(t, []row{{name: "ready again", call: "GET /readyz", until: true, status: 200}})
	redisCommand(t, redis, "CONFIG SET maxmemory 1")
	created := w.aside(t, func() row {
		r := newSale("without memory for its stock", 310, "{before}", "{after}", `"quantity":10`)
		r.status, r.values = 202, map[string]any{"id": 310, "pending": true, "message": anything}
		return r
	}())
	w.lostCommits(t)
	created()
	refuse(broker, kmsg.NewPtrListOffsetsRequest()).Store(true)
	refuse(broker, kmsg.NewPtrMetadataRequest()).Store(true)
	if err := database.Kill(); err != nil {
		t.Fatal(err)
	}
	w.playTogether(t, databaseRows)
}

func privatePostgres(t *testing.T) *devstack.Postgres {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	server, err := devstack.StartPostgres(ctx, devstack.PostgresConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	if err := server.CreateDatabase(ctx, "away", ""); err != nil {
		t.Fatal(err)
	}
	return server
}

// aside plays a row that takes long, and returns how to wait for it.
func (w *world) aside(t *testing.T, r row) func() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.play(t, []row{r})
	}()
	return func() { <-done }
}

// playTogether plays rows that do not rely on each other side by side.
func (w *world) playTogether(t *testing.T, rows []row) {
	var all []func()
	for _, r := range rows {
		all = append(all, func() { w.play(t, []row{r}) })
	}
	together(all...)
}

// The broker takes nothing, and no consumer runs: orders are in Redis alone, and their number is bounded.
var brokerRows = []row{
	buys("without the broker", 301, "1", "", 202, "", row{keep: "waiting"}),
	{name: "the order, before its row", call: "GET" + ordersPath + "/{waiting}", as: "1", status: 200, values: map[string]any{"status": "PENDING", "payable": false, "expiresAt": nil}},
	{name: "for operators", call: "GET /admin/orders/{waiting}", as: "admin", status: 200, values: map[string]any{"inDatabase": false, "createdAt": nil, "userId": "1"}},
	pays("before the row", event("w1", "{waiting}", "SUCCEEDED", "1980", "JPY"), 503, "UNAVAILABLE", row{answers: map[string]string{"Retry-After": "*"}}),
	buys("beyond the limit of the outbox", 301, "4", "", 503, "OVERLOADED", row{answers: map[string]string{"Retry-After": "*", "Cache-Control": "no-store"}}),
}

// stock takes the stock key of an item away, and then puts something there that is no stock. No keeper repairs it.
func (w *world) stock(t *testing.T, redis *devstack.Redis) {
	for shard := range 3 {
		redisCommand(t, redis, fmt.Sprintf("DEL {item:302:%d}:stock", shard))
	}
	w.play(t, []row{
		buys("while the stock is unknown", 302, "1", "", 503, "WARMING_UP", row{answers: map[string]string{"Retry-After": "*"}}),
		{name: "restock what is unknown", call: "POST /admin/items/302/restock", as: "admin", body: `{"quantity":5}`, status: 200, values: map[string]any{"quantity": 15, "available": nil}},
		{name: "look at what is unknown", call: "GET /admin/items/302", as: "admin", status: 200, values: map[string]any{"quantity": 15, "available": nil, "drift": nil, "soldOut": nil, "shards.0.stock": nil}},
	})
	for shard := range 3 {
		redisCommand(t, redis, fmt.Sprintf("SET {item:302:%d}:stock many", shard))
	}
	w.play(t, []row{buys("while the stock is unreadable", 302, "1", "", 503, "UNAVAILABLE", row{answers: map[string]string{"Retry-After": "*"}})})
}

// redisCommand sends one command, of words without spaces.
func redisCommand(t *testing.T, redis *devstack.Redis, command string) {
	t.Helper()
	connection, err := net.Dial("tcp", redis.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	_ = connection.SetDeadline(time.Now().Add(20 * time.Second))
	reply := make([]byte, 64)
	_, err = fmt.Fprintf(connection, "%s\r\n", command)
	if err == nil {
		_, err = connection.Read(reply)
	}
	if err != nil || reply[0] == '-' {
		t.Fatalf("%s: %q %v", command, reply, err)
	}
}

// redisAway freezes Redis in the middle of everything.
func (w *world) redisAway(t *testing.T, redis *devstack.Redis) {
	if err := redis.Pause(); err != nil {
		t.Fatal(err)
	}
	w.play(t, []row{
		buys("while Redis is frozen", 303, "1", "", 503, "OUTCOME_UNKNOWN", row{keep: "unknown", values: map[string]any{"orderId": anything}, answers: map[string]string{"Retry-After": "*"}}),
	})
	w.playTogether(t, []row{
		{name: "that order", call: "GET" + ordersPath + "/{unknown}", as: "1", status: 503, code: "UNAVAILABLE", answers: map[string]string{"Retry-After": "*"}},
		{name: "the order of the item", call: "GET" + ordersPath + "?itemId=303", as: "1", status: 503, code: "UNAVAILABLE", answers: map[string]string{"Retry-After": "*"}},
		{name: "cancel that order", call: "DELETE" + ordersPath + "/{unknown}", as: "1", status: 503, code: "UNAVAILABLE", answers: map[string]string{"Retry-After": "*"}},
		pays("that order", event("u1", "{unknown}", "SUCCEEDED", "1980", "JPY"), 503, "UNAVAILABLE", row{answers: map[string]string{"Retry-After": "*"}}),
		{name: "that order for operators", call: "GET /admin/orders/{unknown}", as: "admin", status: 503, code: "UNAVAILABLE", says: "Redis"},
		{name: "an item for operators", call: "GET /admin/items/303", as: "admin", status: 200, values: map[string]any{"quantity": 10, "available": nil, "pending": nil}},
		{name: "reconcile it", call: "POST /admin/items/303/reconcile?fix=true", as: "admin", status: 200, values: map[string]any{"quantity": 10, "available": nil, "drift": nil, "fixed": false}},
		{name: "restock", call: "POST /admin/items/304/restock", as: "admin", body: `{"quantity":5}`, status: 200, values: map[string]any{"quantity": 15, "available": nil}},
		{name: "another number of shards", call: "PATCH /admin/items/304", as: "admin", body: `{"shards":5}`, status: 202, values: map[string]any{"id": 304, "pending": true}},
		{name: "a new sale", call: "POST /admin/sales", as: "admin", status: 503, code: "UNAVAILABLE", says: "nothing was created",
			body: `{"id":309,"startsAt":"{before}","endsAt":"{after}","items":[{"id":309,"quantity":1,"price":"1","currency":"JPY"}]}`},
		{name: "a reload", call: "POST /admin/items/303/reload", as: "admin", status: 503, code: "UNAVAILABLE", says: "not loaded"},
		{name: "operators are told what is missing", call: "GET /readyz", desk: true, until: true, status: 503, values: map[string]any{"status": "not ready", "missing.0.check": "redis", "missing.0.reason": anything}, answers: map[string]string{"Retry-After": "*"}},
		{name: "shoppers should go elsewhere", call: "GET /readyz", until: true, status: 503, code: "UNAVAILABLE", answers: map[string]string{"Retry-After": "*"}},
	})
	if err := redis.Resume(); err != nil {
		t.Fatal(err)
	}
}

// blind starts a gateway that cannot read its catalogue, because somebody holds the table.
func (w *world) blind(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	connection, err := pgx.Connect(ctx, w.database)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close(ctx) }()
	if _, err := connection.Exec(ctx, "BEGIN; LOCK TABLE flash_sale_item IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	blind := start(t, w.env, "gateway")
	w.at["blind"] = blind
	w.play(t, []row{
		{name: "an item that nobody can know of", call: itemPath + "301", at: "blind", status: 503, code: "UNAVAILABLE", answers: map[string]string{"Retry-After": "*", "Cache-Control": "no-store"}},
		{name: "to buy it", call: "POST /api/flash-sales/items/301/purchase", at: "blind", as: "1", status: 503, code: "UNAVAILABLE"},
		{name: "an order of it", call: "GET" + ordersPath + "?itemId=301", at: "blind", as: "1", status: 503, code: "UNAVAILABLE"},
	})
	blind.kill()
}

// lostCommits has the connection to the database break right behind a COMMIT: it was carried out, and nobody says so.
func (w *world) lostCommits(t *testing.T) {
	line := newCutLine(t, w.database)
	env := slices.Clone(w.env)
	for i, setting := range env {
		if strings.HasPrefix(setting, "FLASHGATE_DATABASE_URL=") {
			env[i] = "FLASHGATE_DATABASE_URL=" + line.url
		}
	}
	w.at["cut"] = start(t, env, "gateway")
	lacksMemory := []row{{name: "nothing is missing but memory", call: "GET /readyz", at: "cut", desk: true, until: true, status: 503,
		values: map[string]any{"missing.0.check": "redis memory", "missing.0.reason": anything}}}
	w.play(t, lacksMemory)
	line.cutBehindCommit()
	w.play(t, []row{{name: "restock, and no word of it", call: "POST /admin/items/304/restock", at: "cut", as: "admin", body: `{"quantity":5}`, status: 503, code: "OUTCOME_UNKNOWN",
		says: "look at the item", answers: map[string]string{"Retry-After": "*"}}})
	line.mend()
	w.play(t, []row{{name: "it was restocked", call: "GET /admin/items/304", as: "admin", status: 200, values: map[string]any{"quantity": 20}}})
	w.play(t, lacksMemory)
	line.cutBehindCommit()
	w.play(t, []row{{name: "create a sale, and no word of it", call: "POST /admin/sales", at: "cut", as: "admin", status: 503, code: "OUTCOME_UNKNOWN", says: "look for it", answers: map[string]string{"Retry-After": "*"},
		body: `{"id":311,"startsAt":"{before}","endsAt":"{after}","items":[{"id":311,"quantity":1,"price":"1","currency":"JPY"}]}`}})
	w.play(t, []row{{name: "it was created", call: "GET /admin/sales/311", as: "admin", status: 200, values: map[string]any{"id": 311}}})
}

// The database is away, and the brokers do not say what they have.
var databaseRows = []row{
	{name: "sales", call: "GET /admin/sales", as: "admin", status: 503, code: "UNAVAILABLE", answers: map[string]string{"Retry-After": "*"}},
	{name: "a sale", call: "GET /admin/sales/301", as: "admin", status: 503, code: "UNAVAILABLE"},
	{name: "a new one", call: "POST /admin/sales", as: "admin", status: 503, code: "UNAVAILABLE", says: "nothing was changed",
		body: `{"id":312,"startsAt":"{before}","endsAt":"{after}","items":[{"id":312,"quantity":1,"price":"1","currency":"JPY"}]}`},
	{name: "change a sale", call: "PATCH /admin/sales/301", as: "admin", body: `{"paused":true}`, status: 503, code: "UNAVAILABLE", says: "nothing was changed"},
	{name: "an item", call: "GET /admin/items/301", as: "admin", status: 503, code: "UNAVAILABLE"},
	{name: "change an item", call: "PATCH /admin/items/301", as: "admin", body: `{"paused":true}`, status: 503, code: "UNAVAILABLE", says: "nothing was changed"},
	{name: "restock", call: "POST /admin/items/301/restock", as: "admin", body: `{"quantity":1}`, status: 503, code: "UNAVAILABLE", says: "nothing was changed"},
	{name: "reload", call: "POST /admin/items/301/reload", as: "admin", status: 503, code: "UNAVAILABLE"},
	{name: "reconcile", call: "POST /admin/items/301/reconcile", as: "admin", status: 503, code: "UNAVAILABLE"},
	{name: "orders", call: "GET /admin/orders", as: "admin", status: 503, code: "UNAVAILABLE"},
	{name: "an order", call: "GET /admin/orders/{waiting}", as: "admin", status: 503, code: "UNAVAILABLE"},
	{name: "a refund", call: "POST /admin/orders/{waiting}/refunded", as: "admin", status: 503, code: "UNAVAILABLE"},
	{name: "the audit table", call: "GET /admin/audit", as: "admin", status: 503, code: "UNAVAILABLE"},
	{name: "dead letters", call: "GET /admin/dlq", as: "admin", status: 503, code: "UNAVAILABLE", says: "Kafka"},
	{name: "a replay", call: "POST /admin/dlq/replay", as: "admin", status: 503, code: "UNAVAILABLE", says: "nothing was replayed"},
	pays("", event("w2", "{waiting}", "SUCCEEDED", "1980", "JPY"), 503, "UNAVAILABLE", row{answers: map[string]string{"Retry-After": "*"}}),
	{name: "the order is known all the same", call: "GET" + ordersPath + "/{waiting}", as: "1", until: true, status: 200, values: map[string]any{"orderId": "{waiting}"}},
	{name: "what is on sale is known", call: itemPath + "301", status: 200, values: map[string]any{"status": "ON_SALE"}},
}
