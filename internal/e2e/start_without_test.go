package e2e

import (
	"testing"
	"time"

	"flashgate/internal/devstack/devtest"
)

// A database that has frozen says nothing, and is as good as away: orders are read from what Redis knows of them, and purchases go on.
func TestOrdersWhileTheDatabaseIsFrozen(t *testing.T) {
	database := devtest.Database(t)
	line := newIcyLine(t, database)
	s := newShopOn(t, database, devtest.Redis(t).URL(), kfake(t))
	s.awaitReady(start(t, s.env, "consumer"))
	s.env = withSetting(s.env, "FLASHGATE_DATABASE_URL", line.url)
	s.open(1, 0)
	item := s.offer(5, 4)
	before := s.buy(0, item, "1", "key")
	if before.status != 202 {
		t.Fatalf("buy: %v", before)
	}
	devtest.Eventually(t, 30*time.Second, func() bool { return s.order(0, "GET", before.orderID(), "1").body["payable"] == true }, "the order does not become payable")
	line.freeze()
	during := s.buy(0, item, "2", "key")
	if during.status != 202 {
		t.Fatalf("buy while the database is frozen: %v", during)
	}
	for user, id := range map[string]string{"1": before.orderID(), "2": during.orderID()} {
		for _, path := range []string{"/" + id, "?itemId=" + itoa(item)} {
			began := time.Now()
			a := s.try("GET", s.gateways[0].public+"/api/flash-sales/orders"+path, map[string]string{"Authorization": "Bearer " + tokenOf(t, user)}, nil)
			if a.status != 200 || a.code() != "PENDING" || a.body["payable"] != false || a.body["expiresAt"] != nil || a.orderID() != id {
				t.Errorf("the order of user %s reads %v after %s, want 200 PENDING, not payable", user, a, time.Since(began))
			}
		}
	}
	if a := s.order(0, "GET", during.orderID(), "1"); a.status != 503 {
		t.Errorf("somebody else's order: %v, want 503: nobody can know", a)
	}
	line.thaw()
	for user, id := range map[string]string{"1": before.orderID(), "2": during.orderID()} {
		devtest.Eventually(t, 30*time.Second, func() bool { return s.order(0, "GET", id, user).body["payable"] == true }, "the order of user %s does not become payable", user)
	}
}

// No keeper gives units back: whoever has cancelled and buys again is not told of the order that he has cancelled, under no key, and buys when a keeper is
// there again.
func TestBuyAgainWhileNoKeeperWorks(t *testing.T) {
	s := newShop(t, devtest.Redis(t).URL(), kfake(t)).open(2, 0)
	item := s.offer(5, 4, `"maxPerUser":2`)
	first := s.buy(0, item, "1", "key")
	if first.status != 202 {
		t.Fatalf("buy: %v", first)
	}
	if a := s.order(0, "DELETE", first.orderID(), "1"); a.status != 200 || a.code() != "CANCELLED" {
		t.Fatalf("cancel: %v", a)
	}
	for name, again := range map[string]func() answer{
		"the same key":                   func() answer { return s.buy(0, item, "1", "key") },
		"the same key, another gateway":  func() answer { return s.buy(1, item, "1", "key") },
		"the same key, another quantity": func() answer { return s.buy(0, item, "1", "key", `{"quantity":2}`) },
		"another key":                    func() answer { return s.buy(0, item, "1", "other") },
		"no key":                         func() answer { return s.buy(0, item, "1", "") },
	} {
		if a := again(); a.status != 503 || a.code() != "UNAVAILABLE" || a.header.Get("Retry-After") != "1" {
			t.Errorf("%s: %v, want 503 UNAVAILABLE", name, a)
		}
	}
	s.awaitReady(start(t, s.env, "consumer"))
	var second answer
	devtest.Eventually(t, 60*time.Second, func() bool { second = s.buy(0, item, "1", "key"); return second.status == 202 }, "he cannot buy again: %v", &second)
	if second.orderID() == first.orderID() {
		t.Errorf("order %s again, which was cancelled", first.orderID())
	}
	if sold, available := s.settled(item); sold != 1 || available != 4 {
		t.Errorf("sold %d, free %d, want 1 and 4", sold, available)
	}
}
