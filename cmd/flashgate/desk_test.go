package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"flashgate/internal/admin"
	"flashgate/internal/broker"
	"flashgate/internal/config"
	"flashgate/internal/devstack/devtest"
	"flashgate/internal/ledger"
	"flashgate/limiter"
)

// desk is a gateway with an order writer on real servers, and a way to run the shell commands against it.
type desk struct {
	t        *testing.T
	parts    *parts
	public   string
	kafka    broker.Config
	settings []string
}

func openDesk(t *testing.T) *desk {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	logger := slog.New(slog.DiscardHandler)
	kafka := broker.Config{Brokers: devtest.Kfake(t).Brokers(), ClientID: "desk", Group: "order-writer"}
	if _, err := broker.EnsureTopics(ctx, kafka); err != nil {
		t.Fatal(err)
	}
	l := newLife(logger)
	t.Cleanup(func() {
		if err := l.end(20 * time.Second); err != nil {
			t.Error(err)
		}
	})
	operators, err := listenForOperators(l, logger, config.Admin{AdminListen: "127.0.0.1:0", AdminToken: "desk-token"}, withAPI)
	if err != nil {
		t.Fatal(err)
	}
	deadlines := config.Deadlines{RecordDeadline: 2 * time.Second, GiveUp: 5 * time.Minute}
	p, err := openParts(ctx, partsConfig{
		role: "desk", database: devtest.DatabaseLike(t, "desk", ledger.Migrate), redis: devtest.Redis(t).URL(), kafka: kafka, deadlines: deadlines, outboxLimit: 1000,
	}, logger, operators.registry, operators.ready)
	if err != nil {
		t.Fatal(err)
	}
	l.onStop("the connections", p.close)
	k, err := startWriter(l, p, kafka, "", deadlines, config.Retire{RetireAfter: 24 * time.Hour}, config.Reconcile{}, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	l.background("the keeper", k.Run)
	public, api, err := startEdge(ctx, l, p, edgeConfig{
		listen: "127.0.0.1:0", adminToken: "desk-token", auth: config.Auth{JWTSecret: testKey},
		limits:   config.Limits{RateUser: limiter.Off(), RateIP: limiter.Off(), RateRead: limiter.Off()},
		timeouts: config.Timeouts{Request: 3 * time.Second, Deadlines: deadlines},
	}, adminLoader{k.Loader()})
	if err != nil {
		t.Fatal(err)
	}
	operators.setAdmin(l, api)
	return &desk{t: t, parts: p, public: public, kafka: kafka, settings: []string{
		"FLASHGATE_ADMIN_URL=http://" + operators.address(), "FLASHGATE_ADMIN_TOKEN=desk-token", "FLASHGATE_JWT_SECRET=" + testKey,
	}}
}

// do runs a command that must succeed, and returns what it printed.
func (d *desk) do(input string, args ...string) string {
	d.t.Helper()
	got := flashgate(d.t, d.settings, input, args...)
	if got.code != exitOK || got.err != "" {
		d.t.Fatalf("flashgate %s: exit %d, %s", strings.Join(args, " "), got.code, got.err)
	}
	return got.out
}

// refused runs a command that must fail, and returns the message.
func (d *desk) refused(input string, args ...string) string {
	d.t.Helper()
	got := flashgate(d.t, d.settings, input, args...)
	if got.code != exitFailed || got.out != "" {
		d.t.Errorf("flashgate %s: exit %d with the output %q, %s", strings.Join(args, " "), got.code, got.out, got.err)
	}
	return got.err
}

// item reads the numbers of an item.
func (d *desk) item(id string) (v admin.ItemView) {
	d.t.Helper()
	if err := json.Unmarshal([]byte(d.do("", "item", "show", id, "-o", "json")), &v); err != nil {
		d.t.Fatal(err)
	}
	return v
}

// buy asks for one unit for a user, and sees that the answer has this status.
func (d *desk) buy(user, item string, want int) {
	d.t.Helper()
	bearer := strings.TrimSpace(d.do("", "token", "--user", user))
	request, err := http.NewRequestWithContext(d.t.Context(), http.MethodPost, "http://"+d.public+"/api/flash-sales/items/"+item+"/purchase", nil)
	if err != nil {
		d.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+bearer)
	request.Close = true // no connection is left behind
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		d.t.Fatal(err)
	}
	body, _ := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if response.StatusCode != want {
		d.t.Fatalf("user %s buys item %s: %d %s, want %d", user, item, response.StatusCode, body, want)
	}
}

