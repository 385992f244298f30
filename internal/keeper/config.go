package keeper

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config is what a Keeper needs. The zero value of a field stands for its default where one is named.
type Config struct {
	Stock     Stock     // the shards in Redis. Required
	Ledger    Ledger    // the database. Required
	Publisher Publisher // writes events to Kafka. Required
	Offsets   Offsets   // how far the order writers have come. Required

	// Group is the consumer group of the order writers; a load waits for what it has committed. Default "order-writer".
	Group string
	// Holder names this process in leases; no other may have the name. Default: a random one.
	Holder string

	// RecordDeadline is the time from sending a reserve call until a gateway gives its events up, and what a publication of the sweep
	// gets. It must be the same in every process. Default 2s.
	RecordDeadline time.Duration
	// Margin is added to RecordDeadline where a load waits for the last publications of gateways. Default 250ms.
	Margin time.Duration
	// GiveUp is the age from which on an outbox entry is cancelled instead of published. More than RecordDeadline. Default 5m.
	GiveUp time.Duration
	// RetireAfter is how long after the end of a sale its items are retired, at the earliest; 0: at once. Default, for nil: 24h.
	RetireAfter *time.Duration

	// How often each loop looks by itself. What can be told is told: new items and corrections do not wait for these.
	CatalogueEvery time.Duration // read the items again. Default 1s
	SweepEvery     time.Duration // look through the outboxes. Default 500ms
	WatchEvery     time.Duration // is a load due? Default 500ms
	TransfersEvery time.Duration // finish transfers. Default 1s
	RelayEvery     time.Duration // look for corrections. Default 200ms
	ExpireEvery    time.Duration // look for orders that nobody paid for. Default 5s
	EventsEvery    time.Duration // look for order events that nobody was told of. Default 200ms
	RetireEvery    time.Duration // look for items to retire. Default 10s
	ReconcileEvery time.Duration // compare Redis with the database. 0: never
	IdleEvery      time.Duration // sweep and watch items that nothing can happen to now. Default 5s

	// TransferAge is the age from which on a transfer is taken for one that its gateway left behind. Default 1s.
	TransferAge time.Duration
	// CallTimeout bounds one call to Redis or about offsets; calls of the database get three times as long. Default 1s.
	CallTimeout time.Duration
	// LeaseTTL is when another keeper takes over from one that has stopped. Default 2s.
	LeaseTTL time.Duration
	// Patience is how long a load goes on while everything that it asks fails. Then it is left to another keeper, which may not be cut off from Kafka
	// or Redis as this one seems to be. Default 5s.
	Patience time.Duration
	// KeepUp is how long the order writers may take for what is in Kafka if a load that can wait is to begin. Default 1s.
	KeepUp time.Duration

	// InFlight is how many events the sweep may have on their way to the broker at once, in one process. Default 4096.
	InFlight int
	// ItemsAtOnce is how many items a loop works on at once, ShardsAtOnce how many shards of each. Default 8 each.
	ItemsAtOnce  int
	ShardsAtOnce int
	// LoadsAtOnce is how many items are loaded at once; most of a load is waiting. Default 128.
	LoadsAtOnce int
	// RelayWorkers carry out corrections. Default 4.
	RelayWorkers int

	Logger     *slog.Logger          // Default: none
	Registerer prometheus.Registerer // takes the metrics. Default: none
	Now        func() time.Time      // the clock of deadlines and of what is open. Default time.Now
}

// WithDefaults returns c with defaults in the place of zero values.
func (c Config) WithDefaults() Config {
	for _, d := range []struct {
		at    *time.Duration
		value time.Duration
	}{
		{&c.RecordDeadline, 2 * time.Second},
		{&c.Margin, 250 * time.Millisecond},
		{&c.GiveUp, 5 * time.Minute},
		{&c.CatalogueEvery, time.Second},
		{&c.SweepEvery, 500 * time.Millisecond},
		{&c.WatchEvery, 500 * time.Millisecond},
		{&c.TransfersEvery, time.Second},
		{&c.RelayEvery, 200 * time.Millisecond},
		{&c.ExpireEvery, 5 * time.Second},
		{&c.EventsEvery, 200 * time.Millisecond},
		{&c.RetireEvery, 10 * time.Second},
		{&c.IdleEvery, 5 * time.Second},
		{&c.TransferAge, time.Second},
		{&c.CallTimeout, time.Second},
		{&c.LeaseTTL, 2 * time.Second},
		{&c.Patience, 5 * time.Second},
		{&c.KeepUp, time.Second},
	} {
		if *d.at == 0 {
			*d.at = d.value
		}
	}
	for _, d := range []struct {
		at    *int
		value int
	}{{&c.InFlight, 4096}, {&c.ItemsAtOnce, 8}, {&c.ShardsAtOnce, 8}, {&c.LoadsAtOnce, 128}, {&c.RelayWorkers, 4}} {
		if *d.at == 0 {
			*d.at = d.value
		}
	}
	if c.RetireAfter == nil {
		c.RetireAfter = new(24 * time.Hour)
	}
	if c.Group == "" {
		c.Group = "order-writer"
	}
	if c.Holder == "" {
		c.Holder = randomHolder()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Validate reports the first value, after WithDefaults, that cannot be meant.
func (c Config) Validate() error {
	switch {
	case c.Stock == nil:
		return errors.New("no stock")
	case c.Ledger == nil:
		return errors.New("no ledger")
	case c.Publisher == nil:
		return errors.New("no publisher")
	case c.Offsets == nil:
		return errors.New("no offsets")
	case c.GiveUp <= c.RecordDeadline:
		// Else an entry would be cancelled while its gateway is still publishing it.
		return fmt.Errorf("give-up %v is not above the record deadline of %v", c.GiveUp, c.RecordDeadline)
	case *c.RetireAfter < 0:
		return fmt.Errorf("retire after %v: is below 0", *c.RetireAfter)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"record deadline", c.RecordDeadline}, {"margin", c.Margin}, {"catalogue interval", c.CatalogueEvery}, {"sweep interval", c.SweepEvery},
		{"watch interval", c.WatchEvery}, {"transfers interval", c.TransfersEvery}, {"relay interval", c.RelayEvery},
		{"expire interval", c.ExpireEvery}, {"events interval", c.EventsEvery}, {"retire interval", c.RetireEvery}, {"idle interval", c.IdleEvery}, {"transfer age", c.TransferAge}, {"call timeout", c.CallTimeout},
		{"lease TTL", c.LeaseTTL}, {"patience", c.Patience}, {"time to keep up", c.KeepUp},
	} {
		if d.value <= 0 {
			return fmt.Errorf("%s %v is not above 0", d.name, d.value)
		}
	}
	if c.ReconcileEvery < 0 {
		return fmt.Errorf("reconcile interval %v is below 0", c.ReconcileEvery)
	}
	for _, n := range []struct {
		name  string
		value int
	}{
		{"events in flight", c.InFlight}, {"items at once", c.ItemsAtOnce}, {"shards at once", c.ShardsAtOnce},
		{"loads at once", c.LoadsAtOnce}, {"relay workers", c.RelayWorkers},
	} {
		if n.value < 1 {
			return fmt.Errorf("%s: %d is not above 0", n.name, n.value)
		}
	}
	return nil
}

// databaseTimeout bounds one call of the database, which may wait for the row of an item.
func (c *Config) databaseTimeout() time.Duration { return 3 * c.CallTimeout }
