package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"

	"flashgate/internal/broker"
	"flashgate/internal/config"
	"flashgate/internal/ledger"
	"flashgate/internal/ops"
	"flashgate/internal/pause"
	"flashgate/shard"
)

// partsConfig is what is needed to reach the servers.
type partsConfig struct {
	role           string // for the servers' own lists of clients
	database       string
	redis          string
	inProcessRedis bool
	kafka          broker.Config
	deadlines      config.Deadlines
	outboxLimit    int64
}

// needServers refuses to go without Redis or Kafka: every stock model of this version needs both.
func needServers(redis config.Redis, kafka config.Kafka) error {
	for _, server := range []struct {
		name string
		off  bool
	}{{"FLASHGATE_REDIS_URL", redis.Off()}, {"FLASHGATE_KAFKA_BROKERS", kafka.Off()}} {
		if server.off {
			return &config.Error{Name: server.name, Value: "off", Problem: "is only for a system whose items are all of the stock model direct, which this version does not have"}
		}
	}
	return nil
}

// kafkaConfig turns the settings into a broker.Config.
func kafkaConfig(k config.Kafka, group config.KafkaGroup, role string, logger *slog.Logger) broker.Config {
	return broker.Config{
		Brokers: k.Brokers, ClientID: "flashgate-" + role, TLS: k.TLS, SASLMechanism: k.SASLMechanism, SASLUser: k.SASLUser,
		SASLPassword: k.SASLPassword.Reveal(), Group: group.Group, Logger: logger,
	}
}

// parts are the connections of a process, and what sits directly on them. Its roles share them.
type parts struct {
	logger   *slog.Logger
	registry *prometheus.Registry
	ready    *ops.Readiness
	ledger   *ledger.DB
	redis    rueidis.Client
	stock    *shard.Stock
	producer *broker.Producer
	admin    *broker.Admin

	reached    atomic.Pointer[shard.Stock] // the stock, for readiness; nil before there is a connection
	redisFault atomic.Pointer[error]       // why there is none yet
}

// retryEvery is the wait between two attempts to reach a server at the start.
const retryEvery = 500 * time.Millisecond

// openParts connects to the servers, and waits for those that are away: a process that is started before its servers is ready when they are. A
// schema that is older than this binary is an error at once. The readiness says meanwhile what is waited for.
func openParts(ctx context.Context, cfg partsConfig, logger *slog.Logger, registry *prometheus.Registry, ready *ops.Readiness) (_ *parts, err error) {
	p := &parts{logger: logger, registry: registry, ready: ready}
	defer func() {
		if err != nil {
			_ = p.close(ctx)
		}
	}()
	if p.ledger, err = ledger.Open(ctx, ledger.Config{URL: cfg.database, ApplicationName: "flashgate-" + cfg.role, Logger: logger}); err != nil {
		return nil, err
	}
	ready.Add("postgresql", blaming(blameConnection, p.ledger.Ping))
	ready.Add("schema", p.schemaReady)
	if err = p.awaitSchema(ctx); err != nil {
		return nil, err
	}
	if p.admin, err = broker.NewAdmin(cfg.kafka); err != nil {
		return nil, err
	}
	ready.Add("kafka", blaming(blameKafka, p.admin.Ping))
	ready.Add("topics", p.topicsReady)
	asking, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := blameKafka(p.admin.Ping(asking)); err != nil {
		logger.Warn("orders cannot be published yet", "error", err)
	} else if err := p.topicsReady(asking); err != nil {
		logger.Warn("orders cannot be published yet: run `flashgate migrate`", "error", err)
	}
	if p.producer, err = broker.NewProducer(broker.ProducerConfig{Config: cfg.kafka, Registerer: registry}); err != nil {
		return nil, err
	}
	ready.Add("redis", p.redisReady)
	// For operators only: shards with room go on selling, and so do those that are full when somebody cancels.
	ready.AddAdvice("redis memory", p.memoryReady)
	if err = p.connectRedis(ctx, cfg); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *parts) awaitSchema(ctx context.Context) error {
	for {
		err := p.ledger.CheckSchema(ctx)
		var older *ledger.SchemaError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &older):
			return err
		case refusedForGood(err) != "":
			return &config.Error{Name: databaseSetting, Problem: "PostgreSQL refuses it: " + refusedForGood(err)}
		case ctx.Err() != nil:
			return ctx.Err()
		}
		p.logger.Warn("waiting for PostgreSQL", "error", blameConnection(err))
		if !pause.For(ctx, retryEvery) {
			return ctx.Err()
		}
	}
}

