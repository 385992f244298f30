package admin_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"flashgate/internal/admin"
	"flashgate/internal/sale"
)

// given makes the pointer that a patch has.
func given[T any](v T) *T { return &v }

// wants checks that a call was answered with the JSON that the API gives to a request.
func wants[T any](t *testing.T, api http.Handler, target string, got admin.Answer[T], err error) {
	t.Helper()
	if want := do(api, "GET", target, ""); err != nil || string(got.JSON) != want.body || want.status != 200 {
		t.Errorf("GET %s: the client has %s, %v; want %d %s", target, got.JSON, err, want.status, want.body)
	}
}

func TestClientOfTheDesk(t *testing.T) {
	w := newWorld()
	w.put(1, 50)
	due := w.buy(func(o *sale.Order) { o.Status, o.RefundsDue = sale.Cancelled, 1 })
	open := w.buy(func(o *sale.Order) { o.ItemID = 1002 })
	w.letters = make([]admin.Letter, 3)
	api := w.api(t)
	client, ctx := serve(t, api), t.Context()

	s, err := client.UpdateSale(ctx, 1, admin.SalePatch{Name: given("x"), EndsAt: given("2026-12-01T00:00:00+01:00"), Paused: given(true)})
	wants(t, api, "/admin/sales/1", s, err)
	if !s.Value.Paused || s.Value.Name != "x" || s.Value.StartsAt.Hour() != 12 || !s.Value.EndsAt.Equal(time.Date(2026, 11, 30, 23, 0, 0, 0, time.UTC)) {
		t.Errorf("the sale is %+v", s.Value)
	}
	s, err = client.UpdateSale(ctx, 1, admin.SalePatch{StartsAt: given("2026-11-29T00:00:00Z"), Name: given("")})
	wants(t, api, "/admin/sales/1", s, err)
	if !s.Value.Paused || s.Value.Name != "" || s.Value.StartsAt.Day() != 29 {
		t.Errorf("the sale is %+v", s.Value)
	}
	it, err := client.UpdateItem(ctx, 1001, admin.ItemPatch{Shards: given[int64](2), Quantity: given[int64](50), Price: given("750"), MaxPerUser: given[int64](3), Paused: given(false)})
	wants(t, api, "/admin/items/1001", it, err)
	if v := it.Value.Item; v.Price != "750" || v.MaxPerUser != 3 || *v.Available != 50 {
		t.Errorf("the item is %+v", v)
	}
	if it, err = client.UpdateItem(ctx, 1001, admin.ItemPatch{}); err != nil || it.Value.Item.Price != "750" {
		t.Errorf("nothing changed to %s, %v", it.JSON, err)
	}
	loaded, err := client.Reload(ctx, 1001)
	wants(t, api, "/admin/items/1001", loaded, err)
	if loaded.Value.Item == nil || loaded.Value.Pending != nil || *loaded.Value.Item.Available != 50 {
		t.Errorf("reloaded: %+v", loaded.Value)
	}

	orders, err := client.Orders(ctx, admin.OrderQuery{}, 1, "")
	wants(t, api, "/admin/orders?limit=1", orders, err)
	if len(orders.Value.Orders) != 1 || orders.Value.NextCursor == nil {
		t.Fatalf("a page is %s", orders.JSON)
	}
	if orders, err = client.Orders(ctx, admin.OrderQuery{}, 1, *orders.Value.NextCursor); err != nil || orders.Value.Orders[0].OrderID != open.String() || orders.Value.NextCursor != nil {
		t.Errorf("the next page is %s, %v", orders.JSON, err)
	}
	orders, err = client.Orders(ctx, admin.OrderQuery{Item: 1001, Status: admin.StatusRefundDue}, 0, "")
	wants(t, api, "/admin/orders?item=1001&status=REFUND_DUE", orders, err)
	if len(orders.Value.Orders) != 1 || orders.Value.Orders[0].OrderID != due.String() {
		t.Errorf("refunds due are %s", orders.JSON)
	}
	refund, err := client.Refunded(ctx, due, admin.RefundInput{})
	wants(t, api, "/admin/orders/"+due.String(), refund, err)
	if refund.Value.RefundDue || refund.Value.RefundsDue != 0 || !refund.Value.RefundedAt.Equal(someTime) {
		t.Errorf("refunded: %s", refund.JSON)
	}
	o, err := client.Order(ctx, due)
	wants(t, api, "/admin/orders/"+due.String(), o, err)
	var refusal *admin.Refusal
	if _, err := client.Refunded(ctx, open, admin.RefundInput{EventIDs: []string{"e9"}}); !errors.As(err, &refusal) || refusal.Status != 409 || refusal.Code != "NOT_DUE" {
		t.Errorf("the refusal is %v", err)
	}
	// A list without a name in it is not sent as none.
	if _, err := client.Refunded(ctx, due, admin.RefundInput{EventIDs: []string{}}); !errors.As(err, &refusal) || refusal.Status != 400 {
		t.Errorf("the refusal is %v", err)
	}

	audit, err := client.Audit(ctx, "sale:1", 1, "")
	wants(t, api, "/admin/audit?subject=sale:1&limit=1", audit, err)
	if len(audit.Value.Entries) != 1 || string(audit.Value.Entries[0].After) != `""` || audit.Value.NextCursor == nil {
		t.Errorf("the audit is %s", audit.JSON)
	}
	letters, err := client.DeadLetters(ctx, 2, "")
	wants(t, api, "/admin/dlq?limit=2", letters, err)
	if len(letters.Value.Letters) != 2 || *letters.Value.NextCursor != "2" {
		t.Errorf("the letters are %s", letters.JSON)
	}
	if letters, err = client.DeadLetters(ctx, 2, "2"); err != nil || len(letters.Value.Letters) != 1 {
		t.Errorf("the next letters are %s, %v", letters.JSON, err)
	}
}

func TestClientOfAReloadThatGoesOn(t *testing.T) {
	w := newWorld()
	w.put(1, 50)
	w.desk.reload = func(ctx context.Context, _ int64) error { <-ctx.Done(); return ctx.Err() }
	api := w.apiWith(t, func(c *admin.Config) { c.ReloadWait = time.Millisecond })
	defer func() {
		if err := api.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	got, err := serve(t, api).Reload(t.Context(), 1001)
	if err != nil || got.Value.Item != nil || got.Value.Pending == nil || !got.Value.Pending.Pending || got.Value.Pending.ID != 1001 {
		t.Errorf("%s, %+v, %v", got.JSON, got.Value, err)
	}
}
