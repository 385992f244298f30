package keeper

import (
	"fmt"
	"testing"

	"flashgate/internal/devstack"
	"flashgate/internal/devstack/devtest"
	"flashgate/internal/ledger"
	"flashgate/internal/sale"
	"flashgate/shard"
)

// lapse makes a server forget what happens between before and after. Both sides are whole: every key is there, and all counts agree.
type lapse struct {
	name          string
	args          []string
	before, after func(*lab, *devstack.Redis)
}

func lapses() []lapse {
	var replica *devstack.Redis
	return []lapse{
		// The server goes over to what its replica has: at the address where the master was, there is a promoted replica now.
		{"a promoted replica", nil, func(l *lab, r *devstack.Redis) {
			replica = devtest.Redis(l)
			l.must(replica.Follow(l.ctx, r))
			l.must(replica.CatchUp(l.ctx, r))
			l.must(replica.Promote(l.ctx))
		}, func(l *lab, r *devstack.Redis) {
			l.must(r.Follow(l.ctx, replica))
			l.must(r.Promote(l.ctx))
		}},
		{"an old snapshot", nil, func(l *lab, r *devstack.Redis) { l.must(r.Save(l.ctx)) }, func(l *lab, r *devstack.Redis) {
			l.must(r.Kill())
			l.must(r.Restart(l.ctx))
		}},
		{"an append-only file that ends early", []string{"--appendonly", "yes"}, func(l *lab, r *devstack.Redis) {
			// What is written from here on does not reach the file.
			l.redis("CONFIG", "SET", "appendonly", "no")
		}, func(l *lab, r *devstack.Redis) {
			l.must(r.Kill())
			l.must(r.Restart(l.ctx))
		}},
	}
}

func TestServerThatLostItsLastWrites(t *testing.T) {
	for _, c := range lapses() {
		t.Run(c.name, func(t *testing.T) {
			server := devtest.Redis(t, c.args...)
			l := newLabAt(t, onReal, server.URL())
			layout := l.sale(20, 4)
			stop := l.run(l.keeper())
			gateway := l.gateway(l.tape)
			var answered []sale.OrderID
			buy := func(from, to int) {
				for i := from; i < to; i++ {
					answered = append(answered, l.buy(gateway, layout, fmt.Sprint(i), 1))
				}
				l.atRest(layout, answered...)
			}
			buy(0, 6)
			c.before(l, server)
			buy(6, 10)
			for i := range 3 {
				_, _, err := l.db.Cancel(l.ctx, answered[i], fmt.Sprint(i))
				l.must(err)
			}
			l.atRest(layout, answered...)
			// At rest nothing is due.
			if e := l.epoch(layout); e != 1 {
				t.Fatalf("the item has epoch %d before anything was lost", e)
			}
			stop()
			c.after(l, server)

			// Two units more than there are, and every shard says that it is well.
			l.reachable(layout)
			var free int64
			for _, r := range l.shards(layout) {
				if !r.Loaded || r.Fault != nil || r.Epoch != 1 {
					t.Fatalf("the server does not look well: %+v", r)
				}
				free += *r.Stock
			}
			if free != 14 {
				t.Fatalf("%d units are free: nothing was lost, and the case shows nothing", free)
			}
			k := l.keeper()
			l.run(k)
			devtest.Eventually(t, timeout, func() bool { return l.metric("flashgate_keeper_loads_total", reasonServer, "loaded") == 1 }, "the item is loaded")
			if report := l.atRest(layout, answered...); report.Live != 7 || report.Free != 13 {
				t.Error(report)
			}
			if n := l.metric("flashgate_keeper_alarms_total", alarmStock+reasonServer, fmt.Sprint(layout.Item)); n != 1 {
				t.Errorf("%v alarms", n)
			}
			// Exactly the rest is sold, and once.
			for i := range 13 {
				answered = append(answered, l.buy(gateway, layout, fmt.Sprint(100+i), 1))
			}
			if r := gateway.Reserve(l.ctx, layout, l.request(layout, "200", 1)); r.Outcome != sale.NoStock {
				t.Errorf("one more: %s, %v", r.Outcome, r.Err)
			}
			if report := l.atRest(layout, answered...); report.Live != 20 {
				t.Error(report)
			}
			// Asked again, it is the server that was loaded.
			if at, fault, err := newWatch(k).foreign(l.ctx, l.state(layout)); at != -1 || err != nil || l.epoch(layout) != 2 {
				t.Errorf("shard %d, %v, %v; epoch %d", at, fault, err, l.epoch(layout))
			}
		})
	}
}

// reachable waits until the clients of the lab have noticed that their server is another one.
func (l *lab) reachable(layout shard.Layout) {
	l.Helper()
	devtest.Eventually(l, timeout, func() bool {
		_, err := l.stock.Read(l.ctx, layout)
		return err == nil
	}, "the server answers")
}

func TestServersAreSilentNotForeign(t *testing.T) {
	server := devtest.Redis(t)
	l := newLabAt(t, onReal, server.URL())
	layout := l.sale(10, 2)
	k := l.keeper()
	// A demoted master is not the one to ask, and nothing is begun that it could not end.
	l.must(server.CutOff(l.ctx))
	if k.watch.look(l.ctx, l.state(layout)) {
		t.Error("a replica counts as an answer")
	}
	k.loadCrew.wait()
	if n := l.count(`SELECT claim FROM flash_sale_item`); n != 1 {
		t.Errorf("the item was claimed %d times, want 1", n)
	}
	// Promoted again it is the same process with another history.
	l.must(server.Promote(l.ctx))
	stop := l.run(k)
	devtest.Eventually(t, timeout, func() bool { return l.metric("flashgate_keeper_loads_total", reasonServer, "loaded") == 1 }, "the item is loaded")
	l.atRest(layout)
	stop()
}

// state is what the database knows about the loads of an item.
func (l *lab) state(layout shard.Layout) (found ledger.LoadState) {
	l.Helper()
	states, err := l.db.LoadWatch(l.ctx)
	l.must(err)
	for _, s := range states {
		if s.ItemID == layout.Item {
			return s
		}
	}
	l.Fatalf("item %d is not watched", layout.Item)
	return found
}
