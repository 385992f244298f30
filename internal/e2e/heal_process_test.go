package e2e

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"flashgate/internal/devstack/devtest"
)

// Gateways and order writers are killed and started, one after another and whichever, all through a rush. In the end one order writer is left, and
// has the partitions of all.
func TestHealKilledProcesses(t *testing.T) {
	// Apache Kafka: the in-process one counts on a member that dies while it joins for as long as a rebalance may take.
	brokers := strings.Join(devtest.PrivateKafka(t).Brokers(), ",")
	s := newShop(t, devtest.Redis(t).URL(), brokers, healing()...).open(2, 0)
	consumers := s.openWriters(2)
	stock, buyers := stockAndBuyers()
	item := s.offer(stock, 13)
	r := newRush(s, item, buyers)
	kills := size(4, 30)
	for n := range kills {
		r.faults[(n+1)*stock/(kills+1)] = func() {
			if rand.IntN(2) == 0 {
				r.replaceGateway()
				return
			}
			at := rand.IntN(2)
			consumers[at].kill()
			consumers[at] = launch(t, s.env, "consumer")
		}
	}
	r.run()
	devtest.Eventually(t, time.Minute, func() bool { r.gateway(0); return len(r.coming) == 0 }, "a gateway does not say where it listens")
	for _, g := range s.gateways {
		s.awaitReady(g)
	}
	r.sellsExactly(int64(stock), false)

	for _, c := range consumers {
		devtest.Eventually(t, time.Minute, c.findAddresses, "%s does not say where it listens", c.name)
		s.awaitReady(c)
	}
	next := s.offer(60, 13)
	consumers[0].kill()
	began := time.Now()
	answers := s.crowd(next, people(60, func(i int) string { return itoa(int64(i + 1)) }), keyOf)
	if report := s.audit(next, answers); report.Sold != 60 {
		t.Errorf("sold %d, want 60; answers %v", report.Sold, count(answers))
	}
	took := time.Since(began)
	t.Logf("everything of all partitions was written %v after an order writer was killed", took.Round(time.Millisecond))
	if large() && took > 10*time.Second {
		t.Errorf("its partitions were taken over after %v, more than 10s", took)
	}
}
