package devtest

import (
	"context"
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
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	k, err := devstack.StartKafka(ctx, devstack.KafkaConfig{})
	if err != nil {
		tb.Fatal(err)
	}
	stopAtCleanup(tb, k.Stop)
	return k
}

// Redis starts a real Redis for one test, with further options of redis-server if any.
func Redis(tb testing.TB, args ...string) *devstack.Redis {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	r, err := devstack.StartRedis(ctx, devstack.RedisConfig{Args: args})
	if err != nil {
		tb.Fatal(err)
	}
	stopAtCleanup(tb, r.Stop)
	return r
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

func stopAtCleanup(tb testing.TB, stop func() error) {
	tb.Cleanup(func() {
		if err := stop(); err != nil {
			tb.Error(err)
		}
	})
}
