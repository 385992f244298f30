package main

import (
	"encoding/json"
	"strings"
	"testing"

	"flashgate/internal/admin"
)

// TestReconcileSaysWhyNothingIsKnown has a server that is a replica, hangs, and is gone.
func TestReconcileSaysWhyNothingIsKnown(t *testing.T) {
	d := openDesk(t)
	d.do(saleOf(1, 1001, 50, 2), "sale", "create", "-f", "-")
	if got := d.do("", "item", "reconcile", "1001", "--check"); strings.Contains(got, "unknown") || !strings.Contains(got, "\ndrift        0\n") {
		t.Errorf("at rest:\n%s", got)
	}
	redis := func(command ...string) {
		t.Helper()
		if err := d.parts.redis.Do(t.Context(), d.parts.redis.B().Arbitrary(command...).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name   string
		breaks func()
		says   []string
	}{
		{"a replica", func() { redis("REPLICAOF", "127.0.0.1", "1") }, []string{"Redis: read account, item 1001 shard 0: ", "; and 1 more of 2 shards\n"}},
		{"a server that hangs", func() { redis("CLIENT", "PAUSE", "5000", "ALL") }, []string{"Redis, or a server of it, has not answered within 2s\n"}},
		{"none", d.parts.redis.Close, []string{"Redis: read account, item 1001 shard 0: ", "; and 1 more of 2 shards\n"}},
	} {
		test.breaks()
		got := flashgate(t, d.settings, "", "item", "reconcile", "1001", "--check")
		t.Log(got.err)
		for _, say := range test.says {
			if got.code != exitFailed || !strings.Contains(got.out, say) || !strings.Contains(got.out, "\nunknown because  Redis") || !strings.HasPrefix(got.err, "flashgate: it is unknown whether item 1001 adds up: Redis") {
				t.Errorf("%s: exit %d, %s%s; want %q", test.name, got.code, got.out, got.err, say)
			}
		}
	}
	var v admin.ReconciledView
	if err := json.Unmarshal([]byte(d.do("", "item", "reconcile", "1001", "-o", "json")), &v); err != nil || v.Unknown == nil || !strings.HasPrefix(*v.Unknown, "Redis: ") || v.Drift != nil {
		t.Errorf("as JSON: %+v, %v", v, err)
	}
}
