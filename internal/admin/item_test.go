package admin_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"flashgate/internal/admin"
	"flashgate/internal/sale"
)

func units(n int64) *int64 { return &n }

// order makes an order of 1 unit for an item, or of more.
func order(n ...int64) admin.Holding {
	h := admin.Holding{OrderID: sale.NewOrderID(1001), Quantity: 1}
	if len(n) > 0 {
		h.Quantity = n[0]
	}
	return h
}

// ofItem is what an item of a world says beside its numbers.
const ofItem = `"price":"1980","currency":"JPY","maxPerUser":1,"paused":false,"retired":false,`

// TestShowItem walks units through their life, and sees that each is counted once in every state: free, reserved with its event in the outbox,
// in Kafka, consumed while the outbox entry still stands, ended while the release is still to come, in transfer.
func TestShowItem(t *testing.T) {
	a, b, c, d := order(), order(2), order(), order()
	for _, test := range []struct {
		name   string
		sold   int64
		held   []admin.Holding // orders that are live in the database
		shards []admin.Shard
		want   string // without the identities
	}{
		{
			"nothing sold", 0, nil,
			[]admin.Shard{{Known: true, Stock: units(5)}, {Known: true, Stock: units(5)}},
			`"quantity":10,"sold":0,"available":10,"pending":0,"inTransfer":0,"drift":0,"epoch":1,"soldOut":false,"shards":[{"shard":0,"stock":5,"buyers":0,"pending":0},{"shard":1,"stock":5,"buyers":0,"pending":0}]`,
		},
		{
			"in the outbox, in Kafka, and stored before its acknowledgement was seen", 2, []admin.Holding{b},
			[]admin.Shard{{Known: true, Stock: units(3), Holdings: []admin.Holding{a, c}, Pending: 1}, {Known: true, Stock: units(3), Holdings: []admin.Holding{b}, Pending: 2}},
			`"quantity":10,"sold":2,"available":6,"pending":2,"inTransfer":0,"drift":0,"epoch":1,"soldOut":false,"shards":[{"shard":0,"stock":3,"buyers":2,"pending":1},{"shard":1,"stock":3,"buyers":1,"pending":2}]`,
		},
		{
			"ended in the database, its release under way", 0, nil,
			[]admin.Shard{{Known: true, Stock: units(5)}, {Known: true, Stock: units(4), Holdings: []admin.Holding{d}}},
			`"quantity":10,"sold":0,"available":9,"pending":1,"inTransfer":0,"drift":0,"epoch":1,"soldOut":false,"shards":[{"shard":0,"stock":5,"buyers":0,"pending":0},{"shard":1,"stock":4,"buyers":1,"pending":0}]`,
		},
		{
			"moving", 0, nil,
			[]admin.Shard{{Known: true, Stock: units(0), Moving: 5}, {Known: true, Stock: units(5)}},
			`"quantity":10,"sold":0,"available":5,"pending":0,"inTransfer":5,"drift":0,"epoch":1,"soldOut":false,"shards":[{"shard":0,"stock":0,"buyers":0,"pending":0},{"shard":1,"stock":5,"buyers":0,"pending":0}]`,
		},
		{
			"sold out", 2, []admin.Holding{b},
			[]admin.Shard{{Known: true, Stock: units(0), Holdings: []admin.Holding{order(4), order(4)}, Pending: 0}, {Known: true, Stock: units(0), Holdings: []admin.Holding{b}}},
			`"quantity":10,"sold":2,"available":0,"pending":8,"inTransfer":0,"drift":0,"epoch":1,"soldOut":true,"shards":[{"shard":0,"stock":0,"buyers":2,"pending":0},{"shard":1,"stock":0,"buyers":1,"pending":0}]`,
		},
		{
			"the last units in transfer: not sold out", 10, nil,
			[]admin.Shard{{Known: true, Stock: units(0), Moving: 1}, {Known: true, Stock: units(0)}},
			`"quantity":10,"sold":10,"available":0,"pending":0,"inTransfer":1,"drift":-1,"epoch":1,"soldOut":false,"shards":[{"shard":0,"stock":0,"buyers":0,"pending":0},{"shard":1,"stock":0,"buyers":0,"pending":0}]`,
		},
		{
			"units missing from Redis", 0, nil,
			[]admin.Shard{{Known: true, Stock: units(5)}, {Known: true, Stock: units(3)}},
			`"quantity":10,"sold":0,"available":8,"pending":0,"inTransfer":0,"drift":2,"epoch":1,"soldOut":false,"shards":[{"shard":0,"stock":5,"buyers":0,"pending":0},{"shard":1,"stock":3,"buyers":0,"pending":0}]`,
		},
		{
			"one shard being loaded: its stock is unknown, not zero", 0, nil,
			[]admin.Shard{{Known: true, Stock: units(0)}, {Known: true, Holdings: []admin.Holding{a}, Pending: 1}},
			`"quantity":10,"sold":0,"available":null,"pending":1,"inTransfer":0,"drift":null,"epoch":1,"soldOut":null,"shards":[{"shard":0,"stock":0,"buyers":0,"pending":0},{"shard":1,"stock":null,"buyers":1,"pending":1}]`,
		},
		{
			"a mark lost: what hangs on all marks is unknown, and nothing else", 2, []admin.Holding{b},
			[]admin.Shard{{Known: true, Stock: units(3), Holdings: []admin.Holding{b}, Pending: 1, Partial: true}, {Known: true, Stock: units(4), Moving: 1}},
			`"quantity":10,"sold":2,"available":7,"pending":null,"inTransfer":1,"drift":null,"epoch":1,"soldOut":false,"shards":[{"shard":0,"stock":3,"buyers":1,"pending":1},{"shard":1,"stock":4,"buyers":0,"pending":0}]`,
		},
		{
			"one server away", 0, nil,
			[]admin.Shard{{Known: true, Stock: units(5)}, {}},
			`"quantity":10,"sold":0,"available":null,"pending":null,"inTransfer":null,"drift":null,"epoch":1,"soldOut":null,"shards":[{"shard":0,"stock":5,"buyers":0,"pending":0},{"shard":1,"stock":null,"buyers":null,"pending":null}]`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.put(1, 10).Sold = test.sold
				w.shards[1001] = test.shards
				for _, h := range test.held {
					w.held[h.OrderID] = h.Quantity
				}
				got := do(w.api(t), "GET", "/admin/items/1001", "")
				if want := `{"id":1001,"saleId":1,` + ofItem + test.want + "}\n"; got.status != 200 || got.body != want {
					t.Errorf("%d\n%s, want\n%s", got.status, got.body, want)
				}
			})
		})
	}
}

