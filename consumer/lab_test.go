package consumer_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"flashgate/consumer"
	"flashgate/internal/broker"
	"flashgate/internal/broker/brokertest"
	"flashgate/internal/devstack/devtest"
	"flashgate/internal/ledger"
	"flashgate/internal/sale"
)

const (
	timeout = brokertest.Timeout
	// shortSession is the least that the test brokers allow: a killed member is missed soon.
	shortSession = time.Second
	// longSession makes a test fail that relies on a session timing out.
	longSession = 4 * time.Minute
)

// lab is a broker, a ledger with an open sale of one item, and a way to look into both.
type lab struct {
	t *testing.T
	*brokertest.Server
	db   *ledger.DB
	dsn  string
	sql  *pgxpool.Pool
	item int64
	dead *broker.Producer
}

// each runs test on either Kafka, with 10,000 units for sale.
func each(t *testing.T, test func(l *lab)) {
	t.Helper()
	brokertest.Each(t, func(t *testing.T, s *brokertest.Server) {
		test(newLab(t, s, devtest.DatabaseLike(t, "ledger", ledger.Migrate)))
	})
}

func newLab(t *testing.T, s *brokertest.Server, dsn string) *lab {
	t.Helper()
	l := &lab{t: t, Server: s, dsn: dsn}
	ctx := brokertest.Context(t)
	var err error
	if l.sql, err = pgxpool.New(ctx, dsn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.sql.Close)
	if l.db, err = ledger.Open(ctx, ledger.Config{URL: dsn}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.db.Close)
	now := time.Now()
	created, err := l.db.CreateSale(ctx, sale.Sale{
		Name: "rush", StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour), PurchaseLimit: sale.PerItem, PaymentWindow: time.Hour, TimeZone: "UTC",
		Items: []sale.Item{{ProductID: 1, SKU: "S", Quantity: 1_000_000, Price: "1980", Currency: "JPY", Shards: 13, MaxPerUser: 10, Model: sale.Counter}},
	})
	if err != nil {
		t.Fatal(err)
	}
	l.item = created.Items[0].ID
	if l.dead, err = broker.NewProducer(broker.ProducerConfig{Config: s.Config}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.dead.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l
}

// writer is a running consumer.
type writer struct {
	*consumer.Consumer
	cancel context.CancelFunc
	ended  chan struct{}
}

// start runs a consumer until stop is called or the test ends.
func (l *lab) start(change ...func(*consumer.Config)) *writer {
	l.t.Helper()
	cfg := consumer.Config{Broker: l.Config, Ledger: l.db, DeadLetters: l.dead, SessionTimeout: longSession, RetryMax: 100 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(testLog{l.t}, nil))}
	for _, f := range change {
		f(&cfg)
	}
	c, err := consumer.New(cfg)
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &writer{c, cancel, make(chan struct{})}
	go func() {
		defer close(w.ended)
		if err := c.Run(ctx); err != nil {
			l.t.Errorf("run: %v", err)
		}
	}()
	l.t.Cleanup(func() { w.stop(l.t) })
	return w
}

// stop ends the consumer in an orderly way.
func (w *writer) stop(t *testing.T) {
	t.Helper()
	w.cancel()
	w.await(t)
}

func (w *writer) await(t *testing.T) {
	t.Helper()
	late := time.NewTimer(timeout)
	defer late.Stop()
	select {
	case <-w.ended:
	case <-late.C:
		t.Fatal("the consumer does not stop")
	}
}

type testLog struct{ t *testing.T }

func (l testLog) Write(line []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(line)))
	return len(line), nil
}

// events makes n reservations by as many users, which lie in all shards.
func (l *lab) events(n int) []sale.Event {
	l.t.Helper()
	out := make([]sale.Event, n)
	for i := range out {
		user := devtest.Name("u")
		out[i] = sale.Event{
			OrderID: sale.NewOrderID(l.item), ItemID: l.item, UserID: user, Quantity: 1, Shard: sale.Home(user, 13), Epoch: 1,
			ReservedAt: time.Now().UTC().Truncate(time.Millisecond), Price: "1980", Currency: "JPY",
		}
	}
	return out
}

func encode(events []sale.Event) []*kgo.Record {
	records := make([]*kgo.Record, len(events))
	for i, e := range events {
		records[i] = broker.Encode(e)
	}
	return records
}

// send publishes events as a gateway does.
func (l *lab) send(events []sale.Event) {
	l.t.Helper()
	l.Write(l.t, encode(events)...)
}

