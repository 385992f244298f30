package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"flashgate/internal/broker"
	"flashgate/internal/config"
	"flashgate/internal/devstack"
	"flashgate/internal/ledger"
	"flashgate/internal/sale"
	"flashgate/shard"
)

// devCommand is everything in one process, on servers of its own unless the environment names others.
type devCommand struct {
	Data string `name:"data" type:"path" placeholder:"DIR" help:"Directory that keeps the state between runs; without it nothing is kept"`
	devServers
	config.Public
	config.Admin
	config.Auth
	config.Limits
	config.Proxies
	config.Timeouts
	config.Shutdown
	config.KafkaGroup
	config.Browsers
	config.Payments
	config.Retire
	config.Reconcile
}

// devServers are the servers that dev uses in place of private ones.
type devServers struct {
	DatabaseURL  config.Secret `name:"database-url" env:"FLASHGATE_DATABASE_URL" none:"a private server" type:"postgres" group:"Servers" help:"PostgreSQL to use"`
	RedisURL     config.Secret `name:"redis-url" env:"FLASHGATE_REDIS_URL" none:"in this process" type:"redis" group:"Servers" help:"Redis to use"`
	KafkaBrokers []string      `name:"kafka-brokers" env:"FLASHGATE_KAFKA_BROKERS" none:"in this process" type:"brokers" group:"Servers" help:"Kafka to use"`

	KafkaTLS           bool          `name:"kafka-tls" env:"FLASHGATE_KAFKA_TLS" default:"off" type:"switch" group:"Servers" help:"Encrypt the connections to that Kafka, on or off"`
	KafkaSASLMechanism string        `name:"kafka-sasl-mechanism" env:"FLASHGATE_KAFKA_SASL_MECHANISM" default:"off" type:"mechanism" group:"Servers" help:"plain, scram-sha-256, scram-sha-512 or off"`
	KafkaSASLUser      string        `name:"kafka-sasl-user" env:"FLASHGATE_KAFKA_SASL_USER" none:"none" type:"text" group:"Servers" help:"User, with a mechanism"`
	KafkaSASLPassword  config.Secret `name:"kafka-sasl-password" env:"FLASHGATE_KAFKA_SASL_PASSWORD" none:"none" type:"secret" group:"Servers" help:"Password, with a mechanism"`
}

// The demo sale.
const (
	demoSale     int64 = 1
	demoItem     int64 = 1001
	demoQuantity int64 = 100
	demoShards         = 4
)

// Run implements the command.
func (c *devCommand) Run(ctx context.Context, std *console) error {
	logger := newLogger(std)
	return serve(ctx, logger, c.Shutdown, c.Admin, withAPI, func(ctx context.Context, l *life, o *operators) error {
		set, public, err := c.open(ctx, l, o, logger)
		if err != nil {
			return err
		}
		if err := loadDemo(ctx, set.ledger, set.loader); err != nil {
			return err
		}
		logger.Info("listening", "public", public, "admin", o.address())
		return c.greet(ctx, std.out, set, public, o.address())
	})
}

// open starts the servers and every role on them, and returns where the public edge listens.
func (c *devCommand) open(ctx context.Context, l *life, o *operators, logger *slog.Logger) (*devSet, string, error) {
	if _, err := staticKeys(c.Auth); err != nil {
		return nil, "", err
	}
	set, err := startServers(ctx, l, logger, c.Data, c.devServers)
	if err != nil {
		return nil, "", err
	}
	kafka := kafkaConfig(config.Kafka{
		Brokers: set.brokers, TLS: c.KafkaTLS, SASLMechanism: c.KafkaSASLMechanism, SASLUser: c.KafkaSASLUser, SASLPassword: c.KafkaSASLPassword,
	}, c.KafkaGroup, "dev", logger)
	if err := c.checkDatabase(ctx, set); err != nil {
		return nil, "", err
	}
	if err := prepare(ctx, set.database, kafka); err != nil {
		return nil, "", err
	}
	p, err := openParts(ctx, partsConfig{
		role: "dev", database: set.database, redis: set.redis, inProcessRedis: set.inProcessRedis, kafka: kafka,
		deadlines: c.Deadlines, outboxLimit: c.OutboxLimit,
	}, logger, o.registry, o.ready)
	if err != nil {
		return nil, "", err
	}
	l.onStop("the connections", p.close)
	k, err := startWriter(l, p, kafka, "", c.Deadlines, c.Retire, c.Reconcile, c.ShutdownTimeout)
	if err != nil {
		return nil, "", err
	}
	set.ledger, set.stock, set.loader = p.ledger, p.stock, adminLoader{k.Loader()}
	if err := set.warmUp(ctx, logger); err != nil {
		return nil, "", err
	}
	l.background("the keeper", k.Run)
	public, api, err := startEdge(ctx, l, p, edgeConfig{
		listen: c.Listen, adminToken: c.AdminToken.Reveal(), auth: c.Auth, browsers: c.Browsers, payments: c.Payments, limits: c.Limits, proxies: c.Proxies, timeouts: c.Timeouts,
	}, set.loader)
	if err != nil {
		return nil, "", err
	}
	o.setAdmin(l, api)
	return set, public, nil
}

