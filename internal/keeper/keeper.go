package keeper

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"flashgate/internal/ledger"
)

// Keeper runs the loops. Make it with New and start it with Run. It does not close what it was given.
type Keeper struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	seldom  *seldom

	catalogue *catalogue
	loader    *Loader
	sweeper   *sweeper
	relay     *relay
	watch     *watch
	events    *events
	retire    *retire
	reconcile *reconciling // nil: not wanted
	sweepPace *pace

	sweepTurn, watchTurn, transfersTurn           *turn
	sweepCrew, watchCrew, transfersCrew, loadCrew *crew
	wakeCatalogue                                 chan struct{}
}

// New makes a Keeper. It connects to nothing by itself.
func New(cfg Config) (*Keeper, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure the keeper: %w", err)
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("make the keeper: %w", err)
	}
	k := &Keeper{
		cfg: cfg, log: cfg.Logger, metrics: m, seldom: newSeldom(cfg.Now),
		loader: newLoader(cfg, m), sweepPace: newPace(),
		sweepCrew: newCrew(cfg.ItemsAtOnce), watchCrew: newCrew(cfg.ItemsAtOnce), transfersCrew: newCrew(cfg.ItemsAtOnce),
		loadCrew:      newCrew(cfg.LoadsAtOnce),
		wakeCatalogue: make(chan struct{}, 1),
	}
	k.sweeper = k.loader.sweeper
	// A reservation made at the last moment is published or given up within GiveUp; the rest is for clocks and rounds.
	k.catalogue = newCatalogue(cfg.Ledger.Catalogue, cfg.Now, cfg.GiveUp+time.Minute)
	k.watch = newWatch(k)
	k.relay = newRelay(&k.cfg, m, k.catalogue, k.watch.ask)
	k.events = newEvents(&k.cfg, m)
	k.retire = newRetire(k)
	if cfg.ReconcileEvery > 0 {
		if k.reconcile, err = newReconciling(k); err != nil {
			return nil, fmt.Errorf("make the keeper: %w", err)
		}
	}
	k.sweepTurn, k.watchTurn, k.transfersTurn = k.turn("sweep"), k.turn("watch"), k.turn("transfers")
	return k, nil
}

func (k *Keeper) turn(loop string) *turn {
	return &turn{name: "keeper/" + loop, holder: k.cfg.Holder, ttl: k.cfg.LeaseTTL, bound: k.cfg.CallTimeout, lease: k.cfg.Ledger.Lease}
}

// slowTurn is that of a loop which is slow: a turn that runs out between two rounds would be everybody's.
func (k *Keeper) slowTurn(loop string, every time.Duration) *turn {
	t := k.turn(loop)
	t.ttl = max(t.ttl, 3*every)
	return t
}

// Loader is the loader that the keeper uses, for others of the same process.
func (k *Keeper) Loader() *Loader { return k.loader }

func (k *Keeper) guard(ctx context.Context, loop string, work func()) {
	k.metrics.guard(ctx, k.log, loop, work)
}

