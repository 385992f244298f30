package main

import (
	"context"
	"fmt"
	"log/slog"

	"flashgate/internal/broker"
	"flashgate/internal/config"
	"flashgate/internal/ledger"
)

// migrateCommand prepares the servers for this version. It may run any number of times, in any number of processes at once.
type migrateCommand struct {
	config.Database
	config.Kafka
	config.KafkaTopics
}

// Run implements the command.
func (c *migrateCommand) Run(ctx context.Context, std *console) error {
	if err := ledger.Migrate(ctx, c.URL.Reveal()); err != nil {
		return blameConnection(err)
	}
	version, err := schemaVersion(ctx, c.URL.Reveal())
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(std.out, "database: schema version %d\n", version)
	if c.Off() {
		_, _ = fmt.Fprintln(std.out, "kafka: off")
		return nil
	}
	kafka := kafkaConfig(c.Kafka, config.KafkaGroup{}, "migrate", slog.New(slog.DiscardHandler))
	kafka.Partitions, kafka.Replication = c.Partitions, c.Replication
	topics, err := broker.EnsureTopics(ctx, kafka)
	if err != nil {
		return blameKafka(err)
	}
	for _, topic := range topics {
		state := "exists"
		if topic.Created {
			state = "created"
		}
		_, _ = fmt.Fprintf(std.out, "topic %s: %s, %d partitions\n", topic.Name, state, topic.Partitions)
		if topic.TooFew {
			_, _ = fmt.Fprintf(std.err, "flashgate: topic %s has fewer than %d partitions; it works, and is left as it is\n", topic.Name, c.Partitions)
		}
	}
	return nil
}

func schemaVersion(ctx context.Context, database string) (int64, error) {
	db, err := ledger.Open(ctx, ledger.Config{URL: database, ApplicationName: "flashgate-migrate"})
	if err != nil {
		return 0, err
	}
	defer db.Close()
	return db.Schema(ctx)
}
