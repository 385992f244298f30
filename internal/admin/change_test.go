package admin_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"flashgate/internal/admin"
	"flashgate/internal/sale"
)

// refused checks an answer that is an error.
func refused(t *testing.T, what string, got answer, status int, code, message string) {
	t.Helper()
	var e struct{ Error, Message string }
	if err := json.Unmarshal([]byte(got.body), &e); err != nil {
		t.Errorf("%s: the answer is no JSON: %s", what, got.body)
	}
	if got.status != status || e.Error != code || !strings.HasPrefix(e.Message, message) {
		t.Errorf("%s: %d %s, want %d %s %s", what, got.status, got.body, status, code, message)
	}
}

// told returns the steps of a world without those of its own preparation.
func (w *world) told() []string {
	steps := w.steps
	w.steps = nil
	return slices.DeleteFunc(steps, func(step string) bool { return step == "load" })
}

func TestChangeASale(t *testing.T) {
	const before = `{"id":1,"name":"sale","startsAt":"2026-11-27T12:00:00.000Z","endsAt":"2026-11-27T13:00:00.000Z","paused":false,`
	for name, test := range map[string]struct {
		body, want string // the start of the answer
		began      bool
	}{
		"nothing":                       {`{}`, before, false},
		"pause":                         {`{"paused":true}`, strings.Replace(before, "false", "true", 1), true},
		"resume":                        {`{"paused":false}`, before, true},
		"name":                          {`{"name":"11.11"}`, strings.Replace(before, `"sale"`, `"11.11"`, 1), true},
		"no name":                       {`{"name":""}`, strings.Replace(before, `"sale"`, `""`, 1), true},
		"extend":                        {`{"endsAt":"2026-11-27T23:00:00+09:00"}`, strings.Replace(before, "T13", "T14", 1), true},
		"end early":                     {`{"endsAt":"2026-11-27T12:00:00.001Z"}`, strings.Replace(before, "T13:00:00.000Z", "T12:00:00.001Z", 1), true},
		"start later, before it began":  {`{"startsAt":"2026-11-27T12:30:00Z"}`, strings.Replace(before, "T12:00", "T12:30", 1), false},
		"the same start, when it began": {`{"startsAt":"2026-11-27T12:00:00Z","paused":true}`, strings.Replace(before, "false", "true", 1), true},
		"all": {
			`{"name":"x","startsAt":"2027-01-01T00:00:00Z","endsAt":"2027-01-02T00:00:00Z","paused":true}`,
			`{"id":1,"name":"x","startsAt":"2027-01-01T00:00:00.000Z","endsAt":"2027-01-02T00:00:00.000Z","paused":true,`, false,
		},
	} {
		w := newWorld()
		w.put(1, 10)
		w.began = test.began
		api := w.api(t)
		w.told()
		got := do(api, "PATCH", "/admin/sales/1", test.body)
		if got.status != 200 || !strings.HasPrefix(got.body, test.want) {
			t.Errorf("%s: %d\n%s, want\n%s", name, got.status, got.body, test.want)
		}
		// The gateway is told before the answer, and of nothing when nothing was asked for.
		want := []string{"update sale", "refresh"}
		if test.body == `{}` {
			want = []string{"sale"}
		}
		if steps := w.told(); !slices.Equal(steps, want) {
			t.Errorf("%s: the steps were %v, want %v", name, steps, want)
		}
		if shown := do(api, "GET", "/admin/sales/1", ""); shown.body != got.body {
			t.Errorf("%s: answered\n%s, shown as\n%s", name, got.body, shown.body)
		}
	}
}

