package keeper

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"flashgate/internal/broker"
	"flashgate/internal/ledger"
	"flashgate/internal/sale"
	"flashgate/shard"
)

// stepper wraps everything that a loader asks and stops it at a step, as SIGSTOP stops a process: the step's call has not been made, or its answer
// is not read; the lease is not renewed; and the rest goes on when it is woken. Each name is stopped at for the first time only.
type stepper struct {
	Stock
	Ledger
	Offsets

	mu      sync.Mutex
	seen    []string // steps in the order in which they were met
	count   map[string]int
	at      string        // the step to stop at
	stopped chan struct{} // closed when it has stopped
	wake    chan struct{}
	do      map[string]func() // what happens at other steps

	renewal sync.Mutex // held while a lease is being renewed
}

func (l *lab) stepper() *stepper {
	return &stepper{Stock: l.stock, Ledger: l.db, Offsets: l.tape, count: make(map[string]int), stopped: make(chan struct{}), wake: make(chan struct{})}
}

// stepping makes a loader whose steps are in the hands of s.
func (l *lab) stepping(s *stepper) *Loader {
	l.Helper()
	cfg := l.config()
	cfg.Stock, cfg.Ledger, cfg.Offsets = s, s, s
	loader, err := NewLoader(cfg)
	if err != nil {
		l.Fatal(err)
	}
	return loader
}

// meet is called before and behind every call.
func (s *stepper) meet(call string, behind bool) {
	s.mu.Lock()
	if !behind {
		s.count[call]++
	}
	name := fmt.Sprintf("before %s %d", call, s.count[call])
	if behind {
		name = fmt.Sprintf("behind %s %d", call, s.count[call])
	}
	s.seen = append(s.seen, name)
	stop := name == s.at
	if stop {
		s.at = ""
		close(s.stopped)
	}
	s.mu.Unlock()
	if do := s.do[name]; do != nil {
		do()
	}
	if stop {
		<-s.wake
	}
}

func (s *stepper) asleep() bool {
	select {
	case <-s.stopped:
	default:
		return false
	}
	select {
	case <-s.wake:
		return false
	default:
		return true
	}
}

func (s *stepper) Read(ctx context.Context, layout shard.Layout) ([]shard.ShardReading, error) {
	s.meet("read", false)
	defer s.meet("read", true)
	return s.Stock.Read(ctx, layout)
}

func (s *stepper) Outbox(ctx context.Context, layout shard.Layout, n int) (shard.Outbox, error) {
	// The shards are swept side by side, so only the last one's look is a step.
	if n == layout.Shards-1 {
		s.meet("outbox", false)
		defer s.meet("outbox", true)
	}
	return s.Stock.Outbox(ctx, layout, n)
}

func (s *stepper) Fence(ctx context.Context, item int64, n int, token int64) (bool, error) {
	s.meet("fence", false)
	defer s.meet("fence", true)
	return s.Stock.Fence(context.WithoutCancel(ctx), item, n, token)
}

func (s *stepper) Load(ctx context.Context, layout shard.Layout, image shard.Image) (bool, error) {
	s.meet("load", false)
	defer s.meet("load", true)
	// A process that was stopped for long has let all its timers run out, but what it was about to send goes out.
	return s.Stock.Load(context.WithoutCancel(ctx), layout, image)
}

func (s *stepper) Vacate(ctx context.Context, layout shard.Layout, n int, token int64) (bool, error) {
	s.meet("vacate", false)
	defer s.meet("vacate", true)
	return s.Stock.Vacate(context.WithoutCancel(ctx), layout, n, token)
}

func (s *stepper) Extent(ctx context.Context, item int64) (int, error) {
	s.meet("extent", false)
	defer s.meet("extent", true)
	return s.Stock.Extent(ctx, item)
}

func (s *stepper) Servers(ctx context.Context, layout shard.Layout) ([]shard.ShardServer, error) {
	s.meet("servers", false)
	defer s.meet("servers", true)
	return s.Stock.Servers(ctx, layout)
}

func (s *stepper) Wish(ctx context.Context, item int64) (ledger.Wish, error) {
	s.meet("wish", false)
	defer s.meet("wish", true)
	return s.Ledger.Wish(ctx, item)
}

