package main

import (
	"time"

	"flashgate/consumer"
	"flashgate/internal/broker"
	"flashgate/internal/config"
	"flashgate/internal/keeper"
)

// startWriter starts the order writer, and makes the keeper, which the caller starts. shutdown is how long the process may take to stop: the order
// writer gets half of it for the batch in hand. id is its name in the group, if it has one.
func startWriter(l *life, p *parts, kafka broker.Config, id string, deadlines config.Deadlines, retire config.Retire, reconcile config.Reconcile, shutdown time.Duration) (*keeper.Keeper, error) {
	writer, err := consumer.New(consumer.Config{
		Broker: kafka, InstanceID: id, Ledger: p.ledger, DeadLetters: p.producer, StopTimeout: shutdown / 2, Logger: p.logger, Registerer: p.registry,
	})
	if err != nil {
		return nil, err
	}
	cfg := keeperConfig(p, deadlines, kafka.Group)
	cfg.RetireAfter, cfg.ReconcileEvery = &retire.RetireAfter, reconcile.ReconcileEvery
	k, err := keeper.New(cfg)
	if err != nil {
		return nil, err
	}
	p.ready.Add("consumer", writer.Healthy)
	l.background("the order writer", writer.Run)
	return k, nil
}