// refusedForGood returns what a server said that will not let us in however often we ask: a wrong password or role, a database that does not exist,
// a parameter that it does not know. Empty for everything else.
func refusedForGood(err error) string {
	var refused *pgconn.PgError
	if errors.As(err, &refused) && len(refused.Code) == 5 {
		switch refused.Code[:2] {
		case "28", "3D", "42":
			return refused.Message
		}
	}
	return ""
}

// connectRedis waits until Redis can be reached: its client library cannot be made without.
func (p *parts) connectRedis(ctx context.Context, cfg partsConfig) (err error) {
	for {
		p.redis, err = shard.Connect(shard.ConnectConfig{URL: cfg.redis, InProcess: cfg.inProcessRedis, ClientName: "flashgate-" + cfg.role})
		if err == nil {
			break
		}
		fault := blame(redisSetting, err)
		p.redisFault.Store(&fault)
		p.logger.Warn("waiting for Redis", "error", fault)
		if !pause.For(ctx, retryEvery) {
			return ctx.Err()
		}
	}
	p.stock, err = shard.New(shard.Config{
		Client: p.redis, Publisher: p.producer, Logger: p.logger, Registerer: p.registry, RecordDeadline: cfg.deadlines.RecordDeadline,
		CallTimeout: min(time.Second, cfg.deadlines.RecordDeadline), OutboxLimit: cfg.outboxLimit,
	})
	if err == nil {
		p.reached.Store(p.stock)
	}
	return err
}

// redisReady asks Redis for a sign of life, and whether every server may keep stock; it says before there is a connection why there is none.
func (p *parts) redisReady(ctx context.Context) error {
	if stock := p.reached.Load(); stock != nil {
		return blame(redisSetting, stock.Health(ctx))
	}
	if err := p.redisFault.Load(); err != nil {
		return *err
	}
	return errors.New("not asked yet")
}

// memoryReady says which servers of Redis are full. Whether they answer is another check's to say.
func (p *parts) memoryReady(ctx context.Context) error {
	if stock := p.reached.Load(); stock != nil {
		return stock.Room(ctx)
	}
	return nil
}

// schemaReady says that the schema is too old. Whether the database answers is another check's to say.
func (p *parts) schemaReady(ctx context.Context) error {
	var older *ledger.SchemaError
	if err := p.ledger.CheckSchema(ctx); errors.As(err, &older) {
		return err
	}
	return nil
}

// topicsReady says which topics are missing. Whether the brokers answer is another check's to say.
func (p *parts) topicsReady(ctx context.Context) error {
	missing, err := p.admin.TopicsReady(ctx)
	if err == nil && len(missing) > 0 {
		return fmt.Errorf("topics are missing or without a leader: %s", strings.Join(missing, ", "))
	}
	return nil
}

// canSell reports whether shoppers should be sent to this process. Once everything was there, units are sold without PostgreSQL, and without Kafka up
// to the outbox limit; and what is away from one gateway is away from all, so that a balancer which believed it would shut the sale.
func (p *parts) canSell(ctx context.Context) bool {
	if p.ready.WasReady() { // whoever asked: operators may have been told before any shopper
		return p.ready.Ready(ctx, "postgresql", "schema", "kafka", "topics", "catalogue", "consumer")
	}
	return p.ready.Ready(ctx)
}

// noticeReady finds out when everything is there for the first time, and then waits for the end: what canSell answers later must not hang on whether
// somebody asked it in time.
func (p *parts) noticeReady(ctx context.Context) error {
	// Who looks at once finds what is still starting, and the log says so.
	for pause.For(ctx, time.Second) && !p.canSell(ctx) {
	}
	<-ctx.Done()
	return nil
}

// close ends the connections in the order in which they depend on each other: first no event may be under way any more, then what carries
// events, then the rest. ctx bounds it: what is not through by then is left to the sweep, which is no fault of the process that stops. It may be
// called on parts that were opened halfway.
func (p *parts) close(ctx context.Context) error {
	var errs []error
	if p.stock != nil {
		errs = append(errs, p.stock.Close(ctx))
	}
	if p.producer != nil {
		errs = append(errs, p.producer.Close(ctx))
	}
	if p.admin != nil {
		p.admin.Close()
	}
	if p.redis != nil {
		p.redis.Close()
	}
	if p.ledger != nil {
		errs = append(errs, within(ctx, p.ledger.Close))
	}
	err := errors.Join(errs...)
	if err != nil && ctx.Err() != nil {
		p.logger.Warn("time is up; the rest is left to the keeper", "error", err)
		return nil
	}
	return err
}

// within waits for what cannot be told to hurry, until ctx ends.
func within(ctx context.Context, run func()) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		run()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
