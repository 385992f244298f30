package apidoc

import (
	"strings"
	"testing"
)

func TestViolations(t *testing.T) {
	d := load(t)
	made := 0
	want := map[string]bool{ // what, among others, has to be there
		"POST /admin/sales items[0].quantity is missing": false, "POST /admin/sales items[0].quantity is -1": false, `POST /admin/sales items[0].price is "1e3"`: false,
		"POST /admin/sales items is []": false, "POST /admin/sales items[0].unknown is not known": false, "POST /admin/sales startsAt is null": false,
		`POST /admin/sales endsAt is "2026-11-27T20:00:00"`: false, "POST /admin/sales items[0].shards is 257": false, "POST /admin/sales id is 9007199254740992": false,
		"POST /api/flash-sales/items/{itemId}/purchase quantity is 10001": false, "POST /api/flash-sales/payments amount is missing": false,
		`POST /api/flash-sales/payments status is "OTHER"`: false, `GET /admin/orders limit limit is "101"`: false,
		`POST /api/flash-sales/items/{itemId}/purchase Idempotency-Key Idempotency-Key is "k, k"`: false, `GET /livez`: true,
	}
	for _, o := range d.Operations() {
		list, err := d.Violations(t.Context(), o, map[string]string{"itemId": "1001", "saleId": "1", "orderId": anOrder})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range list {
			made++
			want[o.String()+" "+v.Names+" "+v.How] = true
			respelled := strings.HasSuffix(v.How, " 1.0") || strings.HasSuffix(v.How, " 1e0") || strings.HasSuffix(v.How, " -0")
			if !respelled && d.Misfit(t.Context(), v.Request) == nil {
				t.Errorf("%v: %s %s fits: %s", o, v.Names, v.How, v.Body)
			}
		}
	}
	for each, there := range want {
		if !there {
			t.Errorf("not made: %s", each)
		}
	}
	t.Logf("%d violations", made)
}
