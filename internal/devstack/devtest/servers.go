package devtest

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"flashgate/internal/devstack"
)

var (
	sharedPostgres once[*devstack.Postgres]
	sharedKafka    once[*devstack.Kafka]
)

// Postgres is the PostgreSQL server of this test binary. Most tests want Database.
func Postgres(tb testing.TB) *devstack.Postgres {
	tb.Helper()
	return sharedPostgres.get(tb, func(ctx context.Context) (*devstack.Postgres, error) {
		return devstack.StartPostgres(ctx, devstack.PostgresConfig{})
	})
}

// Kafka is the Apache Kafka broker of this test binary. Tests must use topics and groups
// of their own, see Name, and must not stop it: those start a private one with
// devstack.StartKafka.
func Kafka(tb testing.TB) *devstack.Kafka {
	tb.Helper()
	return sharedKafka.get(tb, func(ctx context.Context) (*devstack.Kafka, error) {
		return devstack.StartKafka(ctx, devstack.KafkaConfig{})
	})
}

// PrivateKafka starts an Apache Kafka broker for one test, which may stop it, or needs topics of fixed names for itself.
func PrivateKafka(tb testing.TB) *devstack.Kafka {
	tb.Helper()
	return GuardedKafka(tb, devstack.KafkaAccess{})
}

// GuardedKafka is PrivateKafka with TLS, users or both.
func GuardedKafka(tb testing.TB, access devstack.KafkaAccess) *devstack.Kafka {
	tb.Helper()
	return private(tb, func(ctx context.Context) (*devstack.Kafka, error) {
		return devstack.StartKafka(ctx, devstack.KafkaConfig{Access: access})
	})
}

// GuardedPostgres starts a PostgreSQL server with TLS for one test.
func GuardedPostgres(tb testing.TB, authority *devstack.Authority) *devstack.Postgres {
	tb.Helper()
	return private(tb, func(ctx context.Context) (*devstack.Postgres, error) {
		return devstack.StartPostgres(ctx, devstack.PostgresConfig{Authority: authority})
	})
}

// Redis starts a real Redis for one test, with further options of redis-server if any.
func Redis(tb testing.TB, args ...string) *devstack.Redis {
	tb.Helper()
	return GuardedRedis(tb, devstack.RedisAccess{}, args...)
}

// GuardedRedis is Redis with TLS, users or both.
func GuardedRedis(tb testing.TB, access devstack.RedisAccess, args ...string) *devstack.Redis {
	tb.Helper()
	return private(tb, func(ctx context.Context) (*devstack.Redis, error) {
		return devstack.StartRedis(ctx, devstack.RedisConfig{Access: access, Args: args})
	})
}

// RedisCluster starts a Redis Cluster for one test.
func RedisCluster(tb testing.TB, cfg devstack.RedisClusterConfig) *devstack.RedisCluster {
	tb.Helper()
	return private(tb, func(ctx context.Context) (*devstack.RedisCluster, error) { return devstack.StartRedisCluster(ctx, cfg) })
}

// RedisSentinel starts a Redis with Sentinels for one test.
func RedisSentinel(tb testing.TB, cfg devstack.RedisSentinelConfig) *devstack.RedisSentinel {
	tb.Helper()
	return private(tb, func(ctx context.Context) (*devstack.RedisSentinel, error) {
		return devstack.StartRedisSentinel(ctx, cfg)
	})
}

// Authority makes a certificate authority for one test, and a file that holds what clients must trust, as SSL_CERT_FILE takes it.
func Authority(tb testing.TB) (authority *devstack.Authority, file string) {
	tb.Helper()
	authority, err := devstack.NewAuthority()
	if err != nil {
		tb.Fatal(err)
	}
	file = filepath.Join(tb.TempDir(), "authority.pem")
	if err := os.WriteFile(file, authority.PEM(), 0o600); err != nil {
		tb.Fatal(err)
	}
	return authority, file
}

// MiniRedis starts an in-process Redis for one test.
func MiniRedis(tb testing.TB) *devstack.MiniRedis {
	tb.Helper()
	r, err := devstack.StartMiniRedis()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(r.Stop)
	return r
}

// Kfake starts an in-process Kafka for one test; nil stands for the default config.
func Kfake(tb testing.TB, cfg ...devstack.KfakeConfig) *devstack.Kfake {
	tb.Helper()
	var c devstack.KfakeConfig
	if len(cfg) > 0 {
		c = cfg[0]
	}
	k, err := devstack.StartKfake(c)
	if err != nil {
		tb.Fatal(err)
	}
	stopAtCleanup(tb, k.Stop)
	return k
}

// private starts a server for one test, and stops it at the end.
func private[T interface{ Stop() error }](tb testing.TB, start func(ctx context.Context) (T, error)) T {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	server, err := start(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	stopAtCleanup(tb, server.Stop)
	return server
}

func stopAtCleanup(tb testing.TB, stop func() error) {
	tb.Cleanup(func() {
		if err := stop(); err != nil {
			tb.Error(err)
		}
	})
}
