package e2e

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/pause"
)

// One of two order writers is killed and started again and again while people buy. It has an id, so that it gets its partitions back each time, and
// the other one goes on: what was bought is written, and a load, which waits for that, comes to its end in the middle of it.
func TestHealOrderWriterInACrashLoop(t *testing.T) {
	server := devtest.Redis(t)
	// Apache Kafka: the in-process one has all share out anew when a member comes back.
	brokers := strings.Join(devtest.PrivateKafka(t).Brokers(), ",")
	s := newShop(t, server.URL(), brokers, healing()...).open(2, 0)
	s.env = append(s.env, "FLASHGATE_CONSUMER_ID=writer-0")
	s.openWriters(1)
	s.env[len(s.env)-1] = "FLASHGATE_CONSUMER_ID=writer-1"
	l := &crashLoop{s: s, victim: s.openWriters(1)[0]}
	stock, buyers := stockAndBuyers()
	item := s.offer(stock, 13)
	r := newRush(s, item, buyers)
	var back *recovery
	r.faults[stock/4] = func() { l.begin(t) }
	for n := range 3 {
		r.faults[(n+3)*stock/8] = func() {
			l.await(t, 3)
			back = s.watchRecovery(item)
			_, err := server.Do(t.Context(), "FLUSHALL")
			must(t, err)
			const most = 12
			if killed := l.await(t, most, back.done); killed == most {
				t.Errorf("the item is not loaded again while the order writer is killed %d times", killed)
			}
			back.await(t)
		}
	}
	r.run()
	l.await(t, size[int64](3, 15))
	l.end()
	ended := time.Now()
	r.sellsExactly(int64(stock), false)
	took := time.Since(ended)
	t.Logf("all orders are written and checked %v after the last kill", took.Round(time.Millisecond))
	back.report(r, 13, 15*time.Second)
	if large() && took > 15*time.Second {
		t.Errorf("the orders were written %v after the last kill, more than 15s", took)
	}
}

// crashLoop kills an order writer a second after it has begun to work, and starts it again, until it is told to end.
type crashLoop struct {
	s      *shop
	victim *role
	kills  atomic.Int64
	end    func()
}

func (l *crashLoop) begin(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	l.end = func() { cancel(); <-ended }
	t.Cleanup(l.end)
	go func() {
		defer close(ended)
		for pause.For(ctx, time.Second) {
			l.victim.kill()
			l.victim = launch(t, l.s.env, "consumer")
			l.kills.Add(1)
			for !l.victim.findAddresses() && pause.For(ctx, 10*time.Millisecond) {
			}
		}
	}()
}

// await waits for so many more kills, or until done is closed, and returns how many it saw.
func (l *crashLoop) await(t *testing.T, most int64, done ...<-chan struct{}) (kills int64) {
	t.Helper()
	before := l.kills.Load()
	devtest.Eventually(t, 2*time.Minute, func() bool {
		for _, c := range done {
			select {
			case <-c:
				return true
			default:
			}
		}
		kills = l.kills.Load() - before
		return kills >= most
	}, "the order writer is not killed again")
	return kills
}
