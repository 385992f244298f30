package admin_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"flashgate/internal/admin"
	"flashgate/internal/sale"
)

// differs is an item of which units are missing, beside an order that is concerned.
func differs(drift int64, orders ...admin.ConcernView) admin.Comparison {
	return admin.Comparison{
		Shards:    []admin.ShardView{{Stock: units(3), Buyers: units(2), Pending: units(1)}},
		Available: units(3), Pending: units(1), InTransfer: units(0), Drift: units(drift), Orders: orders,
	}
}

func TestReconcile(t *testing.T) {
	w := newWorld()
	w.put(1, 10)
	id := sale.NewOrderID(1001).String()
	lost := admin.ConcernView{OrderID: id, Quantity: 1, Reason: "event_lost"}
	api := w.api(t)
	const numbers = `{"id":1001,"saleId":1,` + ofItem + `"quantity":10,"sold":0,`
	const shards = `"soldOut":false,"shards":[{"shard":0,"stock":3,"buyers":2,"pending":1}],`
	words := func(inFlight int) string {
		return fmt.Sprintf(`"free":3,"reserved":1,"inFlight":%d,"unknownBecause":null,`, inFlight)
	}
	compared := []string{"compare"}
	repaired := []string{"compare", "begin reload 1001", "repair", "end reload 1001", "compare"}
	for _, test := range []struct {
		name, query string
		found       []admin.Comparison
		want        string
		steps       []string
	}{
		{
			"a drift", "", []admin.Comparison{differs(6, lost)},
			numbers + `"available":3,"pending":1,"inTransfer":0,"drift":6,"epoch":1,` + shards + words(0) + `"orders":[{"orderId":"` + id + `","quantity":1,"reason":"event_lost"}],"concerned":1,"undecided":false,"fixed":false}`, compared,
		},
		{
			"a drift that nobody wants to be repaired", "?fix=false", []admin.Comparison{differs(-6)},
			numbers + `"available":3,"pending":1,"inTransfer":0,"drift":-6,"epoch":1,` + shards + words(1) + `"orders":[],"concerned":0,"undecided":false,"fixed":false}`, compared,
		},
		{
			"repaired", "?fix=true", []admin.Comparison{differs(6), differs(0)},
			numbers + `"available":3,"pending":1,"inTransfer":0,"drift":0,"epoch":1,` + shards + words(1) + `"orders":[],"concerned":0,"undecided":false,"fixed":true}`, repaired,
		},
		{
			"an order alone", "?fix=true", []admin.Comparison{differs(0, lost), differs(0)},
			numbers + `"available":3,"pending":1,"inTransfer":0,"drift":0,"epoch":1,` + shards + words(1) + `"orders":[],"concerned":0,"undecided":false,"fixed":true}`, repaired,
		},
		{
			"nothing to repair", "?fix=true", []admin.Comparison{differs(0)},
			numbers + `"available":3,"pending":1,"inTransfer":0,"drift":0,"epoch":1,` + shards + words(1) + `"orders":[],"concerned":0,"undecided":false,"fixed":false}`, compared,
		},
		{
			"nothing known", "?fix=true", []admin.Comparison{{Shards: []admin.ShardView{{}}, Undecided: true, Unknown: "Redis: it is a replica"}},
			numbers + `"available":null,"pending":null,"inTransfer":null,"drift":null,"epoch":1,"soldOut":null,"shards":[{"shard":0,"stock":null,"buyers":null,"pending":null}],"free":null,"reserved":null,"inFlight":null,"unknownBecause":"Redis: it is a replica","orders":[],"concerned":0,"undecided":true,"fixed":false}`, compared,
		},
	} {
		w.told()
		w.compared = test.found
		if got := do(api, "POST", "/admin/items/1001/reconcile"+test.query, ""); got.status != 200 || strings.TrimSpace(got.body) != test.want {
			t.Errorf("%s: %d\n got %s\nwant %s", test.name, got.status, got.body, test.want)
		}
		if steps := w.told(); !slices.Equal(steps, test.steps) {
			t.Errorf("%s: the steps were %v", test.name, steps)
		}
	}
	// Not all are named.
	w.compared = []admin.Comparison{differs(0, slices.Repeat([]admin.ConcernView{lost}, 101)...)}
	answer, err := serve(t, api).Reconcile(t.Context(), 1001, false)
	if err != nil || answer.Value.Found == nil || len(answer.Value.Found.Orders) != 100 || answer.Value.Found.Concerned != 101 || answer.Value.Found.Orders[7] != lost {
		t.Errorf("%s, %v", answer.JSON, err)
	}
	w.compared = []admin.Comparison{differs(1), differs(0)}
	if answer, err = serve(t, api).Reconcile(t.Context(), 1001, true); err != nil || !answer.Value.Found.Fixed || *answer.Value.Found.Pending != 1 {
		t.Errorf("%s, %v", answer.JSON, err)
	}
}

