package devstack_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"flashgate/internal/devstack"
	"flashgate/internal/devstack/devtest"
)

// A password that needs escaping wherever it is written down.
const hardPassword = `p@ss/w#rd "5%`

// redisClient connects as clients do: with a URL, and trust in an authority if any.
func redisClient(tb testing.TB, url string, trusted *devstack.Authority, change ...func(*rueidis.ClientOption)) (rueidis.Client, error) {
	tb.Helper()
	opt, err := rueidis.ParseURL(url)
	must(tb, err)
	opt.DisableCache = true
	opt.Dialer.Timeout = time.Minute // for machines under load
	if trusted != nil {
		opt.TLSConfig = &tls.Config{RootCAs: trusted.Pool(), ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
	}
	opt.Sentinel.TLSConfig, opt.Sentinel.Password = opt.TLSConfig, opt.Password
	opt.Sentinel.TopologyRefreshInterval = 100 * time.Millisecond
	for _, c := range change {
		c(&opt)
	}
	client, err := rueidis.NewClient(opt)
	if err != nil {
		return nil, err
	}
	tb.Cleanup(client.Close)
	return client, nil
}

// redisSet writes a key, as a user of the server would.
func redisSet(client rueidis.Client, key string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return client.Do(ctx, client.B().Set().Key(key).Value("x").Build()).Error()
}

func wantError(t *testing.T, what string, err error, says string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: the error is %v, want one about %q", what, err, says)
	}
}

func TestRedisBehindPasswordAndTLS(t *testing.T) {
	t.Parallel()
	authority, _ := devtest.Authority(t)
	stranger, _ := devtest.Authority(t)
	access := devstack.RedisAccess{Authority: authority, User: "shop", Password: hardPassword, Rules: "~item:* +set +ping +hello +client +cluster"}
	r := devtest.GuardedRedis(t, access)

	client, err := redisClient(t, r.URL(), authority)
	must(t, err)
	must(t, redisSet(client, "item:1"))
	wantError(t, "a key outside the rules", redisSet(client, "other:1"), "NOPERM")

	_, err = redisClient(t, r.URL(), authority, func(o *rueidis.ClientOption) { o.Password = "wrong" })
	wantError(t, "a wrong password", err, "WRONGPASS")
	_, err = redisClient(t, r.URL(), authority, func(o *rueidis.ClientOption) { o.Username, o.Password = "", "" })
	wantError(t, "no password", err, "NOAUTH")
	_, err = redisClient(t, r.URL(), stranger)
	wantError(t, "trust in somebody else", err, "certificate signed by unknown authority")
	if got := redisDo(r.Addr(), time.Minute, "PING"); got != "" {
		t.Errorf("without TLS it says %q", got)
	}

	must(t, r.Restart(startContext(t)))
	answer, err := r.Do(startContext(t), "ACL", "WHOAMI")
	must(t, err)
	if who, err := answer.ToString(); err != nil || who == "shop" {
		t.Errorf("we are %s, %v", who, err)
	}
}

// Both kinds of groups, as strict as can be, outlive the death of a master.
func TestRedisGroups(t *testing.T) {
	t.Parallel()
	authority, _ := devtest.Authority(t)
	access := devstack.RedisAccess{Authority: authority, Password: hardPassword}

	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		c := devtest.RedisCluster(t, devstack.RedisClusterConfig{Replicas: 1, Access: access})
		if len(c.Nodes()) != 6 {
			t.Fatalf("it has %d nodes", len(c.Nodes()))
		}
		client, err := redisClient(t, c.URL(), authority)
		must(t, err)
		if client.Mode() != rueidis.ClientModeCluster {
			t.Errorf("clients take it for %s", client.Mode())
		}
		writeAll := func() (err error) {
			for i := range 50 { // in the slots of every master
				if err = redisSet(client, fmt.Sprint("key:", i)); err != nil {
					break
				}
			}
			return err
		}
		must(t, writeAll())
		must(t, c.Nodes()[0].Kill())
		devtest.Eventually(t, time.Minute, func() bool { err = writeAll(); return err == nil }, "a replica takes over: %v", &err)
	})
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		s := devtest.RedisSentinel(t, devstack.RedisSentinelConfig{MasterSet: "sale", Access: access, DownAfter: 500 * time.Millisecond})
		client, err := redisClient(t, s.URL(), authority)
		must(t, err)
		if client.Mode() != rueidis.ClientModeSentinel {
			t.Errorf("clients take it for %s", client.Mode())
		}
		must(t, redisSet(client, "key"))
		_, err = redisClient(t, s.URL(), authority, func(o *rueidis.ClientOption) { o.Sentinel.Password = "wrong" })
		wantError(t, "a Sentinel and a wrong password", err, "WRONGPASS")
		must(t, s.Nodes()[0].Kill())
		devtest.Eventually(t, time.Minute, func() bool { err = redisSet(client, "key"); return err == nil }, "the replica takes over: %v", &err)
	})
}

func TestRedisGroupsInPlainText(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) string{
		"cluster":  func(t *testing.T) string { return devtest.RedisCluster(t, devstack.RedisClusterConfig{}).URL() },
		"sentinel": func(t *testing.T) string { return devtest.RedisSentinel(t, devstack.RedisSentinelConfig{}).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, err := redisClient(t, start(t), nil)
			must(t, err)
			must(t, redisSet(client, "key"))
		})
	}
}
