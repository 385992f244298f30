package devstack_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"flashgate/internal/devstack"
	"flashgate/internal/devstack/devtest"
)

// A master that was frozen and replaced takes itself for the master until it is demoted.
func TestSentinelsReplaceAFrozenMaster(t *testing.T) {
	t.Parallel()
	ctx := startContext(t)
	s := devtest.RedisSentinel(t, devstack.RedisSentinelConfig{DownAfter: 2 * time.Second})
	must(t, s.DemoteAfter(ctx, time.Hour))
	old, err := s.Master(ctx)
	must(t, err)
	must(t, old.Pause())
	master := old
	devtest.Eventually(t, time.Minute, func() bool {
		master, err = s.Master(ctx)
		return err == nil && master != old
	}, "the Sentinels name another master")
	must(t, err)
	must(t, old.Resume())
	for _, r := range []*devstack.Redis{old, master} {
		_, err := r.Do(ctx, "SET", "k", r.Addr())
		must(t, err)
	}
	must(t, s.DemoteAfter(ctx, 200*time.Millisecond))
	// On a machine under load the Sentinels may take the new one for dead, and go back: whoever is not the master follows it in the end.
	var refused error
	var has, follower string
	devtest.Eventually(t, time.Minute, func() bool {
		if err := s.AwaitWhole(ctx); err != nil {
			return false
		}
		now, err := s.Master(ctx)
		if err != nil {
			return false
		}
		for _, r := range s.Nodes() {
			if r == now {
				has = value(ctx, r)
				continue
			}
			_, refused = r.Do(ctx, "SET", "k", "v")
			follower = value(ctx, r)
		}
		return refused != nil && strings.Contains(refused.Error(), "READONLY") && has != "" && follower == has
	}, "the one that was replaced takes no writes, and has what its master has: %v, %q and %q", &refused, &follower, &has)
}

// value is what a server has at k, empty for nothing.
func value(ctx context.Context, r *devstack.Redis) string {
	answer, err := r.Do(ctx, "GET", "k")
	if err != nil {
		return ""
	}
	text, err := answer.ToString()
	if err != nil {
		return ""
	}
	return text
}
