package admin_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"flashgate/internal/admin"
	"flashgate/internal/sale"
)

// body makes a sale with one item; changes replace members by name, "items[0].NAME" for those of the item; an empty value removes one.
func body(changes ...string) string {
	members := map[string]string{"startsAt": `"2026-11-27T20:00:00+08:00"`, "endsAt": `"2026-11-27T21:00:00+08:00"`}
	item := map[string]string{"quantity": "100", "price": `"1980"`, "currency": `"JPY"`}
	for change := range slices.Chunk(changes, 2) {
		into, name, value := members, change[0], change[1]
		if inner, ok := strings.CutPrefix(name, "items[0]."); ok {
			into, name = item, inner
		}
		if into[name] = value; value == "" {
			delete(into, name)
		}
	}
	if _, ok := members["items"]; !ok {
		members["items"] = "[" + object(item) + "]"
	}
	return object(members)
}

func object(members map[string]string) string {
	var parts []string
	for name, value := range members {
		parts = append(parts, fmt.Sprintf("%q:%s", name, value))
	}
	slices.Sort(parts)
	return "{" + strings.Join(parts, ",") + "}"
}

func TestCreateASaleAsGiven(t *testing.T) {
	w := newWorld()
	got := do(w.api(t), "POST", "/admin/sales", `{"id":1,"name":"11.11","startsAt":"2026-11-27T20:00:00+08:00","endsAt":"2026-11-27T21:00:00.5+08:00",
		"purchaseLimit":"per_item","paymentWindow":"90m","timeZone":"Asia/Tokyo",
		"items":[{"id":1001,"productId":5001,"sku":"A-1","quantity":0,"price":"19.80","currency":"EUR","shards":4,"maxPerUser":3,"stockModel":"counter","approval":false,"safetyStock":0},
		         {"id":9007199254740991,"quantity":9007199254740991,"price":"0","currency":"EUR"}]}`)
	want := `{"id":1,"name":"11.11","startsAt":"2026-11-27T12:00:00.000Z","endsAt":"2026-11-27T13:00:00.500Z","paused":false,"purchaseLimit":"per_item",` +
		`"paymentWindow":"1h30m","timeZone":"Asia/Tokyo","items":[` +
		`{"id":1001,"productId":5001,"sku":"A-1","quantity":0,"sold":0,"price":"19.80","currency":"EUR","shards":4,"maxPerUser":3,"stockModel":"counter","paused":false,"retired":false},` +
		`{"id":9007199254740991,"productId":0,"sku":"","quantity":9007199254740991,"sold":0,"price":"0","currency":"EUR","shards":13,"maxPerUser":1,"stockModel":"counter","paused":false,"retired":false}]}`
	if got.status != 201 || strings.TrimSpace(got.body) != want {
		t.Errorf("got %d\n%s, want 201\n%s", got.status, got.body, want)
	}
	if got.header.Get("Location") != "/admin/sales/1" || got.header.Get("Content-Type") != "application/json" {
		t.Errorf("the headers are %v", got.header)
	}
	// Redis is asked before anything is done, and the gateway told when everything is.
	if want := []string{"ping", "create", "load", "load", "refresh"}; !slices.Equal(w.steps, want) {
		t.Errorf("the steps were %v, want %v", w.steps, want)
	}
	if again := do(w.api(t), "GET", got.header.Get("Location"), ""); again.status != 200 || again.body != got.body {
		t.Errorf("shown as %d\n%s, created as\n%s", again.status, again.body, got.body)
	}
}

func TestDefaultsAndIDsAreFilledIn(t *testing.T) {
	w := newWorld()
	got := do(w.api(t), "POST", "/admin/sales", body())
	var view admin.CreatedView
	if err := json.Unmarshal([]byte(got.body), &view); err != nil || got.status != 201 {
		t.Fatalf("%d %s, %v", got.status, got.body, err)
	}
	it := view.Items[0]
	if view.ID == 0 || it.ID == 0 || view.PurchaseLimit != "per_item" || view.PaymentWindow != "10m" || view.TimeZone != "UTC" || it.Shards != 13 || it.MaxPerUser != 1 || it.StockModel != "counter" {
		t.Errorf("created %+v", view)
	}
	if view.Pending || view.Message != "" {
		t.Errorf("a sale that is loaded is pending: %s", got.body)
	}
}