// TestARepairGoesOnBehindItsAnswer has a load that takes longer than anybody waits, and one that fails.
func TestARepairGoesOnBehindItsAnswer(t *testing.T) {
	w := newWorld()
	w.put(1, 10)
	w.compared = []admin.Comparison{differs(1), differs(1)}
	w.desk.reload = func(ctx context.Context, _ int64) error { <-ctx.Done(); return ctx.Err() }
	synctest.Test(t, func(t *testing.T) {
		api := w.api(t)
		const pending = `{"id":1001,"pending":true,"message":"the item is being loaded, or will be when brokers and order writers keep up; look at it later"}` + "\n"
		if got := do(api, "POST", "/admin/items/1001/reconcile?fix=true", ""); got.status != 202 || got.body != pending {
			t.Errorf("%d %s", got.status, got.body)
		}
		if err := api.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	w.desk.reload = func(context.Context, int64) error { return errAway }
	refused(t, "a load that fails", do(w.api(t), "POST", "/admin/items/1001/reconcile?fix=true", ""), 503, "UNAVAILABLE", "the item was not loaded")
	if got := w.told(); slices.Contains(got, "end reload 1001") {
		t.Errorf("the steps were %v", got)
	}
}

// TestWhatIsReserved counts every unit once: what is sold is not reserved, and what is reserved is in flight unless its order is named as lost or left over.
func TestWhatIsReserved(t *testing.T) {
	w := newWorld()
	w.put(1, 200)
	for _, test := range []struct {
		orders   []admin.ConcernView
		inFlight int64
	}{
		{nil, 30},
		{[]admin.ConcernView{{Quantity: 2, Reason: "event_lost"}, {Quantity: 3, Reason: "mark_left"}, {Quantity: 4, Reason: "mark_missing"}, {Quantity: 5, Reason: "mark_differs"}}, 25},
	} {
		w.compared = []admin.Comparison{{Available: units(70), Pending: units(30), InTransfer: units(0), Drift: units(0), Orders: test.orders}}
		answer, err := serve(t, w.api(t)).Reconcile(t.Context(), 1001, false)
		if err != nil {
			t.Fatal(err)
		}
		v := answer.Value.Found
		if *v.Free != 70 || *v.Reserved != 30 || *v.InFlight != test.inFlight || *v.Available != *v.Free || *v.Pending != *v.Reserved || v.Unknown != nil {
			t.Errorf("%s", answer.JSON)
		}
	}
	// A reason is never missing where something is unknown.
	w.compared = []admin.Comparison{{}}
	answer, err := serve(t, w.api(t)).Reconcile(t.Context(), 1001, false)
	if err != nil || answer.Value.Found.Unknown == nil || *answer.Value.Found.Unknown == "" || answer.Value.Found.InFlight != nil {
		t.Errorf("%s, %v", answer.JSON, err)
	}
}

func TestARepairIsLoggedWithItsDrift(t *testing.T) {
	for drift, want := range map[*int64]string{units(-3): "drift=-3", nil: "drift=unknown"} {
		w := newWorld()
		w.put(1, 10)
		before := differs(0, admin.ConcernView{OrderID: sale.NewOrderID(1001).String(), Quantity: 1, Reason: "mark_left"})
		before.Drift = drift
		w.compared = []admin.Comparison{before, differs(0)}
		var log strings.Builder
		api := w.apiWith(t, func(c *admin.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		if got := do(api, "POST", "/admin/items/1001/reconcile?fix=true", ""); got.status != 200 || !strings.Contains(log.String(), want+" concerned=1") {
			t.Errorf("%d %s, and the log has %s", got.status, got.body, log.String())
		}
	}
}
