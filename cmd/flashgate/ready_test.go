package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"flashgate/internal/config"
	"flashgate/internal/devstack/devtest"
	"flashgate/internal/ops"
)

// Every role that has parts is ready only with a Redis that may keep stock, and says which server may not.
func TestRedisThatMayNotKeepStockIsNamed(t *testing.T) {
	server := devtest.Redis(t)
	p := &parts{logger: slog.New(slog.DiscardHandler), registry: prometheus.NewRegistry()}
	if err := p.redisReady(t.Context()); err == nil {
		t.Error("ready before there is a connection")
	}
	if err := p.connectRedis(t.Context(), partsConfig{redis: server.URL(), outboxLimit: 1, deadlines: config.Deadlines{RecordDeadline: time.Minute}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	says := func(words ...string) {
		t.Helper()
		var err error
		devtest.Eventually(t, time.Minute, func() bool {
			err = p.redisReady(t.Context())
			if err == nil || len(words) == 0 {
				return err == nil && len(words) == 0
			}
			return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(err.Error(), word) })
		}, "readiness says %q", words)
	}
	says()
	if _, err := server.Do(t.Context(), "CONFIG", "SET", "maxmemory-policy", "allkeys-lru"); err != nil {
		t.Fatal(err)
	}
	says("FLASHGATE_REDIS_URL", server.Addr(), "allkeys-lru")
	if _, err := server.Do(t.Context(), "CONFIG", "SET", "maxmemory-policy", "noeviction"); err != nil {
		t.Fatal(err)
	}
	says()
	if err := server.CutOff(t.Context()); err != nil {
		t.Fatal(err)
	}
	says("FLASHGATE_REDIS_URL", server.Addr(), "replica")
	if err := server.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	says()
}

// Whoever polls seldom is told what is true now, and not what was found out at the poll before.
func TestEveryPollTellsTheTruthOfNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var redis, kafka atomic.Pointer[error]
		state := func(of *atomic.Pointer[error]) func(context.Context) error {
			return func(context.Context) error {
				time.Sleep(50 * time.Millisecond)
				if err := of.Load(); err != nil {
					return *err
				}
				return nil
			}
		}
		p := &parts{ready: ops.NewReadiness(ops.ReadinessConfig{})}
		p.ready.Add("redis", state(&redis))
		p.ready.Add("kafka", state(&kafka))
		away := errors.New("away")
		poll := func(want bool, when string) {
			t.Helper()
			if got := p.canSell(t.Context()); got != want {
				t.Errorf("%s: %v", when, got)
			}
			time.Sleep(8 * time.Second)
		}
		kafka.Store(&away)
		poll(false, "before everything was there")
		kafka.Store(nil)
		poll(true, "when everything is there")
		kafka.Store(&away)
		poll(true, "units are sold without Kafka")
		redis.Store(&away)
		poll(false, "Redis has gone")
		redis.Store(nil)
		poll(true, "Redis is back")
	})
}