func TestCreationRefusesWhatIsWrong(t *testing.T) {
	long := strings.Repeat("x", 201)
	for _, test := range []struct{ body, message string }{
		// The body as such.
		{``, "the body is empty; it must be a JSON object"},
		{`null`, "the body: must be a JSON object"},
		{`[]`, "the body: must be a JSON object"},
		{body() + `{}`, "the body: something follows the JSON object"},
		{`{"items":[],"items":[]}`, "items: comes twice"},
		{body("Items", `[]`), "Items: is not known here"},
		{body("items[0].Quantity", `9`), "items[0].Quantity: is not known here"},
		{body("sold", `1`), "sold: is not known here"},
		{strings.Replace(body(), `"quantity"`, `"quantity":1,"\ud800"`, 1), "the body: holds half of a surrogate pair"},
		{body("id", `null`), "id: must be an integer, not null"},

		// The sale.
		{body("id", `0`), "id: must be an integer from 1 to 9007199254740991"},
		{body("id", `9007199254740992`), "id: must be an integer from 1 to 9007199254740991"},
		{body("id", `1.0`), "id: must be an integer without fraction or exponent"},
		{body("name", `"`+long+`"`), "name: must be at most 200 bytes long, without control characters"},
		{body("name", `"a\u0000b"`), "name: must be at most 200 bytes long, without control characters"},
		{body("startsAt", ``), "startsAt: is missing"},
		{body("endsAt", ``), "endsAt: is missing"},
		{body("startsAt", `"2026-11-27T20:00:00"`), "startsAt: must be a time with offset"},
		{body("startsAt", `"2026-11-27 20:00:00Z"`), "startsAt: must be a time with offset"},
		{body("startsAt", `"2026-11-27T20:00:00,5Z"`), "startsAt: must be a time with offset"},
		{body("startsAt", `"2026-11-27T9:00:00Z"`), "startsAt: must be a time with offset"},
		{body("startsAt", `"2026-11-27T20:00:00 America/New_York"`), "startsAt: must be a time with offset"},
		{body("startsAt", `"2026-02-29T20:00:00Z"`), "startsAt: must be a time with offset"},
		{body("startsAt", `"2026-11-27T24:00:00Z"`), "startsAt: must be a time with offset"},
		{body("startsAt", `"2026-11-27T20:00:00+24:00"`), "startsAt: must be a time with offset"},
		{body("startsAt", `"2026-11-27T20:00:00+0800"`), "startsAt: must be a time with offset"},
		{body("startsAt", `"2026-11-27T20:00:00.Z"`), "startsAt: must be a time with offset"},
		{body("startsAt", `"2026-11-27t20:00:00z"`), "startsAt: must be a time with offset"},
		{body("startsAt", `1795953600`), "startsAt: must be a string, not a number"},
		{body("startsAt", `"0001-01-01T00:00:00Z"`), "startsAt: must be between the years 2000 and 9999"},
		{body("endsAt", `"9999-12-31T23:59:59-01:00"`), "endsAt: must be between the years 2000 and 9999"},
		{body("endsAt", `"2026-11-27T20:00:00+08:00"`), "endsAt: must be later than startsAt"},
		{body("endsAt", `"2026-11-27T20:00:00.0009+08:00"`), "endsAt: must be later than startsAt"},
		{body("endsAt", `"2026-11-27T21:00:00+10:00"`), "endsAt: must be later than startsAt"},
		{body("purchaseLimit", `"per_sale"`), "purchaseLimit: per_sale is not built in this version; only per_item is"},
		{body("purchaseLimit", `"PER_ITEM"`), "purchaseLimit: must be per_item or per_sale"},
		{body("paymentWindow", `"10"`), `paymentWindow: must be a duration with unit, such as "10m", from 1s to 720h`},
		{body("paymentWindow", `"999ms"`), `paymentWindow: must be a duration with unit, such as "10m", from 1s to 720h`},
		{body("paymentWindow", `"721h"`), `paymentWindow: must be a duration with unit, such as "10m", from 1s to 720h`},
		{body("paymentWindow", `600`), "paymentWindow: must be a string, not a number"},
		{body("timeZone", `"Mars/Olympus"`), `timeZone: must be the IANA name of a zone, such as "Asia/Tokyo"`},
		{body("timeZone", `""`), "timeZone: must be the IANA name of a zone"},
		{body("timeZone", `"Local"`), "timeZone: must be the IANA name of a zone"},
		{body("timeZone", `"../../etc/passwd"`), "timeZone: must be the IANA name of a zone"},
		{body("items", `[]`), "items: must have 1 to 500 items; it has 0"},
		{body("items", `[`+strings.Repeat(`{},`, 500)+`{}]`), "items: must have 1 to 500 items; it has 501"},
		{body("items", `{}`), "items: must be an array, not an object"},
		{body("items", `[1]`), "items[0]: must be an object, not a number"},

		// Its items.
		{body("items", `[{"id":5,"quantity":1,"price":"1","currency":"JPY"},{"quantity":1,"price":"1","currency":"JPY"},{"id":5,"quantity":1,"price":"1","currency":"JPY"}]`), "items[2].id: is the id of items[0], too"},
		{body("items[0].id", `-1`), "items[0].id: must be an integer from 1 to 9007199254740991"},
		{body("items[0].productId", `0`), "items[0].productId: must be an integer from 1 to 9007199254740991"},
		{body("items[0].sku", `"`+long+`"`), "items[0].sku: must be at most 100 bytes long, without control characters"},
		{body("items[0].quantity", ``), "items[0].quantity: is missing"},
		{body("items[0].quantity", `-1`), "items[0].quantity: must be an integer from 0 to 9007199254740991"},
		{body("items[0].quantity", `9007199254740993`), "items[0].quantity: must be an integer from 0 to 9007199254740991"},
		{body("items[0].quantity", `99999999999999999999`), "items[0].quantity: is an integer that does not fit 64 bits"},
		{body("items[0].quantity", `"100"`), "items[0].quantity: must be an integer, not a string"},
		{body("items[0].quantity", `1e2`), "items[0].quantity: must be an integer without fraction or exponent"},
		{body("items[0].price", ``), "items[0].price: is missing"},
		{body("items[0].price", `1980`), "items[0].price: must be a string, not a number"},
		{body("items[0].price", `"-1"`), "items[0].price: must be a decimal such as"},
		{body("items[0].price", `"1e3"`), "items[0].price: must be a decimal such as"},
		{body("items[0].price", `"1.12345"`), "items[0].price: must be a decimal such as"},
		{body("items[0].currency", ``), "items[0].currency: is missing"},
		{body("items[0].currency", `"jpy"`), "items[0].currency: must be three capital letters"},
		{body("items[0].shards", `0`), "items[0].shards: must be an integer from 1 to 256"},
		{body("items[0].shards", `257`), "items[0].shards: must be an integer from 1 to 256"},
		{body("items[0].maxPerUser", `0`), "items[0].maxPerUser: must be an integer from 1 to 10000"},
		{body("items[0].maxPerUser", `10001`), "items[0].maxPerUser: must be an integer from 1 to 10000"},
		{body("items[0].stockModel", `"lots"`), "items[0].stockModel: lots is not built in this version; only counter is"},
		{body("items[0].stockModel", `"direct"`), "items[0].stockModel: direct is not built in this version; only counter is"},
		{body("items[0].stockModel", `"redis"`), "items[0].stockModel: must be counter, lots or direct"},
		{body("items[0].approval", `true`), "items[0].approval: orders that wait for approval are not built in this version"},
		{body("items[0].safetyStock", `1`), "items[0].safetyStock: a safety stock belongs to the stock model lots, which is not built in this version"},
	} {
		w := newWorld()
		got := do(w.api(t), "POST", "/admin/sales", test.body)
		if got.status != 400 {
			t.Errorf("%.200s: %d %s, want 400 %s", test.body, got.status, got.body, test.message)
			continue
		}
		var e struct{ Error, Message string }
		if err := json.Unmarshal([]byte(got.body), &e); err != nil || e.Error != "BAD_REQUEST" || !strings.HasPrefix(e.Message, test.message) {
			t.Errorf("%.200s: answered %s, want %s", test.body, got.body, test.message)
		}
		if len(w.steps) != 0 {
			t.Errorf("%.200s: refused, but the steps were %v", test.body, w.steps)
		}
	}
}

