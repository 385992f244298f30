package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"flashgate/internal/pause"
)

// The SASL mechanisms.
const (
	SASLPlain       = "plain"
	SASLScramSHA256 = "scram-sha-256"
	SASLScramSHA512 = "scram-sha-512"
)

// Config says how to reach the brokers and how the topics are laid out.
type Config struct {
	// Brokers are the addresses, host:port, from which the cluster is found. At least one.
	Brokers []string
	// ClientID is the name under which brokers log requests. Default "flashgate".
	ClientID string

	// TLS encrypts the connections. TLSConfig, when set, is used for them instead of the system's defaults and implies TLS.
	TLS       bool
	TLSConfig *tls.Config

	// SASLMechanism is "" for none, or one of SASLPlain, SASLScramSHA256 and SASLScramSHA512, which need SASLUser and SASLPassword.
	SASLMechanism string
	SASLUser      string
	SASLPassword  string

	// Group is the consumer group of the order writers. Default "order-writer".
	Group string
	// Partitions is the number of partitions of a topic that EnsureTopics creates, and the fewest that satisfy it. Default 12.
	Partitions int
	// Replication is the number of replicas of such a topic. Default 1.
	Replication int

	// DialTimeout bounds the opening of one connection. Default 2 s: a broker that is away must not use up the deadline of a record.
	DialTimeout time.Duration
	// RequestTimeout bounds one request, beyond the time the request itself grants the broker. Default 5 s.
	RequestTimeout time.Duration
	// Logger receives what the client does. Default: nothing is logged.
	Logger *slog.Logger
}

// WithDefaults returns c with the defaults filled in.
func (c Config) WithDefaults() Config {
	if c.ClientID == "" {
		c.ClientID = "flashgate"
	}
	if c.Group == "" {
		c.Group = "order-writer"
	}
	if c.Partitions == 0 {
		c.Partitions = 12
	}
	if c.Replication == 0 {
		c.Replication = 1
	}
	if c.DialTimeout == 0 {
		c.DialTimeout = 2 * time.Second
	}
	if c.RequestTimeout == 0 {
		c.RequestTimeout = 5 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// The most partitions and replicas that make sense for one topic; no cluster takes more.
const maxPartitions, maxReplication = 100_000, 100

// Validate reports the first setting, after WithDefaults, that cannot work.
func (c Config) Validate() error {
	if len(c.Brokers) == 0 {
		return errors.New("brokers: at least one address is needed")
	}
	for _, address := range c.Brokers {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return fmt.Errorf("brokers: %q is not host:port: %w", address, err)
		}
	}
	switch c.SASLMechanism {
	case "":
		if c.SASLUser != "" || c.SASLPassword != "" {
			return errors.New("SASL: a user or password without a mechanism")
		}
	case SASLPlain, SASLScramSHA256, SASLScramSHA512:
		if c.SASLUser == "" || c.SASLPassword == "" {
			return fmt.Errorf("SASL: mechanism %s needs a user and a password", c.SASLMechanism)
		}
	default:
		return fmt.Errorf("SASL: mechanism %q is none of %s", c.SASLMechanism, strings.Join([]string{SASLPlain, SASLScramSHA256, SASLScramSHA512}, ", "))
	}
	switch {
	case c.Partitions < 1 || c.Partitions > maxPartitions:
		return fmt.Errorf("partitions: %d is not between 1 and %d", c.Partitions, maxPartitions)
	case c.Replication < 1 || c.Replication > maxReplication:
		return fmt.Errorf("replication: %d is not between 1 and %d", c.Replication, maxReplication)
	case c.DialTimeout < 0:
		return errors.New("dial timeout: must not be negative")
	case c.RequestTimeout < 0:
		return errors.New("request timeout: must not be negative")
	}
	return nil
}

// metadataMinAge is the shortest time between two questions about who leads a partition. franz-go's 5 s is longer than the deadline of a record:
// after a change of leaders every record of those seconds would be given up.
const metadataMinAge = 100 * time.Millisecond

// metadataMaxAge is how long the client believes a refusal that was part of an answer about topics, such as a missing permission.
const metadataMaxAge = 10 * time.Second

// ClientOpts returns the franz-go options with which every client of flashgate connects. Options for producing or consuming are added to them.
func ClientOpts(cfg Config) ([]kgo.Opt, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure the Kafka client: %w", err)
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(cfg.Brokers...),
		kgo.ClientID(cfg.ClientID),
		kgo.DialTimeout(cfg.DialTimeout),
		kgo.RequestTimeoutOverhead(cfg.RequestTimeout),
		kgo.RetryTimeout(3 * cfg.RequestTimeout),
		kgo.RetryBackoffFn(retries.After),
		kgo.MetadataMinAge(metadataMinAge),
		kgo.MetadataMaxAge(metadataMaxAge),
		kgo.MaxDecompressBatchBytes(64 << 20),
		kgo.WithLogger(newClientLogger(cfg.Logger)),
	}
	switch {
	case cfg.TLSConfig != nil:
		opts = append(opts, kgo.DialTLSConfig(cfg.TLSConfig.Clone()))
	case cfg.TLS:
		opts = append(opts, kgo.DialTLSConfig(&tls.Config{MinVersion: tls.VersionTLS12}))
	}
	switch cfg.SASLMechanism {
	case SASLPlain:
		opts = append(opts, kgo.SASL(plain.Auth{User: cfg.SASLUser, Pass: cfg.SASLPassword}.AsMechanism()))
	case SASLScramSHA256:
		opts = append(opts, kgo.SASL(scram.Auth{User: cfg.SASLUser, Pass: cfg.SASLPassword}.AsSha256Mechanism()))
	case SASLScramSHA512:
		opts = append(opts, kgo.SASL(scram.Auth{User: cfg.SASLUser, Pass: cfg.SASLPassword}.AsSha512Mechanism()))
	}
	return opts, nil
}

// retries are the waits before the client repeats something. franz-go's own, up to 5 s, would outlive a record.
var retries = pause.Steps{First: 20 * time.Millisecond, Longest: 640 * time.Millisecond}

// clientLogger passes what franz-go has to say on to slog. Its errors are warnings here: the client repeats on its own, and whoever asked for
// something that finally failed logs that once. While a broker is away the client has several lines for every attempt to reach it, so the same line
// is passed on once in logAgain.
type clientLogger struct {
	log  *slog.Logger
	last *sync.Map // message → time of the last line, a time.Time; franz-go has some dozens of messages
}

const logAgain = 10 * time.Second

func newClientLogger(log *slog.Logger) clientLogger { return clientLogger{log, new(sync.Map)} }

func (l clientLogger) Level() kgo.LogLevel {
	ctx := context.Background()
	switch {
	case l.log.Enabled(ctx, slog.LevelDebug):
		return kgo.LogLevelInfo // franz-go's own debug level writes several lines per request
	case l.log.Enabled(ctx, slog.LevelWarn):
		return kgo.LogLevelWarn
	}
	return kgo.LogLevelNone
}

func (l clientLogger) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	slogLevel := slog.LevelDebug
	if level == kgo.LogLevelError || level == kgo.LogLevelWarn {
		slogLevel = slog.LevelWarn
		now := time.Now()
		if last, ok := l.last.Load(msg); ok && now.Sub(last.(time.Time)) < logAgain {
			return
		}
		l.last.Store(msg, now)
	}
	l.log.Log(context.Background(), slogLevel, "kafka client: "+msg, keyvals...)
}
