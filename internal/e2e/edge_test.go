package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"flashgate/internal/devstack/devtest"
)

// raw sends bytes and returns everything that comes back until the server closes or is silent.
func raw(t *testing.T, base, request string) string {
	t.Helper()
	connection, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	if _, err := io.WriteString(connection, request); err != nil {
		t.Fatal(err)
	}
	_ = connection.SetReadDeadline(time.Now().Add(2 * time.Second))
	text, _ := io.ReadAll(connection)
	return string(text)
}

func TestFramingThatAProxyMayReadDifferently(t *testing.T) {
	s := newShop(t, devtest.MiniRedis(t).URL(), kfake(t)).open(1, 1)
	item := s.offer(5, 1)
	head := "POST /api/flash-sales/items/" + itoa(item) + "/purchase HTTP/1.1\r\nAuthorization: Bearer " + tokenOf(t, "1") + "\r\n"
	for name, rest := range map[string]string{
		"two Transfer-Encoding":      "Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"two Content-Length":         "Host: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
		"two equal Content-Length":   "Host: a\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
		"Content-Length with a sign": "Host: a\r\nContent-Length: +2\r\n\r\n{}",
		"empty Content-Length":       "Host: a\r\nContent-Length: \r\n\r\n{}",
		"space before the colon":     "Host: a\r\nContent-Length : 2\r\n\r\n{}",
		"two Host":                   "Host: a\r\nHost: b\r\n\r\n",
		"NUL in a value":             "Host: a\r\nX-A: b\x00c\r\n\r\n",
	} {
		if got := raw(t, s.gateways[0].public, head+rest); !strings.HasPrefix(got, "HTTP/1.1 400 ") || strings.Count(got, "HTTP/1.1") != 1 {
			t.Errorf("%s: %q, want one 400", name, got)
		}
	}
	hidden := "GET /admin/items/" + itoa(item) + " HTTP/1.1\r\nHost: a\r\n\r\n"
	got := raw(t, s.gateways[0].public, head+"Host: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"+hidden)
	if strings.Count(got, "HTTP/1.1 ") > 1 {
		t.Errorf("length and chunked with a hidden request: %q, want at most one answer", got)
	}
	if sold, _ := s.settled(item); sold > 1 {
		t.Errorf("%d sold by requests of which at most one is well formed", sold)
	}
}

