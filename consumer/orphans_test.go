package consumer_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"flashgate/consumer"
	"flashgate/internal/broker"
	"flashgate/internal/broker/brokertest"
	"flashgate/internal/devstack/devtest"
)

// A static member dies when it has given up a partition and before it has told the group so, which would then give it to another member. It comes back,
// the group takes it for settled, and the partition belongs to nobody: until a member notices.
func TestPartitionGivenUpByAnInstanceThatDied(t *testing.T) {
	const session = 30 * time.Second
	each(t, func(l *lab) {
		admin := kadm.NewClient(l.Client(l.t))
		dynamic := func(c *consumer.Config) { c.SessionTimeout = session }
		l.start(dynamic) // the leader of the group: one that comes back would look at what it has, and share out anew
		l.shared(admin, map[string]int{"": brokertest.Partitions})
		dying := l.dieWhileGivingUp("writer-1", session)
		l.shared(admin, map[string]int{"": 2, "writer-1": 2})
		// One more member takes a partition from either of the two that have two; yet another one takes it from the one that still has.
		has := func() bool {
			select {
			case <-dying:
				return true
			default:
				return false
			}
		}
		for !has() {
			w := l.start(dynamic)
			devtest.Eventually(l.t, timeout, func() bool {
				owned, _ := l.members(admin)
				return has() || w.Healthy(brokertest.Context(l.t)) == nil && owned["writer-1"] == 2 && owned[""] == 2
			}, "a partition is given up")
		}
		l.start(as("writer-1", session))
		events := l.events(100)
		l.send(events)
		l.settled()
		l.exactly(events)
	})
}

// dieWhileGivingUp joins the group, and is cut off from it when a partition is taken away from it. The channel tells of that.
func (l *lab) dieWhileGivingUp(id string, session time.Duration) <-chan struct{} {
	l.t.Helper()
	line := &cable{}
	cut, over := make(chan struct{}), make(chan struct{})
	var once sync.Once
	client := l.Client(l.t,
		kgo.ConsumerGroup(l.Config.Group), kgo.ConsumeTopics(broker.Orders), kgo.Balancers(kgo.CooperativeStickyBalancer()), kgo.InstanceID(id),
		kgo.SessionTimeout(session), kgo.HeartbeatInterval(session/6), kgo.RebalanceTimeout(time.Minute), kgo.Dialer(line.dial),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, taken map[string][]int32) {
			if len(taken) > 0 {
				once.Do(func() { line.cut(); close(cut) })
				<-over
			}
		}),
	)
	l.t.Cleanup(func() { // before the client is closed
		close(over)
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		_ = client.LeaveGroupContext(gone)
	})
	return cut
}

// cable is the way to the brokers.
type cable struct {
	mu     sync.Mutex
	broken bool
	open   []net.Conn
}

func (c *cable) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken {
		_ = conn.Close()
		return nil, errors.New("the cable is cut")
	}
	c.open = append(c.open, conn)
	return conn, nil
}

func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = true
	for _, conn := range c.open {
		_ = conn.Close()
	}
}
