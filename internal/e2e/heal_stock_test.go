package e2e

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"flashgate/internal/broker"
	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
)

// Redis offers two units where there is one: both buyers are told yes, one of them has an order in the end. Several items, so that both order writers
// have to do with it.
func TestHealUnitThatDoesNotExist(t *testing.T) {
	redis := devtest.Redis(t)
	brokers := kfake(t)
	// No periodic repair: the refusal alone makes the load due.
	s := newShop(t, redis.URL(), brokers, append(healing(), "FLASHGATE_RECONCILE_EVERY=off")...).open(2, 0)
	consumers := s.openWriters(2)
	users := []string{"2", "3"} // at home in different shards
	type oversold struct {
		item    int64
		answers []answer
	}
	var cases []oversold
	for range 4 {
		item := s.offer(1, 2)
		for n := range 2 {
			// The shard that has the unit keeps it, the other one gets one that does not exist.
			redisCommand(t, redis, "SET {item:"+itoa(item)+":"+itoa(int64(n))+"}:stock 1")
		}
		cases = append(cases, oversold{item, make([]answer, 2)})
	}
	var everybody sync.WaitGroup
	for _, c := range cases {
		for n, user := range users {
			everybody.Go(func() { c.answers[n] = s.buy(n, c.item, user, "key") })
		}
	}
	everybody.Wait()
	for _, c := range cases {
		for n, a := range c.answers {
			if a.status != http.StatusAccepted {
				t.Fatalf("item %d, buyer %s: %v", c.item, users[n], a)
			}
		}
	}
	for _, c := range cases {
		for g := range s.gateways {
			var third answer
			devtest.Eventually(t, time.Minute, func() bool {
				third = s.buy(g, c.item, "9"+itoa(int64(g)), "")
				return third.status != http.StatusServiceUnavailable
			},
				"a third buyer gets no answer: %v", &third)
			if third.status != http.StatusGone {
				t.Errorf("item %d, a third buyer at gateway %d: %v, want 410", c.item, g, third)
			}
		}
		report := s.audit(c.item, c.answers)
		if report.Sold != 1 || report.Free != 0 || report.Orders[sale.Pending] != 1 || report.Orders[sale.Rejected] != 1 {
			t.Errorf("item %d: sold %d, free %d, orders %v, want one that lives and one that is rejected", c.item, report.Sold, report.Free, report.Orders)
		}
		for n, a := range c.answers {
			switch told := s.order(n, http.MethodGet, a.orderID(), users[n]); told.code() {
			case "PENDING":
			case "REJECTED":
				awaitEvent(t, brokers, "order.rejected", a.orderID())
			default:
				t.Errorf("buyer %s is told %v of his order", users[n], told)
			}
		}
		s.alarmed(consumers, c.item, "stock_no_room")
	}
}

// awaitEvent waits until the topic of order events tells of an order.
func awaitEvent(t *testing.T, brokers, kind, order string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(brokers, ",")...), kgo.ConsumeTopics(broker.OrderEvents), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	must(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for found := false; !found; {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("no %s of order %s", kind, order)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			event, err := broker.DecodeOrderEvent(r)
			if err != nil {
				t.Errorf("an event that cannot be read: %v", err)
				return
			}
			found = found || event.Type == kind && event.OrderID.String() == order
		})
	}
}

// One item is sold out while orders of another one are in flight, with nobody to write them: that one keeps what it has, and units that are added go to
// the one that they were added to.
func TestHealSoldOutBesideOrdersInFlight(t *testing.T) {
	s := newShop(t, devtest.Redis(t).URL(), kfake(t), healing()...).open(2, 0)
	a, b := s.offer(10, 4), s.offer(6, 4)
	if got := count(s.crowd(a, people(7, func(i int) string { return itoa(int64(i + 1)) }), keyOf)); got["202 PENDING"] != 7 {
		t.Fatalf("answers for the first item: %v", got)
	}
	if got := count(s.crowd(b, people(30, func(i int) string { return itoa(int64(100 + i)) }), keyOf)); got["202 PENDING"] != 6 || got["410 SOLD_OUT"] != 24 {
		t.Fatalf("answers for the second item: %v", got)
	}
	s.awaitStatus(b, "SOLD_OUT")
	untouched := func(when string, sold float64) {
		t.Helper()
		if n := s.numbers(a); n["available"] != 3.0 || n["sold"] != sold || n["drift"] != 0.0 {
			t.Errorf("%s, the first item is %v, want 3 free and %v sold", when, n, sold)
		}
		s.awaitStatus(a, "ON_SALE")
		for g := range s.gateways {
			if n := s.metric(s.gateways[g], "flashgate_gateway_flagged_items"); n > 1 {
				t.Errorf("%s, gateway %d has %v flags", when, g, n)
			}
		}
	}
	untouched("while nothing is written", 0)
	if r := s.asAdmin(0, http.MethodPost, "/admin/items/"+itoa(b)+"/restock", `{"quantity":5}`); r.status != 200 {
		t.Fatalf("restock: %v", r)
	}
	s.openWriters(2)
	s.awaitStatus(b, "ON_SALE")
	if got := count(s.crowd(b, people(40, func(i int) string { return itoa(int64(200 + i)) }), keyOf)); got["202 PENDING"] != 5 || got["410 SOLD_OUT"] != 35 {
		t.Errorf("answers after 5 were added: %v", got)
	}
	if report := s.audit(b, nil); report.Sold != 11 || report.Free != 0 {
		t.Errorf("the second item: %v", report)
	}
	if report := s.audit(a, nil); report.Sold != 7 || report.Free != 3 {
		t.Errorf("the first item: %v", report)
	}
	untouched("when everything is written", 7)
}
