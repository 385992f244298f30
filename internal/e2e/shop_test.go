package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/token"
)

// shop is a whole system: servers, and the roles that a test starts on them.
type shop struct {
	tb       testing.TB
	database string
	redis    string
	brokers  string
	env      []string
	gateways []*role
	client   *http.Client
	nextItem int64
}

// newShop prepares an empty database and the topics on the given servers.
func newShop(tb testing.TB, redisURL, brokers string, extra ...string) *shop {
	tb.Helper()
	return newShopOn(tb, devtest.Database(tb), redisURL, brokers, extra...)
}

// newShopOn is newShop with a database of the caller's.
func newShopOn(tb testing.TB, database, redisURL, brokers string, extra ...string) *shop {
	tb.Helper()
	s := &shop{tb: tb, database: database, redis: redisURL, brokers: brokers, nextItem: 1000}
	s.env = append([]string{
		"FLASHGATE_DATABASE_URL=" + s.database, "FLASHGATE_REDIS_URL=" + redisURL, "FLASHGATE_KAFKA_BROKERS=" + brokers,
		"FLASHGATE_JWT_SECRET=" + jwtSecret, "FLASHGATE_ADMIN_TOKEN=" + adminToken, "FLASHGATE_TRUSTED_PROXIES=127.0.0.0/8",
		"FLASHGATE_LISTEN=127.0.0.1:0", "FLASHGATE_ADMIN_LISTEN=127.0.0.1:0",
	}, extra...)
	s.client = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 512, MaxConnsPerHost: 512}}
	tb.Cleanup(s.client.CloseIdleConnections)
	if output, code := run(tb, s.env, "migrate"); code != 0 {
		tb.Fatalf("migrate ended with status %d:\n%s", code, output)
	}
	return s
}

// open starts gateways and consumers and waits until all are ready.
func (s *shop) open(gateways, consumers int) *shop {
	s.tb.Helper()
	var all []*role
	for range gateways {
		g := start(s.tb, s.env, "gateway")
		s.gateways = append(s.gateways, g)
		all = append(all, g)
	}
	for range consumers {
		all = append(all, start(s.tb, s.env, "consumer"))
	}
	for _, r := range all {
		s.awaitReady(r)
	}
	return s
}

func (s *shop) awaitReady(r *role) {
	s.tb.Helper()
	var last answer
	devtest.Eventually(s.tb, time.Minute, func() bool {
		last = s.try("GET", r.admin+"/readyz", nil, nil)
		return last.status == http.StatusOK
	}, "%s does not become ready: %v", r.name, &last)
}

// answer is what a request came back with; status 0 stands for no answer.
type answer struct {
	status int
	header http.Header
	text   string
	body   map[string]any
	err    error
}

func (a answer) String() string { return fmt.Sprintf("%d %s %v", a.status, a.text, a.err) }

// code is the error code, or the status of an order.
func (a answer) code() string {
	if code, ok := a.body["error"].(string); ok {
		return code
	}
	code, _ := a.body["status"].(string)
	return code
}

func (a answer) orderID() string {
	id, _ := a.body["orderId"].(string)
	return id
}

