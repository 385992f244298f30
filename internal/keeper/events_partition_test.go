package keeper

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"flashgate/internal/broker"
	"flashgate/internal/broker/brokertest"
	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
	"flashgate/shard"
)

// partitionOf is where the events of an order go.
func partitionOf(id sale.OrderID) int {
	record := &kgo.Record{Key: []byte(id.String())}
	return kgo.StickyKeyPartitioner(nil).ForTopic(broker.OrderEvents).Partition(record, brokertest.Partitions)
}

// crowdOf stores orders whose events go to a partition, or to any other.
func (l *lab) crowdOf(layout shard.Layout, name string, n int, match func(partition int) bool) []sale.OrderID {
	l.Helper()
	var ids []sale.OrderID
	var batch []sale.Event
	for len(ids) < n {
		id := sale.NewOrderID(layout.Item)
		if !match(partitionOf(id)) {
			continue
		}
		ids = append(ids, id)
		batch = append(batch, l.reserved(layout, id, fmt.Sprint(name, " ", len(ids)), 1))
		if len(batch) == 1000 || len(ids) == n {
			_, err := l.db.Write(l.ctx, batch)
			l.must(err)
			batch = nil
		}
	}
	return ids
}

// waitingOf is how many events of so many orders have not been told.
func (l *lab) waitingOf(ids []sale.OrderID) int64 {
	l.Helper()
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = id.String()
	}
	return l.count(`SELECT count(*) FROM flash_sale_event WHERE key = ANY($1)`, keys)
}

// One partition has no leader, and the oldest events, more than may be under way at once, are all for it. Those of the others are told, also what
// happens meanwhile; and when it has a leader again, all that waited for it, in the order of each key.
func TestAPartitionWithoutALeaderHoldsUpItsOwnEventsAlone(t *testing.T) {
	const bad, stuck, free = 2, eventsUnderWay + 500, 3000
	l := newLab(t, onMini)
	server := brokertest.NewFake(t)
	server.CreateTopics(t)
	kafka := &kafka{Server: server, l: l}
	layout := l.sale(20_000, 1)
	leaderless := server.Fake.Cluster().Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Topic: broker.OrderEvents, Partitions: []int32{bad}, Err: kerr.NotLeaderForPartition, Count: -1,
	})
	isBad := func(p int) bool { return p == bad }
	isGood := func(p int) bool { return p != bad }
	var want expectation
	expect := func(ids []sale.OrderID, told string) []sale.OrderID {
		for _, id := range ids {
			want.of(id, told)
		}
		return ids
	}
	waits := expect(l.crowdOf(layout, "waits", stuck, isBad), "created")
	goes := expect(l.crowdOf(layout, "goes", free, isGood), "created")
	for i, id := range waits[:50] {
		l.pay(id, 1)
		want.of(id, "created paid")
		if i%2 == 0 {
			l.pay(id, 1)
			want.of(id, "created paid refund_due")
		}
	}
	for _, id := range goes[:50] {
		l.pay(id, 1)
		want.of(id, "created paid")
	}
	k := l.keeper(func(c *Config) { c.Publisher = kafka.publisher() })
	k.events.pause.Longest = time.Second // however often they fail on a slow machine, they come back soon
	l.runKeeper(k)
	devtest.Eventually(t, timeout, func() bool { return l.waitingOf(goes) == 0 }, "the events of the others are told")
	if n := l.waitingOf(waits); n != stuck+75 {
		t.Errorf("%d events wait for the partition, want %d", n, stuck+75)
	}
	if n := l.count(`SELECT count(*) FROM flash_sale_event WHERE attempts > 0 AND retry_at > at`); n == 0 {
		t.Error("nothing was put off")
	}
	// Life goes on.
	later := expect(l.crowdOf(layout, "later", 500, isGood), "created paid")
	for _, id := range later {
		l.pay(id, 1)
	}
	late := expect(l.crowdOf(layout, "late", 50, isBad), "created paid")
	for _, id := range late {
		l.pay(id, 1)
	}
	for _, id := range waits[50:100] {
		l.pay(id, 1)
		want.of(id, "created paid")
	}
	devtest.Eventually(t, timeout, func() bool { return l.waitingOf(later) == 0 }, "what happens meanwhile is told")
	if n := l.waitingOf(waits) + l.waitingOf(late); n != stuck+75+100+50 {
		t.Errorf("%d events wait for the partition, want %d", n, stuck+75+100+50)
	}
	leaderless.Remove()
	l.allTold()
	want.check(t, kafka.told(t), true)
}
