package shard

import (
	"context"
	"errors"
	"fmt"
)

// Stock hands out the units of items that are kept in Redis. It is safe for concurrent use; make it with New.
type Stock struct {
	cfg     Config
	metrics *metrics
	track   *tracker      // requests, lanes and publications under way
	calls   chan struct{} // one element for each call of the client

	requests lanes[lane, *waiter]   // to be reserved
	starved  lanes[Layout, *waiter] // whose home was empty
	acks     lanes[place, string]   // outbox entries to be removed, by batch id
}

// lane is where requests meet that can share a call: the users of one shard, pinned with the same k.
type lane struct {
	layout Layout
	shard  int
}

func (l lane) place() place { return place{item: l.layout.Item, shard: l.shard} }

// New makes a Stock. It connects to nothing by itself.
func New(cfg Config) (*Stock, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Stock{cfg: cfg, track: newTracker(), calls: make(chan struct{}, maxCalls)}
	s.requests = lanes[lane, *waiter]{size: cfg.BatchSize, limit: cfg.QueueLimit, run: s.reserveBatch, track: s.track}
	s.starved = lanes[Layout, *waiter]{run: s.feed, track: s.track}
	s.acks = lanes[place, string]{size: maxAcks, run: s.ackBatches, track: s.track}
	var err error
	s.metrics, err = newMetrics(cfg.Registerer, func() float64 { return float64(s.requests.waiting()) })
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Close refuses further requests and waits until every request is answered, every event handed to the publisher has been
// acknowledged or given up, and the outbox entries of the former are removed. It returns the error of ctx when that ends
// first: what is left then is found by the sweep. The client and the publisher stay open, and are closed after it.
// It may be called again.
func (s *Stock) Close(ctx context.Context) error {
	if err := s.track.close(ctx); err != nil {
		return fmt.Errorf("close the stock: work is left to the sweep: %w", err)
	}
	return nil
}

// Ping asks the server, or one server of a cluster, for a sign of life.
func (s *Stock) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.CallTimeout)
	defer cancel()
	answer, err := apart(ctx, s, func() error { return s.cfg.Client.Do(ctx, s.cfg.Client.B().Ping().Build()).Error() })
	if err := errors.Join(answer, err); err != nil {
		return fmt.Errorf("ping Redis: %w", err)
	}
	return nil
}
