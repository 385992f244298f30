package main

import (
	"context"

	"flashgate/internal/config"
)

// consumerCommand is the role behind the broker: order writer and keeper. Any number of processes may run side by side.
type consumerCommand struct {
	config.Admin
	config.Deadlines
	config.Shutdown
	config.Redis
	config.Kafka
	config.KafkaGroup
	config.KafkaMember
	config.Database
	config.Retire
	config.Reconcile
}

// Run implements the command.
func (c *consumerCommand) Run(ctx context.Context, std *console) error {
	if err := needServers(c.Redis, c.Kafka); err != nil {
		return err
	}
	logger := newLogger(std)
	return serve(ctx, logger, c.Shutdown, c.Admin, withoutAPI, func(ctx context.Context, l *life, o *operators) error {
		kafka := kafkaConfig(c.Kafka, c.KafkaGroup, "consumer", logger)
		p, err := openParts(ctx, partsConfig{
			role: "consumer", database: c.Database.URL.Reveal(), redis: c.Redis.URL.Reveal(), kafka: kafka, deadlines: c.Deadlines,
		}, logger, o.registry, o.ready)
		if err != nil {
			return err
		}
		l.onStop("the connections", p.close)
		k, err := startWriter(l, p, kafka, c.ConsumerID, c.Deadlines, c.Retire, c.Reconcile, c.ShutdownTimeout)
		if err != nil {
			return err
		}
		l.background("the keeper", k.Run)
		logger.Info("listening", "admin", o.address())
		return nil
	})
}
