package shard

import (
	"strings"
	"testing"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
)

// cluster is one node that holds all slots: a server that refuses scripts whose keys lie apart or are not declared, and
// makes the client sort calls by slot.
func cluster(tb testing.TB) *lab {
	url := devtest.Redis(tb, "--cluster-enabled", "yes").URL()
	single := labAt(tb, backend{"one node", true, nil}, url)
	single.do("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	devtest.Eventually(tb, timeout, func() bool { return strings.Contains(single.do("CLUSTER", "INFO"), "cluster_state:ok") }, "no cluster")
	return labAt(tb, backend{"cluster", false, nil}, url)
}

func TestCluster(t *testing.T) {
	l := cluster(t)
	layout := Layout{Item: 1001, Shards: 13}
	kafka := &broker{}
	one, two := l.stock(kafka), l.stock(kafka)
	l.load(one, layout, 1, 100, nil)
	counts, results := l.buyers(layout, numbered(1, 500, 1), 1, one, two)
	if err := soldExactly(counts, 100, 400); err != nil {
		t.Fatal(err)
	}
	l.sold(layout, kafka, results, 100, 0)
	if users, epoch, err := one.Buyers(l.ctx, layout); err != nil || len(users) != 100 || epoch != 1 {
		t.Errorf("%d buyers, %v", len(users), err)
	}
	for user, r := range results {
		if r.Outcome != sale.Reserved {
			continue
		}
		if got, err := one.Release(l.ctx, layout, Correction{user, r.OrderID, 1}); err != nil || got != Done {
			t.Fatalf("release: %v, %v", got, err)
		}
	}
	if got, err := one.Increase(l.ctx, layout, "op", 30, 1); err != nil || got != Done {
		t.Errorf("increase: %v, %v", got, err)
	}
	if p, err := two.Prove(l.ctx, layout); err != nil || p.Free != 130 {
		t.Errorf("prove: %+v, %v", p, err)
	}
	if err := one.FinishTransfers(l.ctx, layout, 0); err != nil {
		t.Error(err)
	}
	for n := range layout.Shards {
		if out, err := one.Outbox(l.ctx, layout, n); err != nil || len(out.Entries)+len(out.Bad) != 0 {
			t.Errorf("outbox: %+v, %v", out, err)
		}
	}
	if err := one.Ping(l.ctx); err != nil {
		t.Error(err)
	}
	if err := one.Remove(l.ctx, layout.Item, layout.Shards); err != nil {
		t.Error(err)
	}
	if r := one.Reserve(l.ctx, layout, request(layout, "1", 1, "")); r.Outcome != sale.NotLoaded {
		t.Errorf("after retiring: %+v", r)
	}
}