func TestShowItemWhileRedisIsAway(t *testing.T) {
	w := newWorld()
	w.put(1, 10)
	w.redisDown = true
	want := `{"id":1001,"saleId":1,` + ofItem + `"quantity":10,"sold":0,"available":null,"pending":null,"inTransfer":null,"drift":null,"epoch":1,"soldOut":null,` +
		`"shards":[{"shard":0,"stock":null,"buyers":null,"pending":null},{"shard":1,"stock":null,"buyers":null,"pending":null}]}` + "\n"
	if got := do(w.api(t), "GET", "/admin/items/1001", ""); got.status != 200 || got.body != want {
		t.Errorf("%d\n%s, want\n%s", got.status, got.body, want)
	}
}

// TestADifferenceBetweenTwoReadingsIsNoDrift lets a release finish between the reading of Redis and that of the database: the unit is in
// neither. The next reading tells it from a unit that is missing.
func TestADifferenceBetweenTwoReadingsIsNoDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(1, 10)
		w.shards[1001] = []admin.Shard{{Known: true, Stock: units(5)}, {Known: true, Stock: units(4)}}
		w.read = func(n int) {
			if n == 3 {
				*w.shards[1001][1].Stock = 5
			}
		}
		if got := do(w.api(t), "GET", "/admin/items/1001", ""); !strings.Contains(got.body, `"drift":0`) || w.readings != 3 {
			t.Errorf("after %d readings: %s", w.readings, got.body)
		}
	})
}

