package e2e

import (
	"strings"
	"testing"
	"time"

	"flashgate/internal/devstack/devtest"
)

// A gateway that is started while Kafka is away sells to those who reach it, as much as may wait for Kafka. A balancer sends nobody before Kafka was there
// once; operators are told why.
func TestGatewayStartsWithoutKafka(t *testing.T) {
	broker := devtest.Kfake(t)
	s := newShop(t, devtest.Redis(t).URL(), strings.Join(broker.Brokers(), ","), append(healing(), "FLASHGATE_OUTBOX_LIMIT=3", "FLASHGATE_PUBLISH_TIMEOUT=500ms")...).open(1, 0)
	old, item := s.gateways[0], s.offer(10, 1)
	ready := func(r *role) int { return s.try("GET", r.public+"/readyz", nil, nil).status }
	cut := cutOff(broker)
	cut.Store(true)
	late := start(t, s.env, "gateway")
	s.gateways = append(s.gateways, late)
	s.awaitItem(1, item)
	users := people(3, func(i int) string { return itoa(int64(i + 1)) })
	for _, user := range users {
		if a := s.buy(1, item, user, "key"); a.status != 202 {
			t.Errorf("user %s buys while Kafka is away: %v", user, a)
		}
	}
	if a := s.buy(1, item, "4", "key"); a.code() != "OVERLOADED" {
		t.Errorf("one more than may wait for Kafka: %v", a)
	}
	operatorsAreTold := func(r *role) {
		t.Helper()
		devtest.Eventually(t, time.Minute, func() bool {
			a := s.try("GET", r.admin+"/readyz", nil, nil)
			return a.status == 503 && strings.Contains(a.text, `"kafka"`)
		}, "operators are not told")
	}
	operatorsAreTold(late)
	if status := ready(late); status != 503 {
		t.Errorf("the balancer is told %d by a gateway that has never seen Kafka", status)
	}
	if status := ready(old); status != 200 {
		t.Errorf("the balancer is told %d by a gateway that has seen Kafka", status)
	}
	cut.Store(false)
	devtest.Eventually(t, time.Minute, func() bool { return ready(late) == 200 }, "the balancer sends nobody when Kafka is there")
	cut.Store(true)
	operatorsAreTold(late)
	if status := ready(late); status != 200 {
		t.Errorf("the balancer is told %d when Kafka is away again", status)
	}
	cut.Store(false)
	s.awaitReady(late)
	s.openWriters(1)
	var again answer
	devtest.Eventually(t, time.Minute, func() bool { again = s.buy(1, item, "4", "key"); return again.status == 202 }, "he comes again: %v", &again)
	if sold, available := s.settled(item); sold != 4 || available != 6 {
		t.Errorf("sold %d, free %d, want 4 and 6", sold, available)
	}
}
