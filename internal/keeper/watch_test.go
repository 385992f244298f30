package keeper

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/ledger"
	"flashgate/internal/sale"
	"flashgate/shard"
)

func TestWhatMakesALoadDue(t *testing.T) {
	units := int64(5)
	good := shard.ShardReading{Loaded: true, Readable: true, Stock: &units, Epoch: 3, K: 2}
	loaded := ledger.LoadState{ItemID: 1, Shards: 2, Epoch: 3, Claim: 3}
	with := func(change func(*shard.ShardReading)) []shard.ShardReading {
		r := good
		change(&r)
		return []shard.ShardReading{good, r}
	}
	for name, c := range map[string]struct {
		state    ledger.LoadState
		readings []shard.ShardReading
		reason   string
		at       int
	}{
		"nothing":          {loaded, []shard.ShardReading{good, good}, "", -1},
		"a new item":       {ledger.LoadState{Shards: 2}, with(func(r *shard.ShardReading) { r.Loaded = false }), reasonFirst, -1},
		"the ledger's own": {ledger.LoadState{Shards: 2, Epoch: 3, Claim: 3, Due: "no_room"}, []shard.ShardReading{good, good}, "no_room", -1},
		"a wish":           {ledger.LoadState{Shards: 2, Epoch: 3, Claim: 3, Due: ledger.DuePlanned}, []shard.ShardReading{good, good}, "", -1},
		"a wish beside a loss": {ledger.LoadState{Shards: 2, Epoch: 3, Claim: 3, Due: ledger.DuePlanned},
			with(func(r *shard.ShardReading) { r.Loaded, r.Stock = false, nil }), reasonMissing, 1},
		"half a load": {ledger.LoadState{Shards: 2, Epoch: 3, Claim: 4, Abandoned: true}, []shard.ShardReading{good, good}, reasonAbandoned, -1},
		"no stock":    {loaded, with(func(r *shard.ShardReading) { r.Loaded, r.Stock = false, nil }), reasonMissing, 1},
		"text":        {loaded, with(func(r *shard.ShardReading) { r.Loaded, r.Fault = false, fmt.Errorf("stock: %w", shard.ErrUnreadable) }), reasonUnreadable, 1},
		"another k":   {loaded, with(func(r *shard.ShardReading) { r.Fault = fmt.Errorf("k: %w", shard.ErrWrongLayout) }), reasonLayout, 1},
		"older":       {loaded, with(func(r *shard.ShardReading) { r.Epoch = 2 }), reasonEpoch, 1},
		"newer":       {loaded, with(func(r *shard.ShardReading) { r.Epoch = 4 }), reasonEpoch, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if reason, at := due(c.state, c.readings); reason != c.reason || at != c.at {
				t.Errorf("due: %q at %d, want %q at %d", reason, at, c.reason, c.at)
			}
		})
	}
}

// damage breaks the stock of an item in Redis.
type damage struct {
	name   string
	do     func(*lab, shard.Layout)
	reason string
}

var damages = []damage{
	{"one stock key of four", func(l *lab, y shard.Layout) { l.redis("DEL", key(y, 2, "stock")) }, reasonMissing},
	{"text for stock", func(l *lab, y shard.Layout) { l.redis("SET", key(y, 1, "stock"), "seven") }, reasonUnreadable},
	{"a list for stock", func(l *lab, y shard.Layout) {
		// At once: in between, it would be missing.
		l.redis("EVAL", `redis.call('DEL', KEYS[1]) redis.call('LPUSH', KEYS[1], '7') return 'OK'`, "1", key(y, 1, "stock"))
	}, reasonUnreadable},
	{"no meta", func(l *lab, y shard.Layout) { l.redis("DEL", key(y, 3, "meta")) }, reasonUnreadable},
	{"no buyers", func(l *lab, y shard.Layout) { l.redis("DEL", key(y, 0, "buyers")) }, reasonUnreadable},
	{"a buyer less", func(l *lab, y shard.Layout) { l.redis("HDEL", key(y, 1, "buyers"), "1") }, reasonUnreadable},
	{"text for buyers", func(l *lab, y shard.Layout) { l.redis("SET", key(y, 0, "buyers"), "nobody") }, reasonUnreadable},
	{"text for outbox", func(l *lab, y shard.Layout) { l.redis("SET", key(y, 0, "pending"), "nothing") }, reasonUnreadable},
	{"another number of shards", func(l *lab, y shard.Layout) { l.redis("HSET", key(y, 0, "meta"), "k", "5") }, reasonLayout},
	{"a foreign epoch", func(l *lab, y shard.Layout) { l.redis("HSET", key(y, 0, "meta"), "epoch", "999") }, reasonEpoch},
	{"wiped server", func(l *lab, _ shard.Layout) { l.redis("FLUSHALL") }, reasonMissing},
}

