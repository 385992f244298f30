package keeper

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"flashgate/internal/broker"
	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
	"flashgate/shard"
)

// cutOff is a keeper's way to its servers, parts of which are cut for it alone.
type cutOff struct {
	Stock
	Offsets
	Publisher
	atFence       bool // what is to be cut is cut when it has fenced
	fenced        atomic.Bool
	brokers, keys atomic.Bool
}

var errCutOff = errors.New("no route to host")

func (c *cutOff) config(cfg *Config) {
	cfg.Stock, cfg.Offsets, cfg.Publisher, cfg.Patience = c, c, c, 200*time.Millisecond
}

func (c *cutOff) Fence(ctx context.Context, item int64, n int, token int64) (bool, error) {
	ok, err := c.Stock.Fence(ctx, item, n, token)
	c.fenced.Store(true)
	return ok, err
}

func (c *cutOff) cut(what *atomic.Bool) bool { return what.Load() && (!c.atFence || c.fenced.Load()) }

func (c *cutOff) End(ctx context.Context, topic string) (broker.Ends, error) {
	if c.cut(&c.brokers) {
		return broker.Ends{}, errCutOff
	}
	return c.Offsets.End(ctx, topic)
}

func (c *cutOff) Publish(deadline time.Time, events []sale.Event, done func(error)) {
	if c.cut(&c.brokers) {
		go done(errCutOff)
		return
	}
	c.Publisher.Publish(deadline, events, done)
}

func (c *cutOff) Outbox(ctx context.Context, layout shard.Layout, n int) (shard.Outbox, error) {
	if c.cut(&c.keys) {
		return shard.Outbox{}, errCutOff
	}
	return c.Stock.Outbox(ctx, layout, n)
}

func (c *cutOff) Read(ctx context.Context, layout shard.Layout) ([]shard.ShardReading, error) {
	if c.cut(&c.keys) {
		return nil, errCutOff
	}
	return c.Stock.Read(ctx, layout)
}

// A keeper that alone is cut off from something that a load needs neither keeps the others from looking, nor the item from whoever can load it: not
// when it is cut off at the start, nor in the middle of its load.
func TestAKeeperThatIsCutOffLetsAnotherOneLoad(t *testing.T) {
	for name, cut := range map[string]func(*cutOff) *atomic.Bool{
		"from the brokers": func(c *cutOff) *atomic.Bool { return &c.brokers },
		"from Redis":       func(c *cutOff) *atomic.Bool { return &c.keys },
	} {
		for when, atFence := range map[string]bool{"before a load": false, "behind its fence": true} {
			t.Run(name+" "+when, func(t *testing.T) {
				l := newLab(t, onMini)
				l.write()
				layout := l.sale(20, 3)
				answered := []sale.OrderID{l.buy(l.gateway(l.tape), layout, "1", 1), l.buy(l.gateway(dead{}), layout, "2", 1)}
				sick := &cutOff{Stock: l.stock, Offsets: l.tape, Publisher: l.tape, atFence: atFence}
				cut(sick).Store(true)
				l.runKeeper(l.keeper(sick.config))
				devtest.Eventually(t, timeout, func() bool {
					return l.count(`SELECT count(*) FROM flash_sale_lease WHERE name = 'keeper/watch' AND held_until > now()`) == 1
				}, "it has the turn of the watch")
				l.redis("DEL", key(layout, 0, "stock"))
				if atFence {
					devtest.Eventually(t, timeout, sick.fenced.Load, "it has fenced")
				}
				l.runKeeper(l.keeper())
				if report := l.atRest(layout, answered...); report.Free != 18 {
					t.Error(report)
				}
			})
		}
	}
}
