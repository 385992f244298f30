package gateway

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"flashgate/internal/sale"
)

var reservedAt = time.Date(2026, 11, 27, 12, 0, 0, 250e6, time.UTC)

// pendingRow is an order of user in the database, payable for ten minutes.
func pendingRow(id sale.OrderID, user string) sale.Order {
	return sale.Order{
		ID: id, ItemID: theItem, UserID: user, Quantity: 2, Price: "19.80", Currency: "EUR", Status: sale.Pending, ReservedAt: reservedAt,
		CreatedAt: time.Now(), ExpiresAt: time.Now().Add(10 * time.Minute),
	}
}

func markOf(id sale.OrderID) sale.Mark {
	return sale.Mark{OrderID: id, Quantity: 2, Price: "19.80", Currency: "EUR", ReservedAt: reservedAt, KeyHash: "abc", Batch: "b"}
}

var errNotLoaded = errors.New("stock is not loaded")

func orderPath(id sale.OrderID) string { return ordersPath + "/" + id.String() }

func TestReadOrder(t *testing.T) {
	id := sale.NewOrderID(theItem)
	written := func(status string, payable, refund string) string {
		return `{"orderId":"` + id.String() + `","itemId":1001,"quantity":2,"price":"19.80","currency":"EUR","status":"` + status + `","payable":` + payable +
			`,"refundDue":` + refund + `,"expiresAt":"2000-01-01T00:10:00.000Z","reservedAt":"2026-11-27T12:00:00.250Z"}`
	}
	unwritten := `{"orderId":"` + id.String() + `","itemId":1001,"quantity":2,"price":"19.80","currency":"EUR","status":"PENDING","payable":false,` +
		`"refundDue":false,"expiresAt":null,"reservedAt":"2026-11-27T12:00:00.250Z"}`
	row := func(change func(*sale.Order)) func(*world) {
		return func(w *world) {
			o := pendingRow(id, "u")
			change(&o)
			w.rows[id] = o
		}
	}
	noDatabase := func(w *world) {
		w.row = func(context.Context, sale.OrderID) (sale.Order, bool, error) { return sale.Order{}, false, errDown }
		w.live = func(context.Context, int64, string) (sale.Order, bool, error) { return sale.Order{}, false, errDown }
	}
	noRedis := func(w *world) {
		w.mark = func(context.Context, *sale.Item, string) (sale.Mark, bool, error) { return sale.Mark{}, false, errDown }
	}
	// Of a retired item Redis holds nothing, which reads like stock that is being loaded.
	retired := func(w *world) {
		w.items[0].RetiredAt = time.Now()
		w.mark = func(context.Context, *sale.Item, string) (sale.Mark, bool, error) {
			return sale.Mark{}, false, errNotLoaded
		}
	}
	for name, c := range map[string]struct {
		prepare []func(*world)
		status  int
		code    string // or the body of a 200
		byItem  string // likewise, for the look-up by item; "" for the same
	}{
		"pending":   {[]func(*world){row(func(*sale.Order) {})}, 200, written("PENDING", "true", "false"), ""},
		"paid":      {[]func(*world){row(func(o *sale.Order) { o.Status = sale.Paid })}, 200, written("PAID", "false", "false"), ""},
		"expired":   {[]func(*world){row(func(o *sale.Order) { o.Status = sale.Expired })}, 200, written("EXPIRED", "false", "false"), "NOT_FOUND"},
		"cancelled": {[]func(*world){row(func(o *sale.Order) { o.Status = sale.Cancelled })}, 200, written("CANCELLED", "false", "false"), "NOT_FOUND"},
		"rejected":  {[]func(*world){row(func(o *sale.Order) { o.Status = sale.Rejected })}, 200, written("REJECTED", "false", "false"), "NOT_FOUND"},
		"refund due": {[]func(*world){row(func(o *sale.Order) { o.Status, o.RefundsDue = sale.Expired, 1 })}, 200,
			written("EXPIRED", "false", "true"), "NOT_FOUND"},
		"overdue": {[]func(*world){row(func(o *sale.Order) { o.ExpiresAt = time.Now() })}, 200,
			strings.Replace(written("PENDING", "false", "false"), "00:10:00", "00:00:00", 1), ""},
		"somebody else's":              {[]func(*world){row(func(o *sale.Order) { o.UserID = "v" })}, 404, "NOT_FOUND", ""},
		"unknown":                      {nil, 404, "NOT_FOUND", ""},
		"not yet written":              {[]func(*world){func(w *world) { w.marks["u"] = markOf(id) }}, 200, unwritten, ""},
		"somebody else's reservation":  {[]func(*world){func(w *world) { w.marks["v"] = markOf(id) }}, 404, "NOT_FOUND", ""},
		"no Redis, a row":              {[]func(*world){noRedis, row(func(*sale.Order) {})}, 200, written("PENDING", "true", "false"), ""},
		"no Redis, no row":             {[]func(*world){noRedis}, 503, "UNAVAILABLE", ""},
		"no database, a mark":          {[]func(*world){noDatabase, func(w *world) { w.marks["u"] = markOf(id) }}, 200, unwritten, ""},
		"no database, no mark":         {[]func(*world){noDatabase}, 503, "UNAVAILABLE", ""},
		"no database, no Redis":        {[]func(*world){noDatabase, noRedis}, 503, "UNAVAILABLE", ""},
		"ended, its mark not released": {[]func(*world){row(func(o *sale.Order) { o.Status = sale.Expired }), func(w *world) { w.marks["u"] = markOf(id) }}, 200, written("EXPIRED", "false", "false"), "NOT_FOUND"},
		"retired, a row":               {[]func(*world){retired, row(func(o *sale.Order) { o.Status = sale.Paid })}, 200, written("PAID", "false", "false"), ""},
		"retired, an ended order":      {[]func(*world){retired, row(func(o *sale.Order) { o.Status = sale.Expired })}, 200, written("EXPIRED", "false", "false"), "NOT_FOUND"},
		"retired, no row":              {[]func(*world){retired}, 404, "NOT_FOUND", ""},
		"no catalogue yet": {[]func(*world){func(w *world) {
			w.catalogue = func(context.Context) ([]sale.Item, error) { return nil, errDown }
		}}, 503, "UNAVAILABLE", ""},
		"Redis hangs": {[]func(*world){func(w *world) {
			w.mark = func(ctx context.Context, _ *sale.Item, _ string) (sale.Mark, bool, error) {
				<-ctx.Done()
				return sale.Mark{}, false, ctx.Err()
			}
		}}, 503, "UNAVAILABLE", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				for _, f := range c.prepare {
					f(w)
				}
				g := w.start(t)
				check := func(path, want string) {
					t.Helper()
					r := do(t, g, ask{method: "GET", path: path, token: w.token(t, "u")})
					if strings.HasPrefix(want, "{") {
						if r.want(t, 200, ""); r.body != want {
							t.Errorf("%s: got %s, want %s", path, r.body, want)
						}
						if r.header("Cache-Control") != "no-store" {
							t.Errorf("Cache-Control %q", r.header("Cache-Control"))
						}
						return
					}
					checkHeaders(t, r.want(t, r.status, want))
				}
				if r := do(t, g, ask{method: "GET", path: orderPath(id), token: w.token(t, "u")}); r.status != c.status {
					t.Errorf("%d %s, want %d", r.status, r.body, c.status)
				}
				check(orderPath(id), c.code)
				if c.byItem == "" {
					c.byItem = c.code
				}
				check(ordersPath+"?itemId=1001", c.byItem)
			})
		})
	}
}

