package devstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"
)

func TestFreePortsAreDifferentAndFree(t *testing.T) {
	t.Parallel()
	ports, err := freePorts(50)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	floor := ephemeralFloor()
	for _, port := range ports {
		if seen[port] {
			t.Errorf("port %d was given out twice", port)
		}
		seen[port] = true
		if floor > 21000 && port >= floor {
			t.Errorf("port %d may serve an outgoing connection", port)
		}
		l, err := listenLoopback(port)
		if err != nil {
			t.Errorf("port %d: %v", port, err)
			continue
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestTakenPortIsReplaced(t *testing.T) {
	t.Parallel()
	var tried []int
	err := onFreePorts(1, func(ports []int) error {
		tried = append(tried, ports[0])
		if len(tried) < 3 {
			return fmt.Errorf("start: %w", errPortTaken)
		}
		return nil
	})
	if err != nil || len(tried) != 3 {
		t.Errorf("tried ports %v, then %v", tried, err)
	}

	attempts := 0
	err = onFreePorts(1, func([]int) error { attempts++; return errPortTaken })
	if !errors.Is(err, errPortTaken) || attempts != portAttempts {
		t.Errorf("%d attempts, then %v", attempts, err)
	}

	attempts = 0
	broken := errors.New("broken")
	err = onFreePorts(1, func([]int) error { attempts++; return broken })
	if !errors.Is(err, broken) || attempts != 1 {
		t.Errorf("%d attempts, then %v", attempts, err)
	}
}

// Each server says in its own words that somebody sits on its port.
func TestServersReportATakenPort(t *testing.T) {
	t.Parallel()
	squatter, err := listenLoopback(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = squatter.Close() })
	taken := squatter.Addr().(*net.TCPAddr).Port

	for name, newServer := range map[string]func(t *testing.T, dir *workDir, port int) *server{
		"redis": redisOn, "sentinel": sentinelOn, "postgres": postgresOn, "kafka": kafkaOn,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := openDir("", name)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := dir.close(); err != nil {
					t.Error(err)
				}
			})
			s := newServer(t, dir, taken)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := s.start(ctx); !errors.Is(err, errPortTaken) {
				t.Errorf("the error is %v", err)
			}
			if !s.child.ended() {
				t.Error("the process is still there")
			}
		})
	}
}

func redisOn(t *testing.T, dir *workDir, port int) *server {
	t.Helper()
	r, err := newRedis(RedisConfig{}, dir, port)
	if err != nil {
		t.Fatal(err)
	}
	return r.server
}

func sentinelOn(t *testing.T, dir *workDir, port int) *server {
	t.Helper()
	group := &RedisSentinel{cfg: RedisSentinelConfig{}.WithDefaults(), nodes: []*Redis{{port: port}}}
	r, err := group.newSentinel(dir, port)
	if err != nil {
		t.Fatal(err)
	}
	return r.server
}

func postgresOn(t *testing.T, dir *workDir, port int) *server {
	t.Helper()
	cfg := PostgresConfig{}.WithDefaults()
	cluster, err := openCluster(t.Context(), cfg, dir)
	if err != nil {
		t.Fatal(err)
	}
	return cluster.server(cfg, port)
}

func kafkaOn(t *testing.T, dir *workDir, port int) *server {
	t.Helper()
	java, err := findJava()
	if err != nil {
		t.Fatal(err)
	}
	libs, err := filepath.Abs(KafkaConfig{}.WithDefaults().Libs)
	if err != nil {
		t.Fatal(err)
	}
	ports, err := freePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	b := &kafkaBroker{dir: dir, java: java, libs: libs}
	if err := b.configure(t.Context(), port, ports[0]); err != nil {
		t.Fatal(err)
	}
	return b.server(port)
}