func TestChangeASaleRefuses(t *testing.T) {
	const instant = "must be a time with offset"
	for _, test := range []struct {
		sale, body string
		status     int
		code       string
		message    string
	}{
		{"1", ``, 400, "BAD_REQUEST", "the body is empty"},
		{"1", `null`, 400, "BAD_REQUEST", "the body: must be a JSON object"},
		{"1", `[]`, 400, "BAD_REQUEST", "the body: must be a JSON object"},
		{"1", `{"paused":true}{}`, 400, "BAD_REQUEST", "the body: something follows the JSON object"},
		{"1", `{"paused":true,"paused":false}`, 400, "BAD_REQUEST", "paused: comes twice"},
		{"1", `{"pause":true}`, 400, "BAD_REQUEST", "pause: is not known here"},
		{"1", `{"Paused":true}`, 400, "BAD_REQUEST", "Paused: is not known here"},
		{"1", `{"purchaseLimit":"per_item"}`, 400, "BAD_REQUEST", "purchaseLimit: is not known here"},
		{"1", `{"paymentWindow":"5m"}`, 400, "BAD_REQUEST", "paymentWindow: is not known here"},
		{"1", `{"items":[]}`, 400, "BAD_REQUEST", "items: is not known here"},
		{"1", `{"paused":null}`, 400, "BAD_REQUEST", "paused: must be true or false, not null"},
		{"1", `{"paused":"true"}`, 400, "BAD_REQUEST", "paused: must be true or false, not a string"},
		{"1", `{"paused":1}`, 400, "BAD_REQUEST", "paused: must be true or false, not a number"},
		{"1", `{"name":null}`, 400, "BAD_REQUEST", "name: must be a string, not null"},
		{"1", `{"name":5}`, 400, "BAD_REQUEST", "name: must be a string, not a number"},
		{"1", `{"name":"` + strings.Repeat("x", 201) + `"}`, 400, "BAD_REQUEST", "name: must be at most 200 bytes long, without control characters"},
		{"1", `{"name":"a\u0007"}`, 400, "BAD_REQUEST", "name: must be at most 200 bytes long, without control characters"},
		{"1", `{"startsAt":null}`, 400, "BAD_REQUEST", "startsAt: must be a string, not null"},
		{"1", `{"startsAt":""}`, 400, "BAD_REQUEST", "startsAt: " + instant},
		{"1", `{"startsAt":"2026-11-27T12:00:00"}`, 400, "BAD_REQUEST", "startsAt: " + instant},
		{"1", `{"startsAt":"1999-12-31T23:59:59Z"}`, 400, "BAD_REQUEST", "startsAt: must be between the years 2000 and 9999"},
		{"1", `{"endsAt":null}`, 400, "BAD_REQUEST", "endsAt: must be a string, not null"},
		{"1", `{"endsAt":1795953600}`, 400, "BAD_REQUEST", "endsAt: must be a string, not a number"},
		{"1", `{"endsAt":"tomorrow"}`, 400, "BAD_REQUEST", "endsAt: " + instant},
		{"1", `{"startsAt":"2027-01-01T00:00:00Z","endsAt":"2027-01-01T00:00:00Z"}`, 400, "BAD_REQUEST", "endsAt: must be later than startsAt"},
		{"1", `{"endsAt":"2026-11-27T12:00:00Z"}`, 400, "BAD_REQUEST", "endsAt: must be later than startsAt"},
		{"1", `{"startsAt":"2026-11-27T13:00:00Z"}`, 400, "BAD_REQUEST", "startsAt: must be earlier than endsAt"},
		{"x", `{"paused":true}`, 400, "BAD_REQUEST", "id: not a decimal integer"},
		{"1?dry=1", `{"paused":true}`, 400, "BAD_REQUEST", `"dry": is not a parameter of this path`},
		{"9", `{"paused":true}`, 404, "NOT_FOUND", "sale 9 does not exist"},
		{"9", `{}`, 404, "NOT_FOUND", "sale 9 does not exist"},
		{"2", `{"paused":true}`, 409, "RETIRED", "items of sale 2 are retired"},
		{"3", `{"startsAt":"2027-01-01T00:00:00Z","endsAt":"2027-01-02T00:00:00Z"}`, 409, "SALE_STARTED", "startsAt: the sale has begun"},
		{"1", strings.Repeat(" ", admin.MaxBody+1), 413, "TOO_LARGE", "the body is larger than"},
	} {
		w := newWorld()
		w.put(1, 10)
		w.put(2, 10).RetiredAt = time.Now()
		w.put(3, 10)
		w.began = test.sale == "3"
		before := w.sales[1]
		refused(t, test.sale+" "+test.body[:min(len(test.body), 100)], do(w.api(t), "PATCH", "/admin/sales/"+test.sale, test.body), test.status, test.code, test.message)
		if after := w.sales[1]; after.Name != before.Name || after.Paused != before.Paused || after.StartsAt != before.StartsAt || after.EndsAt != before.EndsAt {
			t.Errorf("%s: refused, but the sale is %+v", test.body, after)
		}
		if slices.Contains(w.steps, "refresh") {
			t.Errorf("%s: refused, but the gateway was told", test.body)
		}
	}
}

