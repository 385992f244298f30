package devstack_test

import (
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
	s := devtest.RedisSentinel(t, devstack.RedisSentinelConfig{DownAfter: 500 * time.Millisecond})
	must(t, s.DemoteAfter(ctx, time.Hour))
	old, err := s.Master(ctx)
	must(t, err)
	must(t, old.Pause())
	master := old
	devtest.Eventually(t, time.Minute, func() bool {
		master, err = s.Master(ctx)
		return err != nil || master != old
	}, "the Sentinels name another master")
	must(t, err)
	must(t, old.Resume())
	for _, r := range []*devstack.Redis{old, master} {
		_, err := r.Do(ctx, "SET", "k", r.Addr())
		must(t, err)
	}
	must(t, s.DemoteAfter(ctx, 200*time.Millisecond))
	must(t, s.AwaitWhole(ctx))
	if _, err := old.Do(ctx, "SET", "k", "v"); err == nil || !strings.Contains(err.Error(), "READONLY") {
		t.Errorf("a write to the one that was replaced: %v", err)
	}
	answer, err := old.Do(ctx, "GET", "k")
	must(t, err)
	if text, err := answer.ToString(); err != nil || text != master.Addr() {
		t.Errorf("the one that was replaced holds %q, %v", text, err)
	}
}
