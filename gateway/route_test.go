package gateway

import (
	"bytes"
	"strings"
	"testing"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		target string
		route  route
		id     string
		query  string
	}{
		{"/api/flash-sales/items/1001/purchase", routePurchase, "1001", ""},
		{"/api/flash-sales/items/1001/purchase?x=1", routePurchase, "1001", "x=1"},
		{"/api/flash-sales/items/x/purchase", routePurchase, "x", ""},
		{"/api/flash-sales/items/1001", routeItem, "1001", ""},
		{"/api/flash-sales/items/purchase", routeItem, "purchase", ""},
		{"/api/flash-sales/orders", routeOrders, "", ""},
		{"/api/flash-sales/orders?itemId=7", routeOrders, "", "itemId=7"},
		{"/api/flash-sales/orders/abc", routeOrder, "abc", ""},
		{"/api/flash-sales/payments", routePayments, "", ""},
		{"/api/flash-sales/payments?x=1", routePayments, "", "x=1"},
		{"/livez", routeLive, "", ""},
		{"/readyz", routeReady, "", ""},
		{"http://shop.example/livez", routeLive, "", ""},
		{"https://shop.example:8443/api/flash-sales/items/1/purchase?a=b", routePurchase, "1", "a=b"},

		{"/", routeNone, "", ""},
		{"//livez", routeNone, "", ""},
		{"/livez/", routeNone, "", ""},
		{"/LIVEZ", routeNone, "", ""},
		{"/livezx", routeNone, "", ""},
		{"/x/../livez", routeNone, "", ""},
		{"/x/%2e%2e/livez", routeNone, "", ""},
		{"/%6civez", routeNone, "", ""},
		{"/x%2flivez", routeNone, "", ""},
		{"/livez%00", routeNone, "", ""},
		{"/api/flash-sales/items", routeNone, "", ""},
		{"/api/flash-sales/items/", routeNone, "", ""},
		{"/api/flash-sales/items//purchase", routeNone, "", ""},
		{"/api/flash-sales/items/1001/", routeNone, "", ""},
		{"/api/flash-sales/items/1001/purchase/", routeNone, "", ""},
		{"/api/flash-sales/items/1001//purchase", routeNone, "", ""},
		{"/api/flash-sales/items/1/2/purchase", routeNone, "", ""},
		{"/api//flash-sales/items/1001/purchase", routeNone, "", ""},
		{"/API/flash-sales/items/1001/purchase", routeNone, "", ""},
		{"/api/flash-sales/orders/", routeNone, "", ""},
		{"/api/flash-sales/payments/", routeNone, "", ""},
		{"/api/flash-sales/payments/1", routeNone, "", ""},
		{"/api/flash-sales//payments", routeNone, "", ""},
		{"/api/flash-sales/Payments", routeNone, "", ""},
		{"/api/flash-sales/orders/a/b", routeNone, "", ""},
		{"/metrics", routeNone, "", ""},
		{"/debug/pprof/", routeNone, "", ""},
		{"http://shop.example", routeNone, "", ""},
		{"http://shop.example?x=/livez", routeNone, "", ""},
		{"shop.example:443", routeNone, "", ""},
		{"*", routeNone, "", ""},
		{"", routeNone, "", ""},
	} {
		path, query := splitTarget([]byte(c.target))
		r, id := match(path)
		if r != c.route || string(id) != c.id || string(query) != c.query {
			t.Errorf("%q: got %s %q ?%q, want %s %q ?%q", c.target, routeNames[r], id, query, routeNames[c.route], c.id, c.query)
		}
	}
}