// try sends a request and returns whatever came back.
func (s *shop) try(method, url string, header map[string]string, body []byte) answer {
	request, err := http.NewRequest(method, url, bytes.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	for name, value := range header {
		request.Header.Set(name, value)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	a := answer{status: response.StatusCode, header: response.Header, text: string(text), err: err}
	_ = json.Unmarshal(text, &a.body)
	return a
}

// tokenOf signs a token for a user, for an hour.
func tokenOf(tb testing.TB, user string) string {
	tb.Helper()
	signer, err := token.NewSigner(token.SignerConfig{Secret: []byte(jwtSecret)})
	if err != nil {
		tb.Fatal(err)
	}
	signed, err := signer.Sign(user, time.Hour, time.Now())
	if err != nil {
		tb.Fatal(err)
	}
	return signed
}

// buy asks gateway number g for one unit as the user, from an address of the user's own. An empty key sends no Idempotency-Key.
func (s *shop) buy(g int, item int64, user, key string, body ...string) answer {
	return s.buyAt(s.gateways[g], item, user, key, body...)
}

func (s *shop) buyAt(gateway *role, item int64, user, key string, body ...string) answer {
	header := map[string]string{"Authorization": "Bearer " + tokenOf(s.tb, user), "X-Forwarded-For": addressOf(user)}
	if key != "" {
		header["Idempotency-Key"] = key
	}
	var payload []byte
	if len(body) > 0 {
		payload = []byte(body[0])
	}
	return s.try("POST", gateway.public+"/api/flash-sales/items/"+strconv.FormatInt(item, 10)+"/purchase", header, payload)
}

func addressOf(user string) string {
	var sum uint32
	for _, c := range []byte(user) {
		sum = sum*31 + uint32(c)
	}
	return fmt.Sprintf("198.18.%d.%d", sum>>8&0xff, sum&0xff)
}

// order reads or, with DELETE, cancels an order as the user.
func (s *shop) order(g int, method, id, user string) answer {
	return s.try(method, s.gateways[g].public+"/api/flash-sales/orders/"+id, map[string]string{"Authorization": "Bearer " + tokenOf(s.tb, user)}, nil)
}

// asAdmin sends a request to the admin API of gateway number g.
func (s *shop) asAdmin(g int, method, path, body string, header ...string) answer {
	h := map[string]string{"Authorization": "Bearer " + adminToken}
	for i := 0; i+1 < len(header); i += 2 {
		h[header[i]] = header[i+1]
	}
	return s.try(method, s.gateways[g].admin+path, h, []byte(body))
}

// offer creates a sale of one item that is open now and returns the item's id. It is known to every gateway on return.
func (s *shop) offer(quantity, shards int, more ...string) int64 {
	s.tb.Helper()
	s.nextItem++
	item, saleMembers := "", ""
	if len(more) > 0 {
		item = "," + more[0]
	}
	if len(more) > 1 {
		saleMembers = "," + more[1]
	}
	now := time.Now()
	body := fmt.Sprintf(`{"id":%d,"name":"test","startsAt":%q,"endsAt":%q%s,"items":[{"id":%d,"productId":1,"sku":"SKU-%d","quantity":%d,"price":"1980","currency":"JPY","shards":%d%s}]}`,
		s.nextItem, now.Add(-time.Minute).Format(time.RFC3339Nano), now.Add(time.Hour).Format(time.RFC3339Nano), saleMembers, s.nextItem, s.nextItem, quantity, shards, item)
	if a := s.asAdmin(0, "POST", "/admin/sales", body); a.status != http.StatusCreated {
		s.tb.Fatalf("create a sale: %v", a)
	}
	for g := range s.gateways {
		s.awaitItem(g, s.nextItem)
	}
	return s.nextItem
}

func (s *shop) awaitItem(g int, item int64) {
	s.tb.Helper()
	url := s.gateways[g].public + "/api/flash-sales/items/" + strconv.FormatInt(item, 10)
	devtest.Eventually(s.tb, 10*time.Second, func() bool { return s.try("GET", url, nil, nil).status == http.StatusOK }, "gateway %d does not learn of item %d", g, item)
}

// numbers reads the item's numbers at the admin API.
func (s *shop) numbers(item int64) map[string]any {
	s.tb.Helper()
	a := s.asAdmin(0, "GET", "/admin/items/"+strconv.FormatInt(item, 10), "")
	if a.status != http.StatusOK {
		s.tb.Fatalf("read item %d: %v", item, a)
	}
	return a.body
}

// settled waits until nothing of the item is on its way, and returns its numbers.
func (s *shop) settled(item int64) (sold, available int64) {
	s.tb.Helper()
	var n map[string]any
	devtest.Eventually(s.tb, time.Minute, func() bool {
		n = s.numbers(item)
		return n["pending"] == 0.0 && n["inTransfer"] == 0.0 && n["drift"] == 0.0 && n["available"] != nil
	}, "item %d does not settle: %v", item, &n)
	for _, shard := range n["shards"].([]any) {
		if pending := shard.(map[string]any)["pending"]; pending != 0.0 {
			devtest.Eventually(s.tb, 30*time.Second, func() bool {
				for _, shard := range s.numbers(item)["shards"].([]any) {
					if shard.(map[string]any)["pending"] != 0.0 {
						return false
					}
				}
				return true
			}, "the outbox of item %d is not emptied", item)
			break
		}
	}
	return int64(n["sold"].(float64)), int64(n["available"].(float64))
}

// query runs one statement that yields one number.
func (s *shop) query(sql string, args ...any) int64 {
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	connection, err := pgx.Connect(ctx, s.database)
	if err != nil {
		s.tb.Fatal(err)
	}
	defer func() { _ = connection.Close(ctx) }()
	var n int64
	if err := connection.QueryRow(ctx, sql, args...).Scan(&n); err != nil {
		s.tb.Fatalf("%s: %v", sql, err)
	}
	return n
}
