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

// A Redis without memory is told to operators, who can give it more; shoppers may still come for what is left.
func TestAFullRedisIsNamed(t *testing.T) {
	server := devtest.Redis(t)
	p := &parts{logger: slog.New(slog.DiscardHandler), registry: prometheus.NewRegistry(), ready: ops.NewReadiness(ops.ReadinessConfig{Fresh: -1})}
	if err := p.memoryReady(t.Context()); err != nil {
		t.Errorf("before there is a connection: %v", err)
	}
	if err := p.connectRedis(t.Context(), partsConfig{redis: server.URL(), outboxLimit: 1, deadlines: config.Deadlines{RecordDeadline: time.Minute}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	p.ready.Add("redis", p.redisReady)
	p.ready.AddAdvice("redis memory", p.memoryReady)
	told := func(limit string, full bool) {
		t.Helper()
		if _, err := server.Do(t.Context(), "CONFIG", "SET", "maxmemory", limit); err != nil {
			t.Fatal(err)
		}
		devtest.Eventually(t, time.Minute, func() bool {
			missing := p.ready.Missing(t.Context())
			if !full {
				return len(missing) == 0
			}
			return len(missing) == 1 && missing[0].Check == "redis memory" && strings.Contains(missing[0].Reason, "Redis "+server.Addr()+" is full")
		}, "with maxmemory %s readiness says that it is full: %v", limit, full)
		devtest.Eventually(t, time.Minute, func() bool { return p.canSell(t.Context()) }, "shoppers may come with maxmemory %s", limit)
	}
	told("100000", true)
	told("0", false)
}

// A process at which nobody has looked yet goes on without Kafka like any other: its own look counts.
func TestWhoWasNeverPolledStaysReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		away.Store(true)
		p := &parts{ready: ops.NewReadiness(ops.ReadinessConfig{})}
		p.ready.Add("kafka", func(context.Context) error {
			if away.Load() {
				return errors.New("away")
			}
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		noticed := make(chan error)
		go func() { noticed <- p.noticeReady(ctx) }()
		time.Sleep(time.Minute)
		if p.canSell(ctx) {
			t.Error("Kafka has never been there")
		}
		away.Store(false)
		time.Sleep(10 * time.Second)
		away.Store(true)
		time.Sleep(10 * time.Second)
		if !p.canSell(ctx) {
			t.Error("Kafka was there, and nobody had asked then")
		}
		cancel()
		if err := <-noticed; err != nil {
			t.Error(err)
		}
	})
}

// What operators were told counts for shoppers, too: a process that was called ready is not taken back by an outage that it can sell through.
func TestWhoWasReadyForOperatorsStaysReady(t *testing.T) {
	var away atomic.Bool
	p := &parts{ready: ops.NewReadiness(ops.ReadinessConfig{Fresh: -1})}
	p.ready.Add("kafka", func(context.Context) error {
		if away.Load() {
			return errors.New("away")
		}
		return nil
	})
	away.Store(true)
	if missing := p.ready.Missing(t.Context()); len(missing) != 1 || p.canSell(t.Context()) {
		t.Errorf("Kafka has never been there: %v", missing)
	}
	away.Store(false)
	if missing := p.ready.Missing(t.Context()); len(missing) != 0 {
		t.Errorf("everything is there: %v", missing)
	}
	away.Store(true)
	if !p.canSell(t.Context()) {
		t.Error("operators were told that it is ready, and units are sold without Kafka")
	}
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
