package consumer_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"flashgate/consumer"
	"flashgate/internal/broker"
	"flashgate/internal/devstack/devtest"
	"flashgate/internal/ledger"
	"flashgate/internal/sale"
)

// The environment of a test binary that is to be an order writer.
const (
	childBrokers = "CONSUMER_TEST_BROKERS"
	childGroup   = "CONSUMER_TEST_GROUP"
	childLedger  = "CONSUMER_TEST_LEDGER"
	// With an id it is a static member, and works until it is killed.
	childInstance = "CONSUMER_TEST_INSTANCE"
	childSession  = "CONSUMER_TEST_SESSION"
)

func TestMain(m *testing.M) {
	if os.Getenv(childBrokers) != "" {
		fmt.Fprintln(os.Stderr, "child:", child(context.Background()))
		os.Exit(1)
	}
	devtest.Main(m)
}

// child is an order writer that is killed the moment the database has committed its first batch, before the offsets are committed; with an id, one
// that only others kill.
func child(ctx context.Context) error {
	cfg := broker.Config{Brokers: strings.Split(os.Getenv(childBrokers), ","), Group: os.Getenv(childGroup)}
	db, err := ledger.Open(ctx, ledger.Config{URL: os.Getenv(childLedger)})
	if err != nil {
		return err
	}
	producer, err := broker.NewProducer(broker.ProducerConfig{Config: cfg})
	if err != nil {
		return err
	}
	settings := consumer.Config{Broker: cfg, Ledger: suicidal{db}, DeadLetters: producer, SessionTimeout: shortSession}
	if id := os.Getenv(childInstance); id != "" {
		settings.InstanceID, settings.Ledger = id, db
		if settings.SessionTimeout, err = time.ParseDuration(os.Getenv(childSession)); err != nil {
			return err
		}
	}
	c, err := consumer.New(settings)
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

type suicidal struct{ consumer.Ledger }

func (s suicidal) Write(ctx context.Context, events []sale.Event) ([]ledger.Written, error) {
	if _, err := s.Ledger.Write(ctx, events); err != nil {
		return nil, err
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
		panic(err)
	}
	select {}
}
