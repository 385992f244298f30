package admin_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"flashgate/internal/admin"
	"flashgate/internal/sale"
)

// TestMetricsCountByRoute sees that the label is the route that was served, not the path that was asked for: ids would be labels without end.
func TestMetricsCountByRoute(t *testing.T) {
	w := newWorld()
	w.put(1, 10)
	registry := prometheus.NewRegistry()
	cfg := w.config()
	cfg.Registerer = registry
	api, err := admin.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{"/admin/items/1001", "/admin/items/1002", "/admin/items/1003", "/admin/items/x", "/admin/none", "//admin/items/1001", "/admin/%69tems/1001"} {
		do(api, "GET", target, "")
	}
	do(api, "DELETE", "/admin/items/1001", "")
	do(api, "POST", "/admin/sales", body())
	want := `
# HELP flashgate_admin_requests_total Requests to the admin API by route and status.
# TYPE flashgate_admin_requests_total counter
flashgate_admin_requests_total{route="/admin/items/{id}",status="200"} 1
flashgate_admin_requests_total{route="/admin/items/{id}",status="400"} 1
flashgate_admin_requests_total{route="/admin/items/{id}",status="404"} 2
flashgate_admin_requests_total{route="/admin/items/{id}",status="405"} 1
flashgate_admin_requests_total{route="/admin/sales",status="201"} 1
flashgate_admin_requests_total{route="none",status="404"} 3
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if _, err := admin.New(cfg); err == nil {
		t.Error("two APIs share their metrics")
	}
}

func TestEveryChangeAndEveryFailureIsLogged(t *testing.T) {
	w := newWorld()
	var log bytes.Buffer
	api := w.apiWith(t, func(c *admin.Config) {
		c.Logger, c.RestockWait = slog.New(slog.NewTextHandler(&log, nil)), time.Nanosecond
	})
	do(api, "POST", "/admin/sales", body("id", `1`, "items[0].id", `1001`))
	do(api, "POST", "/admin/items/1001/restock", `{"quantity":5}`)
	w.databaseDown = true
	do(api, "GET", "/admin/sales/1", "")
	text := log.String()
	for _, want := range []string{`msg="sale created" sale=1 items=1`, `msg="item restocked" item=1001 units=5 quantity=105 repeated=false`, `msg="admin request failed" method=GET route=/admin/sales/{id}`, "error=\"show sale 1: away\""} {
		if !strings.Contains(text, want) {
			t.Errorf("the log lacks %s:\n%s", want, text)
		}
	}
	if strings.Contains(text, "<nil>") || !strings.Contains(text, `msg="restocked units are not in Redis yet" item=1001`+"\n") {
		t.Errorf("the log has an error that is none:\n%s", text)
	}
	if strings.Contains(text, token) {
		t.Error("the log holds the token")
	}
}

// TestNobodyIsNamedInTheLog asks for everything that names people, and changes what people have written, while everything works, and while nothing does.
func TestNobodyIsNamedInTheLog(t *testing.T) {
	w := newWorld()
	w.put(1, 10)
	id := w.buy(func(o *sale.Order) { o.UserID, o.RefundsDue, o.Trace = "secret-user", 1, "secret-trace" })
	reserved := sale.Event{OrderID: sale.NewOrderID(1001), ItemID: 1001, UserID: "secret-user", Quantity: 1, Trace: "secret-trace"}
	w.reserved = []sale.Event{reserved}
	w.payments[id] = []admin.Payment{{EventID: "secret-payment", Amount: "1"}}
	w.entries = []admin.AuditEntry{{ID: 1, Subject: "sale:1", Before: []byte(`"secret-before"`), After: []byte(`"secret-after"`)}}
	value := "secret-value"
	w.letters = []admin.Letter{{Value: &value, Error: "secret-error"}}
	var log bytes.Buffer
	api := w.apiWith(t, func(c *admin.Config) {
		c.Logger, c.RestockWait = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), time.Nanosecond
	})
	var answers strings.Builder
	ask := func() {
		for _, request := range []struct{ method, target, body string }{
			{"PATCH", "/admin/sales/1", `{"name":"secret-name","paused":true}`},
			{"PATCH", "/admin/items/1001", `{"quantity":20,"price":"17","paused":true}`},
			{"POST", "/admin/items/1001/restock", `{"quantity":5}`},
			{"POST", "/admin/items/1001/reload", ``},
			{"GET", "/admin/orders", ``},
			{"GET", "/admin/orders/" + id.String(), ``},
			{"GET", "/admin/orders/" + reserved.OrderID.String(), ``},
			{"POST", "/admin/orders/" + id.String() + "/refunded", ``},
			{"GET", "/admin/audit?subject=sale:1", ``},
			{"GET", "/admin/dlq", ``},
			{"GET", "/admin/dlq?cursor=secret-cursor", ``},
			{"GET", "/admin/orders?user=secret-user", ``},
		} {
			answers.WriteString(do(api, request.method, request.target, request.body).body)
		}
	}
	ask()
	w.redisDown, w.kafka = true, true
	w.refresh = func() error { return errAway }
	ask()
	w.databaseDown = true
	ask()
	text := log.String()
	if strings.Contains(text, "secret") || strings.Contains(text, token) {
		t.Errorf("the log is\n%s", text)
	}
	for _, want := range []string{
		"secret-user", "secret-trace", "secret-payment", "secret-before", "secret-after", "secret-value", "secret-error", "secret-name",
	} {
		if !strings.Contains(answers.String(), want) {
			t.Errorf("no answer has %s, so nothing was to be seen", want)
		}
	}
	for _, want := range []string{
		`msg="sale changed" sale=1 changed="[name paused]"`, `msg="item changed" item=1001 changed="[quantity price paused]"`, `msg="item reloaded" item=1001`,
		`msg="item not reloaded" item=1001 error=away`, `msg="order refunded" order=` + id.String(), `msg="catalogue not refreshed after a change" error=away`,
		`route=/admin/orders/{id} path=/admin/orders/` + reserved.OrderID.String(), `route=/admin/dlq`, `list dead letters: away`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the log lacks %s:\n%s", want, text)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	w := newWorld()
	for name, change := range map[string]func(*admin.Config){
		"ledger": func(c *admin.Config) { c.Ledger = nil }, "stock": func(c *admin.Config) { c.Stock = nil },
		"loader": func(c *admin.Config) { c.Loader = nil }, "catalogue": func(c *admin.Config) { c.Catalogue = nil },
		"changes": func(c *admin.Config) { c.Changes = nil }, "orders": func(c *admin.Config) { c.Orders = nil },
		"reservations": func(c *admin.Config) { c.Reservations = nil }, "audit": func(c *admin.Config) { c.Audit = nil },
		"reloader": func(c *admin.Config) { c.Reloader = nil }, "dead letters": func(c *admin.Config) { c.DeadLetters = nil },
	} {
		cfg := w.config()
		change(&cfg)
		if _, err := admin.New(cfg); err == nil || !strings.Contains(err.Error(), name+": is missing") {
			t.Errorf("without %s: %v", name, err)
		}
	}
	for _, change := range []func(*admin.Config){
		func(c *admin.Config) { c.Timeout = -1 }, func(c *admin.Config) { c.LoadTimeout = -1 }, func(c *admin.Config) { c.RestockWait = -1 },
		func(c *admin.Config) { c.ReloadWait = -1 }, func(c *admin.Config) { c.ReloadTimeout = -1 }, func(c *admin.Config) { c.StockTimeout = -1 },
	} {
		cfg := w.config()
		change(&cfg)
		if _, err := admin.New(cfg); err == nil {
			t.Errorf("an API with a negative time is made: %+v", cfg)
		}
	}
}

// TestTimesDoNotDependOnTheMachine creates the same sale on machines in different zones, and without any.
func TestTimesDoNotDependOnTheMachine(t *testing.T) {
	local := time.Local
	defer func() { time.Local = local }()
	var answers []string
	for _, zone := range []string{"UTC", "America/Chicago", "Asia/Kathmandu"} {
		location, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		time.Local = location
		w := newWorld()
		got := do(w.api(t), "POST", "/admin/sales", body("id", `1`, "items[0].id", `1001`, "startsAt", `"2026-11-01T01:30:00-05:00"`))
		answers = append(answers, got.body)
		if want := time.Date(2026, 11, 1, 6, 30, 0, 0, time.UTC); got.status != 201 || !w.sales[1].StartsAt.Equal(want) {
			t.Errorf("in %s: %d, the start is %v", zone, got.status, w.sales[1].StartsAt)
		}
	}
	if answers[0] != answers[1] || answers[1] != answers[2] || !strings.Contains(answers[0], `"startsAt":"2026-11-01T06:30:00.000Z"`) {
		t.Errorf("the answers differ: %q", answers)
	}
}
