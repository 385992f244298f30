package gateway

import (
	"bytes"
)

// route is what a path leads to.
type route uint8

// The routes; those of the API come before routeLive.
const (
	routeNone route = iota
	routePurchase
	routeItem
	routeOrders
	routeOrder
	routePayments
	routeLive
	routeReady
	routes // their number
)

var routeNames = [routes]string{"none", "purchase", "item", "orders", "order", "payments", "livez", "readyz"}

// allowed is the Allow header of a route.
var allowed = [routes]string{
	routePurchase: "POST, OPTIONS",
	routeItem:     "GET, HEAD, OPTIONS",
	routeOrders:   "GET, HEAD, OPTIONS",
	routeOrder:    "GET, HEAD, DELETE, OPTIONS",
	routePayments: "POST, OPTIONS",
	routeLive:     "GET, HEAD, OPTIONS",
	routeReady:    "GET, HEAD, OPTIONS",
}

const (
	itemsPath    = "/api/flash-sales/items"
	ordersPath   = "/api/flash-sales/orders"
	paymentsPath = "/api/flash-sales/payments"
)

var (
	itemsPrefix    = []byte(itemsPath + "/")
	ordersPrefix   = []byte(ordersPath + "/")
	purchaseSuffix = []byte("/purchase")
	schemeMark     = []byte("://")
)

// match finds the route of a path, and the id inside it as it was written. Paths are compared byte by byte as they came: nothing is decoded, folded
// or cleaned first, so that no other spelling of a path leads anywhere, and what a rule in front of the gateway saw is what is routed.
func match(path []byte) (route, []byte) {
	if rest, ok := bytes.CutPrefix(path, itemsPrefix); ok {
		id, purchase := bytes.CutSuffix(rest, purchaseSuffix)
		switch {
		case len(id) == 0 || bytes.IndexByte(id, '/') >= 0:
			return routeNone, nil
		case purchase:
			return routePurchase, id
		}
		return routeItem, id
	}
	if id, ok := bytes.CutPrefix(path, ordersPrefix); ok {
		if len(id) == 0 || bytes.IndexByte(id, '/') >= 0 {
			return routeNone, nil
		}
		return routeOrder, id
	}
	switch string(path) {
	case ordersPath:
		return routeOrders, nil
	case paymentsPath:
		return routePayments, nil
	case "/livez":
		return routeLive, nil
	case "/readyz":
		return routeReady, nil
	}
	return routeNone, nil
}

// splitTarget cuts a request target (RFC 9112, section 3.2) into path and query. Of an absolute form, which proxies may send, scheme and authority
// are dropped.
func splitTarget(target []byte) (path, query []byte) {
	path, query, _ = bytes.Cut(target, []byte{'?'})
	if len(path) > 0 && path[0] != '/' {
		_, rest, ok := bytes.Cut(path, schemeMark)
		if !ok {
			return nil, nil
		}
		slash := bytes.IndexByte(rest, '/')
		if slash < 0 {
			return nil, nil
		}
		path = rest[slash:]
	}
	return path, query
}

// queryValue finds the one value of a parameter in a query; false when it is absent or comes more than once. Nothing is decoded: the values wanted
// here need no escapes, and another spelling of the name is another name.
func queryValue(query []byte, name string) ([]byte, bool) {
	var found []byte
	ok := false
	for len(query) > 0 {
		var pair []byte
		pair, query, _ = bytes.Cut(query, []byte{'&'})
		key, value, _ := bytes.Cut(pair, []byte{'='})
		if string(key) != name {
			continue
		}
		if ok {
			return nil, false
		}
		found, ok = value, true
	}
	return found, ok
}