func TestStockIsLoadedAgainByItself(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		other := l.sale(5, 2)
		l.run(l.keeper())
		gateway := l.gateway(l.tape)
		for _, d := range damages {
			t.Run(d.name, func(t *testing.T) {
				layout := l.sale(20, 4)
				var answered []sale.OrderID
				for i := range 8 {
					answered = append(answered, l.buy(gateway, layout, fmt.Sprint(i), 1))
				}
				l.atRest(layout, answered...)
				before := l.epoch(layout)
				d.do(l, layout)
				devtest.Eventually(t, timeout, func() bool { return l.epoch(layout) > before }, "the item is loaded")
				if report := l.atRest(layout, answered...); report.Live != 8 || report.Free != 12 {
					t.Error(report)
				}
				item := fmt.Sprint(layout.Item)
				if n := l.metric("flashgate_keeper_alarms_total", alarmStock+d.reason, item); n == 0 {
					t.Errorf("there was no alarm %q", alarmStock+d.reason)
				}
				// It sells on.
				l.atRest(layout, append(answered, l.buy(gateway, layout, "100", 12))...)
				l.exec(`UPDATE flash_sale_item SET retired_at = now() WHERE id = $1`, layout.Item)
			})
			if d.name != "wiped server" && l.epoch(other) != 1 {
				t.Fatalf("%s: another item was loaded, too", d.name)
			}
		}
		devtest.Eventually(t, timeout, func() bool {
			return l.metric("flashgate_keeper_loads_total", reasonUnreadable, "loaded") > 0 && l.metric("flashgate_keeper_loads_total", reasonMissing, "loaded") > 0
		}, "loads are counted by their reasons")
		l.atRest(other)
	})
}

func TestItemOfADeadCreatorIsLoaded(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		l.run(l.keeper())
		layout := l.create(10, 3)
		if report := l.atRest(layout); report.Free != 10 {
			t.Error(report)
		}
		if n := l.metric("flashgate_keeper_alarms_total"); n != 0 {
			t.Errorf("%v alarms about a new item", n)
		}
	})
}

func TestWhatWasSeenBeforeALoadMakesNoneDue(t *testing.T) {
	l := newLab(t, onMini)
	k := l.keeper()
	layout := l.create(10, 2)
	states, err := k.watch.states(l.ctx)
	l.must(err)
	l.must(l.keeper().Loader().First(l.ctx, layout.Item))
	again, err := k.watch.states(l.ctx)
	l.must(err)
	l.load(l.keeper(), layout)
	// The first state calls for a first load, the second one finds shards of a foreign epoch, and the third one was read while somebody was about
	// to write them.
	writing := ledger.LoadState{ItemID: layout.Item, Shards: 3, Epoch: 2, Claim: 2, Leased: true}
	for _, s := range []ledger.LoadState{states[0], again[0], writing} {
		k.watch.look(l.ctx, s)
		k.loadCrew.wait()
	}
	if n := l.count(`SELECT claim FROM flash_sale_item`); n != 2 {
		t.Errorf("the item was claimed %d times, want 2", n)
	}
}

func TestHealthyItemsAreNotLoaded(t *testing.T) {
	l := newLab(t, onReal)
	layout := l.sale(100, 4)
	k := l.keeper()
	l.run(k)
	gateway := l.gateway(l.tape)
	for i := range 50 {
		id := l.buy(gateway, layout, fmt.Sprint(i), 1)
		if i%3 == 0 {
			devtest.Eventually(t, timeout, func() bool { return l.status(id) != "" }, "the order is stored")
			_, _, err := l.db.Cancel(l.ctx, id, fmt.Sprint(i))
			l.must(err)
		}
		if i%10 == 0 {
			_, err := l.db.Restock(l.ctx, layout.Item, 1, "")
			l.must(err)
		}
	}
	l.atRest(layout)
	if e := l.epoch(layout); e != 1 {
		t.Errorf("the item was loaded %d times", e)
	}
}

func TestExtraUnitIsNotOfferedAgain(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		layout := l.sale(1, 1)
		l.redis("SET", key(layout, 0, "stock"), "2")
		gateway := l.gateway(l.tape)
		// Two units beside each other: more of the third's kind than there are.
		a, b := l.buy(gateway, layout, "1", 1), l.buy(gateway, layout, "2", 1)
		before := l.epoch(layout)
		l.run(l.keeper())
		devtest.Eventually(t, timeout, func() bool { return l.epoch(layout) > before }, "a load follows")
		l.atRest(layout, a, b)
		statuses := map[sale.OrderStatus]int{}
		statuses[l.status(a)]++
		statuses[l.status(b)]++
		if statuses[sale.Pending] != 1 || statuses[sale.Rejected] != 1 {
			t.Errorf("orders are %v", statuses)
		}
		if r := gateway.Reserve(l.ctx, layout, l.request(layout, "3", 1)); r.Outcome != sale.NoStock {
			t.Errorf("a third one: %s", r.Outcome)
		}
		// The load is counted when its lease is given back.
		devtest.Eventually(t, timeout, func() bool { return l.metric("flashgate_keeper_loads_total", "no_room", "loaded") > 0 }, "the drift is reported")
		if n := l.metric("flashgate_keeper_alarms_total", alarmStock+dueNoRoom, fmt.Sprint(layout.Item)); n != 1 {
			t.Errorf("%v alarms", n)
		}
	})
}