// The consumer writes the row, and the order ends and its mark is released, between two steps of a look-up.
func TestRowComesBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		id := sale.NewOrderID(theItem)
		w.mark = func(context.Context, *sale.Item, string) (sale.Mark, bool, error) {
			o := pendingRow(id, "u")
			o.Status = sale.Cancelled
			w.change(func() { w.rows[id] = o })
			return sale.Mark{}, false, nil
		}
		r := do(t, w.start(t), ask{method: "GET", path: orderPath(id), token: w.token(t, "u")}).want(t, 200, "")
		if !strings.Contains(r.body, `"status":"CANCELLED"`) {
			t.Errorf("body %s", r.body)
		}
	})
}

func TestOrderChecks(t *testing.T) {
	id := sale.NewOrderID(theItem).String()
	w := newWorld(t)
	g := w.start(t)
	raw := w.token(t, "u")
	for _, c := range []struct {
		path   string
		token  string
		status int
		code   string
	}{
		{ordersPath + "/" + id[:35], "", 400, "BAD_REQUEST"},
		{ordersPath + "/" + id, "", 401, "UNAUTHORIZED"},
		{ordersPath + "/" + id, w.forged(t, "u"), 401, "UNAUTHORIZED"},
		{ordersPath + "/00000000-0000-4000-8000-000000000000", raw, 404, "NOT_FOUND"}, // a UUID that no order has
		{ordersPath + "/" + sale.NewOrderID(4711).String(), raw, 404, "NOT_FOUND"},    // of no known item
		{ordersPath + "/" + strings.ToUpper(id), raw, 404, "NOT_FOUND"},
	} {
		for _, method := range []string{"GET", "DELETE"} {
			checkHeaders(t, do(t, g, ask{method: method, path: c.path, token: c.token}).want(t, c.status, c.code))
		}
	}
	for query, want := range map[string]int{
		"": 400, "?": 400, "?itemId": 400, "?itemId=": 400, "?itemId=x": 400, "?itemId=01001": 400, "?itemId=1001&itemId=1001": 400, "?itemid=1001": 400,
		"?itemId=4711": 404, "?itemId=1001": 404, "?x=y&itemId=1001": 404,
	} {
		if r := do(t, g, ask{method: "GET", path: ordersPath + query, token: raw}); r.status != want {
			t.Errorf("%q: %d %s, want %d", query, r.status, r.body, want)
		}
	}
	do(t, g, ask{method: "GET", path: ordersPath + "?itemId=1001"}).want(t, 401, "UNAUTHORIZED")
	w.change(func() { w.limited["read"] = time.Second })
	for _, a := range []ask{{"GET", ordersPath + "/" + id, raw, "", nil}, {"DELETE", ordersPath + "/" + id, raw, "", nil}, {"GET", ordersPath + "?itemId=1001", raw, "", nil}} {
		checkHeaders(t, do(t, g, a).want(t, 429, "RATE_LIMITED"))
	}
	do(t, g, ask{method: "GET", path: ordersPath + "/" + id}).want(t, 401, "UNAUTHORIZED") // the token comes first: there is no user to count
}