// Run runs all loops until ctx ends, waits for what is under way, and returns nil. What servers do or fail to do never ends it. It may be
// called once.
func (k *Keeper) Run(ctx context.Context) error {
	var loops sync.WaitGroup
	loops.Go(func() { k.cfg.Ledger.Listen(ctx, k.told) })
	for _, loop := range []struct {
		name     string
		interval time.Duration
		wake     <-chan struct{}
		round    func(context.Context)
	}{
		{"catalogue", k.cfg.CatalogueEvery, k.wakeCatalogue, k.readCatalogue},
		{"sweep", k.cfg.SweepEvery, nil, k.sweep},
		{"watch", k.cfg.WatchEvery, k.watch.wake, k.watch.round},
		{"transfers", k.cfg.TransfersEvery, nil, k.transfers},
		{"expire", k.cfg.ExpireEvery, nil, k.expire},
		{"waiting events", eventsLook, nil, k.events.look},
		{"retire", k.cfg.RetireEvery, nil, k.retire.round},
		{"relay poll", k.cfg.RelayEvery, nil, func(context.Context) { k.relay.nudge() }},
	} {
		loops.Go(func() { k.every(ctx, loop.name, loop.interval, loop.wake, loop.round) })
	}
	loops.Go(func() { k.tell(ctx) })
	if k.reconcile != nil {
		loops.Go(func() { k.every(ctx, "reconcile", k.cfg.ReconcileEvery, nil, k.reconcile.round) })
	}
	for range k.cfg.RelayWorkers {
		loops.Go(func() { k.every(ctx, "relay", time.Hour, k.relay.wake, k.relay.round) })
	}
	loops.Wait()
	// The crews' work is bound by ctx and short calls; nothing is offered to them any more.
	for _, c := range []*crew{k.sweepCrew, k.watchCrew, k.transfersCrew, k.loadCrew} {
		c.wait()
	}
	for _, t := range []*turn{k.sweepTurn, k.watchTurn, k.transfersTurn, k.retire.turn} {
		t.giveBack(ctx)
	}
	if k.reconcile != nil {
		k.reconcile.turn.giveBack(ctx)
	}
	return nil
}

// tell runs the loop of the order events, and what comes after it.
func (k *Keeper) tell(ctx context.Context) {
	k.every(ctx, "events", k.cfg.EventsEvery, nil, k.events.round)
	k.guard(ctx, "events", func() { k.events.end(ctx) })
}

// told hears of what changed in the database. An empty topic says that something may have been missed.
func (k *Keeper) told(topic string) {
	if topic != ledger.TopicCorrections {
		select {
		case k.wakeCatalogue <- struct{}{}:
		default:
		}
	}
	if topic != ledger.TopicCatalogue {
		k.relay.nudge()
	}
}

func (k *Keeper) readCatalogue(ctx context.Context) {
	reading, cancel := context.WithTimeout(ctx, k.cfg.databaseTimeout())
	defer cancel()
	if err := k.catalogue.refresh(reading); err != nil {
		if ctx.Err() == nil && k.seldom.say("catalogue") {
			k.log.WarnContext(ctx, "keeper: cannot read the catalogue, going on with the old one", "error", err)
		}
		return
	}
	if k.catalogue.newItem() {
		k.watch.nudge()
	}
}

// sweep has the outboxes of all items that need it swept.
func (k *Keeper) sweep(ctx context.Context) {
	now := k.cfg.Now()
	if !k.sweepTurn.mine(ctx, now) {
		k.metrics.leftNothing()
		return
	}
	items, cares := k.catalogue.watched()
	known := make(map[int64]bool, len(items))
	for _, it := range items {
		known[it.ID] = true
		if it.Epoch == 0 || !k.sweepPace.due(it.ID, now) {
			continue
		}
		layout, rest := layoutOf(&it), time.Duration(0)
		if cares[it.ID] != full {
			rest = k.cfg.IdleEvery
		}
		k.sweepCrew.offer(ctx, it.ID, func() {
			k.guard(ctx, "sweep", func() {
				began := k.cfg.Now()
				found, err := k.sweeper.sweep(ctx, layout, false)
				if ctx.Err() != nil {
					return
				}
				if err != nil {
					k.sweepTurn.failed.Store(true)
					if k.seldom.say([2]any{"sweep", layout.Item}) {
						k.log.WarnContext(ctx, "keeper: outbox entries are left for later", "item", layout.Item, "entries", found.left, "error", err)
					}
				} else {
					k.catalogue.swept(layout.Item, began, found.left+found.unreadable == 0)
				}
				k.metrics.left(layout.Item, backlog{reservations: found.waiting, oldest: found.oldest})
				// A broker that is away is not asked about a large backlog twice a second: reading it is work for Redis.
				vain := err != nil || found.tried && found.removed == 0
				k.sweepPace.worked(layout.Item, k.cfg.Now(), !vain, rest, k.cfg.SweepEvery, k.cfg.IdleEvery)
			})
		})
	}
	k.sweepPace.keep(known)
}