func TestNothingIsFencedWhileTheBrokerIsAway(t *testing.T) {
	l := newLab(t, onMini)
	layout := l.sale(20, 4)
	l.tape.set(func(t *tape) { t.down = true })
	l.redis("DEL", key(layout, 2, "stock"))
	l.run(l.keeper())
	devtest.Eventually(t, timeout, func() bool { return l.metric("flashgate_keeper_alarms_total", alarmLoad) > 0 }, "the load is tried")
	// The three others sell on.
	l.buy(l.gateway(l.tape), layout, "0", 1)
	if e := l.redis("EXISTS", key(layout, 0, "stock")); e != "1" {
		t.Error("a healthy shard was fenced by a load that cannot end")
	}
	l.tape.set(func(t *tape) { t.down = false })
	if report := l.atRest(layout); report.Free != 19 {
		t.Error(report)
	}
}

func TestLoadWaitsUntilEveryShardAnswers(t *testing.T) {
	l := newLab(t, onMini)
	layout := l.sale(20, 4)
	l.redis("DEL", key(layout, 2, "stock"))
	k := l.keeper(func(c *Config) { c.Stock = unreachable{l.stock} })
	if _, err := k.loader.Load(l.ctx, layout.Item, "test"); !errors.Is(err, errUnreachable) {
		t.Errorf("load: %v", err)
	}
	if n := l.count(`SELECT claim FROM flash_sale_item`); n != 1 {
		t.Error("the load was claimed")
	}
}

func TestRestockAtEveryStepOfALoad(t *testing.T) {
	l := newLab(t, onMini)
	l.write()
	for _, step := range l.steps() {
		t.Run(step, func(t *testing.T) {
			layout := l.sale(10, 2)
			k := l.keeper()
			id := l.buy(l.gateway(l.tape), layout, "1", 3)
			s := l.stepper()
			done := l.stopAt(s, step, layout)
			_, err := l.db.Restock(l.ctx, layout.Item, 5, "")
			l.must(err)
			k.relay.round(l.ctx) // in the midst of it
			close(s.wake)
			if r := <-done; r.err != nil || r.outcome != Loaded {
				t.Fatalf("load: %+v", r)
			}
			l.settle(k)
			if report := l.atRest(layout, id); report.Free != 12 {
				t.Error(report)
			}
			l.exec(`UPDATE flash_sale_item SET retired_at = now() WHERE id = $1`, layout.Item)
		})
	}
}

func TestColdStart(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		gateway := l.gateway(l.tape)
		var layouts []shard.Layout
		var answered [][]sale.OrderID
		for range 5 {
			layout := l.sale(10, 3)
			layouts = append(layouts, layout)
			ids := []sale.OrderID{l.buy(gateway, layout, "1", 2), l.buy(gateway, layout, "2", 1)}
			answered = append(answered, ids)
		}
		// An item whose sale is over and of which nobody has anything is loaded, too: only so its shards can tell that nobody has.
		over := l.sale(10, 1, func(s *sale.Sale) { s.StartsAt, s.EndsAt = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour) })
		l.redis("FLUSHALL")
		l.run(l.keeper())
		for i, layout := range layouts {
			if report := l.atRest(layout, answered[i]...); report.Live != 3 || report.Free != 7 {
				t.Error(report)
			}
		}
		if report := l.atRest(over); report.Free != 10 {
			t.Error(report)
		}
	})
}

// A shard that was seen by a newer loader than this database knows of: its database was restored from a backup, or is a new one, and Redis is not.
func TestShardsThatKnowNewerTokens(t *testing.T) {
	for name, token := range map[string]string{"an older database": "300", "a token that is none": "9007199254740991"} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, l *lab) {
				layout := l.sale(20, 3)
				id := l.buy(l.gateway(l.tape), layout, "1", 2)
				l.redis("HSET", key(layout, 1, "meta"), "token", token, "epoch", token)
				stop := l.run(l.keeper())
				if report := l.atRest(layout, id); report.Free != 18 {
					t.Error(report)
				}
				stop()
				// At once, and not by a claim after the other.
				if n := l.metric("flashgate_keeper_loads_total", "loaded") + l.metric("flashgate_keeper_loads_total", "taken_over"); n > 2 {
					t.Errorf("%v loads", n)
				}
			})
		})
	}
}

// Reservations that count as waiting while the outbox is empty keep a shard from selling once they are as many as its limit, and nothing ever takes
// them off.
func TestReservationsThatNoEntryHolds(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		layout := l.sale(20, 2)
		l.redis("HSET", key(layout, 1, "meta"), "waiting", "200000", "units", "200000")
		l.run(l.keeper())
		devtest.Eventually(t, timeout, func() bool { return l.metric("flashgate_keeper_loads_total", reasonUnreadable, "loaded") == 1 }, "the item is loaded")
		if report := l.atRest(layout); report.Free != 20 {
			t.Error(report)
		}
	})
}