func TestCreationRefusesIDsThatExist(t *testing.T) {
	w := newWorld()
	w.put(1, 10)
	for _, test := range []struct{ body, message string }{
		{body("id", `1`), "sale 1 exists already; nothing was created"},
		{body("items[0].id", `1001`), "item 1001 exists already; nothing was created"},
	} {
		got := do(w.api(t), "POST", "/admin/sales", test.body)
		if want := fmt.Sprintf(`{"error":"ALREADY_EXISTS","message":%q}`+"\n", test.message); got.status != 409 || got.body != want {
			t.Errorf("%d %s, want 409 %s", got.status, got.body, want)
		}
	}
	if len(w.sales) != 1 {
		t.Errorf("there are %d sales", len(w.sales))
	}
}

func TestCreationWhenAServerIsAway(t *testing.T) {
	t.Run("Redis", func(t *testing.T) {
		w := newWorld()
		w.redisDown = true
		got := do(w.api(t), "POST", "/admin/sales", body())
		if got.status != 503 || !strings.Contains(got.body, "nothing was created") || got.header.Get("Retry-After") == "" {
			t.Errorf("%d %s", got.status, got.body)
		}
		if want := []string{"ping"}; !slices.Equal(w.steps, want) {
			t.Errorf("the steps were %v, want %v", w.steps, want)
		}
	})
	t.Run("database", func(t *testing.T) {
		w := newWorld()
		w.databaseDown = true
		if got := do(w.api(t), "POST", "/admin/sales", body()); got.status != 503 || !strings.Contains(got.body, `"UNAVAILABLE"`) {
			t.Errorf("%d %s", got.status, got.body)
		}
	})
	t.Run("database, at its commit", func(t *testing.T) {
		w := newWorld()
		w.outcomeUnknown = true
		if got := do(w.api(t), "POST", "/admin/sales", body()); got.status != 503 || !strings.Contains(got.body, `"OUTCOME_UNKNOWN"`) {
			t.Errorf("%d %s", got.status, got.body)
		}
	})
	t.Run("Redis, after the sale was stored", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.loads = func(it sale.Item) error {
				if it.ID == 1001 {
					return errAway
				}
				return nil
			}
			got := do(w.api(t), "POST", "/admin/sales", body("id", `1`, "items", `[{"id":1001,"quantity":1,"price":"1","currency":"JPY"},{"id":1002,"quantity":1,"price":"1","currency":"JPY"}]`))
			pending(t, got)
			// One item that fails stops neither the other one nor the news for the gateway.
			if want := []string{"ping", "create", "load", "load", "refresh"}; !slices.Equal(w.steps, want) {
				t.Errorf("the steps were %v, want %v", w.steps, want)
			}
		})
	})
	t.Run("the gateway's catalogue", func(t *testing.T) {
		w := newWorld()
		w.refresh = func() error { return errAway }
		pending(t, do(w.api(t), "POST", "/admin/sales", body("id", `1`)))
	})
}

