package keeper

import (
	"fmt"
	"testing"

	"flashgate/internal/devstack/devtest"
	"flashgate/lua"
	"flashgate/shard"
)

// crashBehindTake takes units as a gateway does that dies before it gives them.
func (l *lab) crashBehindTake(layout shard.Layout, from, to int, units int64) {
	l.Helper()
	l.redis("EVAL", lua.Take.Source, "2", key(layout, from, "stock"), key(layout, from, "meta"),
		fmt.Sprint(layout.Shards), devtest.Name("op"), fmt.Sprint(to), fmt.Sprint(units))
}

func TestTransferOfADeadGatewayIsFinished(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		layout := l.sale(20, 2)
		l.crashBehindTake(layout, 0, 1, 4)
		if r := l.shards(layout); *r[0].Stock != 6 || r[0].Moving != 4 {
			t.Fatalf("shard 0 has %d, %d are moving", *r[0].Stock, r[0].Moving)
		}
		l.run(l.keeper())
		l.atRest(layout)
		if r := l.shards(layout); *r[0].Stock != 6 || *r[1].Stock != 14 {
			t.Errorf("shards have %d and %d", *r[0].Stock, *r[1].Stock)
		}
	})
}

func TestTransferOfBeforeALoadIsNotGiven(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		layout := l.sale(20, 2)
		l.crashBehindTake(layout, 0, 1, 4)
		k := l.keeper()
		l.load(k, layout) // counts the four units as free
		l.must(k.finishTransfers(l.ctx, layout.Item))
		if report := l.atRest(layout); report.Free != 20 {
			t.Error(report)
		}
	})
}
