package consumer

import (
	"context"
	"sync"
	"time"

	"flashgate/internal/broker"
	"flashgate/internal/pause"
)

// lagEvery is how often the lag is measured. It is asked of the brokers rather than taken from what was fetched last, because it matters most while
// nothing is fetched.
const lagEvery = 2 * time.Second

// watchGroup measures the lag, and looks after partitions that nobody reads, until stop is called or ctx ends; stop waits for the end.
func (s *session) watchGroup(ctx context.Context) (stop func()) {
	admin, err := broker.NewAdmin(s.cfg.Broker)
	if err != nil {
		return func() {} // cannot be: the session's own client was made from the same settings
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer admin.Close()
		var unowned orphans
		for pause.For(ctx, lagEvery) {
			s.measureLag(ctx, admin)
			unowned.look(ctx, s, admin)
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

func (s *session) measureLag(ctx context.Context, admin *broker.Admin) {
	ctx, cancel := context.WithTimeout(ctx, lagEvery)
	defer cancel()
	lag, err := admin.Lag(ctx, s.cfg.Broker.Group, broker.Orders)
	if err != nil {
		s.cfg.Logger.Debug("cannot measure the lag", "error", err)
		return
	}
	s.owned.each(func(p *partition) { s.metrics.setLag(p.number, lag[p.number]) })
}
