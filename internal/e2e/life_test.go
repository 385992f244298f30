package e2e

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flashgate/internal/devstack/devtest"
)

// winners returns the users among the crowd that bought, with the ids of their orders.
func winners(users []string, answers []answer) (who, orders []string) {
	for i, a := range answers {
		if a.status == 202 {
			who, orders = append(who, users[i]), append(orders, a.orderID())
		}
	}
	return who, orders
}

// Units that come back and units that are added during a rush are sold, through both gateways, and no more than these.
func TestReleaseAndRestockDuringARush(t *testing.T) {
	for _, shards := range []int{1, 13} {
		t.Run(itoa(int64(shards))+" shards", func(t *testing.T) {
			s := newShop(t, devtest.Redis(t).URL(), kfake(t)).open(2, 2)
			item := s.offer(50, shards)
			users := people(300, func(i int) string { return itoa(int64(10_000 + i)) })
			answers := s.crowd(item, users, keyOf)
			s.exactlySold(item, answers, 50)
			s.awaitStatus(item, "SOLD_OUT")

			who, orders := winners(users, answers)
			for i := range 5 {
				if a := s.order(i%2, "DELETE", orders[i], who[i]); a.status != 200 || a.code() != "CANCELLED" {
					t.Fatalf("cancel order %s: %v", orders[i], a)
				}
			}
			if a := s.asAdmin(1, "POST", "/admin/items/"+itoa(item)+"/restock", `{"quantity":20}`); a.status != 200 || a.body["quantity"] != 70.0 {
				t.Fatalf("restock: %v", a)
			}
			s.awaitStatus(item, "ON_SALE")
			more := people(200, func(i int) string { return itoa(int64(20_000 + i)) })
			second := s.crowd(item, more, keyOf)
			if got := count(second); got["202 PENDING"] != 25 || got["410 SOLD_OUT"] != 175 {
				t.Errorf("answers after the release of 5 and the restock of 20: %v", got)
			}
			if sold, available := s.settled(item); sold != 70 || available != 0 {
				t.Errorf("sold %d, free %d, want 70 and 0", sold, available)
			}
			if n := s.query("SELECT count(*) FROM flash_sale_order WHERE item_id = $1 AND status = 'CANCELLED'", item); n != 5 {
				t.Errorf("%d cancelled orders, want 5", n)
			}
		})
	}
}

// The same while the crowd goes on: nobody waits until the flags are cleared.
func TestReleaseAndRestockUnderACrowdThatGoesOn(t *testing.T) {
	s := newShop(t, devtest.Redis(t).URL(), kfake(t), "FLASHGATE_RATE_IP=off").open(2, 2)
	item := s.offer(50, 13)
	type sold struct{ user, order string }
	var mutex sync.Mutex
	var bought []sold
	accepted := func() int {
		mutex.Lock()
		defer mutex.Unlock()
		return len(bought)
	}
	var shoppers sync.WaitGroup
	var asked atomic.Int64
	going, stop := context.WithCancel(t.Context())
	for range 16 {
		shoppers.Go(func() {
			for going.Err() == nil {
				n := asked.Add(1)
				user := itoa(30_000 + n)
				a := s.buy(int(n%2), item, user, "key")
				switch {
				case a.status == 202:
					mutex.Lock()
					bought = append(bought, sold{user, a.orderID()})
					mutex.Unlock()
				case a.status != 410 || a.code() != "SOLD_OUT":
					t.Errorf("user %s: %v", user, a)
					return
				}
			}
		})
	}
	defer shoppers.Wait()
	defer stop()
	s.awaitStatus(item, "SOLD_OUT")
	mutex.Lock()
	first := slices.Clone(bought[:5])
	mutex.Unlock()
	for i, b := range first {
		if a := s.order(i%2, "DELETE", b.order, b.user); a.status != 200 || a.code() != "CANCELLED" {
			t.Fatalf("cancel order %s: %v", b.order, a)
		}
	}
	if a := s.asAdmin(1, "POST", "/admin/items/"+itoa(item)+"/restock", `{"quantity":20}`); a.status != 200 || a.body["quantity"] != 70.0 {
		t.Fatalf("restock: %v", a)
	}
	devtest.Eventually(t, time.Minute, func() bool { return accepted() >= 75 }, "the units that came back and were added are not sold")
	seen := asked.Load()
	devtest.Eventually(t, time.Minute, func() bool { return asked.Load() >= seen+200 }, "the crowd goes on")
	stop()
	shoppers.Wait()
	if n := accepted(); n != 75 {
		t.Errorf("%d purchases of 50 units, 5 that came back and 20 that were added", n)
	}
	if sold, available := s.settled(item); sold != 70 || available != 0 {
		t.Errorf("sold %d, free %d, want 70 and 0", sold, available)
	}
}