// TestASaleEndsNowByTheClockOfTheGateway, whatever the clock of whoever asks says.
func TestASaleEndsNowByTheClockOfTheGateway(t *testing.T) {
	w := newWorld()
	w.put(1, 10)
	api := w.apiWith(t, func(c *admin.Config) {
		c.Now = func() time.Time { return time.Date(2026, 11, 27, 20, 30, 0, 7_999_999, time.FixedZone("", 8*3600)) }
	})
	if got := do(api, "PATCH", "/admin/sales/1", `{"endsAt":"now"}`); got.status != 200 || !strings.Contains(got.body, `"endsAt":"2026-11-27T12:30:00.007Z"`) {
		t.Errorf("%d %s", got.status, got.body)
	}
	for _, other := range []string{`{"endsAt":"Now"}`, `{"endsAt":"now "}`} {
		refused(t, other, do(api, "PATCH", "/admin/sales/1", other), 400, "BAD_REQUEST", "endsAt: must be a time with offset")
	}
	refused(t, "start", do(api, "PATCH", "/admin/sales/1", `{"startsAt":"now"}`), 400, "BAD_REQUEST", "startsAt: must be a time with offset")
}

func TestChangeAnItem(t *testing.T) {
	for _, test := range []struct {
		name, body string
		want       string // of the answer, from price to sold
		available  string
		steps      []string
	}{
		{"nothing", `{}`, `"price":"1980","currency":"JPY","maxPerUser":1,"paused":false,"retired":false,"quantity":50,"sold":0,`, `"available":50,`, []string{"item", "read", "standing"}},
		{"today's shards", `{"shards":2}`, `"price":"1980","currency":"JPY","maxPerUser":1,"paused":false,"retired":false,"quantity":50,"sold":0,`, `"available":50,`, []string{"update item", "refresh", "item", "read", "standing"}},
		{"today's quantity", `{"quantity":50}`, `"price":"1980","currency":"JPY","maxPerUser":1,"paused":false,"retired":false,"quantity":50,"sold":0,`, `"available":50,`, []string{"update item", "refresh", "item", "read", "standing"}},
		{"price", `{"price":"1500"}`, `"price":"1500","currency":"JPY","maxPerUser":1,"paused":false,"retired":false,"quantity":50,"sold":0,`, `"available":50,`, []string{"update item", "refresh", "item", "read", "standing"}},
		{"maxPerUser", `{"maxPerUser":10000}`, `"price":"1980","currency":"JPY","maxPerUser":10000,"paused":false,"retired":false,"quantity":50,"sold":0,`, `"available":50,`, []string{"update item", "refresh", "item", "read", "standing"}},
		{"pause", `{"paused":true}`, `"price":"1980","currency":"JPY","maxPerUser":1,"paused":true,"retired":false,"quantity":50,"sold":0,`, `"available":50,`, []string{"update item", "refresh", "item", "read", "standing"}},
		{"all", `{"shards":2,"quantity":150,"price":"1","maxPerUser":2,"paused":true}`, `"price":"1","currency":"JPY","maxPerUser":2,"paused":true,"retired":false,"quantity":150,"sold":0,`, `"available":150,`, []string{"update item", "refresh", "item", "read", "standing", "read", "standing"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.put(1, 50)
				w.told()
				if test.name == "all" {
					time.AfterFunc(30*time.Millisecond, func() { w.relay(1001, 100) })
				}
				got := do(w.api(t), "PATCH", "/admin/items/1001", test.body)
				if got.status != 200 || !strings.HasPrefix(got.body, `{"id":1001,"saleId":1,`+test.want+test.available) || !strings.Contains(got.body, `"drift":0,`) {
					t.Errorf("%d\n%s, want\n%s%s", got.status, got.body, test.want, test.available)
				}
				if steps := w.told(); !slices.Equal(steps, test.steps) {
					t.Errorf("the steps were %v, want %v", steps, test.steps)
				}
				time.Sleep(time.Second) // let the relay run
			})
		})
	}
}

