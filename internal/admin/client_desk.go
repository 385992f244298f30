package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"flashgate/internal/sale"
)

// parameters are those of a list.
type parameters url.Values

// pageOf asks for a page: up to limit things (0: as many as the server likes) behind cursor ("": from the start).
func pageOf(limit int, cursor string) parameters {
	p := parameters{}
	if limit != 0 {
		p.set("limit", strconv.Itoa(limit))
	}
	p.set("cursor", cursor)
	return p
}

// set adds a parameter unless it is empty.
func (p parameters) set(name, value string) {
	if value != "" {
		url.Values(p).Set(name, value)
	}
}

func (p parameters) encode() string {
	if len(p) == 0 {
		return ""
	}
	return "?" + url.Values(p).Encode()
}

func itemPath(id int64) string { return "/admin/items/" + strconv.FormatInt(id, 10) }

func orderPath(id sale.OrderID) string { return "/admin/orders/" + id.String() }

// UpdateSale changes what the patch has.
func (c *Client) UpdateSale(ctx context.Context, id int64, patch SalePatch) (Answer[SaleView], error) {
	return send[SaleView](ctx, c, http.MethodPatch, "/admin/sales/"+strconv.FormatInt(id, 10), patch)
}

// UpdateItem changes what the patch has.
func (c *Client) UpdateItem(ctx context.Context, id int64, patch ItemPatch) (Answer[ReloadView], error) {
	return send[ReloadView](ctx, c, http.MethodPatch, itemPath(id), patch)
}

// send calls the admin API with a body.
func send[T any](ctx context.Context, c *Client, method, path string, in any) (Answer[T], error) {
	body, err := json.Marshal(in)
	if err != nil {
		return Answer[T]{}, fmt.Errorf("call the admin API: %w", err)
	}
	return call[T](ctx, c, method, path, body, "")
}

// Reload has the stock of an item loaded anew.
func (c *Client) Reload(ctx context.Context, id int64) (Answer[ReloadView], error) {
	return call[ReloadView](ctx, c, http.MethodPost, itemPath(id)+"/reload", nil, "")
}

// OrderQuery selects orders; zero values select all.
type OrderQuery struct {
	Item   int64
	Status string // a status of orders, or StatusRefundDue
}

// Orders asks for a page of orders, newest first: up to limit of them (0: as many as the server likes) behind cursor ("": from the newest).
func (c *Client) Orders(ctx context.Context, query OrderQuery, limit int, cursor string) (Answer[OrdersView], error) {
	p := pageOf(limit, cursor)
	p.set("status", query.Status)
	if query.Item != 0 {
		p.set("item", strconv.FormatInt(query.Item, 10))
	}
	return call[OrdersView](ctx, c, http.MethodGet, "/admin/orders"+p.encode(), nil, "")
}

// Order asks what became of an order.
func (c *Client) Order(ctx context.Context, id sale.OrderID) (Answer[OrderDetailView], error) {
	return call[OrderDetailView](ctx, c, http.MethodGet, orderPath(id), nil, "")
}

// Refunded marks the payments of an order that in names as paid back, all of them or none; without names, everything that is due at that moment.
func (c *Client) Refunded(ctx context.Context, id sale.OrderID, in RefundInput) (Answer[OrderDetailView], error) {
	return send[OrderDetailView](ctx, c, http.MethodPost, orderPath(id)+"/refunded", in)
}

// Audit asks for a page of changes, newest first, of one subject (such as sale:7) or all.
func (c *Client) Audit(ctx context.Context, subject string, limit int, cursor string) (Answer[AuditView], error) {
	p := pageOf(limit, cursor)
	p.set("subject", subject)
	return call[AuditView](ctx, c, http.MethodGet, "/admin/audit"+p.encode(), nil, "")
}