// checkDatabase refuses a database that somebody names in which other sales than dev's are going on, unless its Redis and Kafka are named as well: a
// Redis and a Kafka of our own know nothing of these sales, and a keeper that finds them empty loads them anew, which ends what the real ones have
// sold since.
func (c *devCommand) checkDatabase(ctx context.Context, set *devSet) error {
	if !c.DatabaseURL.IsSet() || c.RedisURL.IsSet() && len(c.KafkaBrokers) > 0 {
		return nil
	}
	db, err := ledger.Open(ctx, ledger.Config{URL: set.database, ApplicationName: "flashgate-dev"})
	if err != nil {
		return err
	}
	defer db.Close()
	if version, err := db.Schema(ctx); err != nil || version == 0 {
		return err // nobody has sales in it
	}
	items, err := db.Catalogue(ctx)
	if err != nil || len(items) == 0 || slices.ContainsFunc(items, func(it sale.Item) bool { return it.ID == demoItem && it.SaleID == demoSale }) {
		return err
	}
	return &config.Error{Name: "FLASHGATE_DATABASE_URL", Problem: "there are sales in this database that are not dev's; name their FLASHGATE_REDIS_URL and FLASHGATE_KAFKA_BROKERS too"}
}

// warmUp loads the stock of every item that was on sale before: the in-process Redis begins empty. The keeper would do it as well, with an alarm.
func (set *devSet) warmUp(ctx context.Context, logger *slog.Logger) error {
	states, err := set.ledger.LoadWatch(ctx)
	if err != nil {
		return err
	}
	if len(states) > 0 {
		logger.Info("loading the stock of the sales that are here", "items", len(states))
	}
	var loads errgroup.Group
	for _, state := range states {
		loads.Go(func() error { return set.loader.First(ctx, state.ItemID) })
	}
	return loads.Wait()
}

// prepare brings an empty or older database up to date and makes the topics.
func prepare(ctx context.Context, database string, kafka broker.Config) error {
	if err := ledger.Migrate(ctx, database); err != nil {
		return err
	}
	_, err := broker.EnsureTopics(ctx, kafka)
	return err
}

// devSet is where the servers are.
type devSet struct {
	database, redis string
	brokers         []string
	inProcessRedis  bool
	kept            string // the directory that outlives this run; empty: nothing does

	ledger *ledger.DB
	stock  *shard.Stock
	loader adminLoader
}

// startServers starts the servers that others does not name. Their data lies in dir, or in a directory that is removed at the end.
func startServers(ctx context.Context, l *life, logger *slog.Logger, dir string, others devServers) (*devSet, error) {
	set := &devSet{database: others.DatabaseURL.Reveal(), redis: others.RedisURL.Reveal(), brokers: others.KafkaBrokers, kept: dir}
	if set.database == "" {
		if err := set.startPostgres(ctx, l, logger, dir); err != nil {
			return nil, err
		}
	}
	if set.redis == "" {
		server, err := devstack.StartMiniRedis()
		if err != nil {
			return nil, err
		}
		l.onStop("Redis", func(context.Context) error { server.Stop(); return nil })
		set.redis, set.inProcessRedis = server.URL(), true
	}
	if len(set.brokers) == 0 {
		cfg := devstack.KfakeConfig{Logger: logger}
		if dir != "" {
			cfg.Dir = filepath.Join(dir, "kafka")
		}
		server, err := devstack.StartKfake(cfg)
		if err != nil {
			return nil, err
		}
		l.onStop("Kafka", func(context.Context) error { return server.Stop() })
		set.brokers = server.Brokers()
	}
	return set, nil
}

func (set *devSet) startPostgres(ctx context.Context, l *life, logger *slog.Logger, dir string) error {
	cfg := devstack.PostgresConfig{Download: true, Logger: logger}
	if dir != "" {
		// Kept data is somebody's: a commit must survive a crash of the machine.
		cfg.Dir, cfg.Fsync = filepath.Join(dir, "postgres"), true
	}
	server, err := devstack.StartPostgres(ctx, cfg)
	if err != nil {
		return err
	}
	l.onStop("PostgreSQL", func(context.Context) error { return server.Stop() })
	go func() {
		<-server.Done()
		l.fail(errors.New("the private PostgreSQL has ended"))
	}()
	if err := server.EnsureDatabase(ctx, "flashgate"); err != nil {
		return err
	}
	set.database = server.DSN("flashgate")
	return nil
}

// loadDemo creates the demo sale, with its stock, where there is no sale with its id.
func loadDemo(ctx context.Context, db *ledger.DB, loader adminLoader) error {
	now := time.Now().UTC().Truncate(time.Second)
	created, err := db.CreateSale(ctx, sale.Sale{
		ID: demoSale, Name: "Demo", StartsAt: now, EndsAt: now.AddDate(10, 0, 0), PurchaseLimit: sale.PerItem, PaymentWindow: 10 * time.Minute, TimeZone: "UTC",
		Items: []sale.Item{{
			ID: demoItem, ProductID: 5001, SKU: "DEMO-1", Quantity: demoQuantity, Price: "1980", Currency: "JPY", Shards: demoShards, MaxPerUser: 1, Model: sale.Counter,
		}},
	})
	var exists *ledger.ExistsError
	switch {
	case errors.As(err, &exists):
		return nil // warmed up like every other
	case err != nil:
		return fmt.Errorf("create the demo sale: %w", err)
	}
	return loader.Load(ctx, created.Items[0])
}
