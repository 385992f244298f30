package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"flashgate/internal/broker"
	"flashgate/internal/ledger"
	"flashgate/internal/pause"
	"flashgate/internal/sale"
)

// Ledger is where reservations become orders. The consumer calls it from one goroutine at a time, except Ping, and bounds every call.
type Ledger interface {
	// Write stores events in one transaction and says what it did with each. It may be repeated after any error. ledger.Kind tells what an error
	// means; a *ledger.PermanentError may name the events at fault.
	Write(ctx context.Context, events []sale.Event) ([]ledger.Written, error)
	// GiveUp ends reservations that will not become orders and has their units returned. It may be repeated after any error.
	GiveUp(ctx context.Context, events []sale.Event) error
	// Ping reports whether the database answers.
	Ping(ctx context.Context) error
}

// DeadLetters is where records go that cannot be stored.
type DeadLetters interface {
	// ProduceDead returns when the letter is safe. After an error it may be there all the same.
	ProduceDead(ctx context.Context, original *kgo.Record, reason string, cause error) error
}

var (
	_ Ledger      = (*ledger.DB)(nil)
	_ DeadLetters = (*broker.Producer)(nil)
)

// Config of a Consumer.
type Config struct {
	Broker      broker.Config // with the group
	Ledger      Ledger
	DeadLetters DeadLetters

	// InstanceID makes this a static member of the group (KIP-345): a process that was killed and comes back under the same id within SessionTimeout
	// gets its partitions back at once, and the others notice nothing; without one it is a new member, and the old one keeps its partitions until
	// its session ends. Each process that runs at the same time needs its own: of two with the same, the one that came last writes. Empty: none.
	InstanceID string
	// BatchSize is the most records of one transaction. Default 1,000: larger ones gain little, and hold the row of an item for longer.
	BatchSize int
	// SessionTimeout is how long the group waits for a sign of life before it gives a member's partitions to others. Default 6 s, the least that
	// brokers allow: a killed process is replaced within 10 s.
	SessionTimeout time.Duration
	// WriteTimeout bounds one call of the ledger. Default 10 s.
	WriteTimeout time.Duration
	// LetterTimeout bounds the writing of one dead letter. Default 2 s.
	LetterTimeout time.Duration
	// RetryMin and RetryMax bound the growing, jittered waits while the database, or the dead-letter topic, is away. Default 50 ms and 5 s.
	RetryMin, RetryMax time.Duration
	// StopTimeout is how long Run goes on with the batch in hand when its context has ended. Default 10 s.
	StopTimeout time.Duration

	Logger     *slog.Logger          // default: none
	Registerer prometheus.Registerer // default: none
	Now        func() time.Time      // default time.Now; decides readiness alone
}

// WithDefaults returns c with the defaults filled in.
func (c Config) WithDefaults() Config {
	c.Broker = c.Broker.WithDefaults()
	setDefault(&c.BatchSize, 1_000)
	setDefault(&c.SessionTimeout, 6*time.Second)
	setDefault(&c.WriteTimeout, 10*time.Second)
	setDefault(&c.LetterTimeout, 2*time.Second)
	setDefault(&c.RetryMin, 50*time.Millisecond)
	setDefault(&c.RetryMax, 5*time.Second)
	setDefault(&c.StopTimeout, 10*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

func setDefault[T int | time.Duration](value *T, standard T) {
	if *value == 0 {
		*value = standard
	}
}

// Validate reports the first setting, after WithDefaults, that cannot work.
func (c Config) Validate() error {
	switch {
	case c.Ledger == nil:
		return errors.New("ledger: is missing")
	case c.DeadLetters == nil:
		return errors.New("dead letters: are missing")
	case c.BatchSize < 1:
		return fmt.Errorf("batch size: %d is less than 1", c.BatchSize)
	case c.SessionTimeout < time.Second:
		return fmt.Errorf("session timeout: %v is less than a second", c.SessionTimeout)
	case c.WriteTimeout < 0 || c.LetterTimeout < 0 || c.StopTimeout < 0:
		return errors.New("timeouts: must not be negative")
	case c.RetryMin < 0 || c.RetryMax < c.RetryMin:
		return fmt.Errorf("retry waits: %v to %v is no range", c.RetryMin, c.RetryMax)
	}
	if c.InstanceID != "" {
		if err := broker.CheckInstanceID(c.InstanceID); err != nil {
			return fmt.Errorf("instance id: %q %w", c.InstanceID, err)
		}
	}
	return c.Broker.Validate()
}

// Consumer is an order writer. Run does the work; the other methods may be called at any time, from any goroutine.
type Consumer struct {
	cfg     Config
	metrics *metrics
	health  health
}

// New makes a Consumer. It connects to nothing before Run.
func New(cfg Config) (*Consumer, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure the order writer: %w", err)
	}
	return &Consumer{cfg: cfg, metrics: newMetrics(cfg.Registerer)}, nil
}

// Run reads and stores until ctx ends. Then it finishes the batch in hand, within Config.StopTimeout, commits, and leaves the group, so that others
// take over at once. It returns nil then: what was not finished is read again by whoever comes next. An error means that it could not begin.
// Run may be called once.
func (c *Consumer) Run(ctx context.Context) error {
	work, done := outlive(ctx, c.cfg.StopTimeout)
	defer done()
	defer c.metrics.unregister()
	for attempt := 0; ; attempt++ {
		s, err := c.join()
		if err != nil {
			return err
		}
		s.run(ctx, work)
		s.leave(work)
		// A session ends by itself only if its client has become useless, because the topic was deleted and made anew.
		if !pause.For(ctx, c.waits().After(min(attempt+1, 4))) {
			return nil
		}
	}
}

// waits are those of the attempts at something that is away.
func (c *Consumer) waits() pause.Steps {
	return pause.Steps{First: c.cfg.RetryMin, Longest: c.cfg.RetryMax}
}

// outlive returns a context that ends some time after ctx does. The function releases it.
func outlive(ctx context.Context, by time.Duration) (context.Context, func()) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		late := time.NewTimer(by)
		defer late.Stop()
		select {
		case <-late.C:
			cancel()
		case <-work.Done():
		}
	})
	return work, func() { stop(); cancel() }
}
