package shard

import (
	"context"
	"strings"
	"testing"

	"flashgate/internal/devstack"
	"flashgate/internal/devstack/devtest"
)

func TestHealthOfOneServer(t *testing.T) {
	server := devtest.Redis(t)
	l := labAt(t, onReal, server.URL())
	s := l.stock(&broker{})
	ill := func(want string) {
		t.Helper()
		err := s.Health(l.ctx)
		if err == nil || !strings.Contains(err.Error(), server.Addr()) || !strings.Contains(err.Error(), want) {
			t.Errorf("health: %v, want %s", err, want)
		}
	}
	l.must(s.Health(l.ctx))
	for _, policy := range []string{"allkeys-lru", "volatile-ttl", "allkeys-random"} {
		l.do("CONFIG", "SET", "maxmemory-policy", policy)
		ill(policy)
	}
	l.do("CONFIG", "SET", "maxmemory-policy", "noeviction")
	l.must(s.Health(l.ctx))
	l.must(server.CutOff(l.ctx))
	ill("is a replica")
	l.must(server.Promote(l.ctx))
	l.must(s.Health(l.ctx))

	impatient := l.stock(&broker{}, func(c *Config) { c.CallTimeout = timeout / 100 })
	l.must(server.Pause())
	err := impatient.Health(l.ctx)
	l.must(server.Resume())
	if err == nil || !strings.Contains(err.Error(), server.Addr()+" does not answer") {
		t.Errorf("health of a silent server: %v", err)
	}
}

func TestHealthThatCannotBeAsked(t *testing.T) {
	refused := devtest.GuardedRedis(t, devstack.RedisAccess{User: "shop", Password: "secret", Rules: "~* &* +@all -info"}, "--maxmemory-policy", "allkeys-lru")
	for name, l := range map[string]*lab{"in this process": newLab(t, onMini), "INFO refused": labAt(t, onReal, refused.URL())} {
		if err := l.stock(&broker{}).Health(l.ctx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	l := newLab(t, onReal)
	if err := l.stock(&broker{}).Health(ended); err == nil {
		t.Error("nobody has answered, and all is well")
	}
}

func TestHealthOfACluster(t *testing.T) {
	c := devtest.RedisCluster(t, devstack.RedisClusterConfig{Replicas: 1})
	l := labAt(t, backend{"cluster", false, nil}, c.URL())
	// A cluster names a replica to clients as soon as it has heard how far that one is.
	var s *Stock
	devtest.Eventually(t, timeout, func() bool {
		client, err := Connect(ConnectConfig{URL: c.URL()})
		l.must(err)
		nodes, spare := Nodes(l.ctx, client, "replication"), 0
		for _, n := range nodes {
			if n.Spare && n.Err == nil {
				spare++
			}
		}
		if len(nodes) != 6 || spare != 3 {
			client.Close()
			return false
		}
		t.Cleanup(client.Close)
		s, err = New(Config{Client: client, RecordDeadline: timeout, CallTimeout: timeout / 10})
		l.must(err)
		return true
	}, "a client knows three masters and three replicas")
	l.must(s.Health(l.ctx))
	evicts := func(n int, policy string) {
		t.Helper()
		_, err := c.Nodes()[n].Do(l.ctx, "CONFIG", "SET", "maxmemory-policy", policy)
		l.must(err)
	}
	// What a replica does matters when it is promoted.
	evicts(4, "allkeys-lfu")
	l.must(s.Health(l.ctx))
	evicts(1, "allkeys-lru")
	err := s.Health(l.ctx)
	if err == nil || !strings.Contains(err.Error(), c.Nodes()[1].Addr()) || strings.Count(err.Error(), "Redis ") != 1 {
		t.Errorf("health: %v", err)
	}
	evicts(1, "noeviction")
	// A silent one is no fault of the others.
	l.must(c.Nodes()[2].Pause())
	err = s.Health(l.ctx)
	l.must(c.Nodes()[2].Resume())
	l.must(err)
}
