package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"flashgate/internal/pause"
	"flashgate/shard"
)

// Config is what a Checker needs. The zero value of a field stands for its default where one is named.
type Config struct {
	Stock   Stock   // Required
	Ledger  Ledger  // Required
	Offsets Offsets // Required

	// Group is the consumer group of the order writers. Default "order-writer".
	Group string
	// RecordDeadline is the time from sending a reserve call until a gateway gives its events up. It must be the same in every process. Default 2s.
	RecordDeadline time.Duration
	// Patience is over how long an item is read again and again before a difference is believed. Default 1.5s.
	Patience time.Duration
	// CallTimeout bounds one call; those about all marks and live orders of an item are such. Default 2s.
	CallTimeout time.Duration

	Logger *slog.Logger // Default: none
}

// WithDefaults returns c with defaults in the place of zero values.
func (c Config) WithDefaults() Config {
	for _, d := range []struct {
		at    *time.Duration
		value time.Duration
	}{{&c.RecordDeadline, 2 * time.Second}, {&c.Patience, 1500 * time.Millisecond}, {&c.CallTimeout, 2 * time.Second}} {
		if *d.at == 0 {
			*d.at = d.value
		}
	}
	if c.Group == "" {
		c.Group = "order-writer"
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate says what is missing or makes no sense.
func (c Config) Validate() error {
	if c.Stock == nil || c.Ledger == nil || c.Offsets == nil {
		return errors.New("stock, ledger or offsets are missing")
	}
	if min(c.RecordDeadline, c.Patience, c.CallTimeout) <= 0 {
		return errors.New("a time is not above 0")
	}
	return nil
}

// Checker compares. It is safe for concurrent use; each Check moves every mark of the item over the network several times, so callers bound how many
// run at once.
type Checker struct {
	cfg  Config
	room chan struct{} // one element while an item is read in full
}

// New makes a Checker. It connects to nothing by itself.
func New(cfg Config) (*Checker, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure the reconciliation: %w", err)
	}
	return &Checker{cfg: cfg, room: make(chan struct{}, 1)}, nil
}

const (
	// firstWait is the first wait between two readings; it doubles.
	firstWait = 50 * time.Millisecond
	// fewest is how many readings that agree it takes to believe a drift.
	fewest = 3
)

// Check reads an item until its numbers agree, or for as long as Config.Patience, and a little longer where reservations may be lost; false when there
// is no such item. What is unknown because Redis does not answer, or the item is being loaded, is nil in the report; an error says that
// the database did not answer. Items are read one at a time.
func (c *Checker) Check(ctx context.Context, item int64) (Report, bool, error) {
	select {
	case c.room <- struct{}{}:
		defer func() { <-c.room }()
	case <-ctx.Done():
		return Report{}, false, fmt.Errorf("reconcile item %d: %w", item, ctx.Err())
	}
	it, ok, err := c.cfg.Ledger.Item(ctx, item)
	if err != nil || !ok {
		return Report{}, false, err
	}
	var streak []*reading
	patience := c.cfg.Patience
	for wait := firstWait; ; wait *= 2 {
		r, ok, err := c.read(ctx, &it)
		if err != nil || !ok {
			return Report{}, false, err
		}
		it = r.item
		if !r.settled || len(streak) > 0 && streak[0].item.Epoch != r.item.Epoch {
			streak = nil
		}
		streak = append(streak, r)
		wait = min(wait, patience)
		if r.clean() || agreed(streak) || !it.RetiredAt.IsZero() || !r.known || patience <= 0 || !pause.For(ctx, wait) {
			return c.conclude(ctx, streak)
		}
		patience -= wait
	}
}

// agreed reports whether readings leave nothing to be asked: what one of them shows is gone in another.
func agreed(streak []*reading) bool {
	if len(streak) < 2 {
		return false
	}
	sums := false
	for _, r := range streak {
		sums = sums || r.drift(nil) == 0
	}
	return sums && streak[0].settled && len(lastingConcerns(streak)) == 0 && len(lastingSuspects(streak)) == 0
}

func (c *Checker) conclude(ctx context.Context, streak []*reading) (Report, bool, error) {
	last := streak[len(streak)-1]
	if !last.settled {
		return unsettled(last), true, nil
	}
	if len(streak) == 1 && !last.clean() {
		// Loaded a moment ago, or out of time. One reading proves nothing.
		report := unsettled(last)
		report.Unknown = whyTooFew
		return report, true, nil
	}
	lasting := lastingConcerns(streak)
	report := summarise(streak, lasting)
	if suspects := lastingSuspects(streak); len(suspects) > 0 {
		lost, decided, err := c.lost(ctx, &last.item, suspects)
		if err != nil {
			return Report{}, false, err
		}
		report.Undecided = !decided
		report.add(lost)
	}
	return report, true, nil
}

// Quick compares sums alone, a few times, and reports whether they agree: then there is no drift, and as many marks as there must be. Marks that
// name the wrong orders, in the right number and for as many units, are not found out by it. It costs next to nothing.
func (c *Checker) Quick(ctx context.Context, item int64) (bool, error) {
	for wait := firstWait; ; wait *= 2 {
		it, ok, err := c.cfg.Ledger.Item(ctx, item)
		if err != nil || !ok {
			return false, err
		}
		ok, err = c.quick(ctx, item, it.Shards)
		if err != nil || ok || wait > 4*firstWait || !pause.For(ctx, wait) {
			return ok, err
		}
	}
}

func (c *Checker) quick(ctx context.Context, item int64, shards int) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	readings, err := c.cfg.Stock.Read(ctx, shard.Layout{Item: item, Shards: shards})
	if err != nil {
		return false, err
	}
	totals, ok, err := c.cfg.Ledger.Totals(ctx, item)
	if err != nil || !ok {
		return false, err
	}
	sum, marks := totals.Item.Sold, totals.Live
	for _, r := range readings {
		if !r.Of(totals.Item.Epoch) || r.Stock == nil {
			return false, nil
		}
		sum += *r.Stock + r.Pending + r.Moving
		marks += r.Waiting - r.Buyers
	}
	return totals.Owing == 0 && sum == totals.Item.Quantity && marks == 0, nil
}
