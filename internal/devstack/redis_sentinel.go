package devstack

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// RedisSentinelConfig says how private servers that Sentinels watch are made.
type RedisSentinelConfig struct {
	// MasterSet is the name of the group. Default "flashgate".
	MasterSet string
	// Replicas of the master. Default 1.
	Replicas int
	// Sentinels watch it; more than half of them replace a master. Default 3.
	Sentinels int
	// DownAfter is the silence after which a Sentinel takes a server for dead. Default 5 s:
	// on a busy machine a living one may be silent for a while.
	DownAfter time.Duration
	// Access says who gets in. The password is asked by the Sentinels, too, of their default
	// user. Default: everybody.
	Access RedisAccess
	// OpenSentinels ask for no password.
	OpenSentinels bool
	// SentinelHosts are the names in the certificates of the Sentinels. Default: those of
	// Access.
	SentinelHosts []string
	// Args are further options of master and replicas.
	Args []string
}

// WithDefaults returns c with its unset fields filled in.
func (c RedisSentinelConfig) WithDefaults() RedisSentinelConfig {
	if c.MasterSet == "" {
		c.MasterSet = "flashgate"
	}
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	if c.Sentinels == 0 {
		c.Sentinels = 3
	}
	if c.DownAfter == 0 {
		c.DownAfter = 5 * time.Second
	}
	if c.SentinelHosts == nil {
		c.SentinelHosts = c.Access.Hosts
	}
	c.Access = c.Access.withInner()
	return c
}

// RedisSentinel is a Redis master with replicas, and the Sentinels that watch them. Each of
// the servers can be stopped, killed and restarted by itself.
type RedisSentinel struct {
	cfg       RedisSentinelConfig
	nodes     []*Redis
	sentinels []*Redis
}

// StartRedisSentinel starts the servers and returns when the replicas are in step and every
// Sentinel knows all of them. That takes two seconds, the time between two greetings of a
// Sentinel.
func StartRedisSentinel(ctx context.Context, cfg RedisSentinelConfig) (*RedisSentinel, error) {
	s := &RedisSentinel{cfg: cfg.WithDefaults()}
	err := s.startAll(ctx)
	if err != nil {
		return nil, fmt.Errorf("start Redis with Sentinels: %w", errors.Join(err, s.Stop()))
	}
	return s, nil
}