// saleOf makes the JSON of an open sale with one item.
func saleOf(sale, item, quantity int64, shards int) string {
	return fmt.Sprintf(`{"id":%d,"name":"Eleven","startsAt":"2020-01-01T00:00:00Z","endsAt":"2099-01-01T08:00:00+08:00",
		"items":[{"id":%d,"productId":5001,"sku":"E-11","quantity":%d,"price":"19.80","currency":"EUR","shards":%d}]}`, sale, item, quantity, shards)
}

func TestSalesFromTheShell(t *testing.T) {
	d := openDesk(t)
	created := d.do(saleOf(1, 1001, 100, 4), "sale", "create", "-f", "-")
	if want := "" +
		"sale            1\n" +
		"name            Eleven\n" +
		"starts          2020-01-01T00:00:00Z\n" +
		"ends            2099-01-01T00:00:00Z\n" +
		"paused          no\n" +
		"purchase limit  per_item\n" +
		"payment window  10m\n" +
		"time zone       UTC\n\n" +
		"ITEM  SKU   QUANTITY  SOLD  PRICE      SHARDS  PER USER  MODEL    PAUSED  RETIRED\n" +
		"1001  E-11  100       0     19.80 EUR  4       1         counter  no      no\n"; created != want {
		t.Errorf("created\n%s, want\n%s", created, want)
	}
	if shown := d.do("", "sale", "show", "1"); shown != created {
		t.Errorf("shown as\n%s, created as\n%s", shown, created)
	}
	// The stock was loaded before the answer, and the gateway sells it.
	if v := d.item("1001"); v.Available == nil || *v.Available != 100 || *v.Drift != 0 || v.Epoch < 1 || len(v.Shards) != 4 || *v.SoldOut {
		t.Errorf("right after its creation the item is %+v", v)
	}
	d.buy("42", "1001", 202)
	if got := d.refused(saleOf(1, 1002, 1, 1), "sale", "create", "-f", "-"); got != "flashgate: sale 1 exists already; nothing was created (409 ALREADY_EXISTS)\n" {
		t.Errorf("the same sale again: %s", got)
	}
	if got := d.refused(saleOf(2, 1001, 1, 1), "sale", "create", "-f", "-"); got != "flashgate: item 1001 exists already; nothing was created (409 ALREADY_EXISTS)\n" {
		t.Errorf("the same item again: %s", got)
	}
	if got := d.refused(saleOf(2, 2001, -1, 1), "sale", "create", "-f", "-"); !strings.HasPrefix(got, "flashgate: items[0].quantity: must be") {
		t.Errorf("a negative quantity: %s", got)
	}
	for input, want := range map[string]string{
		`{"startsAt":"2020-01-01T00:00:00Z","items":[{"quantity":1},]}`: "flashgate: items[1]: is not JSON: ",
		`{"startsAt":"2020-01-01T00:00:00Z","items":[{"quantity":1`:     "flashgate: items[0]: JSON ends too early (400 BAD_REQUEST)",
		`sale`: "flashgate: the body: is not JSON: ",
	} {
		if got := d.refused(input, "sale", "create", "-f", "-"); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", input, got, want)
		}
	}
	d.do(strings.Replace(saleOf(900, 9001, 1, 1), "2020-01-01", "2098-01-01", 1), "sale", "create", "-f", "-")
	if got := d.refused("", "sale", "update", "900", "--end"); !strings.HasPrefix(got, "flashgate: sale 900 has not begun, so that it cannot end now: pause it with --pause, or move its start as well with --starts-at: ") {
		t.Errorf("the end of a sale that has not begun: %s", got)
	}
	d.do("", "sale", "update", "900", "--end", "--starts-at", "2020-01-01T00:00:00Z")
	if got := d.refused("", "sale", "show", "2"); got != "flashgate: sale 2 does not exist (404 NOT_FOUND)\n" {
		t.Errorf("a sale that is not there: %s", got)
	}

	// Ids that nobody chose are filled in, and do not meet those that somebody chose.
	var views [2]admin.CreatedView
	for i := range views {
		text := strings.Replace(strings.Replace(saleOf(0, 0, 5, 1), `"id":0,`, "", 1), `"id":0,`, "", 1)
		if err := json.Unmarshal([]byte(d.do(text, "sale", "create", "-f", "-", "-o", "json")), &views[i]); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := views[0], views[1]; a.ID < 2 || b.ID <= a.ID || a.Items[0].ID < 1 || a.Items[0].ID == 1001 || b.Items[0].ID == a.Items[0].ID {
		t.Errorf("the ids are %d, %d, %d, %d", a.ID, b.ID, a.Items[0].ID, b.Items[0].ID)
	}
	page := d.do("", "sale", "list", "--limit", "2")
	if !strings.Contains(page, "Eleven") || !strings.Contains(page, fmt.Sprintf("more with --cursor %d", views[0].ID)) {
		t.Errorf("the first page is\n%s", page)
	}
	if page := d.do("", "sale", "list", "--cursor", fmt.Sprint(views[0].ID)); !strings.Contains(page, fmt.Sprintf("\n%d  ", views[1].ID)) || strings.Contains(page, "more") {
		t.Errorf("the last page is\n%s", page)
	}
}