// What happens to one item touches no other.
func TestItemsAreIndependent(t *testing.T) {
	s := newShop(t, devtest.Redis(t).URL(), kfake(t)).open(2, 1)
	a, b := s.offer(10, 4), s.offer(5, 4)
	if got := count(s.crowd(a, people(7, func(i int) string { return itoa(int64(i + 1)) }), keyOf)); got["202 PENDING"] != 7 {
		t.Fatalf("answers for the first item: %v", got)
	}
	s.exactlySold(b, s.crowd(b, people(30, func(i int) string { return itoa(int64(100 + i)) }), keyOf), 5)
	s.awaitStatus(b, "SOLD_OUT")
	if sold, available := s.settled(a); sold != 7 || available != 3 {
		t.Errorf("the first item: sold %d, free %d, want 7 and 3", sold, available)
	}
	s.awaitStatus(a, "ON_SALE")
	if r := s.asAdmin(0, "POST", "/admin/items/"+itoa(b)+"/restock", `{"quantity":5}`); r.status != 200 {
		t.Fatalf("restock: %v", r)
	}
	s.awaitStatus(b, "ON_SALE")
	if got := count(s.crowd(b, people(40, func(i int) string { return itoa(int64(200 + i)) }), keyOf)); got["202 PENDING"] != 5 || got["410 SOLD_OUT"] != 35 {
		t.Errorf("answers after the restock of 5: %v", got)
	}
	if sold, available := s.settled(b); sold != 10 || available != 0 {
		t.Errorf("the second item: sold %d, free %d, want 10 and 0", sold, available)
	}
	if sold, available := s.settled(a); sold != 7 || available != 3 {
		t.Errorf("the first item afterwards: sold %d, free %d, want 7 and 3", sold, available)
	}
}

func TestCancelAndBuyAgain(t *testing.T) {
	s := newShop(t, devtest.Redis(t).URL(), kfake(t)).open(1, 1)
	item := s.offer(1, 4)
	first := s.buy(0, item, "5", "key")
	if first.status != 202 {
		t.Fatalf("buy: %v", first)
	}
	if a := s.order(0, "DELETE", first.orderID(), "6"); a.status != 404 {
		t.Errorf("somebody else cancels: %v, want 404", a)
	}
	if a := s.order(0, "GET", first.orderID(), "6"); a.status != 404 {
		t.Errorf("somebody else reads: %v, want 404", a)
	}
	for range 3 {
		if a := s.order(0, "DELETE", first.orderID(), "5"); a.status != 200 || a.code() != "CANCELLED" {
			t.Errorf("cancel: %v, want 200 CANCELLED", a)
		}
	}
	// With his old key, and at once: the cancelled order must not answer for the new one.
	second := s.buy(0, item, "5", "key")
	if second.status != 202 || second.orderID() == first.orderID() {
		t.Errorf("the buyer buys again: %v, want 202 with another order than %s", second, first.orderID())
	}
	if sold, available := s.settled(item); sold != 1 || available != 0 {
		t.Errorf("sold %d, free %d, want 1 and 0", sold, available)
	}
	if a := s.order(0, "GET", first.orderID(), "5"); a.code() != "CANCELLED" || a.body["payable"] != false {
		t.Errorf("the cancelled order reads %v", a)
	}
}

