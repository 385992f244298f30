package gateway

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"flashgate/internal/sale"
	"flashgate/internal/token"
)

// world is everything around a gateway, held in memory behind the ports: what is tested here is the gateway alone. Every part can be replaced by a
// function; the zero world sells without end.
type world struct {
	signer *token.Signer
	tokens *token.Verifier

	mu         sync.Mutex
	items      []sale.Item
	reads      int
	requests   []sale.Request
	marks      map[string]sale.Mark
	rows       map[sale.OrderID]sale.Order
	buyers     []string
	loaded     int64                    // the epoch that Redis has; 0: that of the item, whoever asks
	limited    map[string]time.Duration // "addr", "user", "read", "look" → how long until the next token
	charged    []string                 // the buckets that were asked for a token, in order
	looks      []looked
	notices    []Notice
	unready    bool
	ready      func(ctx context.Context) bool
	cancelled  []string
	told       []string // calls about payments: "pay", "unwritten"
	payments   []sale.Payment
	hear       func(Notice)
	nudge      func()
	subscribed chan struct{}
	watched    chan struct{}

	limit           func()
	catalogue       func(ctx context.Context) ([]sale.Item, error)
	reserve         func(ctx context.Context, item *sale.Item, r sale.Request) sale.Result
	prove           func(ctx context.Context, item *sale.Item) (Proof, error)
	reprove         func(ctx context.Context, item *sale.Item, last Proof) (Reproof, error)
	fetch           func(ctx context.Context, yield func(string)) error
	announce        func(ctx context.Context, n Notice) error
	mark            func(ctx context.Context, item *sale.Item, user string) (sale.Mark, bool, error)
	row             func(ctx context.Context, id sale.OrderID) (sale.Order, bool, error)
	live            func(ctx context.Context, item int64, user string) (sale.Order, bool, error)
	cancel          func(ctx context.Context, id sale.OrderID, user string) (sale.Order, Cancellation, error)
	cancelUnwritten func(ctx context.Context, event sale.Event) (sale.Order, Cancellation, error)
	pay             func(ctx context.Context, p sale.Payment) (sale.PaymentResult, PayOutcome, error)
	unwritten       func(ctx context.Context, item int64) (bool, error)
}

var secret = []byte("0123456789abcdef0123456789abcdef")

const theItem = 1001

// ports returns the world as a gateway sees it.
func (w *world) ports() Ports {
	return Ports{
		Seller: w, Zero: w, Marks: w, Orders: w, Payments: w, Source: w, Notices: w, Limits: w, Clients: w, Tokens: w.tokens,
		Ready: func(ctx context.Context) bool {
			w.mu.Lock()
			ready, unready := w.ready, w.unready
			w.mu.Unlock()
			if ready != nil {
				return ready(ctx)
			}
			return !unready
		},
	}
}

func newWorld(tb testing.TB) *world {
	tb.Helper()
	keys, err := token.NewKeys(token.KeyConfig{Secret: secret})
	must(tb, err)
	verifier, err := token.NewVerifier(token.Config{Keys: keys, Leeway: token.DefaultLeeway})
	must(tb, err)
	signer, err := token.NewSigner(token.SignerConfig{Secret: secret})
	must(tb, err)
	now := time.Now()
	return &world{
		signer: signer, tokens: verifier,
		items:      []sale.Item{onSale(theItem, now)},
		marks:      map[string]sale.Mark{},
		rows:       map[sale.OrderID]sale.Order{},
		limited:    map[string]time.Duration{},
		subscribed: make(chan struct{}),
		watched:    make(chan struct{}),
	}
}

// beside is a world in which the same is true, for another gateway.
func (w *world) beside(tb testing.TB) *world {
	tb.Helper()
	other := newWorld(tb)
	w.mu.Lock()
	defer w.mu.Unlock()
	other.items, other.marks, other.rows, other.buyers = slices.Clone(w.items), maps.Clone(w.marks), maps.Clone(w.rows), slices.Clone(w.buyers)
	other.mark, other.fetch = w.mark, w.fetch
	return other
}