// TestTheNumbersOfAnItem follows units: reserved they are pending, wherever their events are, until the database counts them as sold; nothing
// drifts on the way.
func TestTheNumbersOfAnItem(t *testing.T) {
	d := openDesk(t)
	d.do(saleOf(1, 1001, 3, 2), "sale", "create", "-f", "-")
	for i, user := range []string{"a", "b", "c"} {
		d.buy(user, "1001", 202)
		v := d.item("1001")
		if v.Drift == nil || *v.Available != int64(2-i) || *v.Pending+v.Sold != int64(i+1) || *v.Drift != 0 || *v.SoldOut != (i == 2) {
			t.Errorf("after purchase %d: %s", i, d.do("", "item", "show", "1001"))
		}
	}
	d.buy("d", "1001", 410)
	devtest.Eventually(t, time.Minute, func() bool { return d.item("1001").Sold == 3 }, "the orders are written")
	if table := d.do("", "item", "show", "1001"); !strings.Contains(table, "available    0\n") || !strings.Contains(table, "sold         3\n") || !strings.Contains(table, "pending      0\n") || !strings.Contains(table, "sold out     yes\n") {
		t.Errorf("the table is\n%s", table)
	}
}

func TestRestockFromTheShell(t *testing.T) {
	d := openDesk(t)
	d.do(saleOf(1, 1001, 50, 4), "sale", "create", "-f", "-")
	d.do(saleOf(2, 1002, 0, 4), "sale", "create", "-f", "-")
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"1001", "100", "--idempotency-key", "k1"}, "item 1001 has 150 units, available: 150\n"},
		{[]string{"1002", "100"}, "item 1002 has 100 units, available: 100\n"}, // zero is not unknown
		{[]string{"1001", "100", "--idempotency-key", "k1"}, "item 1001 has 150 units, available: 150\n"},
		{[]string{"1002", "1", "-o", "json"}, `{"itemId":1002,"quantity":101,"available":101}` + "\n"},
	} {
		if got := d.do("", append([]string{"item", "restock"}, test.args...)...); got != test.want {
			t.Errorf("restock %v: %q, want %q", test.args, got, test.want)
		}
	}
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"1001", "99", "--idempotency-key", "k1"}, "flashgate: this Idempotency-Key was used with another quantity (422 KEY_REUSED)\n"},
		{[]string{"7", "1"}, "flashgate: item 7 does not exist (404 NOT_FOUND)\n"},
		{[]string{"1001", "9007199254740991"}, "flashgate: quantity: the item would have more than 9007199254740991 units (400 BAD_REQUEST)\n"},
	} {
		if got := d.refused("", append([]string{"item", "restock"}, test.args...)...); got != test.want {
			t.Errorf("restock %v: %q, want %q", test.args, got, test.want)
		}
	}
	if v := d.item("1001"); v.Quantity != 150 || *v.Available != 150 || *v.Drift != 0 {
		t.Errorf("afterwards the item is %+v", v)
	}
}

// TestRestockOfAnUnknownStock takes the stock of one shard away. A restock is stored and does not invent a number; the load that is due counts it.
func TestRestockOfAnUnknownStock(t *testing.T) {
	d := openDesk(t)
	d.do(saleOf(1, 1001, 50, 1), "sale", "create", "-f", "-")
	client := d.parts.redis
	if err := client.Do(t.Context(), client.B().Del().Key("{item:1001:0}:stock").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	if got := d.do("", "item", "restock", "1001", "100"); got != "item 1001 has 150 units, available: unknown\n" {
		t.Errorf("restock: %q", got)
	}
	devtest.Eventually(t, time.Minute, func() bool {
		v := d.item("1001")
		return v.Available != nil && *v.Available == 150 && *v.Drift == 0
	}, "the load counts the restock")
}

// TestTheShellAtTheWrongListener asks the public one.
func TestTheShellAtTheWrongListener(t *testing.T) {
	d := openDesk(t)
	if got := d.refused("", "item", "show", "1001", "--admin-url", "http://"+d.public); !strings.Contains(got, "this looks like the public address of a gateway") {
		t.Errorf("said %s", got)
	}
}
