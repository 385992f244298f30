package shard

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"flashgate/internal/devstack"
	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
)

// changed says of which shards of a layout another server is found.
func (l *lab) changed(s *Stock, layout Layout) (n int) {
	l.Helper()
	servers, err := s.Servers(l.ctx, layout)
	if err != nil {
		l.Fatal(err)
	}
	for _, server := range servers {
		if server.Changed() {
			n++
		}
	}
	return n
}

func (l *lab) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

func TestAnotherServerIsNoticed(t *testing.T) {
	layout := Layout{Item: 90, Shards: 3}
	for name, c := range map[string]struct {
		args    []string
		happens func(*lab, *devstack.Redis)
	}{
		"a restart with an append-only file": {[]string{"--appendonly", "yes", "--appendfsync", "always"}, func(l *lab, r *devstack.Redis) {
			l.must(r.Kill())
			l.must(r.Restart(l.ctx))
		}},
		"a restart from a snapshot": {nil, func(l *lab, r *devstack.Redis) {
			l.must(r.Save(l.ctx))
			l.must(r.Kill())
			l.must(r.Restart(l.ctx))
		}},
		"the same process was a replica meanwhile": {nil, func(l *lab, r *devstack.Redis) {
			other := devtest.Redis(l)
			l.must(other.Follow(l.ctx, r))
			l.must(other.CatchUp(l.ctx, r))
			l.must(other.Promote(l.ctx))
			l.must(r.Follow(l.ctx, other))
			l.must(r.CatchUp(l.ctx, other))
			l.must(r.Promote(l.ctx))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := devtest.Redis(t, c.args...)
			l := labAt(t, onReal, r.URL())
			s := l.stock(&broker{})
			l.load(s, layout, 1, 10, nil)
			if r := s.Reserve(l.ctx, layout, request(layout, "1", 1, "")); r.Outcome != sale.Reserved {
				t.Fatalf("reserve: %+v", r)
			}
			l.rest(layout)
			replica := devtest.Redis(l)
			l.must(replica.Follow(l.ctx, r))
			if n := l.changed(s, layout); n != 0 {
				t.Fatalf("%d shards have another server when there is a replica", n)
			}
			c.happens(l, r)
			// A client of its own: the old one may not have noticed yet that its connection has ended.
			fresh := l.stock(&broker{})
			if got := l.reread(layout); got.free != 9 || got.marks != 1 {
				t.Fatalf("the server has %+v: the case shows nothing", got)
			}
			if n := l.changed(fresh, layout); n != 3 {
				t.Errorf("another server is noticed at %d of 3 shards", n)
			}
			l.load(fresh, layout, 2, 9, nil)
			if n := l.changed(fresh, layout); n != 0 {
				t.Errorf("after the load, too, %d shards have another server", n)
			}
		})
	}
}

// reread is totals by a client of its own.
func (l *lab) reread(layout Layout) totals {
	l.Helper()
	return labAt(l, l.backend, l.url).totals(layout)
}

func TestServerWithoutIdentity(t *testing.T) {
	layout := Layout{Item: 90, Shards: 2}
	refused := devtest.GuardedRedis(t, devstack.RedisAccess{User: "shop", Password: "secret", Rules: "~* &* +@all -info"})
	for name, l := range map[string]*lab{"in this process": newLab(t, onMini), "INFO refused": labAt(t, onReal, refused.URL())} {
		t.Run(name, func(t *testing.T) {
			s := l.stock(&broker{})
			l.load(s, layout, 1, 10, nil)
			servers, err := s.Servers(l.ctx, layout)
			if err != nil || servers[0] != (ShardServer{}) || servers[1].Changed() {
				t.Errorf("servers: %+v, %v", servers, err)
			}
			// A shard from a time before this was asked.
			l.do("HDEL", keysOf(90, 0).meta, "server")
			if n := l.changed(s, layout); n != 0 {
				t.Errorf("%d shards have another server", n)
			}
			l.do("SET", keysOf(90, 1).meta, "x")
			if _, err := s.Servers(l.ctx, layout); !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), "item 90 shard 1") {
				t.Errorf("servers of an unreadable shard: %v", err)
			}
		})
	}
}