func TestOrderRead(t *testing.T) {
	s := newShop(t, devtest.Redis(t).URL(), kfake(t)).open(1, 0)
	item := s.offer(5, 4, `"maxPerUser":3`)
	bought := s.buy(0, item, "5", "", `{"quantity":2}`)
	if bought.status != 202 {
		t.Fatalf("buy: %v", bought)
	}
	// No consumer runs: the order is in Redis alone.
	for _, id := range []string{bought.orderID(), "?itemId=" + itoa(item)} {
		path := "/api/flash-sales/orders/" + id
		if id[0] == '?' {
			path = "/api/flash-sales/orders" + id
		}
		a := s.try("GET", s.gateways[0].public+path, map[string]string{"Authorization": "Bearer " + tokenOf(t, "5")}, nil)
		if a.status != 200 || a.orderID() != bought.orderID() || a.body["payable"] != false || a.body["expiresAt"] != nil || a.code() != "PENDING" ||
			a.body["quantity"] != 2.0 || a.body["price"] != "1980" || a.body["currency"] != "JPY" || a.body["itemId"] != float64(item) || a.body["refundDue"] != false {
			t.Errorf("GET %s before the row: %v", path, a)
		}
	}
	s.awaitReady(start(t, s.env, "consumer"))
	var a answer
	devtest.Eventually(t, 30*time.Second, func() bool { a = s.order(0, "GET", bought.orderID(), "5"); return a.body["payable"] == true }, "the order does not become payable: %v", &a)
	for _, member := range []string{"expiresAt", "reservedAt"} {
		text, _ := a.body[member].(string)
		if _, err := time.Parse("2006-01-02T15:04:05.000Z", text); err != nil {
			t.Errorf("%s is %q: not RFC 3339 in UTC with milliseconds", member, text)
		}
	}
	if members := keysOf(a.body); !slices.Equal(members, []string{"currency", "expiresAt", "itemId", "orderId", "payable", "price", "quantity", "refundDue", "reservedAt", "status"}) {
		t.Errorf("members %v", members)
	}
	for path, want := range map[string]int{"/api/flash-sales/orders/nonsense": 400, "/api/flash-sales/orders/" + "00000000-0000-4000-8000-000000000000": 404,
		"/api/flash-sales/orders?itemId=0": 400, "/api/flash-sales/orders?itemId=99999": 404, "/api/flash-sales/orders": 400} {
		if a := s.try("GET", s.gateways[0].public+path, map[string]string{"Authorization": "Bearer " + tokenOf(t, "5")}, nil); a.status != want {
			t.Errorf("GET %s: %v, want %d", path, a, want)
		}
	}
	if a := s.try("GET", s.gateways[0].public+"/api/flash-sales/orders/"+bought.orderID(), nil, nil); a.status != 401 || a.header.Get("WWW-Authenticate") == "" {
		t.Errorf("without a token: %v", a)
	}
}

func keysOf(body map[string]any) []string {
	var names []string
	for name := range body {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// An order that is cancelled before its row exists is cancelled once, and its event changes nothing when it arrives.
func TestCancelBeforeTheRowExists(t *testing.T) {
	s := newShop(t, devtest.Redis(t).URL(), kfake(t)).open(1, 0)
	item := s.offer(1, 1)
	bought := s.buy(0, item, "5", "")
	if bought.status != 202 {
		t.Fatalf("buy: %v", bought)
	}
	for range 2 {
		if a := s.order(0, "DELETE", bought.orderID(), "5"); a.status != 200 || a.code() != "CANCELLED" {
			t.Fatalf("cancel: %v", a)
		}
	}
	s.awaitReady(start(t, s.env, "consumer"))
	var again answer
	devtest.Eventually(t, 30*time.Second, func() bool { again = s.buy(0, item, "6", ""); return again.status == 202 }, "the unit does not come back: %v", &again)
	if sold, available := s.settled(item); sold != 1 || available != 0 {
		t.Errorf("sold %d, free %d, want 1 and 0", sold, available)
	}
	if a := s.order(0, "GET", bought.orderID(), "5"); a.code() != "CANCELLED" {
		t.Errorf("the cancelled order reads %v", a)
	}
}

func TestOrdersExpire(t *testing.T) {
	s := newShop(t, devtest.Redis(t).URL(), kfake(t)).open(2, 3)
	item := s.offer(20, 4, `"maxPerUser":1`, `"paymentWindow":"1s"`)
	users := people(40, func(i int) string { return itoa(int64(i + 1)) })
	first := s.crowd(item, users, keyOf)
	if got := count(first); got["202 PENDING"] != 20 {
		t.Fatalf("answers %v", got)
	}
	devtest.Eventually(t, 60*time.Second, func() bool {
		return s.query("SELECT count(*) FROM flash_sale_order WHERE item_id = $1 AND status = 'EXPIRED'", item) == 20
	}, "the orders do not expire")
	if sold, available := s.settled(item); sold != 0 || available != 20 {
		t.Errorf("after the expiry: sold %d, free %d, want 0 and 20", sold, available)
	}
	who, orders := winners(users, first)
	if a := s.order(0, "GET", orders[0], who[0]); a.code() != "EXPIRED" || a.body["payable"] != false {
		t.Errorf("the expired order reads %v", a)
	}
	if a := s.order(0, "DELETE", orders[0], who[0]); a.status != 409 || a.code() != "NOT_CANCELLABLE" {
		t.Errorf("cancelling an expired order: %v, want 409 NOT_CANCELLABLE", a)
	}
	s.awaitStatus(item, "ON_SALE")
	if a := s.buy(1, item, who[0], "key-0"); a.status != 202 || slices.Contains(orders, a.orderID()) {
		t.Errorf("the buyer of an expired order buys again with his old key: %v, want a new order", a)
	}
}