// onSale is an item that is on sale for an hour around now.
func onSale(id int64, now time.Time) sale.Item {
	return sale.Item{
		ID: id, SaleID: 1, Quantity: 100, Price: "1980", Currency: "JPY", Shards: 4, MaxPerUser: 5, Model: sale.Counter, Epoch: 7,
		StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour), PurchaseLimit: sale.PerItem,
	}
}

// change changes what the world knows.
func (w *world) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// set changes an item, for the next reading of the catalogue.
func (w *world) set(f func(*sale.Item)) { w.change(func() { f(&w.items[0]) }) }

func (w *world) Reserve(ctx context.Context, item *sale.Item, r sale.Request) sale.Result {
	w.mu.Lock()
	w.requests = append(w.requests, r)
	f := w.reserve
	w.mu.Unlock()
	if f != nil {
		return f(ctx, item, r)
	}
	return sale.Result{Outcome: sale.Reserved, OrderID: r.OrderID, Shard: sale.Home(r.UserID, item.Shards), Epoch: item.Epoch, Acked: closedChannel()}
}

func closedChannel() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// asked returns the requests to reserve so far.
func (w *world) asked() []sale.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]sale.Request(nil), w.requests...)
}

// askedCount returns how many there were.
func (w *world) askedCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.requests)
}

// looked is a bucket of looks.
type looked struct {
	addr netip.Addr
	user uint64
}

// proof is a Proof.
type proof struct {
	empty bool
	at    time.Time
}

func (p proof) Empty() bool   { return p.empty }
func (p proof) At() time.Time { return p.at }

func (w *world) Prove(ctx context.Context, item *sale.Item) (Proof, error) {
	w.mu.Lock()
	f := w.prove
	w.mu.Unlock()
	if f != nil {
		return f(ctx, item)
	}
	return proof{empty: true, at: time.Now()}, nil
}

func (w *world) Reprove(ctx context.Context, item *sale.Item, last Proof) (Reproof, error) {
	w.mu.Lock()
	f := w.reprove
	w.mu.Unlock()
	if f != nil {
		return f(ctx, item, last)
	}
	return Reproof{Same: true, Next: proof{empty: true, at: time.Now()}}, nil
}

func (w *world) Buyers(ctx context.Context, item *sale.Item, yield func(string)) (int64, error) {
	w.mu.Lock()
	f, buyers, epoch := w.fetch, append([]string(nil), w.buyers...), cmp.Or(w.loaded, item.Epoch)
	w.mu.Unlock()
	if f != nil {
		return epoch, f(ctx, yield)
	}
	for _, b := range buyers {
		yield(b)
	}
	return epoch, nil
}

func (w *world) Mark(ctx context.Context, item *sale.Item, user string) (sale.Mark, bool, error) {
	w.mu.Lock()
	f := w.mark
	m, ok := w.marks[user]
	w.mu.Unlock()
	if f != nil {
		return f(ctx, item, user)
	}
	return m, ok, nil
}

func (w *world) Order(ctx context.Context, id sale.OrderID) (sale.Order, bool, error) {
	w.mu.Lock()
	f := w.row
	o, ok := w.rows[id]
	w.mu.Unlock()
	if f != nil {
		return f(ctx, id)
	}
	return o, ok, nil
}

