package main

import (
	"context"
	"log/slog"

	"flashgate/internal/config"
	"flashgate/internal/keeper"
)

// gatewayCommand is the role at the edge: it sells. Any number of processes may run side by side.
type gatewayCommand struct {
	config.Public
	config.Admin
	config.Auth
	config.Limits
	config.Proxies
	config.Timeouts
	config.Shutdown
	config.Redis
	config.Kafka
	config.KafkaGroup
	config.Database
	config.Browsers
	config.Payments
}

// Run implements the command.
func (c *gatewayCommand) Run(ctx context.Context, std *console) error {
	if err := needServers(c.Redis, c.Kafka); err != nil {
		return err
	}
	// Before anything is waited for: who has to mend a setting should not have to start Redis to hear of it.
	if _, err := staticKeys(c.Auth); err != nil {
		return err
	}
	logger := newLogger(std)
	return serve(ctx, logger, c.Shutdown, c.Admin, withAPI, func(ctx context.Context, l *life, o *operators) error {
		edge, err := listenForShoppers(l, logger, o.registry, edgeConfig{
			listen: c.Listen, adminToken: c.AdminToken.Reveal(), auth: c.Auth, browsers: c.Browsers, payments: c.Payments, limits: c.Limits, proxies: c.Proxies, timeouts: c.Timeouts,
		})
		if err != nil {
			return err
		}
		logger.Info("listening", "public", edge.address, "admin", o.address())
		return c.open(ctx, l, o, edge, logger)
	})
}

// open waits for the servers and opens the edge.
func (c *gatewayCommand) open(ctx context.Context, l *life, o *operators, e *edge, logger *slog.Logger) error {
	kafka := kafkaConfig(c.Kafka, c.KafkaGroup, "gateway", logger)
	p, err := openParts(ctx, partsConfig{
		role: "gateway", database: c.Database.URL.Reveal(), redis: c.Redis.URL.Reveal(), kafka: kafka, deadlines: c.Deadlines, outboxLimit: c.OutboxLimit,
	}, logger, o.registry, o.ready)
	if err != nil {
		return err
	}
	l.onStop("the connections", p.close)
	loader, err := keeper.NewLoader(keeperConfig(p, c.Deadlines, kafka.Group))
	if err != nil {
		return err
	}
	api, err := e.open(ctx, l, p, adminLoader{loader})
	if err != nil {
		return err
	}
	o.setAdmin(l, api)
	logger.Info("open for shoppers")
	return nil
}

// keeperConfig is what keepers and loaders of a process share.
func keeperConfig(p *parts, deadlines config.Deadlines, group string) keeper.Config {
	return keeper.Config{
		Stock: p.stock, Ledger: p.ledger, Publisher: p.producer, Offsets: p.admin, Group: group,
		RecordDeadline: deadlines.RecordDeadline, GiveUp: deadlines.GiveUp, Logger: p.logger, Registerer: p.registry,
	}
}

// Whether a role has the admin API.
const (
	withAPI    = true
	withoutAPI = false
)

// serve runs a role: the admin listener first, so that it can be seen what a start waits for, then what start starts, until ctx ends or
// something fails; then all of it is stopped.
func serve(ctx context.Context, logger *slog.Logger, shutdown config.Shutdown, listener config.Admin, api bool, start func(context.Context, *life, *operators) error) error {
	l := newLife(logger)
	o, err := listenForOperators(l, logger, listener, api)
	if err == nil {
		err = start(ctx, l, o)
	}
	if err == nil {
		o.started.Store(true)
		err = l.wait(ctx)
		logger.Info("stopping")
	} else if ctx.Err() != nil {
		err = nil // stopped while it was starting
	}
	if o != nil {
		o.ready.Drain()
	}
	if stopped := l.end(shutdown.ShutdownTimeout); err == nil {
		err = stopped
	}
	return err
}
