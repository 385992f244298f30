package devstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/redis/rueidis"
)

// RedisConfig says how a private Redis differs from one that keeps nothing and lets
// everybody in. The zero value is a throw-away server for tests.
type RedisConfig struct {
	// Dir is its working directory. Empty: a temporary one, removed by Stop.
	Dir string
	// Access says who gets in. Default: everybody.
	Access RedisAccess
	// Args are options of redis-server and come last, so they win over the defaults:
	// "--appendonly", "yes".
	Args []string
}

// Redis is a real redis-server, started as a child process. Stop, Kill, Pause, Resume,
// Restart and Done act on that process.
type Redis struct {
	*server
	port   int
	access RedisAccess
}

// StartRedis starts the redis-server on PATH.
func StartRedis(ctx context.Context, cfg RedisConfig) (*Redis, error) {
	cfg.Access = cfg.Access.withInner()
	var r *Redis
	err := onFreePorts(1, func(ports []int) (err error) {
		r, err = startRedis(ctx, cfg, ports[0])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("start Redis: %w", err)
	}
	return r, nil
}

// startRedis starts a redis-server on one port.
func startRedis(ctx context.Context, cfg RedisConfig, port int) (*Redis, error) {
	dir, err := openDir(cfg.Dir, "redis")
	if err != nil {
		return nil, err
	}
	r, err := newRedis(cfg, dir, port)
	if err == nil {
		err = r.start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, dir.close())
	}
	return r, nil
}

// newRedis prepares a redis-server in a directory.
func newRedis(cfg RedisConfig, dir *workDir, port int) (*Redis, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, err
	}
	if err := cfg.Access.equip(dir); err != nil {
		return nil, err
	}
	args := append([]string{dir.file(redisConfFile)}, cfg.Access.ports(port)...)
	args = append(args, "--bind", "127.0.0.1", "--dir", dir.path, "--daemonize", "no",
		"--save", "", "--appendonly", "no", "--loglevel", "notice")
	r := &Redis{port: port, access: cfg.Access}
	r.server = &server{
		dir: dir,
		cmd: command{
			name: "redis-server", path: path, args: append(args, cfg.Args...),
			dir: dir.path, log: dir.file("redis.log"),
			stop: syscall.SIGTERM, orphaned: syscall.SIGKILL,
		},
		// Its log says so, whatever password or protocol its port asks for, and nobody
		// else on that port could.
		ready: func(_ context.Context, s *server) (bool, error) {
			return strings.Contains(s.output(), "Ready to accept connections"), nil
		},
	}
	return r, nil
}

// Addr is its host and port.
func (r *Redis) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port)) }

// URL is its address as FLASHGATE_REDIS_URL takes it, with user and password if any.
func (r *Redis) URL() string { return r.access.url(r.Addr()).String() }

// Do sends one command as a user who may do everything, on a connection of its own, and
// returns the answer.
func (r *Redis) Do(ctx context.Context, args ...string) (rueidis.RedisMessage, error) {
	client, err := r.access.connect(r.Addr())
	if err != nil {
		return rueidis.RedisMessage{}, fmt.Errorf("connect to %s: %w", r.Addr(), err)
	}
	defer client.Close()
	answer, err := client.Do(ctx, client.B().Arbitrary(args...).Build()).ToMessage()
	if err != nil {
		return answer, fmt.Errorf("%s at %s: %w", strings.Join(args[:min(2, len(args))], " "), r.Addr(), err)
	}
	return answer, nil
}