func TestAnItemThatIsLoadedMeanwhileIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		it := w.put(1, 9)
		w.read = func(n int) {
			if n == 1 { // while the shards of the old layout are being read
				it.Shards, it.Epoch = 3, 2
				defer func() {
					w.shards[1001] = []admin.Shard{{Known: true, Stock: units(3)}, {Known: true, Stock: units(3)}, {Known: true, Stock: units(3)}}
				}()
			}
		}
		got := do(w.api(t), "GET", "/admin/items/1001", "")
		if w.readings != 2 || !strings.Contains(got.body, `"available":9,`) || !strings.Contains(got.body, `"epoch":2,`) || !strings.Contains(got.body, `"shard":2,`) {
			t.Errorf("after %d readings: %s", w.readings, got.body)
		}
	})
}

func TestShowWhatIsNotThere(t *testing.T) {
	w := newWorld()
	w.put(1, 10)
	for _, test := range []struct {
		target string
		status int
		want   string
	}{
		{"/admin/items/1002", 404, "item 1002 does not exist"},
		{"/admin/sales/2", 404, "sale 2 does not exist"},
		{"/admin/items/0", 400, "id: not a decimal integer"},
		{"/admin/items/01", 400, "id: not a decimal integer"},
		{"/admin/items/-1", 400, "id: not a decimal integer"},
		{"/admin/items/9007199254740992", 400, "id: not a decimal integer"},
		{"/admin/sales/x", 400, "id: not a decimal integer"},
		{"/admin/sales/1?verbose=1", 400, `\"verbose\": is not a parameter of this path`},
		{"/admin/sales?limit=0", 400, "limit: must be an integer from 1 to 100"},
		{"/admin/sales?limit=101", 400, "limit: must be an integer from 1 to 100"},
		{"/admin/sales?limit=5&limit=5", 400, "limit: comes twice"},
		{"/admin/sales?limit=", 400, "limit: must be an integer from 1 to 100"},
		{"/admin/sales?cursor=x", 400, "cursor: is not one that an answer gave"},
		{"/admin/sales?%zz", 400, "the query cannot be read"},
		{"/admin", 404, "there is nothing at this path"},
		{"/admin/", 404, "there is nothing at this path"},
		{"/admin/order", 404, "there is nothing at this path"},
		{"/admin/dlq/", 404, "there is nothing at this path"},
		{"/admin/items", 404, "there is nothing at this path"},
		{"/admin/items/1001/load", 404, "there is nothing at this path"},
		{"//admin/sales", 404, "there is nothing at this path"},
		{"/admin/%73ales", 404, "there is nothing at this path"},
	} {
		got := do(w.api(t), "GET", test.target, "")
		if got.status != test.status || !strings.Contains(got.body, `"message":"`+test.want) {
			t.Errorf("GET %s: %d %s, want %d %s", test.target, got.status, got.body, test.status, test.want)
		}
	}
}

