package keeper

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"flashgate/internal/devstack"
	"flashgate/internal/devstack/devtest"
	"flashgate/internal/ledger"
	"flashgate/internal/sale"
	"flashgate/shard"
)

// TestAPlannedLoadWaitsForTheDeadlineOnlyAfterALoss: with a deadline of an hour it ends if it does not wait.
func TestAPlannedLoadWaitsForTheDeadlineOnlyAfterALoss(t *testing.T) {
	l := newLab(t, onReal)
	l.write()
	layout := l.sale(20, 3)
	l.wish(layout, 4, -1)
	l.planned(l.patient(l.stepper()), layout)

	for _, lapse := range []struct {
		name string
		lose func(layout shard.Layout)
		seen string // what tells
	}{
		{"a wiped server", func(shard.Layout) { l.redis("FLUSHALL") }, "behind read 4"},
		{"a lost outbox", func(layout shard.Layout) { l.redis("DEL", key(layout, 0, "pending")) }, "behind read 4"},
		// The other one is removed when it has been published, by a script that finds nothing left then.
		{"a lost entry of two", func(layout shard.Layout) {
			l.redis("EVAL", "return redis.call('HDEL', KEYS[1], redis.call('HKEYS', KEYS[1])[1])", "1", key(layout, 0, "pending"))
		}, "behind read 4"},
		{"another server", func(layout shard.Layout) {
			l.redis("HSET", key(layout, 0, "meta"), "server", strings.Repeat("a", 40)+" "+strings.Repeat("b", 40))
		}, "behind servers 2"},
		{"a server that tells nothing any more", func(shard.Layout) { l.redis("ACL", "SETUSER", "default", "-info") }, "behind servers 2"},
	} {
		for _, step := range []string{"before fence 1", "before outbox 2"} {
			t.Run(lapse.name+" "+step, func(t *testing.T) {
				// One shard, before and after: of several, the outboxes that are read beside the one where the loader is stopped would be empty by then.
				layout := l.sale(20, 1)
				l.buy(l.gateway(dead{}), layout, "1", 1)
				l.buy(l.gateway(dead{}), layout, "2", 1)
				l.wish(layout, 0, 18)
				s := l.stepper()
				ctx, cancel := context.WithCancel(l.ctx)
				defer cancel()
				done := l.stopsAt(s, step, func() <-chan loadResult {
					return l.beginAs(l.patient(s), layout, func(loader *Loader, layout shard.Layout) (Outcome, error) { return loader.Plan(ctx, layout.Item) })
				})
				lapse.lose(layout)
				close(s.wake)
				// When it has found that it has to wait it asks nobody any more, but has not drained either.
				devtest.Eventually(t, timeout, func() bool {
					s.mu.Lock()
					defer s.mu.Unlock()
					return slices.Contains(s.seen, "behind outbox 2") && s.seen[len(s.seen)-1] == lapse.seen
				}, "the loader waits for the deadline")
				select {
				case r := <-done:
					t.Errorf("it has ended: %+v", r)
				default:
				}
				cancel()
				<-done
				l.redis("ACL", "SETUSER", "default", "+info")
				l.exec(`UPDATE flash_sale_item SET retired_at = now() WHERE id = $1`, layout.Item)
			})
		}
	}
}

// patient makes a loader that ends only if it does not wait for the deadline.
func (l *lab) patient(s *stepper) *Loader {
	l.Helper()
	cfg := l.config()
	cfg.Stock, cfg.Ledger, cfg.Offsets, cfg.RecordDeadline, cfg.GiveUp = s, s, s, time.Hour, 2*time.Hour
	loader, err := NewLoader(cfg)
	l.must(err)
	return loader
}

// TestAPlannedLoadWaitsWhereServersAreUnknown: one that may not be asked may be another one than before.
func TestAPlannedLoadWaitsWhereServersAreUnknown(t *testing.T) {
	l := newLab(t, onReal)
	calm := func(layout shard.Layout) bool {
		it, _, err := l.db.Item(l.ctx, layout.Item)
		l.must(err)
		return l.keeper().loader.calmBefore(l.ctx, &loading{item: it.ID, planned: true}, &it).ok
	}
	if !calm(l.sale(20, 3)) {
		t.Error("a loaded stock on a server that tells who it is")
	}
	l.redis("ACL", "SETUSER", "default", "-info")
	layout := l.sale(20, 3)
	if calm(layout) {
		t.Error("nobody knows by which server it was loaded")
	}
	l.redis("ACL", "SETUSER", "default", "+info")
	if calm(layout) {
		t.Error("nobody knows by which server it was loaded, though it can be asked now")
	}
}

// TestAClaimThatIsLeftBeforeTheFence: nothing was shut, and nothing is during an outage, until the claim is taken up.
func TestAClaimThatIsLeftBeforeTheFence(t *testing.T) {
	l := newLab(t, onReal)
	layout := l.sale(20, 3)
	gateway := l.gateway(l.tape)
	answered := []sale.OrderID{l.buy(gateway, layout, "1", 1)} // which nobody stores yet
	_, ok, err := l.db.ClaimLoad(l.ctx, layout.Item, 0)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	l.leaseRunsOut(layout)
	impatient := l.keeper(func(c *Config) { c.KeepUp = 100 * time.Millisecond })
	if outcome, err := impatient.loader.loadIf(l.ctx, layout.Item, reasonAbandoned, func(context.Context) (bool, error) { return true, nil }); err != nil || outcome != Postponed {
		t.Fatalf("%v, %v", outcome, err)
	}
	answered = append(answered, l.buy(gateway, layout, "2", 1))
	// What a server may have lost is not sold meanwhile, whatever is behind: the load begins, and waits for the writers.
	l.redis("HSET", key(layout, 0, "meta"), "server", strings.Repeat("a", 40)+" "+strings.Repeat("b", 40))
	k := l.keeper()
	stop := l.runKeeper(k)
	devtest.Eventually(t, timeout, func() bool { return !l.shards(layout)[0].Loaded }, "the stock is fenced")
	stop()
	l.run(l.keeper())
	if report := l.atRest(layout, answered...); report.Free != 18 {
		t.Error(report)
	}
}

