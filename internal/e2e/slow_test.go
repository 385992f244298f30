package e2e

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"flashgate/internal/devstack/devtest"
)

// slowLine passes connections on to a server, and holds back what the server says for as long as it is told.
type slowLine struct {
	address string
	delay   atomic.Int64 // nanoseconds
}

func newSlowLine(t *testing.T, server string) *slowLine {
	t.Helper()
	line := &slowLine{}
	line.address = between(t, func() string { return server },
		func(to, from net.Conn) { _, _ = io.Copy(to, from); _ = to.Close() },
		func(to, from net.Conn) { line.copySlowly(to, from); _ = to.Close() },
		func() {})
	return line
}

func (l *slowLine) copySlowly(to, from net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if d := time.Duration(l.delay.Load()); d > 0 {
			<-time.After(d)
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// Redis takes longer than the shopper may wait: he is told so, and what happened without him is found again under his key.
func TestRedisSlowerThanTheRequest(t *testing.T) {
	server := devtest.Redis(t)
	line := newSlowLine(t, server.Addr())
	s := newShop(t, server.URL(), kfake(t))
	plain := s.env
	s.env = append(withSetting(plain, "FLASHGATE_REDIS_URL", "redis://"+line.address), "FLASHGATE_REQUEST_TIMEOUT=100ms")
	s.open(1, 0)
	slow := s.gateways[0]
	s.env, s.gateways = plain, nil
	s.open(1, 1)
	item := s.offer(10, 4)
	s.gateways = append(s.gateways, slow)
	s.awaitItem(1, item)

	line.delay.Store(int64(300 * time.Millisecond))
	answers := s.crowdAt(slow, item, people(6, func(i int) string { return itoa(int64(i + 1)) }), keyOf)
	for i, a := range answers {
		if a.status != 503 || (a.code() == "OUTCOME_UNKNOWN") != (a.orderID() != "") {
			t.Errorf("buyer %d while Redis is slow: %v, want 503", i+1, a)
		}
	}
	line.delay.Store(0)
	for i := range answers {
		user := itoa(int64(i + 1))
		var again answer
		devtest.Eventually(t, 20*time.Second, func() bool { again = s.buy(0, item, user, keyOf(i)); return again.status == 202 }, "buyer %s repeats: %v", user, &again)
		if id := answers[i].orderID(); id != "" && again.orderID() != id {
			// Then that attempt took nothing: its order must not exist beside this one.
			t.Logf("buyer %s was told of order %s and has %s", user, id, again.orderID())
		}
	}
	if sold, available := s.settled(item); sold != 6 || available != 4 {
		t.Errorf("sold %d, free %d, want 6 and 4", sold, available)
	}
	if rows := s.query("SELECT count(*) FROM flash_sale_order WHERE item_id = $1", item); rows != 6 {
		t.Errorf("%d rows for 6 buyers", rows)
	}
}

// crowdAt is crowd at one gateway, everybody at once.
func (s *shop) crowdAt(gateway *role, item int64, users []string, key func(i int) string) []answer {
	answers := make([]answer, len(users))
	var all sync.WaitGroup
	for i := range users {
		all.Go(func() { answers[i] = s.buyAt(gateway, item, users[i], key(i)) })
	}
	all.Wait()
	return answers
}

// A topic that is missing holds up nobody, and what was reserved meanwhile arrives when it is there.
func TestTopicIsMissing(t *testing.T) {
	broker := devtest.Kfake(t)
	s := newShop(t, devtest.Redis(t).URL(), strings.Join(broker.Brokers(), ","), "FLASHGATE_REQUEST_TIMEOUT=600ms").open(1, 1)
	item := s.offer(600, 13)
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Brokers()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := admin.DeleteTopic(ctx, "flash-sale-orders"); err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, 30*time.Second, func() bool { return s.try("GET", s.gateways[0].admin+"/readyz", nil, nil).status == 503 }, "the gateway is ready without its topic")
	answers := s.crowd(item, people(500, func(i int) string { return itoa(int64(i + 1)) }), keyOf)
	accepted := 0
	for i, a := range answers {
		switch a.status {
		case 202:
			accepted++
		case 503:
		default:
			t.Errorf("buyer %d without a topic: %v, want 202 or 503", i+1, a)
		}
	}
	if accepted == 0 {
		t.Errorf("nobody was accepted: %v", count(answers))
	}
	if output, code := run(t, s.env, "migrate"); code != 0 {
		t.Fatalf("migrate: %d %s", code, output)
	}
	devtest.Eventually(t, 60*time.Second, func() bool {
		return s.query("SELECT count(*) FROM flash_sale_order WHERE item_id = $1", item) >= int64(accepted)
	}, "what was reserved without the topic does not arrive")
	next := s.buy(0, item, "9001", "")
	if next.status != 202 {
		t.Errorf("the next buyer: %v", next)
	}
	s.settled(item)
	for i, a := range answers {
		if a.status == 202 && s.query("SELECT count(*) FROM flash_sale_order WHERE id = $1", a.orderID()) != 1 {
			t.Errorf("order %s of buyer %d was answered with 202 and has no row", a.orderID(), i+1)
		}
	}
}

// A gateway that is told to stop while its records cannot be delivered ends in time, and leaves them to the sweep.
func TestGatewayStopsWithRecordsInHand(t *testing.T) {
	broker := devtest.Kfake(t)
	s := newShop(t, devtest.Redis(t).URL(), strings.Join(broker.Brokers(), ","), "FLASHGATE_SHUTDOWN_TIMEOUT=5s").open(2, 1)
	item := s.offer(200, 13)
	down := refuse(broker, kmsg.NewPtrProduceRequest())
	down.Store(true)
	answered := make(chan []answer)
	users := people(100, func(i int) string { return itoa(int64(i + 1)) })
	go func() { answered <- s.crowdAt(s.gateways[0], item, users, keyOf) }()
	devtest.Eventually(t, 30*time.Second, func() bool { return s.pendingInRedis(1, item) >= 50 }, "nothing waits for the broker")
	_ = s.gateways[0].cmd.Process.Signal(syscall.SIGTERM)
	answers := <-answered
	s.gateways[0].wait(20 * time.Second)
	s.gateways = s.gateways[1:]
	down.Store(false)
	for i, a := range answers {
		if a.status != 202 && a.status != 503 && a.status != 0 {
			t.Errorf("buyer %d of a stopping gateway: %v", i+1, a)
		}
		if a.status == 202 {
			devtest.Eventually(t, 30*time.Second, func() bool { return s.query("SELECT count(*) FROM flash_sale_order WHERE id = $1", a.orderID()) == 1 },
				"order %s was answered with 202 and does not arrive", a.orderID())
		}
	}
	if sold, available := s.settled(item); sold+available != 200 {
		t.Errorf("sold %d, free %d: not 200 together", sold, available)
	}
}
