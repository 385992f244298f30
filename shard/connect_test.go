package shard

import (
	"crypto/x509"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"flashgate/internal/devstack"
	"flashgate/internal/devstack/devtest"
)

// throughLocalhost makes a URL name its first server by a name instead of its address.
func throughLocalhost(url string) string {
	return strings.Replace(url, "@127.0.0.1:", "@localhost:", 1)
}

func connectAs(t *testing.T, cfg ConnectConfig, mode rueidis.ClientMode) {
	t.Helper()
	client, err := Connect(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	if client.Mode() != mode {
		t.Errorf("it is taken for %s, not %s", client.Mode(), mode)
	}
	for _, key := range []string{"{item:1:0}:stock", "{item:1:1}:stock", "{item:1:2}:stock", "{item:1:3}:stock"} { // on all nodes of a cluster
		if err := client.Do(t.Context(), client.B().Set().Key(key).Value("1").Build()).Error(); err != nil {
			t.Errorf("set %s: %v", key, err)
		}
	}
}

// Servers are believed under the name in the URL and under the address that others give for them, whichever their certificate has.
func TestConnectByTLS(t *testing.T) {
	t.Parallel()
	authority, _ := devtest.Authority(t)
	access := devstack.RedisAccess{Authority: authority, User: "shop", Password: "secret"}
	by := func(hosts ...string) devstack.RedisAccess {
		access := access
		access.Hosts = hosts
		return access
	}
	t.Run("one", func(t *testing.T) {
		t.Parallel()
		r := devtest.GuardedRedis(t, access)
		connectAs(t, ConnectConfig{URL: r.URL(), Roots: authority.Pool()}, rueidis.ClientModeStandalone)
	})
	t.Run("cluster whose one certificate names a host", func(t *testing.T) {
		t.Parallel()
		c := devtest.RedisCluster(t, devstack.RedisClusterConfig{Access: by("localhost")})
		connectAs(t, ConnectConfig{URL: throughLocalhost(c.URL()), Roots: authority.Pool()}, rueidis.ClientModeCluster)
	})
	t.Run("Sentinels and servers with a name each", func(t *testing.T) {
		t.Parallel()
		s := devtest.RedisSentinel(t, devstack.RedisSentinelConfig{Access: by("127.0.0.1"), SentinelHosts: []string{"localhost"}})
		connectAs(t, ConnectConfig{URL: throughLocalhost(s.URL()), Roots: authority.Pool()}, rueidis.ClientModeSentinel)
	})
	t.Run("Sentinels that ask for nothing", func(t *testing.T) {
		t.Parallel()
		s := devtest.RedisSentinel(t, devstack.RedisSentinelConfig{Access: devstack.RedisAccess{User: "shop", Password: "secret"}, OpenSentinels: true})
		connectAs(t, ConnectConfig{URL: s.URL()}, rueidis.ClientModeSentinel)
	})
}

func TestConnectSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	authority, _ := devtest.Authority(t)
	stranger, _ := devtest.Authority(t)
	access := devstack.RedisAccess{Authority: authority, User: "shop", Password: "secret"}
	guarded := devtest.GuardedRedis(t, access)
	access.Hosts = []string{"elsewhere.example"}
	elsewhere := devtest.GuardedRedis(t, access)
	open := devtest.Redis(t)
	for name, c := range map[string]struct {
		url   string
		roots *x509.CertPool
		says  string
	}{
		"trust in somebody else":  {guarded.URL(), stranger.Pool(), "unknown authority"},
		"another name":            {elsewhere.URL(), authority.Pool(), "cannot validate certificate for 127.0.0.1"},
		"a wrong password":        {strings.Replace(guarded.URL(), "secret", "wrong", 1), authority.Pool(), "WRONGPASS"},
		"no password":             {"rediss://" + guarded.Addr(), authority.Pool(), "NOAUTH"},
		"no TLS":                  {strings.Replace(guarded.URL(), "rediss://", "redis://", 1), nil, "rediss://"},
		"TLS where there is none": {"rediss://" + open.Addr() + "?dial_timeout=100ms", authority.Pool(), "TLS connection"},
		"no Sentinel":             {open.URL() + "?master_set=shop", nil, "is of no Sentinel"},
		"a URL that is none":      {"redis://shop:se%cret@127.0.0.1", nil, "the URL cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, err := Connect(ConnectConfig{URL: c.url, Roots: c.roots})
			if err == nil {
				client.Close()
				t.Fatal("connected")
			}
			if !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "se%cret") {
				t.Errorf("the error is %v, want one about %q", err, c.says)
			}
		})
	}
	skipping, err := Connect(ConnectConfig{URL: elsewhere.URL() + "?skip_verify=1"})
	if err != nil {
		t.Fatalf("with skip_verify: %v", err)
	}
	skipping.Close()
}