func TestPathsAreNotConfused(t *testing.T) {
	s := newShop(t, devtest.MiniRedis(t).URL(), kfake(t)).open(1, 1)
	item := s.offer(5, 1)
	for _, base := range []string{s.gateways[0].public, s.gateways[0].admin} {
		for _, prefix := range []string{"//admin", "/x/../admin", "/x/%2e%2e/admin", "/%61dmin", "/x%2fadmin", "/ADMIN", "/admin/", "/adminx", "/public/../admin", "/admin"} {
			for _, suffix := range []string{"", "/items/" + itoa(item), "/sales"} {
				got := raw(t, base, "GET "+prefix+suffix+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
				if !strings.HasPrefix(got, "HTTP/1.1 401 ") && !strings.HasPrefix(got, "HTTP/1.1 404 ") {
					t.Errorf("GET %s at %s: %q, want 401 or 404", prefix+suffix, base, got)
				}
				if strings.Contains(got, `"quantity"`) {
					t.Errorf("GET %s at %s leaks data: %q", prefix+suffix, base, got)
				}
			}
		}
	}
	purchase := "/api/flash-sales/items/" + itoa(item) + "/purchase"
	for _, path := range []string{"/" + purchase, purchase + "/", "/API/flash-sales/items/" + itoa(item) + "/purchase", "/x/.." + purchase,
		strings.Replace(purchase, "items", "%69tems", 1), strings.Replace(purchase, "/items", "//items", 1)} {
		if got := raw(t, s.gateways[0].public, "POST "+path+" HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\nAuthorization: Bearer "+tokenOf(t, "1")+"\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 404 ") {
			t.Errorf("POST %s: %q, want 404", path, got)
		}
	}
	if sold, available := s.settled(item); sold != 0 || available != 5 {
		t.Errorf("sold %d, free %d", sold, available)
	}
}

func TestBodiesAndKeysThatAreRefused(t *testing.T) {
	s := newShop(t, devtest.MiniRedis(t).URL(), kfake(t), "FLASHGATE_RATE_USER=off", "FLASHGATE_RATE_IP=off").open(1, 1)
	item := s.offer(5, 1, `"maxPerUser":3`)
	for _, body := range []string{`{"quantity":1,"QUANTITY":3}`, `{"quantity":1,"quantity":3}`, `{"Quantity":1}`, `{"quantity":"1"}`, `{"quantity":1.0}`, `{"quantity":1e0}`,
		`{"quantity":null}`, `null`, `[]`, `{"\ud800":1}`, `{"quantity":0}`, `{"quantity":-1}`, `{"quantity":4}`, `{"quantity":9223372036854775808}`, `{"other":1}`, `{"quantity":1}{}`, `{`, `1`, `"x"`, "\xff"} {
		a := s.buy(0, item, "1", "", body)
		if a.status != 400 || a.code() != "BAD_REQUEST" || a.body["message"] == "" {
			t.Errorf("body %s: %v, want 400 BAD_REQUEST", body, a)
		}
	}
	for _, key := range []string{strings.Repeat("k", 129), "a b", "ü"} {
		if a := s.buy(0, item, "1", key); a.status != 400 {
			t.Errorf("key %q: %v, want 400", key, a)
		}
	}
	path := "POST /api/flash-sales/items/" + itoa(item) + "/purchase HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\nAuthorization: Bearer " + tokenOf(t, "1") + "\r\n"
	for _, lines := range []string{"Idempotency-Key: \r\n", "Idempotency-Key: a\r\nIdempotency-Key: b\r\n"} {
		if got := raw(t, s.gateways[0].public, path+lines+"\r\n"); !strings.HasPrefix(got, "HTTP/1.1 400 ") {
			t.Errorf("%q: %q, want 400", lines, got)
		}
	}
	for i, id := range []string{"0", "-1", "01", "1.0", "abc", "9007199254740992", "%31"} {
		a := s.try("POST", s.gateways[0].public+"/api/flash-sales/items/"+id+"/purchase", map[string]string{"Authorization": "Bearer " + tokenOf(t, "1")}, nil)
		if a.status != 400 {
			t.Errorf("id %d %q: %v, want 400", i, id, a)
		}
	}
	if a := s.buy(0, 424242, "1", ""); a.status != 404 || a.code() != "NOT_FOUND" {
		t.Errorf("unknown item: %v", a)
	}
	if sold, available := s.settled(item); sold != 0 || available != 5 {
		t.Fatalf("after refusals: sold %d, free %d, want 0 and 5", sold, available)
	}
	for user, body := range map[string]string{"1": `{}`, "2": ``, "3": ` {"quantity" : 2} `} {
		if a := s.buy(0, item, user, "", body); a.status != 202 {
			t.Errorf("body %q: %v, want 202", body, a)
		}
	}
	if a := s.buy(0, item, "4", "", `{"quantity":3}`); a.status != 409 || a.code() != "INSUFFICIENT_STOCK" || a.body["available"] != 1.0 {
		t.Errorf("three of one unit: %v, want 409 INSUFFICIENT_STOCK with available 1", a)
	}
	if a := s.buy(0, item, "5", ""); a.status != 202 {
		t.Errorf("the last unit: %v, want 202", a)
	}
	keyed := s.offer(5, 1, `"maxPerUser":3`)
	if a := s.buy(0, keyed, "1", "k", `{"quantity":2}`); a.status != 202 {
		t.Errorf("two with a key: %v", a)
	}
	if a := s.buy(0, keyed, "1", "k", `{ "quantity" : 2 }`); a.status != 202 {
		t.Errorf("the same, written differently: %v, want the same 202", a)
	}
	if a := s.buy(0, keyed, "1", "k", `{"quantity":1}`); a.status != 422 || a.code() != "KEY_REUSED" {
		t.Errorf("the key with another quantity: %v, want 422", a)
	}
}

func TestSaleWindow(t *testing.T) {
	s := newShop(t, devtest.MiniRedis(t).URL(), kfake(t), "TZ=America/Chicago").open(1, 1)
	create := func(id int64, from, to string) answer {
		return s.asAdmin(0, "POST", "/admin/sales", fmt.Sprintf(`{"id":%d,"name":"w","startsAt":%q,"endsAt":%q,"items":[{"id":%d,"productId":1,"sku":"w","quantity":5,"price":"1","currency":"JPY","shards":1}]}`, id, from, to, id))
	}
	if a := create(1, "2026-11-27T20:00:00", "2036-11-27T21:00:00Z"); a.status != 400 || !strings.Contains(a.text, "startsAt") {
		t.Errorf("a start without offset: %v, want 400 that names startsAt", a)
	}
	start := time.Now().Add(3 * time.Second).Truncate(time.Millisecond)
	east := time.FixedZone("", 8*3600)
	if a := create(1, start.In(east).Format("2006-01-02T15:04:05.000Z07:00"), start.Add(4*time.Second).UTC().Format(time.RFC3339Nano)); a.status != 201 {
		t.Fatalf("create: %v", a)
	}
	a := s.buy(0, 1, "1", "")
	if want := start.UTC().Format("2006-01-02T15:04:05.000Z"); a.status != 403 || a.code() != "NOT_STARTED" || a.body["startsAt"] != want {
		t.Errorf("before the start: %v, want 403 NOT_STARTED with startsAt %s", a, want)
	}
	item := s.try("GET", s.gateways[0].public+"/api/flash-sales/items/1", nil, nil)
	if item.code() != "UPCOMING" || item.header.Get("Cache-Control") != "public, max-age=1" {
		t.Errorf("item before the start: %v %v", item, item.header)
	}
	for _, member := range []string{"itemId", "saleId", "status", "startsAt", "endsAt", "price", "currency", "maxPerUser", "serverTime"} {
		if item.body[member] == nil {
			t.Errorf("item has no %s: %v", member, item)
		}
	}
	devtest.Eventually(t, 20*time.Second, func() bool { a = s.buy(0, 1, "1", "k"); return a.status == 202 }, "the sale does not start: %v", &a)
	if time.Now().Before(start) {
		t.Errorf("sold before %s", start)
	}
	devtest.Eventually(t, 20*time.Second, func() bool {
		return s.try("GET", s.gateways[0].public+"/api/flash-sales/items/1", nil, nil).code() == "ENDED"
	}, "the sale does not end")
	if a = s.buy(0, 1, "2", ""); a.status != 410 || a.code() != "SALE_ENDED" {
		t.Errorf("after the end: %v, want SALE_ENDED", a)
	}
	// The winner learns that he won, after the end as well.
	devtest.Eventually(t, 20*time.Second, func() bool { a = s.buy(0, 1, "1", "k"); return a.status == 202 }, "the winner is not told after the end: %v", &a)
	if a := s.buy(0, 1, "1", ""); a.status != 409 {
		t.Errorf("the winner without a key after the end: %v, want 409", a)
	}
}

func TestTokensThatAreRefused(t *testing.T) {
	s := newShop(t, devtest.MiniRedis(t).URL(), kfake(t), "FLASHGATE_RATE_IP=off").open(1, 1)
	item := s.offer(5, 1)
	url := s.gateways[0].public + "/api/flash-sales/items/" + itoa(item) + "/purchase"
	for name, header := range map[string]string{"none": "", "no scheme": tokenOf(t, "1"), "Basic": "Basic YTpi", "nonsense": "Bearer a.b.c", "dots": "Bearer " + strings.Repeat(".", 3000),
		"alg none": "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIiwiZXhwIjo5OTk5OTk5OTk5fQ."} {
		h := map[string]string{}
		if header != "" {
			h["Authorization"] = header
		}
		if a := s.try("POST", url, h, nil); a.status != 401 || a.code() != "UNAUTHORIZED" || a.header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: %v, want 401", name, a)
		}
	}
	if a := s.try("POST", url, map[string]string{"Authorization": "Bearer " + strings.Repeat(".", 100_000)}, nil); a.status != 401 && a.status != 431 {
		t.Errorf("100,000 dots: %v, want 401 or 431", a)
	}
	if sold, available := s.settled(item); sold != 0 || available != 5 {
		t.Errorf("sold %d, free %d", sold, available)
	}
}