func TestChanged(t *testing.T) {
	for _, c := range []struct {
		stored, current string
		want            bool
	}{
		{"a b", "a b", false}, {"", "a b", false}, {"a b", "", false}, {"", "", false}, {"a b", "c b", true}, {"a b", "a c", true},
		{"- b", "a b", false}, {"a -", "a b", false}, {"a b", "- b", false}, {"- b", "- c", true}, {"a -", "c b", true}, {"a", "a b", true},
	} {
		if got := (ShardServer{c.stored, c.current}).Changed(); got != c.want {
			t.Errorf("%q, then %q: %v", c.stored, c.current, got)
		}
	}
}

// A replica that hears nothing of its master answers from what it has. Nobody may be sent away because of it.
func TestStaleReplicaProvesNothing(t *testing.T) {
	layout := Layout{Item: 91, Shards: 3}
	master, replica := devtest.Redis(t), devtest.Redis(t)
	l := labAt(t, onReal, master.URL())
	s := l.stock(&broker{})
	l.load(s, layout, 1, 1, nil)
	l.must(replica.Follow(l.ctx, master))
	won := s.Reserve(l.ctx, layout, request(layout, "1", 1, "key"))
	if won.Outcome != sale.Reserved {
		t.Fatalf("reserve: %+v", won)
	}
	l.rest(layout)
	l.must(replica.CatchUp(l.ctx, master))
	proof, err := s.Prove(l.ctx, layout)
	if err != nil || !proof.Empty {
		t.Fatalf("prove: %+v, %v", proof, err)
	}
	l.must(replica.CutOff(l.ctx))
	// What the replica never hears of.
	if got, err := s.Release(l.ctx, layout, Correction{"1", won.OrderID, 1}); got != Done || err != nil {
		t.Fatalf("release: %v, %v", got, err)
	}
	again := s.Reserve(l.ctx, layout, request(layout, "2", 1, ""))
	if again.Outcome != sale.Reserved {
		t.Fatalf("reserve: %+v", again)
	}

	behind := l.stockAt(replica.URL(), &broker{}, func(c *Config) { c.CallTimeout = timeout / 5 })
	readOnly := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "READONLY") || !strings.Contains(err.Error(), "item 91 shard") {
			t.Errorf("%s: %v", what, err)
		}
	}
	var wg sync.WaitGroup
	for name, req := range map[string]sale.Request{
		"somebody new": request(layout, "3", 1, ""), "more than there is": request(layout, "3", 2, ""),
		"who bought before": request(layout, "1", 1, "key"), "who has bought since": request(layout, "2", 1, ""),
	} {
		wg.Go(func() {
			r := behind.Reserve(l.ctx, layout, req)
			if r.Outcome != sale.Failed {
				t.Errorf("%s: %+v", name, r)
			}
			readOnly(name, r.Err)
		})
	}
	wg.Wait()
	_, err = behind.Prove(l.ctx, layout)
	readOnly("prove", err)
	same, _, _, err := behind.Reprove(l.ctx, layout, proof)
	if same {
		t.Error("a proof is renewed")
	}
	readOnly("prove again", err)
	_, _, err = behind.Mark(l.ctx, layout, "2")
	readOnly("the mark of who has bought since", err)
	got, err := behind.Release(l.ctx, layout, Correction{"2", again.OrderID, 1})
	if got == Done || got == Absorbed {
		t.Errorf("release of an order that it does not know: %v", got)
	}
	readOnly("release", err)
	_, err = behind.Read(l.ctx, layout)
	readOnly("read", err)
	_, err = behind.Servers(l.ctx, layout)
	readOnly("servers", err)
}
