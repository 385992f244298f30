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
)

// TestMetricsCountByRoute sees that the label is the route that was served, not the path that was asked for: ids would be labels without end.
func TestMetricsCountByRoute(t *testing.T) {
	w := newWorld()
	w.put(1, 10)
	registry := prometheus.NewRegistry()
	api, err := admin.New(admin.Config{Token: token, Ledger: w, Stock: w, Loader: w, Catalogue: w, Registerer: registry})
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
	if _, err := admin.New(admin.Config{Token: token, Ledger: w, Stock: w, Loader: w, Catalogue: w, Registerer: registry}); err == nil {
		t.Error("two APIs share their metrics")
	}
}

func TestEveryChangeAndEveryFailureIsLogged(t *testing.T) {
	w := newWorld()
	var log bytes.Buffer
	api, err := admin.New(admin.Config{Token: token, Ledger: w, Stock: w, Loader: w, Catalogue: w, Logger: slog.New(slog.NewTextHandler(&log, nil)), RestockWait: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
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
	if strings.Contains(text, token) {
		t.Error("the log holds the token")
	}
}

func TestConfigIsChecked(t *testing.T) {
	w := newWorld()
	if _, err := admin.New(admin.Config{Token: token, Ledger: w, Stock: w, Loader: w}); err == nil {
		t.Error("an API without catalogue is made")
	}
	if _, err := admin.New(admin.Config{Ledger: w, Stock: w, Loader: w, Catalogue: w, RestockWait: -1}); err == nil {
		t.Error("an API with a negative time is made")
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