func TestLimits(t *testing.T) {
	s := newShop(t, devtest.MiniRedis(t).URL(), kfake(t), "FLASHGATE_RATE_USER=1/h:3", "FLASHGATE_RATE_IP=1/h:10").open(1, 1)
	item := s.offer(1000, 1)
	url := s.gateways[0].public + "/api/flash-sales/items/" + itoa(item) + "/purchase"
	from := func(address, user string) answer {
		return s.try("POST", url, map[string]string{"Authorization": "Bearer " + tokenOf(t, user), "X-Forwarded-For": address}, nil)
	}
	for i := range 5 {
		a := from("192.0.2."+strconv.Itoa(i), "limited")
		if limited := a.status == 429; limited != (i >= 3) {
			t.Errorf("request %d of a user with a burst of 3: %v", i+1, a)
		}
		if a.status == 429 {
			if seconds, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || seconds < 1 || a.code() != "RATE_LIMITED" {
				t.Errorf("429 is %v with Retry-After %q", a, a.header.Get("Retry-After"))
			}
		}
	}
	spellings := []string{"2001:db8::1", "2001:DB8:0:0::1", "2001:db8::ffff", "2001:db8::2%eth0", "[2001:db8::3]:443"}
	for i := range 12 {
		if a := from(spellings[i%len(spellings)], "six-"+strconv.Itoa(i)); (a.status == 429) != (i >= 10) {
			t.Errorf("request %d of one /64 with a burst of 10: %v", i+1, a)
		}
	}
	if a := from("2001:db8:0:1::1", "next"); a.status != 202 {
		t.Errorf("the next /64: %v", a)
	}
	for i := range 12 {
		if a := from([]string{"192.0.2.77", "::ffff:192.0.2.77"}[i%2], "four-"+strconv.Itoa(i)); (a.status == 429) != (i >= 10) {
			t.Errorf("request %d of one IPv4 address in two spellings: %v", i+1, a)
		}
	}
}

func TestKeepAliveAndPipelining(t *testing.T) {
	s := newShop(t, devtest.MiniRedis(t).URL(), kfake(t)).open(1, 1)
	connection, err := net.Dial("tcp", strings.TrimPrefix(s.gateways[0].public, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	if _, err := io.WriteString(connection, strings.Repeat("GET /livez HTTP/1.1\r\nHost: a\r\n\r\n", 5)); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(connection)
	for i := range 5 {
		response, err := http.ReadResponse(reader, nil)
		if err != nil || response.StatusCode != 200 {
			t.Fatalf("answer %d: %v %v", i, response, err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
}
