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

// Units that count as moving, and of which no record tells where to, are neither sold nor is the item ever sold out; a load brings them back.
func TestTransferWhoseRecordIsLost(t *testing.T) {
	for name, c := range map[string]struct {
		shards int
		damage func(l *lab, layout shard.Layout)
	}{
		"a lost record": {2, func(l *lab, layout shard.Layout) {
			l.crashBehindTake(layout, 0, 1, 4)
			l.redis("EVAL", "for _, f in ipairs(redis.call('HKEYS', KEYS[1])) do if string.sub(f, 1, 3) == 'tr:' then redis.call('HDEL', KEYS[1], f) end end return 1",
				"1", key(layout, 0, "meta"))
		}},
		"a record that is none": {2, func(l *lab, layout shard.Layout) {
			l.crashBehindTake(layout, 0, 1, 4)
			l.redis("HSET", key(layout, 0, "meta"), "tr:x", "garbage")
		}},
		"a record to no shard": {2, func(l *lab, layout shard.Layout) { l.crashBehindTake(layout, 0, 7, 4) }},
		"another number of units": {2, func(l *lab, layout shard.Layout) {
			l.crashBehindTake(layout, 0, 1, 4)
			l.redis("HSET", key(layout, 0, "meta"), "moving", "5")
		}},
		"no transfer at all": {1, func(l *lab, layout shard.Layout) { l.redis("HSET", key(layout, 0, "meta"), "moving", "5") }},
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, l *lab) {
				layout := l.sale(20, c.shards)
				c.damage(l, layout)
				l.run(l.keeper())
				devtest.Eventually(t, timeout, func() bool { return l.metric("flashgate_keeper_loads_total", reasonTransfers, "loaded") == 1 }, "the item is loaded")
				if report := l.atRest(layout); report.Free != 20 || report.Moving != 0 {
					t.Error(report)
				}
				if n := l.metric("flashgate_keeper_alarms_total", alarmStock+reasonTransfers, fmt.Sprint(layout.Item)); n != 1 {
					t.Errorf("%v alarms", n)
				}
			})
		})
	}
}