// column reads one column of the database.
func column[T any](l *lab, query string, args ...any) []T {
	l.t.Helper()
	rows, _ := l.sql.Query(context.Background(), query, args...)
	values, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		l.t.Fatalf("%s: %v", query, err)
	}
	return values
}

func (l *lab) orders() int { return column[int](l, `SELECT count(*)::int FROM flash_sale_order`)[0] }

// settled waits until the group has committed everything that is in the topic now.
func (l *lab) settled() {
	l.t.Helper()
	ctx := brokertest.Context(l.t)
	admin := l.Admin(l.t)
	ends, err := admin.End(ctx, broker.Orders)
	if err != nil {
		l.t.Fatal(err)
	}
	devtest.Eventually(l.t, timeout, func() bool {
		passed, err := admin.Passed(ctx, l.Config.Group, ends)
		return err == nil && passed
	}, "everything committed")
}

// committed returns the group's offsets.
func (l *lab) committed() map[int32]int64 {
	l.t.Helper()
	out := map[int32]int64{}
	ctx := brokertest.Context(l.t)
	devtest.Eventually(l.t, timeout, func() bool {
		lag, err := l.Admin(l.t).Lag(ctx, l.Config.Group, broker.Orders)
		if err != nil {
			return false
		}
		ends, err := l.Admin(l.t).End(ctx, broker.Orders)
		for p := range lag {
			out[p] = ends.Offsets[p] - lag[p]
		}
		return err == nil
	}, "the group's offsets")
	return out
}

// exactly checks that every event is one live order, and that there is no other.
func (l *lab) exactly(events []sale.Event) {
	l.t.Helper()
	want := map[string]bool{}
	for _, e := range events {
		want[e.OrderID.String()] = true
	}
	for _, id := range column[string](l, `SELECT id::text FROM flash_sale_order WHERE status = 'PENDING'`) {
		if !want[id] {
			l.t.Errorf("order %s was never reserved", id)
		}
		delete(want, id)
	}
	if len(want) > 0 {
		l.t.Errorf("%d of %d reservations are not orders", len(want), len(events))
	}
	if sold := column[int](l, `SELECT sold::int FROM flash_sale_item WHERE id = $1`, l.item)[0]; sold != len(events) {
		l.t.Errorf("%d units sold, want %d", sold, len(events))
	}
	if n := l.orders(); n != len(events) {
		l.t.Errorf("%d rows, want %d", n, len(events))
	}
}

// letters returns the dead letters by where they came from, and fails when one is there twice.
func (l *lab) letters() map[string]*kgo.Record {
	l.t.Helper()
	out := map[string]*kgo.Record{}
	for _, r := range l.Read(l.t, broker.DeadLetters) {
		from := fmt.Sprintf("%s/%s/%s", brokertest.Header(r, broker.DeadTopic), brokertest.Header(r, broker.DeadPartition), brokertest.Header(r, broker.DeadOffset))
		if out[from] != nil {
			l.t.Errorf("%s was set aside twice", from)
		}
		out[from] = r
	}
	return out
}

// place names a record as letters does.
func place(r *kgo.Record) string { return fmt.Sprintf("%s/%d/%d", r.Topic, r.Partition, r.Offset) }

// seam stands between a consumer and its ledger.
type seam struct {
	consumer.Ledger
	mu     sync.Mutex
	before func(ctx context.Context, events []sale.Event) error // an error is Write's answer
	sizes  []int
	calls  chan int // sizes again, for waiting; nobody need listen
}

func newSeam(next consumer.Ledger) *seam { return &seam{Ledger: next, calls: make(chan int, 100_000)} }

func (s *seam) set(before func(ctx context.Context, events []sale.Event) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = before
}

func (s *seam) Write(ctx context.Context, events []sale.Event) ([]ledger.Written, error) {
	s.mu.Lock()
	before := s.before
	s.sizes = append(s.sizes, len(events))
	s.mu.Unlock()
	s.calls <- len(events)
	if before != nil {
		if err := before(ctx, events); err != nil {
			return nil, err
		}
	}
	return s.Ledger.Write(ctx, events)
}

// called waits for the next call of Write.
func (s *seam) called(t *testing.T) int {
	t.Helper()
	late := time.NewTimer(timeout)
	defer late.Stop()
	select {
	case n := <-s.calls:
		return n
	case <-late.C:
		t.Fatal("the ledger is not called")
		return 0
	}
}

func with(s *seam) func(*consumer.Config) { return func(c *consumer.Config) { c.Ledger = s } }
