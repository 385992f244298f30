package keeper

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/invariant"
	"flashgate/internal/ledger"
	"flashgate/internal/sale"
	"flashgate/shard"
)

// timeout is for a machine under load; no test is about it.
const timeout = time.Minute

// backend is a kind of Redis that a test runs on.
type backend struct {
	name      string
	inProcess bool
	start     func(testing.TB) string // returns a URL
}

var (
	onMini = backend{"miniredis", true, func(tb testing.TB) string { return devtest.MiniRedis(tb).URL() }}
	onReal = backend{"redis", false, func(tb testing.TB) string { return devtest.Redis(tb).URL() }}
)

func everywhere(t *testing.T, test func(t *testing.T, l *lab)) {
	for _, b := range []backend{onMini, onReal} {
		t.Run(b.name, func(t *testing.T) { test(t, newLab(t, b)) })
	}
}

// lab is a database and a Redis of the test's own, and a tape in the place of Kafka.
type lab struct {
	testing.TB
	backend
	ctx      context.Context
	pool     *pgxpool.Pool
	db       *ledger.DB
	redisURL string
	client   rueidis.Client
	stock    *shard.Stock // of the keepers: without publisher
	tape     *tape
	metrics  *prometheus.Registry
	log      *slog.Logger
}

func newLab(tb testing.TB, b backend) *lab { return newLabAt(tb, b, b.start(tb)) }

func newLabAt(tb testing.TB, b backend, redisURL string) *lab {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*timeout)
	tb.Cleanup(cancel)
	dsn := devtest.DatabaseLike(tb, "keeper", ledger.Migrate)
	l := &lab{TB: tb, backend: b, ctx: ctx, redisURL: redisURL, tape: &tape{}, metrics: prometheus.NewRegistry(), log: slog.New(slog.NewTextHandler(tb.Output(), nil))}
	var err error
	if l.pool, err = pgxpool.New(ctx, dsn); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(l.pool.Close)
	// More connections than any test has goroutines that are stopped with one in their hands.
	if l.db, err = ledger.Open(ctx, ledger.Config{URL: dsn + "&pool_max_conns=16"}); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(l.db.Close)
	l.client = l.connect()
	l.stock = l.gateway(nil)
	return l
}

func (l *lab) connect() rueidis.Client {
	l.Helper()
	client, err := shard.Connect(shard.ConnectConfig{URL: l.redisURL, InProcess: l.inProcess})
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(client.Close)
	return client
}

// gateway makes the stock of a gateway process with a publisher of its own.
func (l *lab) gateway(p shard.Publisher) *shard.Stock {
	l.Helper()
	s, err := shard.New(shard.Config{Client: l.connect(), Publisher: p, RecordDeadline: timeout, CallTimeout: timeout})
	if err != nil {
		l.Fatal(err)
	}
	return s
}

// config is that of a keeper whose waits are short.
func (l *lab) config() Config {
	return Config{
		Stock: l.stock, Ledger: l.db, Publisher: l.tape, Offsets: l.tape,
		RecordDeadline: 20 * time.Millisecond, Margin: time.Millisecond, CallTimeout: timeout,
		SweepEvery: 10 * time.Millisecond, WatchEvery: 10 * time.Millisecond, ExpireEvery: 20 * time.Millisecond, RelayEvery: 20 * time.Millisecond,
		EventsEvery: 20 * time.Millisecond, RetireEvery: 20 * time.Millisecond,
		CatalogueEvery: 20 * time.Millisecond, TransfersEvery: 10 * time.Millisecond, TransferAge: time.Millisecond, IdleEvery: 50 * time.Millisecond,
		LeaseTTL: 200 * time.Millisecond, KeepUp: timeout, Logger: l.log, Registerer: l.metrics,
	}
}

// keeper makes a keeper that does not run, with a catalogue that is up to date.
func (l *lab) keeper(change ...func(*Config)) *Keeper {
	l.Helper()
	cfg := l.config()
	for _, f := range change {
		f(&cfg)
	}
	k, err := New(cfg)
	if err != nil {
		l.Fatal(err)
	}
	l.must(k.catalogue.refresh(l.ctx))
	return k
}

// run runs a keeper and an order writer until stop is called, or the test ends.
func (l *lab) run(k *Keeper) (stop func()) {
	l.Helper()
	stopWriter := l.write()
	stopKeeper := l.runKeeper(k)
	return func() { stopKeeper(); stopWriter() }
}

func (l *lab) runKeeper(k *Keeper) (stop func()) {
	ctx, cancel := context.WithCancel(l.ctx)
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			l.Errorf("run: %v", err)
		}
	}
	l.Cleanup(stop)
	return stop
}

// write runs an order writer.
func (l *lab) write() (stop func()) {
	ctx, cancel := context.WithCancel(l.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for l.tape.wait(ctx) {
			if _, err := l.tape.consume(ctx, l.db); err != nil && ctx.Err() == nil {
				l.Errorf("consume: %v", err)
				return
			}
		}
	}()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			<-done
		}
	}
	l.Cleanup(stop)
	return stop
}

// consume writes what is on the tape.
func (l *lab) consume() []ledger.Written {
	l.Helper()
	written, err := l.tape.consume(l.ctx, l.db)
	l.must(err)
	return written
}

// terms of a sale that are not the usual ones.
type terms func(*sale.Sale)

