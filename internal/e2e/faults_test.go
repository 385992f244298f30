package e2e

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"flashgate/internal/devstack"
	"flashgate/internal/devstack/devtest"
)

// refuse makes the broker break every connection on which a request of this kind arrives, while on is set.
func refuse(broker *devstack.Kfake, request kmsg.Request) (on *atomic.Bool) {
	on = new(atomic.Bool)
	broker.Cluster().ControlKey(request.Key(), func(kmsg.Request) (kmsg.Response, error, bool) {
		broker.Cluster().KeepControl()
		if on.Load() {
			return nil, errors.New("refused by the test"), true
		}
		return nil, nil, false
	})
	return on
}

// pendingInRedis is the number of units of the item that are not yet known to be in Kafka.
func (s *shop) pendingInRedis(g int, item int64) (units float64) {
	s.tb.Helper()
	a := s.asAdmin(g, "GET", "/admin/items/"+itoa(item), "")
	if a.status != 200 {
		s.tb.Fatalf("read item %d: %v", item, a)
	}
	for _, shard := range a.body["shards"].([]any) {
		units += shard.(map[string]any)["pending"].(float64)
	}
	return units
}

func TestGatewayKilledBetweenReserveAndPublish(t *testing.T) {
	broker := devtest.Kfake(t)
	s := newShop(t, devtest.Redis(t).URL(), strings.Join(broker.Brokers(), ",")).open(2, 1)
	item := s.offer(10, 4)
	down := refuse(broker, kmsg.NewPtrProduceRequest())
	down.Store(true)
	answered := make(chan answer, 1)
	go func() { answered <- s.buy(0, item, "501", "key-501") }()
	devtest.Eventually(t, 20*time.Second, func() bool { return s.pendingInRedis(1, item) == 1 }, "the reservation does not show in the outbox")
	s.gateways[0].kill()
	<-answered // whatever it was: the connection may have been cut, or the publish timeout was faster
	down.Store(false)
	devtest.Eventually(t, 30*time.Second, func() bool {
		return s.query("SELECT count(*) FROM flash_sale_order WHERE item_id = $1 AND user_id = '501' AND status = 'PENDING'", item) == 1
	}, "the order of the killed gateway does not arrive")
	a := s.buy(1, item, "501", "key-501")
	if a.status != 202 || s.query("SELECT count(*) FROM flash_sale_order WHERE id = $1", a.orderID()) != 1 {
		t.Errorf("the buyer repeats his request: %v, want 202 with the order that arrived", a)
	}
	s.gateways = s.gateways[1:]
	if sold, available := s.settled(item); sold != 1 || available != 9 {
		t.Errorf("sold %d, free %d, want 1 and 9", sold, available)
	}
}

func TestBrokerDownDuringASale(t *testing.T) {
	broker := devtest.Kfake(t)
	s := newShop(t, devtest.Redis(t).URL(), strings.Join(broker.Brokers(), ",")).open(2, 2)
	item := s.offer(100, 13)
	down := refuse(broker, kmsg.NewPtrProduceRequest())
	down.Store(true)
	users := people(150, func(i int) string { return itoa(int64(7000 + i)) })
	answers := s.crowd(item, users, keyOf)
	if got := count(answers); got["202 PENDING"] != 100 || got["410 SOLD_OUT"] != 50 {
		t.Errorf("answers while the broker is away: %v, want 100 times 202 and 50 times 410", got)
	}
	down.Store(false)
	s.exactlySold(item, answers, 100)
}

func TestConsumerKilledBetweenItsTwoCommits(t *testing.T) {
	broker := devtest.Kfake(t)
	s := newShop(t, devtest.Redis(t).URL(), strings.Join(broker.Brokers(), ",")).open(1, 0)
	first := start(t, s.env, "consumer")
	s.awaitReady(first)
	item := s.offer(50, 4)
	stuck := refuse(broker, kmsg.NewPtrOffsetCommitRequest())
	stuck.Store(true)
	answers := s.crowd(item, people(20, func(i int) string { return itoa(int64(i + 1)) }), keyOf)
	devtest.Eventually(t, 30*time.Second, func() bool { return s.query("SELECT sold FROM flash_sale_item WHERE id = $1", item) == 20 }, "the orders are not written")
	first.kill()
	stuck.Store(false)
	s.awaitReady(start(t, s.env, "consumer"))
	if got := count(answers); got["202 PENDING"] != 20 {
		t.Errorf("answers %v", got)
	}
	// One more order behind the redelivered ones: when it is there, they have been dealt with.
	if a := s.buy(0, item, "9999", ""); a.status != 202 {
		t.Fatalf("buy after the restart: %v", a)
	}
	devtest.Eventually(t, 60*time.Second, func() bool { return s.query("SELECT sold FROM flash_sale_item WHERE id = $1", item) >= 21 }, "the new consumer writes nothing")
	if rows := s.query("SELECT count(*) FROM flash_sale_order WHERE item_id = $1", item); rows != 21 {
		t.Errorf("%d rows, want 21", rows)
	}
	if sold, available := s.settled(item); sold != 21 || available != 29 {
		t.Errorf("sold %d, free %d, want 21 and 29", sold, available)
	}
	if dead := s.query("SELECT count(*) FROM flash_sale_conflict"); dead != 0 {
		t.Errorf("%d conflicts recorded for mere redeliveries", dead)
	}
}