// TestALargerQuantityIsARestock names the cases that a restock has, too.
func TestALargerQuantityIsARestock(t *testing.T) {
	for _, test := range []struct {
		name       string
		before     int64
		relayAfter time.Duration
		change     func(*world)
		want       string
		wantWait   time.Duration // until the first reading behind the relay, at 0, 50, 150, 350, 750, 1000 ms
	}{
		{"50 and 100 are 150", 50, 30 * time.Millisecond, nil, `"quantity":150,"sold":0,"available":150,"pending":0,"inTransfer":0,"drift":0,`, 50 * time.Millisecond},
		{"0 and 150 are 150: zero is not unknown", 0, 30 * time.Millisecond, nil, `"quantity":150,"sold":0,"available":150,"pending":0,"inTransfer":0,"drift":0,`, 50 * time.Millisecond},
		{"the relay is slow", 50, 400 * time.Millisecond, nil, `"quantity":150,"sold":0,"available":150,"pending":0,"inTransfer":0,"drift":0,`, 750 * time.Millisecond},
		{
			"a stock that is not loaded stays so", 50, 30 * time.Millisecond, func(w *world) { w.shards[1001][0].Stock = nil },
			`"quantity":150,"sold":0,"available":null,"pending":0,"inTransfer":0,"drift":null,`, 0,
		},
		{
			"Redis is away", 50, 30 * time.Millisecond, func(w *world) { w.redisDown = true },
			`"quantity":150,"sold":0,"available":null,"pending":null,"inTransfer":null,"drift":null,`, 0,
		},
		{"the relay is late", 50, 3 * time.Second, nil, `"quantity":150,"sold":0,"available":50,"pending":0,"inTransfer":0,"drift":100,`, time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.put(1, test.before)
				if test.change != nil {
					test.change(w)
				}
				time.AfterFunc(test.relayAfter, func() { w.relay(1001, 150-test.before) })
				started := time.Now()
				got := do(w.api(t), "PATCH", "/admin/items/1001", `{"quantity":150}`)
				if got.status != 200 || !strings.Contains(got.body, test.want) {
					t.Errorf("%d\n%s, want\n%s", got.status, got.body, test.want)
				}
				if took := time.Since(started); took != test.wantWait {
					t.Errorf("answered after %v, want %v", took, test.wantWait)
				}
				time.Sleep(3 * time.Second) // let the late relay run
			})
		})
	}
}

func TestChangeAnItemRefuses(t *testing.T) {
	for _, test := range []struct {
		item, body string
		status     int
		code       string
		message    string
	}{
		{"1001", ``, 400, "BAD_REQUEST", "the body is empty"},
		{"1001", `"paused"`, 400, "BAD_REQUEST", "the body: must be a JSON object"},
		{"1001", `{"sold":0}`, 400, "BAD_REQUEST", "sold: is not known here"},
		{"1001", `{"currency":"EUR"}`, 400, "BAD_REQUEST", "currency: is not known here"},
		{"1001", `{"quantity":60,"Quantity":70}`, 400, "BAD_REQUEST", "Quantity: is not known here"},
		{"1001", `{"shards":null}`, 400, "BAD_REQUEST", "shards: must be an integer, not null"},
		{"1001", `{"shards":"2"}`, 400, "BAD_REQUEST", "shards: must be an integer, not a string"},
		{"1001", `{"shards":0}`, 400, "BAD_REQUEST", "shards: must be an integer from 1 to 256"},
		{"1001", `{"shards":257}`, 400, "BAD_REQUEST", "shards: must be an integer from 1 to 256"},
		{"1001", `{"quantity":null}`, 400, "BAD_REQUEST", "quantity: must be an integer, not null"},
		{"1001", `{"quantity":-1}`, 400, "BAD_REQUEST", "quantity: must be an integer from 0 to 9007199254740991"},
		{"1001", `{"quantity":9007199254740992}`, 400, "BAD_REQUEST", "quantity: must be an integer from 0 to 9007199254740991"},
		{"1001", `{"quantity":1.5}`, 400, "BAD_REQUEST", "quantity: must be an integer without fraction or exponent"},
		{"1001", `{"quantity":99999999999999999999}`, 400, "BAD_REQUEST", "quantity: is an integer that does not fit 64 bits"},
		{"1001", `{"price":null}`, 400, "BAD_REQUEST", "price: must be a string, not null"},
		{"1001", `{"price":1980}`, 400, "BAD_REQUEST", "price: must be a string, not a number"},
		{"1001", `{"price":"-1"}`, 400, "BAD_REQUEST", "price: must be a decimal such as"},
		{"1001", `{"price":"1.23456"}`, 400, "BAD_REQUEST", "price: must be a decimal such as"},
		{"1001", `{"maxPerUser":null}`, 400, "BAD_REQUEST", "maxPerUser: must be an integer, not null"},
		{"1001", `{"maxPerUser":0}`, 400, "BAD_REQUEST", "maxPerUser: must be an integer from 1 to 10000"},
		{"1001", `{"maxPerUser":10001}`, 400, "BAD_REQUEST", "maxPerUser: must be an integer from 1 to 10000"},
		{"1001", `{"paused":null}`, 400, "BAD_REQUEST", "paused: must be true or false, not null"},
		{"1001", `{"paused":0}`, 400, "BAD_REQUEST", "paused: must be true or false, not a number"},
		{"01001", `{"paused":true}`, 400, "BAD_REQUEST", "id: not a decimal integer"},
		{"1001?x=1", `{"paused":true}`, 400, "BAD_REQUEST", `"x": is not a parameter of this path`},
		{"7", `{"paused":true}`, 404, "NOT_FOUND", "item 7 does not exist"},
		{"7", `{"shards":2}`, 404, "NOT_FOUND", "item 7 does not exist"},
		{"7", `{}`, 404, "NOT_FOUND", "item 7 does not exist"},
		{"1002", `{"paused":true}`, 409, "RETIRED", "item 1002 is retired"},
		{"1002", `{"shards":3}`, 409, "RETIRED", "item 1002 is retired"},
		{"1001", `{"quantity":4}`, 409, "BELOW_SOLD", "quantity: 5 units are sold; nothing was changed"},
		{"1001", `{"shards":3,"quantity":4,"price":"1","paused":true}`, 409, "BELOW_SOLD", "quantity: 5 units are sold; nothing was changed"},
	} {
		w := newWorld()
		w.put(1, 10).Sold = 5
		before := w.sales[1].Items[0]
		w.put(2, 10).RetiredAt = time.Now()
		refused(t, test.item+" "+test.body, do(w.api(t), "PATCH", "/admin/items/"+test.item, test.body), test.status, test.code, test.message)
		if it, _ := w.item(1001); *it != before {
			t.Errorf("%s: refused, but the item is %+v", test.body, it)
		}
		if slices.Contains(w.steps, "refresh") {
			t.Errorf("%s: refused, but the gateway was told", test.body)
		}
	}
}