func (s *stepper) Item(ctx context.Context, id int64) (sale.Item, bool, error) {
	s.meet("item", false)
	defer s.meet("item", true)
	return s.Ledger.Item(ctx, id)
}

func (s *stepper) ClaimLoad(ctx context.Context, item, above int64) (int64, bool, error) {
	s.meet("claim", false)
	defer s.meet("claim", true)
	return s.Ledger.ClaimLoad(ctx, item, above)
}

func (s *stepper) RenewLoad(ctx context.Context, item, token int64) (bool, error) {
	s.renewal.Lock()
	for s.asleep() {
		s.renewal.Unlock()
		<-s.wake
		s.renewal.Lock()
	}
	defer s.renewal.Unlock()
	return s.Ledger.RenewLoad(ctx, item, token)
}

func (s *stepper) Snapshot(ctx context.Context, item, token int64) (ledger.Snapshot, bool, error) {
	s.meet("snapshot", false)
	defer s.meet("snapshot", true)
	return s.Ledger.Snapshot(context.WithoutCancel(ctx), item, token)
}

func (s *stepper) EndLoad(ctx context.Context, item, token int64) error {
	s.meet("end load", false)
	defer s.meet("end load", true)
	return s.Ledger.EndLoad(ctx, item, token)
}

func (s *stepper) End(ctx context.Context, topic string) (broker.Ends, error) {
	s.meet("end", false)
	defer s.meet("end", true)
	return s.Offsets.End(ctx, topic)
}

func (s *stepper) Passed(ctx context.Context, group string, ends broker.Ends) (bool, error) {
	s.meet("passed", false)
	defer s.meet("passed", true)
	return s.Offsets.Passed(ctx, group, ends)
}

// The stepper takes part in no other loop.

func (s *stepper) Lease(context.Context, string, string, time.Duration) (bool, error) {
	return true, nil
}

// loadResult is how a load ended.
type loadResult struct {
	outcome Outcome
	err     error
}

// begin begins a load in the background and returns where its result will be.
func (l *lab) begin(loader *Loader, layout shard.Layout) <-chan loadResult {
	return l.beginAs(loader, layout, func(loader *Loader, layout shard.Layout) (Outcome, error) {
		return loader.Load(l.ctx, layout.Item, "test")
	})
}

// beginAs is begin for one of several kinds of loads.
func (l *lab) beginAs(loader *Loader, layout shard.Layout, load func(*Loader, shard.Layout) (Outcome, error)) <-chan loadResult {
	done := make(chan loadResult, 1)
	go func() {
		outcome, err := load(loader, layout)
		done <- loadResult{outcome, err}
	}()
	return done
}

// stopAt begins a load that stops at a step, or ends before it gets there.
func (l *lab) stopAt(s *stepper, step string, layout shard.Layout) <-chan loadResult {
	l.Helper()
	return l.stopsAt(s, step, func() <-chan loadResult { return l.begin(l.stepping(s), layout) })
}

func (l *lab) stopsAt(s *stepper, step string, begin func() <-chan loadResult) <-chan loadResult {
	l.Helper()
	s.at = step
	done := begin()
	select {
	case <-s.stopped:
		// What it was renewing just then has been renewed.
		s.renewal.Lock()
		defer s.renewal.Unlock()
	case r := <-done:
		back := make(chan loadResult, 1)
		back <- r
		close(s.stopped)
		return back
	case <-l.ctx.Done():
		l.Fatalf("the loader did not get to %q, only to %v", step, s.seen)
	}
	return done
}

// leaseRunsOut lets the time of a stopped loader's lease pass.
func (l *lab) leaseRunsOut(layout shard.Layout) {
	l.Helper()
	l.exec(`UPDATE flash_sale_item SET lease_until = now() - interval '1 second' WHERE id = $1`, layout.Item)
}

// steps are those of one whole load of an item that has been loaded before. "Behind" a step is the same place as before the next one.
func (l *lab) steps() []string {
	l.Helper()
	layout := l.sale(5, 2)
	s := l.stepper()
	if outcome, err := l.stepping(s).Load(l.ctx, layout.Item, "test"); err != nil || outcome != Loaded {
		l.Fatalf("load: %v, %v", outcome, err)
	}
	return slices.DeleteFunc(s.seen, func(step string) bool { return strings.HasPrefix(step, "behind") })
}