// SIGTERM in the middle of a crowd: every request that was answered with 202 has its order, and the process ends by itself.
func TestGatewayDrains(t *testing.T) {
	s := newShop(t, devtest.Redis(t).URL(), kfake(t)).open(2, 1)
	item := s.offer(1000, 13)
	var accepted atomic.Int64
	answered := make(chan []answer)
	go func() {
		answered <- s.crowdWatched(item, people(600, func(i int) string { return itoa(int64(i + 1)) }), keyOf, &accepted)
	}()
	devtest.Eventually(t, 30*time.Second, func() bool { return accepted.Load() > 50 }, "nothing is sold")
	s.gateways[0].stop()
	answers := <-answered
	s.gateways = s.gateways[1:]
	sold, available := s.settled(item)
	if sold+available != 1000 {
		t.Errorf("sold %d, free %d: not 1000 together", sold, available)
	}
	n := int64(0)
	for _, a := range answers {
		switch a.status {
		case 202:
			n++
			if s.query("SELECT count(*) FROM flash_sale_order WHERE id = $1", a.orderID()) != 1 {
				t.Errorf("order %s was answered with 202 and has no row", a.orderID())
			}
		case 0, 503: // refused or cut off by the stop; a 503 must not come from a server that goes on
		default:
			t.Errorf("unexpected answer %v", a)
		}
	}
	if sold < n {
		t.Errorf("%d accepted, %d sold", n, sold)
	}
}

// PostgreSQL crashes in the middle of a sale: purchases go on, shoppers are still sent to the gateways, operators are told, and every order arrives.
func TestDatabaseIsAwayDuringASale(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	server, err := devstack.StartPostgres(ctx, devstack.PostgresConfig{Fsync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	if err := server.CreateDatabase(ctx, "away", ""); err != nil {
		t.Fatal(err)
	}
	s := newShopOn(t, server.DSN("away"), devtest.Redis(t).URL(), kfake(t)).open(2, 2)
	item := s.offer(40, 4)
	if a := s.buy(0, item, "1", "key"); a.status != 202 {
		t.Fatalf("buy: %v", a)
	}
	devtest.Eventually(t, 30*time.Second, func() bool { return s.try("GET", s.gateways[0].public+"/readyz", nil, nil).status == 200 }, "the public edge is not ready")
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	var told answer
	devtest.Eventually(t, 30*time.Second, func() bool {
		told = s.try("GET", s.gateways[0].admin+"/readyz", nil, nil)
		return told.status == 503 && strings.Contains(told.text, "postgresql")
	}, "operators are not told: %v", &told)
	answers := s.crowd(item, people(60, func(i int) string { return itoa(int64(100 + i)) }), keyOf)
	if got := count(answers); got["202 PENDING"] != 39 || got["410 SOLD_OUT"] != 21 {
		t.Errorf("answers without the database: %v, want 39 times 202 and 21 times 410", got)
	}
	if a := s.try("GET", s.gateways[0].public+"/readyz", nil, nil); a.status != 200 {
		t.Errorf("the public edge sends shoppers away: %v", a)
	}
	for i, a := range answers {
		if a.status == 202 {
			if read := s.order(0, "GET", a.orderID(), itoa(int64(100+i))); read.code() != "PENDING" || read.body["payable"] != false {
				t.Errorf("an order reads %v without the database", read)
			}
			break
		}
	}
	if err := server.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, 60*time.Second, func() bool { return s.try("GET", s.gateways[0].admin+"/readyz", nil, nil).status == 200 }, "the gateway does not recover")
	if sold, available := s.settled(item); sold != 40 || available != 0 {
		t.Errorf("sold %d, free %d, want 40 and 0", sold, available)
	}
	for i, a := range answers {
		if a.status == 202 && s.query("SELECT count(*) FROM flash_sale_order WHERE id = $1", a.orderID()) != 1 {
			t.Errorf("order %s of buyer %d was answered with 202 and has no row", a.orderID(), i)
		}
	}
}
