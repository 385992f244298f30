package limiter

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
	"time"
)

// Defaults and bounds of a Config.
const (
	DefaultMaxKeys = 1_000_000
	maxMaxKeys     = 100_000_000
	maxShards      = 4096

	// A call holds its lock for well under a microsecond, so that 64 of them are
	// plenty for the cores of a gateway. Below 1024 keys a shard, the uneven spread
	// of keys over shards (about 3 % there) would waste a noticeable part of MaxKeys.
	defaultShards = 64
	minShardKeys  = 1024
)

// Config says what a Table allows and how much it may remember.
type Config struct {
	// Rate of each key. Required; Off() for no limit.
	Rate Rate
	// MaxKeys bounds the number of buckets, and so the memory: 144 bytes for each,
	// measured with Key, taken as keys arrive and kept for the next ones.
	// Default 1,000,000. Keys spread unevenly over the shards, so that a shard can
	// be full some per cent before the table is.
	MaxKeys int
	// Shards is the number of locks. Default 64, fewer for a small MaxKeys.
	Shards int
	// Now is the clock. Default time.Now. A step backwards counts as no time.
	Now func() time.Time
}

// WithDefaults fills in what is zero, except Rate.
func (c Config) WithDefaults() Config {
	if c.MaxKeys == 0 {
		c.MaxKeys = DefaultMaxKeys
	}
	if c.Shards == 0 {
		c.Shards = max(1, min(defaultShards, c.MaxKeys/minShardKeys))
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Validate says what is wrong with the configuration, defaults filled in.
func (c Config) Validate() error {
	if err := c.Rate.Validate(); err != nil {
		return err
	}
	switch {
	case c.MaxKeys < 1 || c.MaxKeys > maxMaxKeys:
		return fmt.Errorf("MaxKeys must be from 1 to %d, not %d", maxMaxKeys, c.MaxKeys)
	case c.Shards < 1 || c.Shards > min(maxShards, c.MaxKeys):
		return fmt.Errorf("the number of shards must be from 1 to %d and at most MaxKeys, not %d", maxShards, c.Shards)
	case c.Now == nil:
		return errors.New("there is no clock")
	}
	return nil
}

// Table is a token bucket per key, for at most MaxKeys keys. Safe for concurrent
// use; a call holds one of many locks, for a bounded number of steps.
//
// # What it forgets, and what that gives away
//
// A bucket that is full again is the same as none, so forgetting it costs nothing:
// those go first, and the table holds little more than the keys which were charged
// within the last refill time (two seconds at 5/s:10). Only when it has MaxKeys
// buckets and none of them is full does a new key take the place of one that still
// misses tokens, and then of the one that is nearest to full (to within 1/32 of the
// burst; among equals the one charged longest ago). The new key is never refused
// for lack of room: a crowd of newcomers must be able to buy, and the tokens given
// away by forgetting are the smaller harm. The table errs on the side of the client
// alone: it never refuses what a table without bounds would allow.
//
// So nobody can have a drained bucket forgotten by passing many fresh keys by: each
// of those misses one token and is forgotten before the bucket which misses ten,
// however many come and however long it is refused. To be rid of a bucket that
// misses m tokens, every other bucket of its shard has to miss about as many at the
// same moment, and go on missing them as they refill. Nobody outside knows which
// keys share a shard (the hash is seeded at random), so that means about MaxKeys × m
// allowed events at once and MaxKeys × the average rate from then on: millions of
// events per second with the default, each from a user or a network of its own.
// [Stats].Forgotten counts how often it happened; above zero, raise MaxKeys.
type Table[K comparable] struct {
	off    bool
	seed   maphash.Seed
	now    func() time.Time
	start  time.Time
	shards []*shard[K]
}

// New makes a table. Keys must be equal to themselves (no NaN).
func New[K comparable](cfg Config) (*Table[K], error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("make limiter: %w", err)
	}
	t := &Table[K]{off: cfg.Rate.off, seed: maphash.MakeSeed(), now: cfg.Now}
	if t.off {
		return t, nil
	}
	t.start = t.now()
	terms := termsOf(cfg.Rate)
	t.shards = make([]*shard[K], cfg.Shards)
	for i := range t.shards {
		room := cfg.MaxKeys / cfg.Shards
		if i < cfg.MaxKeys%cfg.Shards {
			room++
		}
		t.shards[i] = newShard[K](terms, room)
	}
	return t, nil
}

// Allow takes a token from the bucket of key. Without one it answers false and how
// long it takes until there is one (more than zero); a refusal costs no token. It
// does not allocate for a key that the table knows.
func (t *Table[K]) Allow(key K) (ok bool, retryAfter time.Duration) {
	if t.off {
		return true, 0
	}
	hash := maphash.Comparable(t.seed, key)
	// The high half of the product is hash scaled to 0 … len-1, for any len.
	i, _ := bits.Mul64(hash, uint64(len(t.shards)))
	return t.shards[i].allow(key, t.now().Sub(t.start))
}

// Stats is what a table holds, for metrics.
type Stats struct {
	Keys      int    // buckets held now, full ones among them
	Forgotten uint64 // buckets dropped before they were full again, ever
}

// Stats adds up the shards, one after another.
func (t *Table[K]) Stats() Stats {
	var sum Stats
	for _, s := range t.shards {
		keys, forgotten := s.stats()
		sum.Keys += keys
		sum.Forgotten += forgotten
	}
	return sum
}

// terms is what all buckets of a table have in common.
type terms struct {
	rate   Rate
	refill time.Duration // from empty to full
	width  time.Duration // of a shelf
}

func termsOf(r Rate) terms {
	refill := r.refill()
	return terms{rate: r, refill: refill, width: (refill + shelfCount - 1) / shelfCount}
}

// untilFull is how long a bucket takes to be full, rounded up.
func (t terms) untilFull(tokens float64) time.Duration {
	return t.accrue(float64(t.rate.Burst) - tokens)
}

// untilOne is how long a bucket takes to have a whole token, rounded up, so that
// a client who waits for exactly that long is let in.
func (t terms) untilOne(tokens float64) time.Duration {
	return max(1, t.accrue(1-tokens))
}

func (t terms) accrue(tokens float64) time.Duration {
	return time.Duration(math.Ceil(tokens * float64(t.rate.Per) / float64(t.rate.Events)))
}
