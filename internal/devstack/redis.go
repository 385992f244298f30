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
)

// RedisConfig says how a private Redis differs from one that keeps nothing. The zero
// value is a throw-away server for tests.
type RedisConfig struct {
	// Dir is its working directory. Empty: a temporary one, removed by Stop.
	Dir string
	// Args are options of redis-server and come last, so they win over the defaults:
	// "--appendonly", "yes".
	Args []string
}

// Redis is a real redis-server, started as a child process. Stop, Kill, Pause, Resume,
// Restart and Done act on that process.
type Redis struct {
	*server
	port int
}

// StartRedis starts the redis-server on PATH.
func StartRedis(ctx context.Context, cfg RedisConfig) (*Redis, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("start Redis: %w", err)
	}
	dir, err := openDir(cfg.Dir, "redis")
	if err != nil {
		return nil, fmt.Errorf("start Redis: %w", err)
	}
	r := &Redis{}
	err = onFreePorts(1, func(ports []int) error {
		r.port = ports[0]
		r.server = redisServer(path, dir, ports[0], cfg.Args)
		return r.start(ctx)
	})
	if err != nil {
		return nil, errors.Join(err, dir.close())
	}
	return r, nil
}

func redisServer(path string, dir *workDir, port int, extra []string) *server {
	args := []string{
		"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir.path, "--daemonize", "no",
		"--save", "", "--appendonly", "no", "--loglevel", "notice",
	}
	return &server{
		dir: dir,
		cmd: command{
			name: "redis-server", path: path, args: append(args, extra...),
			dir: dir.path, log: dir.file("redis.log"),
			stop: syscall.SIGTERM, orphaned: syscall.SIGKILL,
		},
		// Its log says so, whatever password or protocol its port asks for, and nobody
		// else on that port could.
		ready: func(_ context.Context, s *server) (bool, error) {
			return strings.Contains(s.output(), "Ready to accept connections"), nil
		},
	}
}

// Addr is its host and port.
func (r *Redis) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port)) }

// URL is its address as FLASHGATE_REDIS_URL takes it.
func (r *Redis) URL() string { return "redis://" + r.Addr() }