func TestMethods(t *testing.T) {
	w := newWorld()
	w.put(1, 10)
	for _, test := range []struct{ method, target, allow string }{
		{"PUT", "/admin/sales/1", "GET, HEAD, PATCH"},
		{"DELETE", "/admin/sales", "GET, HEAD, POST"},
		{"POST", "/admin/items/1001", "GET, HEAD, PATCH"},
		{"GET", "/admin/items/1001/restock", "POST"},
		{"GET", "/admin/items/1001/reload", "POST"},
		{"GET", "/admin/items/1001/reconcile", "POST"},
		{"PATCH", "/admin/orders", "GET, HEAD"},
		{"DELETE", "/admin/orders/1", "GET, HEAD"},
		{"GET", "/admin/orders/1/refunded", "POST"},
		{"GET", "/admin/orders/1/approve", "POST"},
		{"GET", "/admin/orders/1/refuse", "POST"},
		{"DELETE", "/admin/audit", "GET, HEAD"},
		{"DELETE", "/admin/dlq", "GET, HEAD"},
		{"GET", "/admin/dlq/replay", "POST"},
		{"HEAD", "/admin/items/1001/restock", "POST"},
		{"get", "/admin/sales", "GET, HEAD, POST"},
	} {
		got := do(w.api(t), test.method, test.target, "")
		says := map[string]string{
			"POST": "only POST is allowed here", "GET, HEAD": "only GET and HEAD are allowed here", "GET, HEAD, PATCH": "only GET, HEAD and PATCH are allowed here",
			"GET, HEAD, POST": "only GET, HEAD and POST are allowed here",
		}[test.allow]
		if test.method == "HEAD" {
			says = ""
		}
		if got.status != 405 || got.header.Get("Allow") != test.allow || !strings.Contains(got.body, `"METHOD_NOT_ALLOWED"`) || !strings.Contains(got.body, says) {
			t.Errorf("%s %s: %d, Allow %q, %s; want 405, %q", test.method, test.target, got.status, got.header.Get("Allow"), got.body, test.allow)
		}
	}
	if got := do(w.api(t), "HEAD", "/admin/sales/1", ""); got.status != 200 {
		t.Errorf("HEAD: %d", got.status)
	}
}

func TestNobodyAsksWithoutTheToken(t *testing.T) {
	w := newWorld()
	w.put(1, 10)
	api := w.api(t)
	for _, target := range []string{"/admin/sales/1", "/admin/sales", "/admin/items/1001", "/admin", "/admin/none", "/admin/sales/x"} {
		// A second header beside the right one makes it as good as none.
		got := do(api, "GET", target, "", "Authorization: Bearer wrong")
		if got.status != 401 || got.header.Get("WWW-Authenticate") == "" || !strings.Contains(got.body, `"UNAUTHORIZED"`) {
			t.Errorf("GET %s: %d %s", target, got.status, got.body)
		}
	}
	if len(w.steps) > 1 { // put has loaded the item
		t.Errorf("without the token, the steps were %v", w.steps)
	}
}

func TestListSales(t *testing.T) {
	w := newWorld()
	for id := int64(1); id <= 5; id++ {
		w.put(id*10, 1)
	}
	var pages []string
	target := "/admin/sales?limit=2"
	for {
		got := do(w.api(t), "GET", target, "")
		ids, cursor := page(t, got)
		pages = append(pages, ids)
		if cursor == "" {
			break
		}
		target = "/admin/sales?limit=2&cursor=" + cursor
	}
	if want := []string{"10 20", "30 40", "50"}; !slices.Equal(pages, want) {
		t.Errorf("the pages are %q, want %q", pages, want)
	}
	if ids, cursor := page(t, do(w.api(t), "GET", "/admin/sales?limit=5", "")); ids != "10 20 30 40 50" || cursor != "" {
		t.Errorf("a page that just fits is %q with cursor %q", ids, cursor)
	}
	if got := do(newWorld().api(t), "GET", "/admin/sales", ""); got.body != `{"sales":[],"nextCursor":null}`+"\n" {
		t.Errorf("no sales are %s", got.body)
	}
}

func TestReadingWhileTheDatabaseIsAway(t *testing.T) {
	w := newWorld()
	w.put(1, 10)
	w.databaseDown = true
	for _, target := range []string{"/admin/sales", "/admin/sales/1", "/admin/items/1001", "/admin/orders", "/admin/orders/" + sale.NewOrderID(1001).String(), "/admin/audit"} {
		// Nobody asked for a change, so there is nothing to say about one.
		want := `{"error":"UNAVAILABLE","message":"the database does not answer or refused"}` + "\n"
		if got := do(w.api(t), "GET", target, ""); got.status != 503 || got.body != want {
			t.Errorf("GET %s: %d %s", target, got.status, got.body)
		}
	}
}
