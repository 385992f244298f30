package admin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"flashgate/internal/admin"
)

func page(t *testing.T, got answer) (ids, cursor string) {
	t.Helper()
	var view admin.SalesView
	if err := json.Unmarshal([]byte(got.body), &view); err != nil || got.status != 200 {
		t.Fatalf("%d %s, %v", got.status, got.body, err)
	}
	var all []string
	for _, s := range view.Sales {
		all = append(all, fmt.Sprint(s.ID))
	}
	if view.NextCursor != nil {
		cursor = *view.NextCursor
	}
	return strings.Join(all, " "), cursor
}

// TestRestock names the cases that shops know: stock that is there, stock that is zero, stock that nobody knows, the same call twice.
func TestRestock(t *testing.T) {
	for _, test := range []struct {
		name         string
		before       int64
		relayAfter   time.Duration
		change       func(*world)
		want         string
		wantWaiting  time.Duration
		wantNewUnits int64 // in Redis, afterwards
	}{
		{"50 and 100 are 150", 50, 30 * time.Millisecond, nil, `{"itemId":1001,"quantity":150,"available":150}`, 40 * time.Millisecond, 150},
		{"0 and 100 are 100: zero is not unknown", 0, 30 * time.Millisecond, nil, `{"itemId":1001,"quantity":100,"available":100}`, 40 * time.Millisecond, 100},
		{"the relay was faster than the answer", 50, 0, nil, `{"itemId":1001,"quantity":150,"available":150}`, 0, 150},
		{"the relay is late", 50, 2 * time.Second, nil, `{"itemId":1001,"quantity":150,"available":null}`, time.Second, 50},
		{
			"a stock that is not loaded stays so", 50, 30 * time.Millisecond,
			func(w *world) { w.shards[1001] = []admin.Shard{{Known: true}, {Known: true, Stock: units(25)}} },
			`{"itemId":1001,"quantity":150,"available":null}`, 40 * time.Millisecond, 25,
		},
		{
			"Redis is away", 50, 30 * time.Millisecond,
			func(w *world) { w.redisDown = true },
			`{"itemId":1001,"quantity":150,"available":null}`, 40 * time.Millisecond, 150,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.put(1, test.before)
				if test.change != nil {
					test.change(w)
				}
				relay := func() { w.relay(1001, 100) }
				if test.relayAfter > 0 {
					time.AfterFunc(test.relayAfter, relay)
				}
				api := w.api(t)
				if test.relayAfter == 0 {
					api = restockedAtOnce(t, w, relay)
				}
				started := time.Now()
				got := do(api, "POST", "/admin/items/1001/restock", `{"quantity":100}`)
				if got.status != 200 || got.body != test.want+"\n" {
					t.Errorf("%d %s, want %s", got.status, got.body, test.want)
				}
				if took := time.Since(started); took != test.wantWaiting {
					t.Errorf("answered after %v, want %v", took, test.wantWaiting)
				}
				var stock int64
				w.mu.Lock()
				for _, s := range w.shards[1001] {
					if s.Stock != nil {
						stock += *s.Stock
					}
				}
				w.mu.Unlock()
				if stock != test.wantNewUnits {
					t.Errorf("Redis has %d units, want %d", stock, test.wantNewUnits)
				}
				time.Sleep(3 * time.Second) // let the late relay run
			})
		})
	}
}

// quick is a world where something happens between a restock and the answer to it: by default the relay carries it out.
type quick struct {
	*world
	after func()
}

func (q quick) Restock(ctx context.Context, item, units int64, key string) (admin.Restock, admin.RestockOutcome, error) {
	done, outcome, err := q.world.Restock(ctx, item, units, key)
	if err == nil && outcome == admin.Restocked && !done.Repeated {
		q.after()
	}
	return done, outcome, err
}

func restockedAtOnce(t *testing.T, w *world, relay func()) *admin.API {
	t.Helper()
	return w.apiWith(t, func(c *admin.Config) { c.Ledger = quick{w, relay} })
}

func TestRestockOncePerKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(1, 50)
		api := restockedAtOnce(t, w, func() { w.relay(1001, 100) })
		post := func(body, key string) answer {
			return do(api, "POST", "/admin/items/1001/restock", body, "Idempotency-Key: "+key)
		}
		first := post(`{"quantity":100}`, "k1")
		if first.status != 200 || first.body != `{"itemId":1001,"quantity":150,"available":150}`+"\n" {
			t.Errorf("the first call: %d %s", first.status, first.body)
		}
		if again := post(`{"quantity":100}`, "k1"); again.status != 200 || again.body != first.body {
			t.Errorf("the same call again: %d %s", again.status, again.body)
		}
		if other := post(`{"quantity":99}`, "k1"); other.status != 422 || !strings.Contains(other.body, `"KEY_REUSED"`) {
			t.Errorf("the same key with another quantity: %d %s", other.status, other.body)
		}
		if next := post(`{"quantity":100}`, "k2"); next.body != `{"itemId":1001,"quantity":250,"available":250}`+"\n" {
			t.Errorf("another key: %d %s", next.status, next.body)
		}
	})
}

func TestRestockRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct {
			item, body string
			headers    []string
			status     int
			want       string
		}{
			{"1001", ``, nil, 400, "the body is empty"},
			{"1001", `{}`, nil, 400, "quantity: is missing"},
			{"1001", `{"quantity":0}`, nil, 400, "quantity: must be an integer from 1 to 9007199254740991"},
			{"1001", `{"quantity":-5}`, nil, 400, "quantity: must be an integer from 1 to 9007199254740991"},
			{"1001", `{"quantity":9007199254740993}`, nil, 400, "quantity: must be an integer from 1 to 9007199254740991"},
			{"1001", `{"quantity":"5"}`, nil, 400, "quantity: must be an integer, not a string"},
			{"1001", `{"quantity":5,"QUANTITY":9}`, nil, 400, "QUANTITY: is not known here"},
			{"1001", `{"quantity":5}{"quantity":9}`, nil, 400, "the body: something follows the JSON object"},
			{"1001", `{"quantity":9007199254740991}`, nil, 400, "quantity: the item would have more than 9007199254740991 units"},
			{"1001", `{"quantity":5}`, []string{"Idempotency-Key: "}, 400, "Idempotency-Key: must be one header"},
			{"1001", `{"quantity":5}`, []string{"Idempotency-Key: a b"}, 400, "Idempotency-Key: must be one header"},
			{"1001", `{"quantity":5}`, []string{"Idempotency-Key: é"}, 400, "Idempotency-Key: must be one header"},
			{"1001", `{"quantity":5}`, []string{"Idempotency-Key: " + strings.Repeat("x", 129)}, 400, "Idempotency-Key: must be one header"},
			{"1001", `{"quantity":5}`, []string{"Idempotency-Key: a", "Idempotency-Key: a"}, 400, "Idempotency-Key: must be one header"},
			{"x", `{"quantity":5}`, nil, 400, "id: not a decimal integer"},
			{"7", `{"quantity":5}`, nil, 404, "item 7 does not exist"},
			{"1002", `{"quantity":5}`, nil, 409, "item 1002 is retired"},
		} {
			w := newWorld()
			w.put(1, 10)
			w.put(2, 10).RetiredAt = time.Now()
			got := do(w.api(t), "POST", "/admin/items/"+test.item+"/restock", test.body, test.headers...)
			if got.status != test.status || !strings.Contains(got.body, `"message":"`+test.want) {
				t.Errorf("%s %s %v: %d %s, want %d %s", test.item, test.body, test.headers, got.status, got.body, test.status, test.want)
			}
			if it, _ := w.item(1001); it.Quantity != 10 {
				t.Errorf("%s %v: refused, but the quantity is %d", test.body, test.headers, it.Quantity)
			}
		}
	})
}

func TestRestockWhenTheDatabaseIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(1, 10)
		w.databaseDown = true
		if got := do(w.api(t), "POST", "/admin/items/1001/restock", `{"quantity":5}`); got.status != 503 || !strings.Contains(got.body, `"UNAVAILABLE"`) {
			t.Errorf("%d %s", got.status, got.body)
		}
		// The reply to the commit was lost: only a call with a key may be repeated, and the answer says which.
		w.databaseDown, w.outcomeUnknown = false, true
		if got := do(w.api(t), "POST", "/admin/items/1001/restock", `{"quantity":5}`); got.status != 503 || !strings.Contains(got.body, "look at the item") {
			t.Errorf("%d %s", got.status, got.body)
		}
		if got := do(w.api(t), "POST", "/admin/items/1001/restock", `{"quantity":5}`, "Idempotency-Key: k"); got.status != 503 || !strings.Contains(got.body, "same Idempotency-Key") {
			t.Errorf("%d %s", got.status, got.body)
		}
	})
}

func TestARestockIsAnsweredAlsoWhenTheDatabaseGoesAwayBehindIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.put(1, 10)
		api := restockedAtOnce(t, w, func() { w.databaseDown = true })
		if got := do(api, "POST", "/admin/items/1001/restock", `{"quantity":5}`); got.status != 200 || got.body != `{"itemId":1001,"quantity":15,"available":null}`+"\n" {
			t.Errorf("%d %s", got.status, got.body)
		}
	})
}