// TestPromotedReplicaInAPlannedLoad has the server forget, at a step of a load that changes the layout and takes units away, everything since an earlier
// one, as the promotion of a replica does that was behind.
func TestPromotedReplicaInAPlannedLoad(t *testing.T) {
	// A master usually waits 5 s for other replicas before it feeds one.
	atOnce := []string{"--repl-diskless-sync-delay", "0"}
	p := &promotion{server: devtest.Redis(t, atOnce...), replica: devtest.Redis(t, atOnce...)}
	p.lab = newLabAt(t, onReal, p.server.URL())
	p.write()
	const begin, end = "before item 1", "behind end load 1"
	for _, c := range []struct{ from, to string }{
		{"before claim 1", begin}, {"before fence 1", begin}, {"before outbox 2", begin}, {"before read 4", begin}, {"before servers 2", begin},
		{"before snapshot 1", begin}, {"before vacate 1", begin}, {"before load 1", begin}, {"before end load 1", begin}, {end, begin},
		// The replica has the fences, or shards that were emptied, and lacks what came then.
		{"before snapshot 1", "before outbox 2"}, {"before end load 1", "before snapshot 1"}, {"before end load 1", "before load 1"}, {end, "before load 1"},
	} {
		for name, shards := range map[string]int{"fewer": 1, "more": 5} {
			if c.from == "before vacate 1" && name == "more" {
				continue // nothing is left over
			}
			t.Run(name+", "+c.from+" back to "+c.to, func(t *testing.T) {
				crowd := p.crowd(t)
				p.wish(crowd.layout, shards, 9)
				promoted := false
				s := p.stepper()
				s.do = map[string]func(){
					c.to: func() { p.follow(); crowd.sell() },
					c.from: func() {
						crowd.follow()
						crowd.sell()
						p.promote()
						promoted = true
					},
				}
				if _, err := p.plan(p.stepping(s), crowd.layout); err != nil {
					t.Logf("the loader: %v", err)
				}
				if !promoted {
					t.Fatalf("the loader did not get to %q, only to %v", c.from, s.seen)
				}
				k := p.keeper()
				stop := p.runKeeper(k)
				p.noWish(crowd.layout)
				stop()
				crowd.follow()
				crowd.sell()
				crowd.quantity = 9
				crowd.check(k)
				if crowd.layout.Shards != shards {
					t.Errorf("%d shards, want %d", crowd.layout.Shards, shards)
				}
			})
		}
	}
}

// promotion is a server, and a replica that stops following at some time.
type promotion struct {
	*lab
	server, replica *devstack.Redis
}

// follow makes the replica what it will be when it is promoted.
func (p *promotion) follow() {
	p.Helper()
	p.must(p.replica.Follow(p.ctx, p.server))
	p.must(p.replica.CatchUp(p.ctx, p.server))
	p.must(p.replica.Promote(p.ctx))
}

// promote puts the replica in the place of the server.
func (p *promotion) promote() {
	p.Helper()
	p.must(p.server.Follow(p.ctx, p.replica))
	p.must(p.server.Promote(p.ctx))
}

// TestLostAnswerToTheCommitOfAWish: the snapshot that carries out a wish is in the database, and its loader does not hear of it.
func TestLostAnswerToTheCommitOfAWish(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		l.write()
		c := l.crowd(t)
		l.wish(c.layout, 5, 7)
		cfg := l.config()
		cfg.Ledger = &lostCommit{Ledger: l.db}
		loader, err := NewLoader(cfg)
		l.must(err)
		if outcome, err := l.plan(loader, c.layout); !errors.Is(err, errCommit) {
			t.Fatalf("%v, %v", outcome, err)
		}
		if w, err := l.db.Wish(l.ctx, c.layout.Item); err != nil || w.Open() {
			t.Fatalf("the wish is still open: %+v, %v", w, err)
		}
		c.follow()
		c.sell()
		k := l.keeper()
		if outcome, err := k.Loader().Load(l.ctx, c.layout.Item, "test"); err != nil || outcome != Loaded {
			t.Fatalf("load: %v, %v", outcome, err)
		}
		c.sell()
		c.quantity = 7
		c.check(k)
		if c.layout.Shards != 5 {
			t.Errorf("%d shards", c.layout.Shards)
		}
	})
}

// lostCommit is a database whose answer to the first snapshot is lost.
type lostCommit struct {
	Ledger
	lost bool
}

var errCommit = errors.New("connection reset")

func (d *lostCommit) Snapshot(ctx context.Context, item, token int64) (ledger.Snapshot, bool, error) {
	snapshot, ok, err := d.Ledger.Snapshot(ctx, item, token)
	if d.lost || err != nil || !ok {
		return snapshot, ok, err
	}
	d.lost = true
	return ledger.Snapshot{}, false, errCommit
}
