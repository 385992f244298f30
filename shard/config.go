package shard

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
)

// maxBatch is the most users that the reserve script takes in one call. At 256 a batch costs half a millisecond of Redis'
// time, which the scripts of other shards wait for; above, the price of one reservation hardly falls any more.
const maxBatch = 256

// Config is what a Stock needs. The zero value of a field stands for its default where one is named.
type Config struct {
	// Client is a connection to Redis that repeats nothing by itself, as Connect makes it. The Stock does not close it.
	Client rueidis.Client
	// Publisher takes the events of reservations. Without one Reserve refuses, and everything else works.
	Publisher Publisher
	// Logger. Default: none.
	Logger *slog.Logger
	// Registerer takes the metrics. Default: none.
	Registerer prometheus.Registerer
	// RecordDeadline is the time from sending a reserve call until this process may neither hand its events to the publisher
	// nor tell anybody that they are with the broker. Default 2s.
	RecordDeadline time.Duration
	// OutboxLimit is how many reservations of one item may wait for the broker. Default 200,000.
	OutboxLimit int64
	// BatchSize is the most requests in one call, 1 to 256. Default 256.
	BatchSize int
	// QueueLimit is how many requests may wait for one shard of one item in this process. Default 8,192.
	QueueLimit int
	// CallTimeout bounds one round trip to Redis. Default 1s, at most RecordDeadline.
	CallTimeout time.Duration
	// Now is the clock of deadlines and proofs. Default time.Now.
	Now func() time.Time
}

// WithDefaults returns c with defaults in the place of zero values.
func (c Config) WithDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.RecordDeadline == 0 {
		c.RecordDeadline = 2 * time.Second
	}
	if c.OutboxLimit == 0 {
		c.OutboxLimit = 200_000
	}
	if c.BatchSize == 0 {
		c.BatchSize = maxBatch
	}
	if c.QueueLimit == 0 {
		c.QueueLimit = 8192
	}
	if c.CallTimeout == 0 {
		c.CallTimeout = min(time.Second, c.RecordDeadline)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Validate reports the first value that cannot be meant.
func (c Config) Validate() error {
	switch {
	case c.Client == nil:
		return errors.New("shard: no Redis client")
	case c.RecordDeadline <= 0:
		return fmt.Errorf("shard: record deadline %v is not above 0", c.RecordDeadline)
	case c.OutboxLimit < 1:
		return fmt.Errorf("shard: outbox limit %d is not above 0", c.OutboxLimit)
	case c.BatchSize < 1 || c.BatchSize > maxBatch:
		return fmt.Errorf("shard: batch size %d is not between 1 and %d", c.BatchSize, maxBatch)
	case c.QueueLimit < 1:
		return fmt.Errorf("shard: queue limit %d is not above 0", c.QueueLimit)
	case c.CallTimeout <= 0 || c.CallTimeout > c.RecordDeadline:
		return fmt.Errorf("shard: call timeout %v is not above 0 and at most the record deadline of %v", c.CallTimeout, c.RecordDeadline)
	}
	return nil
}