func (w *world) LiveOrder(ctx context.Context, item int64, user string) (sale.Order, bool, error) {
	w.mu.Lock()
	f := w.live
	w.mu.Unlock()
	if f != nil {
		return f(ctx, item, user)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.rows {
		if o.ItemID == item && o.UserID == user && o.Status.Live() {
			return o, true, nil
		}
	}
	return sale.Order{}, false, nil
}

func (w *world) Cancel(ctx context.Context, id sale.OrderID, user string) (sale.Order, Cancellation, error) {
	w.mu.Lock()
	f := w.cancel
	w.cancelled = append(w.cancelled, "row")
	w.mu.Unlock()
	if f != nil {
		return f(ctx, id, user)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	o, ok := w.rows[id]
	switch {
	case !ok || o.UserID != user:
		return sale.Order{}, CancelMissing, nil
	case o.Status == sale.Pending || o.Status == sale.Cancelled:
		o.Status = sale.Cancelled
		w.rows[id] = o
		return o, Cancelled, nil
	}
	return o, NotCancellable, nil
}

func (w *world) CancelUnwritten(ctx context.Context, event sale.Event) (sale.Order, Cancellation, error) {
	w.mu.Lock()
	f := w.cancelUnwritten
	w.cancelled = append(w.cancelled, "unwritten")
	w.mu.Unlock()
	if f != nil {
		return f(ctx, event)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.rows[event.OrderID]; ok {
		return sale.Order{}, CancelMissing, nil
	}
	o := sale.Order{
		ID: event.OrderID, ItemID: event.ItemID, UserID: event.UserID, Quantity: event.Quantity, Price: event.Price, Currency: event.Currency,
		Status: sale.Cancelled, ReservedAt: event.ReservedAt, ExpiresAt: event.ReservedAt.Add(10 * time.Minute), Epoch: event.Epoch, Shard: event.Shard,
		KeyHash: event.KeyHash,
	}
	w.rows[o.ID] = o
	return o, Cancelled, nil
}

func (w *world) Catalogue(ctx context.Context) ([]sale.Item, error) {
	w.mu.Lock()
	f, items := w.catalogue, append([]sale.Item(nil), w.items...)
	w.reads++
	w.mu.Unlock()
	if f != nil {
		return f(ctx)
	}
	return items, nil
}

func (w *world) Watch(ctx context.Context, changed func()) error {
	w.change(func() { w.nudge = changed; close(w.watched) })
	<-ctx.Done()
	return ctx.Err()
}

// news tells the gateway that the catalogue has changed.
func (w *world) news() {
	<-w.watched
	w.nudge()
}

func (w *world) Announce(ctx context.Context, n Notice) error {
	w.mu.Lock()
	w.notices = append(w.notices, n)
	f := w.announce
	w.mu.Unlock()
	if f != nil {
		return f(ctx, n)
	}
	return nil
}

func (w *world) Subscribe(ctx context.Context, heard func(Notice)) error {
	w.change(func() {
		w.hear = heard
		select {
		case <-w.subscribed:
		default:
			close(w.subscribed)
		}
	})
	<-ctx.Done()
	return ctx.Err()
}

// say delivers a notice to the gateway.
func (w *world) say(n Notice) {
	<-w.subscribed
	w.mu.Lock()
	hear := w.hear
	w.mu.Unlock()
	hear(n)
}

// announced returns the notices so far.
func (w *world) announced() []Notice {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Notice(nil), w.notices...)
}

func (w *world) allow(what string) (bool, time.Duration) {
	if w.limit != nil {
		w.limit()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.charged = append(w.charged, what)
	after, limited := w.limited[what]
	return !limited, after
}

func (w *world) PurchaseAddr(netip.Addr) (bool, time.Duration) { return w.allow("addr") }
func (w *world) PurchaseUser(string) (bool, time.Duration)     { return w.allow("user") }
func (w *world) ReadUser(string) (bool, time.Duration)         { return w.allow("read") }
func (w *world) LookAddr(addr netip.Addr, user uint64) bool {
	w.change(func() { w.looks = append(w.looks, looked{addr, user}) })
	ok, _ := w.allow("look")
	return ok
}
func (w *world) Header() string { return "X-Forwarded-For" }
func (w *world) Resolve(peer netip.Addr, _ [][]byte) netip.Addr {
	return peer
}

// token signs a token for a user.
func (w *world) token(tb testing.TB, user string) string {
	tb.Helper()
	t, err := w.signer.Sign(user, time.Hour, time.Now())
	must(tb, err)
	return t
}

// forged is a token that names a user and does not verify.
func (w *world) forged(tb testing.TB, user string) string {
	tb.Helper()
	signer, err := token.NewSigner(token.SignerConfig{Secret: []byte("another-secret-another-secret-00")})
	must(tb, err)
	t, err := signer.Sign(user, time.Hour, time.Now())
	must(tb, err)
	return t
}

// expired is a token that was good until a minute ago.
func (w *world) expired(tb testing.TB, user string) string {
	tb.Helper()
	t, err := w.signer.Sign(user, time.Hour, time.Now().Add(-61*time.Minute))
	must(tb, err)
	return t
}
