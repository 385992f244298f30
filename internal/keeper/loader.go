package keeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"flashgate/internal/ledger"
	"flashgate/internal/pause"
	"flashgate/internal/sale"
)

// Outcome says how a load ended that met no error.
type Outcome uint8

// The outcomes of a load.
const (
	// Loaded: every shard has its stock and marks.
	Loaded Outcome = iota + 1
	// Busy: somebody else is loading the item. Nothing was done.
	Busy
	// TakenOver: somebody else claimed the load while this one was under way, and does it now.
	TakenOver
	// NotDue: somebody else has done it meanwhile.
	NotDue
	// Postponed: it can wait, and would stop the sale for longer than a moment now. Nothing was done.
	Postponed
)

// String returns the name used in metrics and logs.
func (o Outcome) String() string {
	switch o {
	case Loaded:
		return "loaded"
	case Busy:
		return "busy"
	case TakenOver:
		return "taken_over"
	case NotDue:
		return "not_due"
	case Postponed:
		return "postponed"
	}
	return "failed"
}

// Reasons of loads, as the label `reason` names them. The ledger has reasons of its own.
const (
	reasonFirst      = "first"      // the item is new
	reasonMissing    = "missing"    // a stock key is gone: a lost or wiped server
	reasonUnreadable = "unreadable" // what stands there is no stock
	reasonLayout     = "layout"     // a shard has another number of shards than the item
	reasonEpoch      = "epoch"      // a shard is not of the item's last load
	reasonAbandoned  = "abandoned"  // a loader stopped half-way
	reasonTransfers  = "transfers"  // units are in transfer of which no record tells, or none that can be read
)

// Reasons of loads that people ask for. Nothing need be wrong with the stock, so they wait like those of wishes.
const (
	ReasonAsked  = "asked"
	ReasonRepair = "repair" // of a difference that was found
)

// canWait reports whether a load for a reason would rather not stop a sale that goes on.
func canWait(reason string) bool {
	return reason == ledger.DuePlanned || reason == reasonAbandoned || reason == ReasonAsked || reason == ReasonRepair
}

// ErrNotLoadable is wrapped by the error of a load that can never succeed: there is no such item, it is retired, or it has no stock in Redis.
var ErrNotLoadable = errors.New("it has no stock in Redis")

// Loader brings the stock of an item from the database to Redis by the one procedure that there is for it: claim, fence, quiesce, drain, snapshot,
// load. It is safe for concurrent use, in any number of processes, and any of them may die or stall anywhere: what then writes to Redis is decided
// by the token alone.
//
//   - Every shard takes the stock only from the loader whose token it has, which is the newest that fenced it.
//   - A snapshot is only taken by the newest claim. So a loader that wakes up behind a newer claim changes nothing any more: its fence is refused
//     by shards that the newer one has fenced, its snapshot by the database, its load by the token.
//   - A loader that wakes up before a newer claim has fenced finds everything as it left it, and may go on; the newer one then fences what it
//     wrote, and waits for what was sold from it, like any load.
//
// The lease only keeps a second loader from beginning in vain.
type Loader struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	sweeper *sweeper
}

// NewLoader makes a Loader. It connects to nothing by itself.
func NewLoader(cfg Config) (*Loader, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure the loader: %w", err)
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("make the loader: %w", err)
	}
	return newLoader(cfg, m), nil
}

func newLoader(cfg Config, m *metrics) *Loader {
	l := &Loader{cfg: cfg, log: cfg.Logger, metrics: m}
	l.sweeper = newSweeper(&l.cfg, m)
	return l
}

// First loads an item that was never loaded and returns when its stock is there, whoever brought it: a keeper that saw the new item may be
// faster. It tries until ctx ends; the keepers go on then by themselves. An item that is loaded is left as it is.
func (l *Loader) First(ctx context.Context, item int64) error {
	var last error
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		there, err := l.isLoaded(ctx, item)
		if there {
			return nil
		}
		if err == nil {
			var outcome Outcome
			outcome, err = l.loadIf(ctx, item, reasonFirst, func(ctx context.Context) (bool, error) {
				there, err := l.isLoaded(ctx, item)
				return !there, err
			})
			if err == nil && outcome == Loaded {
				return nil
			}
		}
		if err != nil && ctx.Err() == nil {
			last = err
		}
		if errors.Is(err, ErrNotLoadable) {
			return err
		}
		if !pause.For(ctx, wait) {
			return fmt.Errorf("load item %d for the first time: %w", item, errors.Join(ctx.Err(), last))
		}
	}
}

// isLoaded reports whether every shard has the stock of the item's last load.
func (l *Loader) isLoaded(ctx context.Context, item int64) (bool, error) {
	it, err := l.item(ctx, item)
	if err != nil || it.Epoch == 0 {
		return false, err
	}
	readings, err := l.read(ctx, layoutOf(&it))
	return err == nil && intact(&it, readings), err
}