func (s *RedisSentinel) startAll(ctx context.Context) error {
	err := onFreePorts(1+s.cfg.Replicas, func(ports []int) (err error) {
		s.nodes, err = startEach(ctx, ports, func(i int) RedisConfig {
			args := []string{"--repl-diskless-sync-delay", "0"}
			if i > 0 {
				args = append(args, "--replicaof", "127.0.0.1", strconv.Itoa(ports[0]))
			}
			return RedisConfig{Access: s.cfg.Access, Args: append(args, s.cfg.Args...)}
		})
		return err
	})
	if err != nil {
		return err
	}
	// A Sentinel asks the master for its replicas when it first meets it, and then only
	// every ten seconds.
	if err := awaitEach(ctx, s.nodes[1:], "the replicas are in step", follows); err != nil {
		return err
	}
	err = onFreePorts(s.cfg.Sentinels, func(ports []int) error {
		for _, port := range ports {
			sentinel, err := s.startSentinel(ctx, port)
			if err != nil {
				err = errors.Join(err, stopAll(s.sentinels))
				s.sentinels = nil
				return err
			}
			s.sentinels = append(s.sentinels, sentinel)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return awaitEach(ctx, s.sentinels, "the Sentinels know each other", s.complete)
}

// sentinelConfFile is rewritten by the Sentinel.
const sentinelConfFile = "sentinel.conf"

func (s *RedisSentinel) startSentinel(ctx context.Context, port int) (*Redis, error) {
	dir, err := openDir("", "sentinel")
	if err != nil {
		return nil, err
	}
	sentinel, err := s.newSentinel(dir, port)
	if err == nil {
		err = sentinel.start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, dir.close())
	}
	return sentinel, nil
}

// newSentinel prepares a Sentinel in a directory.
func (s *RedisSentinel) newSentinel(dir *workDir, port int) (*Redis, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, err
	}
	access := s.cfg.Access
	access.Hosts = s.cfg.SentinelHosts
	access.User, access.innerUser = "", "" // it has its default user alone
	if s.cfg.OpenSentinels {
		access.Password = ""
	}
	access.innerPassword = access.Password
	if access.Authority != nil {
		if err := access.Authority.equip(dir, nil, access.Hosts...); err != nil {
			return nil, err
		}
	}
	if err := writePrivate(dir, nil, sentinelConfFile, []byte(s.conf(dir, port))); err != nil {
		return nil, fmt.Errorf("write the configuration of a Sentinel: %w", err)
	}
	r := &Redis{port: port, access: access}
	r.server = &server{
		dir: dir,
		cmd: command{
			name: "redis-sentinel", path: path, args: []string{dir.file(sentinelConfFile), "--sentinel"},
			dir: dir.path, log: dir.file("sentinel.log"),
			stop: syscall.SIGTERM, orphaned: syscall.SIGKILL,
		},
		ready: func(_ context.Context, s *server) (bool, error) {
			return strings.Contains(s.output(), "+monitor master"), nil
		},
	}
	return r, nil
}

// conf is the first configuration of a Sentinel.
func (s *RedisSentinel) conf(dir *workDir, port int) string {
	var conf strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&conf, format+"\n", args...) }
	say("bind 127.0.0.1")
	say("dir %q", dir.path)
	if s.cfg.Access.Authority != nil {
		say("port 0\ntls-port %d", port)
		say("tls-cert-file %q\ntls-key-file %q\ntls-ca-cert-file %q", dir.file(certificateFile), dir.file(keyFile), dir.file(trustedFile))
		say("tls-auth-clients no\ntls-replication yes")
	} else {
		say("port %d", port)
	}
	name := s.cfg.MasterSet
	say("sentinel monitor %s 127.0.0.1 %d %d", name, s.nodes[0].port, s.cfg.Sentinels/2+1)
	say("sentinel down-after-milliseconds %s %d\nsentinel failover-timeout %s 2000", name, s.cfg.DownAfter.Milliseconds(), name)
	if s.cfg.Access.Password != "" {
		say("sentinel auth-user %s %s\nsentinel auth-pass %s %s", name, s.cfg.Access.innerUser, name, s.cfg.Access.innerPassword)
	}
	if s.cfg.Access.Password != "" && !s.cfg.OpenSentinels {
		say("requirepass %q\nsentinel sentinel-pass %q", s.cfg.Access.Password, s.cfg.Access.Password)
	}
	return conf.String()
}

// complete reports whether a Sentinel sees the whole group in good health.
func (s *RedisSentinel) complete(ctx context.Context, sentinel *Redis) (bool, error) {
	answer, err := sentinel.Do(ctx, "SENTINEL", "MASTER", s.cfg.MasterSet)
	if err != nil {
		return false, err
	}
	master, err := answer.AsStrMap()
	if err != nil {
		return false, err
	}
	return master["flags"] == "master" && master["num-slaves"] == strconv.Itoa(s.cfg.Replicas) &&
		master["num-other-sentinels"] == strconv.Itoa(s.cfg.Sentinels-1), nil
}

// Nodes are the servers that hold data, the one that was started as the master first.
func (s *RedisSentinel) Nodes() []*Redis { return s.nodes }

// Sentinels watch the nodes.
func (s *RedisSentinel) Sentinels() []*Redis { return s.sentinels }

// URL names the Sentinels and the group.
func (s *RedisSentinel) URL() string {
	u := s.cfg.Access.url(s.sentinels[0].Addr())
	q := url.Values{"master_set": {s.cfg.MasterSet}}
	for _, other := range s.sentinels[1:] {
		q.Add("addr", other.Addr())
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// Stop stops every server, the Sentinels first.
func (s *RedisSentinel) Stop() error { return errors.Join(stopAll(s.sentinels), stopAll(s.nodes)) }