// pending checks the answer for a sale that exists and is not loaded.
func pending(t *testing.T, got answer) {
	t.Helper()
	var view admin.CreatedView
	if err := json.Unmarshal([]byte(got.body), &view); err != nil {
		t.Fatal(err)
	}
	if got.status != http.StatusAccepted || !view.Pending || !strings.HasPrefix(view.Message, "the sale exists") || view.ID != 1 || got.header.Get("Location") != "/admin/sales/1" {
		t.Errorf("%d %s, Location %q", got.status, got.body, got.header.Get("Location"))
	}
}

func TestABodyThatIsTooLarge(t *testing.T) {
	w := newWorld()
	got := do(w.api(t), "POST", "/admin/sales", body("name", `"`+strings.Repeat("x", admin.MaxBody)+`"`))
	if got.status != 413 || !strings.Contains(got.body, `"TOO_LARGE"`) {
		t.Errorf("%d %.200s", got.status, got.body)
	}
	if got := do(w.api(t), "POST", "/admin/items/1/restock", strings.Repeat(" ", admin.MaxBody+1)); got.status != 413 {
		t.Errorf("restock: %d %.200s", got.status, got.body)
	}
}

func FuzzCreateSale(f *testing.F) {
	f.Add(body())
	f.Add(body("items[0].price", `"1.5"`, "timeZone", `"Europe/Berlin"`, "paymentWindow", `"1h"`))
	f.Add(`{"items":[{"quantity":1e400}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		w := newWorld()
		got := do(w.api(t), "POST", "/admin/sales", text)
		var e struct{ Error, Message string }
		if err := json.Unmarshal([]byte(got.body), &e); err != nil {
			t.Fatalf("%q: the answer is no JSON: %v", text, err)
		}
		switch {
		case got.status == 201:
			for _, s := range w.sales {
				if !s.EndsAt.After(s.StartsAt) || len(s.Items) == 0 || s.PaymentWindow < admin.MinPaymentWindow {
					t.Errorf("%q: created %+v", text, s)
				}
				for _, it := range s.Items {
					if _, err := sale.ParsePrice(string(it.Price)); err != nil || errors.Join(sale.CheckCurrency(it.Currency)) != nil ||
						it.Quantity < 0 || it.Quantity > sale.MaxQuantity || it.Shards < 1 || it.Shards > sale.MaxShards || it.MaxPerUser < 1 {
						t.Errorf("%q: created the item %+v", text, it)
					}
				}
			}
		case got.status != 400 && got.status != 413 || e.Message == "":
			t.Errorf("%q: %d %s", text, got.status, got.body)
		case len(w.steps) != 0:
			t.Errorf("%q: refused after %v", text, w.steps)
		}
	})
}
