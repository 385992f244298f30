package e2e

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/pause"
)

// insist buys until there is an answer that is not "come back in a moment", as a storefront does.
func (s *shop) insist(gateway *role, item int64, user string) answer {
	ctx, cancel := context.WithTimeout(s.tb.Context(), time.Minute)
	defer cancel()
	for {
		a := s.buyAt(gateway, item, user, "key-"+user)
		if a.status != 503 || !pause.For(ctx, 20*time.Millisecond) {
			return a
		}
	}
}

// TestShardsAndUnitsChangeDuringARush has the operators change their minds while a crowd buys through two gateways, and take away nearly all that is
// left in the end.
func TestShardsAndUnitsChangeDuringARush(t *testing.T) {
	s := newShop(t, devtest.Redis(t).URL(), kfake(t)).open(2, 2)
	const quantity, least, most = 20_000, 200, 10_000 // the crowd goes on until all changes are done, and is too small for the stock
	item := s.offer(quantity, 13)
	path := "/admin/items/" + itoa(item)
	// The crowd may keep the processor from the database for seconds (on one core, under a scheduler that groups by session, it always does). Operators
	// ask again then, as they are told.
	change := func(gateway int, body string) {
		var a answer
		devtest.Eventually(t, time.Minute, func() bool {
			a = s.asAdmin(gateway, "PATCH", path, body)
			return a.status != 503 || a.code() != "UNAVAILABLE"
		}, "change to %s: %v", body, &a)
		if a.status != 200 && a.status != 202 {
			t.Errorf("change to %s: %v", body, a)
		}
	}
	becomes := func(quantity float64, shards int) {
		t.Helper()
		var a answer
		devtest.Eventually(t, time.Minute, func() bool {
			a = s.asAdmin(0, "GET", path, "")
			list, _ := a.body["shards"].([]any)
			return a.status == 200 && a.body["quantity"] == quantity && len(list) == shards
		}, "the item is %v, not of %v units in %d shards", &a, quantity, shards)
	}
	var mu sync.Mutex
	answers := map[string]answer{}
	var crowd sync.WaitGroup
	next, done := make(chan int), make(chan struct{})
	for range 8 {
		crowd.Go(func() {
			for i := range next {
				user := strconv.Itoa(2_000_000 + i)
				a := s.insist(s.gateways[i%2], item, user)
				mu.Lock()
				answers[user] = a
				mu.Unlock()
			}
		})
	}
	crowd.Go(func() {
		defer close(next)
		for i := 0; i < most; i++ {
			select {
			case <-done:
				if i > least {
					return
				}
			default:
			}
			next <- i
		}
	})
	change(0, `{"shards":4}`)
	becomes(quantity, 4)
	var both sync.WaitGroup
	both.Go(func() { change(0, `{"shards":7}`) })
	both.Go(func() { change(1, `{"quantity":15000}`) })
	both.Wait()
	becomes(15_000, 7)
	close(done)
	crowd.Wait()
	for user, a := range answers {
		if a.status != 202 {
			t.Fatalf("user %s: %v", user, a)
		}
	}
	sold, available := s.settled(item)
	if sold != int64(len(answers)) || available != 15_000-sold {
		t.Errorf("%d were told yes, sold %d, free %d", len(answers), sold, available)
	}
	var orders []string
	for _, a := range answers {
		orders = append(orders, a.orderID())
	}
	if n := s.query("SELECT count(*) FROM flash_sale_order WHERE id = ANY($1::text[]::uuid[]) AND status = 'PENDING'", orders); n != sold {
		t.Errorf("%d orders were answered with 202, and %d of them have rows", len(orders), n)
	}

	// Those who have bought are told so by their new shards; nearly all the other units go.
	if a := s.buy(0, item, "2000000", ""); a.status != 409 || a.orderID() != answers["2000000"].orderID() {
		t.Errorf("a buyer again: %v", a)
	}
	if a := s.asAdmin(1, "PATCH", path, `{"quantity":`+itoa(sold-1)+`}`); a.status != 409 || a.code() != "BELOW_SOLD" {
		t.Errorf("below what is sold: %v", a)
	}
	change(1, `{"quantity":`+itoa(sold+20)+`}`)
	becomes(float64(sold+20), 7)
	won := 0
	for i := range 60 {
		switch a := s.insist(s.gateways[i%2], item, strconv.Itoa(3_000_000+i)); {
		case a.status == 202:
			won++
		case a.status != 410 || a.code() != "SOLD_OUT":
			t.Errorf("at the end: %v", a)
		}
	}
	if after, available := s.settled(item); won != 20 || after != sold+20 || available != 0 {
		t.Errorf("%d of 20 were sold; sold %d, free %d", won, after, available)
	}
}