// There is nothing of the administrators' on the public listener, however the path is spelled, with or without a token.
func TestNoAdminRoute(t *testing.T) {
	w := newWorld(t)
	g := w.start(t)
	for _, path := range []string{
		"/admin", "//admin", "/x/../admin", "/x/%2e%2e/admin", "/%61dmin", "/x%2fadmin", "/ADMIN", "/admin/", "/adminx", "/public/../admin",
		"/admin/sales", "/admin/items/1001", "http://shop.example/admin/sales", "/metrics", "/debug/pprof/heap",
	} {
		for _, method := range []string{"GET", "POST", "OPTIONS", "PATCH"} {
			do(t, g, ask{method: method, path: path, token: w.token(t, "u")}).want(t, 404, "NOT_FOUND")
		}
	}
	if n := w.askedCount(); n != 0 {
		t.Errorf("%d reservations", n)
	}
}

func TestMethods(t *testing.T) {
	w := newWorld(t)
	g := w.start(t)
	for path, allow := range map[string]string{
		"/api/flash-sales/items/1001/purchase": "POST, OPTIONS",
		"/api/flash-sales/items/1001":          "GET, HEAD, OPTIONS",
		"/api/flash-sales/orders":              "GET, HEAD, OPTIONS",
		"/api/flash-sales/orders/x":            "GET, HEAD, DELETE, OPTIONS",
		"/api/flash-sales/payments":            "POST, OPTIONS",
		"/livez":                               "GET, HEAD, OPTIONS",
		"/readyz":                              "GET, HEAD, OPTIONS",
	} {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "TRACE", "QUERY", "OPTIONS", "get"} {
			r := do(t, g, ask{method: method, path: path})
			switch {
			case method == "OPTIONS":
				if r.status != 204 || r.header("Allow") != allow || r.body != "" {
					t.Errorf("OPTIONS %s: %d, Allow %q", path, r.status, r.header("Allow"))
				}
			case strings.Contains(allow+",", method+","):
				if r.status == 405 {
					t.Errorf("%s %s: 405", method, path)
				}
			case r.status != 405 || r.header("Allow") != allow:
				t.Errorf("%s %s: %d, Allow %q", method, path, r.status, r.header("Allow"))
			}
		}
	}
	if r := do(t, g, ask{method: "OPTIONS", path: "*"}); r.status != 204 {
		t.Errorf("OPTIONS *: %d", r.status)
	}
	if n := w.askedCount(); n != 0 {
		t.Errorf("%d reservations", n)
	}
}

func TestQueryValue(t *testing.T) {
	for _, c := range []struct {
		query, value string
		ok           bool
	}{
		{"itemId=7", "7", true},
		{"x=1&itemId=7&y", "7", true},
		{"itemId=", "", true},
		{"itemId", "", true},
		{"itemId=7=8", "7=8", true},
		{"", "", false},
		{"&&", "", false},
		{"ITEMID=7", "", false},
		{"item%49d=7", "", false},
		{"itemId=7&itemId=7", "", false},
		{"itemId=7&itemId", "", false},
	} {
		value, ok := queryValue([]byte(c.query), "itemId")
		if ok != c.ok || (ok && string(value) != c.value) {
			t.Errorf("%q: got %q %v, want %q %v", c.query, value, ok, c.value, c.ok)
		}
	}
}

// Whatever the target is: a route is found only for the one spelling that it has.
func FuzzMatch(f *testing.F) {
	for _, s := range []string{
		"/api/flash-sales/items/1/purchase", "/api/flash-sales/items/1", "/api/flash-sales/orders/x?itemId=1", "http://h/livez", "//livez", "/x%2flivez", "*", "h:1",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, target []byte) {
		path, query := splitTarget(target)
		r, id := match(path)
		_, _ = queryValue(query, "itemId")
		spelled := map[route]string{
			routePurchase: itemsPath + "/" + string(id) + "/purchase", routeItem: itemsPath + "/" + string(id), routeOrders: ordersPath, routePayments: paymentsPath,
			routeOrder: ordersPath + "/" + string(id), routeLive: "/livez", routeReady: "/readyz",
		}
		if want, ok := spelled[r]; ok && want != string(path) {
			t.Fatalf("%q leads to %s with id %q", path, routeNames[r], id)
		}
		if bytes.IndexByte(id, '/') >= 0 {
			t.Fatalf("%q: id %q has a slash", path, id)
		}
	})
}
