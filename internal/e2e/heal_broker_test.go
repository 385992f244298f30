package e2e

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"flashgate/internal/devstack"
	"flashgate/internal/devstack/devtest"
)

// cutOff makes the broker break every connection on which anything is asked, while on is set.
func cutOff(broker *devstack.Kfake) (on *atomic.Bool) {
	on = new(atomic.Bool)
	broker.Cluster().Control(func(kmsg.Request) (kmsg.Response, error, bool) {
		broker.Cluster().KeepControl()
		if on.Load() {
			return nil, errors.New("cut off by the test"), true
		}
		return nil, nil, false
	})
	return on
}

// breakableBroker is a broker that can be taken away.
type breakableBroker struct {
	brokers    string
	away, back func()
}

// breakable is the in-process broker, or Apache Kafka in a large run.
func breakable(t *testing.T) breakableBroker {
	t.Helper()
	if large() {
		kafka := devtest.PrivateKafka(t)
		return breakableBroker{
			brokers: strings.Join(kafka.Brokers(), ","),
			away:    func() { must(t, kafka.Kill()) },
			back: func() {
				if err := kafka.Restart(t.Context()); err != nil {
					t.Error(err)
				}
			},
		}
	}
	broker := devtest.Kfake(t)
	cut := cutOff(broker)
	return breakableBroker{
		brokers: strings.Join(broker.Brokers(), ","),
		away:    func() { cut.Store(true) },
		back:    func() { cut.Store(false) },
	}
}

// The broker goes away in the middle of a sale: no buyer hears of it, each being asked to wait a second at most, and nothing is lost.
func TestHealBrokerOutage(t *testing.T) {
	broker := breakable(t)
	// A large run has the settings of production; a small one must not fail because a busy machine takes seconds for a purchase.
	timeout := size("15s", "3s")
	s := newShop(t, devtest.Redis(t).URL(), broker.brokers, "FLASHGATE_RATE_USER=off", "FLASHGATE_RATE_IP=off", "FLASHGATE_REQUEST_TIMEOUT="+timeout, "FLASHGATE_PUBLISH_TIMEOUT=1s").open(2, 2)
	stock, buyers := size(360, 5_000), size(440, 20_000)
	item := s.offer(stock, 13)
	users := people(buyers, func(i int) string { return itoa(int64(3_000_000 + i)) })
	before := s.crowd(item, users[:40], keyOf)

	length := size(5*time.Second, time.Minute)
	broker.away()
	restored := make(chan struct{})
	timer := time.AfterFunc(length, func() { defer close(restored); broker.back() })
	t.Cleanup(func() {
		if !timer.Stop() {
			<-restored
		}
	})
	var accepted atomic.Int64
	answered := make(chan []answer, 1)
	go func() { answered <- s.crowdWatched(item, users[40:], keyOf, &accepted) }()
	devtest.Eventually(t, time.Minute, func() bool { return accepted.Load() > 0 || len(answered) > 0 }, "nobody buys")
	devtest.Eventually(t, time.Minute, func() bool {
		a := s.try(http.MethodGet, s.gateways[0].admin+"/readyz", nil, nil)
		return a.status == 503 && strings.Contains(a.text, "kafka")
	}, "operators are not told")
	answers := append(before, <-answered...)
	<-restored
	t.Logf("the broker was away for %v, and %d orders were accepted meanwhile and after it", length, accepted.Load())
	for i, a := range answers {
		if a.status != http.StatusAccepted && a.status != http.StatusGone {
			t.Fatalf("buyer %d: %v, want 202 or 410; all: %v", i, a, count(answers))
		}
	}
	r := &rush{s: s, item: item, users: users, answers: answers}
	r.sellsExactly(int64(stock), false)
}

// A broker that is away for so long that no more may wait for it: whoever comes then is told to come back, takes no unit, and is served when it is
// there again.
func TestHealOutboxLimit(t *testing.T) {
	broker := devtest.Kfake(t)
	s := newShop(t, devtest.Redis(t).URL(), strings.Join(broker.Brokers(), ","), append(healing(), "FLASHGATE_OUTBOX_LIMIT=20", "FLASHGATE_PUBLISH_TIMEOUT=500ms")...).open(2, 0)
	consumer := s.openWriters(1)[0]
	item := s.offer(60, 1)
	cut := cutOff(broker)
	cut.Store(true)
	r := newRush(s, item, 80)
	first := s.crowd(item, r.users, func(i int) string { return "key-" + r.users[i] })
	got := count(first)
	if got["202 PENDING"] != 20 || got["503 OVERLOADED"] != 60 {
		t.Errorf("answers when 20 may wait for the broker: %v", got)
	}
	if n := s.numbers(item); n["available"] != 40.0 {
		t.Errorf("%v units are free, want 40: %v", n["available"], n)
	}
	devtest.Eventually(t, time.Minute, func() bool { return s.metric(consumer, "flashgate_keeper_outbox_reservations") == 20 }, "operators do not see what waits")
	cut.Store(false)
	answers := r.run()
	for i, a := range first {
		if a.status == 202 && answers[i].orderID() != a.orderID() {
			t.Errorf("buyer %d has order %s, and %s when he asks again", i, a.orderID(), answers[i].orderID())
		}
	}
	r.sellsExactly(60, false)
}