func TestChangesWhenAServerIsAway(t *testing.T) {
	type patch struct{ target, body string }
	patches := []patch{{"/admin/sales/1", `{"paused":true}`}, {"/admin/items/1001", `{"paused":true}`}}
	for _, p := range patches {
		w := newWorld()
		w.put(1, 10)
		api := w.api(t)
		w.outcomeUnknown = true
		refused(t, p.target, do(api, "PATCH", p.target, p.body), 503, "OUTCOME_UNKNOWN", "whether the change was stored is unknown: look before you repeat it")
		w.databaseDown = true
		refused(t, p.target, do(api, "PATCH", p.target, p.body), 503, "UNAVAILABLE", "the database does not answer or refused; nothing was changed")
		refused(t, p.target, do(api, "PATCH", "/admin/items/1001", `{"shards":2}`), 503, "UNAVAILABLE", "the database does not answer or refused; nothing was changed")

		// Once it is stored, it is no failure that the gateway cannot be told, or that nothing can be read any more.
		w = newWorld()
		w.put(1, 10)
		w.refresh = func() error { w.databaseDown = true; return errAway }
		if got := do(w.api(t), "PATCH", p.target, p.body); got.status != 200 || !strings.Contains(got.body, `"paused":true`) || !strings.Contains(got.body, `"quantity":10`) {
			t.Errorf("%s: %d %s", p.target, got.status, got.body)
		}
		if !w.sales[1].Paused && !w.sales[1].Items[0].Paused {
			t.Errorf("%s: not paused", p.target)
		}
	}
}

func FuzzChange(f *testing.F) {
	f.Add(true, `{"startsAt":"2026-11-27T12:30:00Z","name":"x"}`)
	f.Add(false, `{"shards":2,"quantity":20,"price":"1.5","maxPerUser":3,"paused":false}`)
	f.Add(false, `{"quantity":1e9}`)
	f.Fuzz(func(t *testing.T, ofSale bool, text string) {
		w := newWorld()
		w.put(1, 10)
		target := "/admin/items/1001"
		if ofSale {
			target = "/admin/sales/1"
		}
		api := w.apiWith(t, func(c *admin.Config) { c.RestockWait = time.Nanosecond })
		got := do(api, "PATCH", target, text)
		if !json.Valid([]byte(got.body)) || !slices.Contains([]int{200, 400, 413}, got.status) {
			t.Fatalf("%q: %d %s", text, got.status, got.body)
		}
		it, _ := w.item(1001)
		if _, err := sale.ParsePrice(string(it.Price)); err != nil || it.Quantity < 0 || it.Quantity > sale.MaxQuantity || it.Shards != 2 ||
			it.MaxPerUser < 1 || it.MaxPerUser > admin.MaxPerUser || !w.sales[1].EndsAt.After(w.sales[1].StartsAt) || len(w.sales[1].Name) > admin.MaxName {
			t.Errorf("%q: the item is %+v, the sale %+v", text, it, w.sales[1])
		}
		if got.status != 200 && slices.Contains(w.steps, "refresh") {
			t.Errorf("%q: refused after %v", text, w.steps)
		}
	})
}