// Load loads an item. reason is for logs and metrics, and ReasonAsked and ReasonRepair are Postponed as in Plan where the stock is whole. It takes as long
// as the outboxes, the brokers and the order writers need, and RecordDeadline at least, unless the item was never loaded. It carries out what is
// wished of the item (ledger.Wish). It begins only when every shard and the brokers answer, so that it does not stop a sale which it cannot
// resume. After an error nothing is broken: the stock may be unknown, and a load is due.
func (l *Loader) Load(ctx context.Context, item int64, reason string) (Outcome, error) {
	return l.loadIf(ctx, item, reason, func(context.Context) (bool, error) { return true, nil })
}

// Plan loads an item for the sake of a wish, unless that has been carried out or withdrawn (NotDue). As nothing is wrong with the stock, the load
// begins only when it is likely to end within a moment: else it is Postponed. See timely and calm.
func (l *Loader) Plan(ctx context.Context, item int64) (Outcome, error) {
	return l.loadIf(ctx, item, ledger.DuePlanned, func(context.Context) (bool, error) { return true, nil })
}

// loadIf loads an item if it is still due when nobody else can begin to load it.
func (l *Loader) loadIf(ctx context.Context, item int64, reason string, due func(context.Context) (bool, error)) (Outcome, error) {
	began := l.cfg.Now()
	outcome, err := l.load(ctx, item, reason, due)
	if err != nil {
		err = fmt.Errorf("load item %d: %w", item, err)
		l.metrics.loads.WithLabelValues(reason, "failed").Inc()
		return 0, err
	}
	switch outcome {
	case Loaded:
		l.metrics.loadSeconds.Observe(l.cfg.Now().Sub(began).Seconds())
		fallthrough
	case TakenOver:
		l.metrics.loads.WithLabelValues(reason, outcome.String()).Inc()
	}
	return outcome, nil
}

func (l *Loader) load(ctx context.Context, item int64, reason string, due func(context.Context) (bool, error)) (Outcome, error) {
	it, err := l.item(ctx, item)
	if err != nil {
		return 0, err
	}
	begun := loading{item: item, lease: fmt.Sprintf("load/%d", item), holder: randomHolder()}
	if reason == ledger.DuePlanned {
		wanted := due
		due = func(ctx context.Context) (bool, error) {
			if wish, err := l.wish(ctx, item); err != nil || !wish.Open() {
				return false, err
			}
			return wanted(ctx)
		}
	}
	whole := false
	if canWait(reason) {
		// Where the stock is lost or was never there nothing is sold, and a load is due in any case. And whoever died between his claim and his fence has
		// shut nothing.
		readings, err := l.read(ctx, layoutOf(&it))
		whole = err == nil && intact(&it, readings)
	}
	if whole && reason == reasonAbandoned {
		// It may hide another reason, which does not show in the shards: what a server lost must not be sold for as long as the writers lag.
		servers, err := l.servers(ctx, layoutOf(&it))
		whole = err == nil && same(servers)
	}
	// What people think is wrong with a stock need not show in it: then nobody knows what was lost, and the deadline is waited for.
	begun.planned = whole && (reason == ledger.DuePlanned || reason == reasonAbandoned)
	if whole && !l.timely(ctx, layoutOf(&it)) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if l.sweeper.seldom.say([2]any{"postponed", item}) {
			l.log.InfoContext(ctx, "keeper: a load that can wait does, until brokers and order writers keep up", "item", item, "reason", reason)
		}
		return Postponed, nil
	}
	if begun.above, err = l.answering(ctx, &it); err != nil {
		return 0, err
	}
	outcome, err := l.begin(ctx, &begun, due)
	defer l.end(ctx, &begun)
	if err != nil || begun.token == 0 {
		return outcome, err
	}
	log := l.log.With("item", item, "epoch", begun.token, "reason", reason)
	log.InfoContext(ctx, "keeper: load begins")
	outcome, err = l.hold(ctx, &begun)
	if err == nil {
		log.InfoContext(ctx, "keeper: load ends", "result", outcome.String())
	}
	return outcome, err
}

// answering asks every shard, those of a wish, too, and the brokers where the load will need them. It returns the newest token that a shard has seen.
func (l *Loader) answering(ctx context.Context, it *sale.Item) (newest int64, err error) {
	layout := layoutOf(it)
	wish, err := l.wish(ctx, it.ID)
	if err != nil {
		return 0, err
	}
	layout.Shards = max(layout.Shards, wish.Shards)
	readings, err := l.read(ctx, layout)
	if err != nil {
		return 0, err
	}
	for _, r := range readings {
		newest = max(newest, r.Token)
	}
	if it.Epoch == 0 {
		return newest, nil
	}
	_, err = l.ends(ctx)
	return newest, err
}
