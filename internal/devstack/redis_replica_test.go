package devstack_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"flashgate/internal/devstack"
)

func TestReplicaThatIsCutOffAndPromoted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var servers [2]*devstack.Redis
	for i := range servers {
		var err error
		if servers[i], err = devstack.StartRedis(ctx, devstack.RedisConfig{}); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := servers[i].Stop(); err != nil {
				t.Error(err)
			}
		}()
	}
	master, replica := servers[0], servers[1]
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	read := func() string {
		t.Helper()
		answer, err := replica.Do(ctx, "GET", "k")
		must(err)
		text, err := answer.ToString()
		must(err)
		return text
	}
	must(replica.Follow(ctx, master))
	_, err := master.Do(ctx, "SET", "k", "old")
	must(err)
	must(replica.CatchUp(ctx, master))
	if got := read(); got != "old" {
		t.Errorf("the replica has %q", got)
	}
	must(replica.CutOff(ctx))
	_, err = master.Do(ctx, "SET", "k", "new")
	must(err)
	if _, err := replica.Do(ctx, "SET", "k", "own"); err == nil || !strings.Contains(err.Error(), "READONLY") {
		t.Errorf("a write to the replica: %v", err)
	}
	must(replica.Promote(ctx))
	if got := read(); got != "old" {
		t.Errorf("the promoted replica has %q", got)
	}
	_, err = replica.Do(ctx, "SET", "k", "own")
	must(err)
}