func window(d time.Duration) terms { return func(s *sale.Sale) { s.PaymentWindow = d } }

// create stores a sale of one item and loads nothing.
func (l *lab) create(quantity int64, shards int, with ...terms) shard.Layout {
	l.Helper()
	s := sale.Sale{
		Name: "test", StartsAt: time.Now().Add(-time.Hour), EndsAt: time.Now().Add(time.Hour), PurchaseLimit: sale.PerItem,
		PaymentWindow: time.Hour, TimeZone: "UTC",
		Items: []sale.Item{{SKU: "sku", Quantity: quantity, Price: "1980", Currency: "JPY", Shards: shards, MaxPerUser: 10, Model: sale.Counter}},
	}
	for _, f := range with {
		f(&s)
	}
	s, err := l.db.CreateSale(l.ctx, s)
	l.must(err)
	return shard.Layout{Item: s.Items[0].ID, Shards: shards}
}

// sale stores a sale of one item and loads it.
func (l *lab) sale(quantity int64, shards int, with ...terms) shard.Layout {
	l.Helper()
	layout := l.create(quantity, shards, with...)
	l.must(l.keeper().Loader().First(l.ctx, layout.Item))
	return layout
}

func (l *lab) request(layout shard.Layout, user string, quantity int64) sale.Request {
	return sale.Request{OrderID: sale.NewOrderID(layout.Item), UserID: user, Quantity: quantity, Price: "1980", Currency: "JPY"}
}

// buy reserves, and fails the test if that does not succeed.
func (l *lab) buy(s *shard.Stock, layout shard.Layout, user string, quantity int64) sale.OrderID {
	l.Helper()
	r := s.Reserve(l.ctx, layout, l.request(layout, user, quantity))
	if r.Outcome != sale.Reserved {
		l.Fatalf("reserve for %s: %s, %v", user, r.Outcome, r.Err)
	}
	return r.OrderID
}

// atRest waits until nothing is on its way and checks all invariants.
func (l *lab) atRest(layout shard.Layout, answered ...sale.OrderID) *invariant.Report {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.ctx, timeout)
	defer cancel()
	report, err := invariant.Await(ctx, l.pool, l.stock, layout.Item, answered...)
	l.must(err)
	if !report.OK() {
		l.Fatal(report)
	}
	return report
}

// settle carries out all corrections, and consumes, until there are none.
func (l *lab) settle(k *Keeper) {
	l.Helper()
	devtest.Eventually(l, timeout, func() bool {
		l.consume()
		k.relay.round(l.ctx)
		return l.count(`SELECT count(*) FROM flash_sale_correction`) == 0
	}, "corrections are carried out")
}

func (l *lab) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// redis runs a command and returns its answer as text, "<nil>" for none.
func (l *lab) redis(args ...string) string {
	l.Helper()
	res := l.client.Do(l.ctx, l.client.B().Arbitrary(args...).Build())
	if rueidis.IsRedisNil(res.Error()) {
		return "<nil>"
	}
	v, err := res.ToAny()
	if err != nil {
		l.Fatalf("%v: %v", args, err)
	}
	return fmt.Sprint(v)
}

func key(layout shard.Layout, n int, name string) string {
	return fmt.Sprintf("{item:%d:%d}:%s", layout.Item, n, name)
}

// shards reads the shards, which must answer.
func (l *lab) shards(layout shard.Layout) []shard.ShardReading {
	l.Helper()
	readings, err := l.stock.Read(l.ctx, layout)
	l.must(err)
	return readings
}

// entries is the number of outbox entries of an item.
func (l *lab) entries(layout shard.Layout) (n int64) {
	l.Helper()
	for _, r := range l.shards(layout) {
		n += r.Entries
	}
	return n
}

// keys is how many keys Redis has of an item.
func (l *lab) keys(layout shard.Layout) int {
	l.Helper()
	names, err := l.client.Do(l.ctx, l.client.B().Keys().Pattern(fmt.Sprintf("{item:%d:*", layout.Item)).Build()).AsStrSlice()
	l.must(err)
	return len(names)
}

func (l *lab) exec(sql string, args ...any) {
	l.Helper()
	_, err := l.pool.Exec(l.ctx, sql, args...)
	l.must(err)
}

func (l *lab) count(sql string, args ...any) int64 {
	l.Helper()
	rows, _ := l.pool.Query(l.ctx, sql, args...)
	n, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
	l.must(err)
	return n
}

// status is the state of an order; "" if it has no row.
func (l *lab) status(id sale.OrderID) sale.OrderStatus {
	l.Helper()
	o, _, err := l.db.Order(l.ctx, id)
	l.must(err)
	return o.Status
}

// epoch is the item's in the database.
func (l *lab) epoch(layout shard.Layout) int64 {
	l.Helper()
	return l.count(`SELECT epoch FROM flash_sale_item WHERE id = $1`, layout.Item)
}

// metric sums up the samples of a counter or gauge whose labels have the given values, in any order.
func (l *lab) metric(name string, values ...string) (sum float64) {
	l.Helper()
	families, err := l.metrics.Gather()
	l.must(err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			have := make(map[string]bool)
			for _, p := range m.GetLabel() {
				have[p.GetValue()] = true
			}
			all := true
			for _, v := range values {
				all = all && have[v]
			}
			if all {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}
