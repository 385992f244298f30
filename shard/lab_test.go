package shard

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
)

// timeout is for a machine under load; no test is about it.
const timeout = 30 * time.Second

// backend is a kind of Redis that the suite runs on.
type backend struct {
	name      string
	inProcess bool
	start     func(testing.TB) string // returns a URL
}

var (
	onMini = backend{"miniredis", true, func(tb testing.TB) string { return devtest.MiniRedis(tb).URL() }}
	onReal = backend{"redis", false, func(tb testing.TB) string { return devtest.Redis(tb).URL() }}
)

func everywhere(t *testing.T, test func(t *testing.T, b backend)) {
	for _, b := range []backend{onMini, onReal} {
		t.Run(b.name, func(t *testing.T) { test(t, b) })
	}
}

// lab is a Redis with one or more Stocks on it, each with a client and a publisher of its own.
type lab struct {
	testing.TB
	backend
	url    string
	client rueidis.Client // the test's own look at Redis
	ctx    context.Context
}

func newLab(tb testing.TB, b backend) *lab { return labAt(tb, b, b.start(tb)) }

func labAt(tb testing.TB, b backend, url string) *lab {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*timeout)
	tb.Cleanup(cancel)
	l := &lab{TB: tb, backend: b, url: url, ctx: ctx}
	l.client = l.connect(url)
	return l
}

func (l *lab) connect(url string) rueidis.Client {
	l.Helper()
	client, err := Connect(ConnectConfig{URL: url, InProcess: l.inProcess})
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(client.Close)
	return client
}

// stock makes a Stock with a connection of its own; change may alter its config.
func (l *lab) stock(p Publisher, change ...func(*Config)) *Stock {
	l.Helper()
	return l.stockAt(l.url, p, change...)
}

func (l *lab) stockAt(url string, p Publisher, change ...func(*Config)) *Stock {
	l.Helper()
	// Time enough for everything under the race detector: a test about time sets its own.
	cfg := Config{Client: l.connect(url), Publisher: p, RecordDeadline: timeout, CallTimeout: timeout}
	for _, f := range change {
		f(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			l.Error(err)
		}
	})
	return s
}

// load writes free units into an item that holds nothing yet.
func (l *lab) load(s *Stock, layout Layout, token, free int64, marks map[string]sale.Mark) {
	l.Helper()
	if ok, err := s.Fence(l.ctx, layout.Item, layout.Shards, token); err != nil || !ok {
		l.Fatalf("fence: %v, %v", ok, err)
	}
	if ok, err := s.Load(l.ctx, layout, Image{Token: token, Free: free, Marks: marks}); err != nil || !ok {
		l.Fatalf("load: %v, %v", ok, err)
	}
}

// do runs a command and returns its answer as text, "<nil>" for none.
func (l *lab) do(args ...string) string {
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

// totals sums up an item over its shards.
type totals struct{ free, marks, waiting, pending, moving int64 }

func (l *lab) totals(layout Layout) totals {
	l.Helper()
	var sum totals
	readings, err := l.reader().Read(l.ctx, layout)
	if err != nil {
		l.Fatal(err)
	}
	for _, r := range readings {
		if !r.Loaded || r.Fault != nil {
			l.Fatalf("shard %d: %+v", r.Shard, r)
		}
		sum.free += *r.Stock
		sum.marks += r.Buyers
		sum.waiting += r.Waiting
		sum.pending += r.Pending
		sum.moving += r.Moving
	}
	return sum
}

// rest waits until nothing is in the outbox or in transfer any more: what follows an answer is still going on behind it.
func (l *lab) rest(layout Layout) totals {
	l.Helper()
	var got totals
	devtest.Eventually(l, timeout, func() bool {
		got = l.totals(layout)
		return got.waiting == 0 && got.pending == 0 && got.moving == 0
	}, "the item does not come to rest")
	return got
}

// heldMark is the mark of an order from before a load.
func heldMark(id sale.OrderID) sale.Mark {
	return sale.Mark{OrderID: id, Quantity: 1, Price: "1980", Currency: "JPY", ReservedAt: time.UnixMilli(1_700_000_000_000)}
}

// reader is a Stock that only looks.
func (l *lab) reader() *Stock {
	l.Helper()
	s, err := New(Config{Client: l.client, RecordDeadline: timeout, CallTimeout: timeout})
	if err != nil {
		l.Fatal(err)
	}
	return s
}

// request is a fresh attempt of a user.
func request(layout Layout, user string, quantity int64, key string) sale.Request {
	return sale.Request{
		OrderID: sale.NewOrderID(layout.Item), UserID: user, Quantity: quantity, KeyHash: sale.HashKey(key),
		Price: "1980", Currency: "JPY", Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
}

// broker is a Publisher that records, and does with events what it is told.
type broker struct {
	mu     sync.Mutex
	events []sale.Event
	calls  int
	refuse error // given to done instead of nil
	held   []func(error)
	hold   bool // calls are kept in held until release
}

func (b *broker) Publish(_ time.Time, events []sale.Event, done func(error)) {
	b.mu.Lock()
	b.calls++
	b.events = append(b.events, events...)
	refuse := b.refuse
	if b.hold {
		b.held = append(b.held, done)
		b.mu.Unlock()
		return
	}
	b.mu.Unlock()
	done(refuse)
}

func (b *broker) letGo(err error) {
	b.mu.Lock()
	held := b.held
	b.held, b.hold = nil, false
	b.mu.Unlock()
	for _, done := range held {
		done(err)
	}
}

func (b *broker) seen() []sale.Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]sale.Event(nil), b.events...)
}

// tally counts results by outcome.
type tally [sale.Unknown + 1]atomic.Int64

func (t *tally) String() string {
	text := ""
	for o := range t {
		if n := t[o].Load(); n > 0 {
			text += fmt.Sprintf("%v %d ", sale.Outcome(o), n)
		}
	}
	return text
}

func (t *tally) count(o sale.Outcome) int64 { return t[o].Load() }

// seller sells what buyers ask for: a Stock, or somebody who does it worse.
type seller interface {
	Reserve(ctx context.Context, layout Layout, req sale.Request) sale.Result
}

// buyers lets n users buy at once through the given Stocks in turn, and returns the results by user.
func (l *lab) buyers(layout Layout, users []string, quantity int64, sellers ...seller) (*tally, map[string]sale.Result) {
	l.Helper()
	var counts tally
	results := make([]sale.Result, len(users))
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i, user := range users {
		wg.Go(func() {
			<-start
			results[i] = sellers[i%len(sellers)].Reserve(l.ctx, layout, request(layout, user, quantity, ""))
			counts[results[i].Outcome].Add(1)
		})
	}
	close(start)
	wg.Wait()
	byUser := make(map[string]sale.Result, len(users))
	for i, user := range users {
		byUser[user] = results[i]
	}
	return &counts, byUser
}

func numbered(from, n, step int) []string {
	users := make([]string, n)
	for i := range users {
		users[i] = strconv.Itoa(from + i*step)
	}
	return users
}
