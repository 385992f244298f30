package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"text/tabwriter"
	"time"

	"flashgate/internal/config"
	"flashgate/internal/preflight"
)

// preflightCommand says go or no-go before a sale. It is run with the settings of a gateway.
type preflightCommand struct {
	Timeout time.Duration `name:"timeout" default:"5s" min:"100ms" max:"5m" type:"duration" help:"Bound of each check"`
	Output  string        `name:"output" short:"o" default:"table" enum:"table,json" help:"table or json"`
	config.Auth
	config.Payments
	config.Redis
	config.Kafka
	config.KafkaGroup
	config.KafkaTopics
	config.Database
}

// Run implements the command.
func (c *preflightCommand) Run(ctx context.Context, std *console) error {
	if err := needServers(c.Redis, c.Kafka); err != nil {
		return err
	}
	silent := slog.New(slog.DiscardHandler)
	kafka := kafkaConfig(c.Kafka, c.KafkaGroup, "preflight", silent)
	kafka.Partitions, kafka.Replication = c.Partitions, c.Replication
	report := preflight.Run(ctx, preflight.Config{
		Database: c.Database.URL.Reveal(), Redis: c.Redis.URL.Reveal(), Kafka: kafka, PaymentKey: len(c.PaymentSecret.Reveal()), Timeout: c.Timeout,
		BlameKafka: blameKafka,
		Keys:       func(ctx context.Context) (string, error) { return checkKeys(ctx, c.Auth) },
	})
	if err := c.show(std, report); err != nil {
		return err
	}
	if report.Verdict == preflight.NoGo {
		return errors.New("no-go: do not open the sale like this")
	}
	return nil
}

func (c *preflightCommand) show(std *console, report *preflight.Report) error {
	if c.Output == "json" {
		return json.NewEncoder(std.out).Encode(report)
	}
	w := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	for _, f := range report.Findings {
		row(w, f.Verdict, f.Check, shown(oneLine(f.Detail)))
	}
	row(w)
	row(w, report.Verdict)
	return w.Flush()
}
