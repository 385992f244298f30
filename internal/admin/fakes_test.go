package admin_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"flashgate/internal/admin"
	"flashgate/internal/sale"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "open-sesame"

var errAway = errors.New("away")

// world is what stands behind the ports: a database and a Redis in memory, whose outages can be switched. What happened is written into steps.
type world struct {
	mu    sync.Mutex
	steps []string

	sales    map[int64]sale.Sale
	nextID   int64
	held     map[sale.OrderID]int64 // units of live orders
	restocks map[string]admin.Restock
	units    map[string]int64 // of the restocks by key
	waiting  map[int64]bool   // corrections that the relay has not carried out

	databaseDown, outcomeUnknown, redisDown bool

	shards map[int64][]admin.Shard
	loads  func(it sale.Item) error // by default it fills the shards
	// read is called before each reading of the stock, with its number.
	read     func(n int)
	readings int
	refresh  func() error

	desk
}

func newWorld() *world {
	return &world{
		sales: make(map[int64]sale.Sale), nextID: 1_000_000, held: make(map[sale.OrderID]int64), restocks: make(map[string]admin.Restock),
		units: make(map[string]int64), waiting: make(map[int64]bool), shards: make(map[int64][]admin.Shard),
		desk: desk{payments: make(map[sale.OrderID][]admin.Payment)},
	}
}

// did notes a step, and fails it when its server is down.
func (w *world) did(step string, down *bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.steps = append(w.steps, step)
	if *down {
		return errAway
	}
	return nil
}

func (w *world) id() int64 { w.nextID++; return w.nextID }

func (w *world) CreateSale(_ context.Context, s sale.Sale) (sale.Sale, *admin.Taken, error) {
	if err := w.did("create", &w.databaseDown); err != nil {
		return sale.Sale{}, nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.outcomeUnknown {
		return sale.Sale{}, nil, errors.Join(errAway, admin.ErrOutcomeUnknown)
	}
	if _, ok := w.sales[s.ID]; ok {
		return sale.Sale{}, &admin.Taken{What: "sale", ID: s.ID}, nil
	}
	for _, it := range s.Items {
		if _, ok := w.item(it.ID); ok {
			return sale.Sale{}, &admin.Taken{What: "item", ID: it.ID}, nil
		}
	}
	if s.ID == 0 {
		s.ID = w.id()
	}
	s.Items = slices.Clone(s.Items)
	for i := range s.Items {
		if s.Items[i].ID == 0 {
			s.Items[i].ID = w.id()
		}
		s.Items[i].SaleID = s.ID
	}
	w.sales[s.ID] = s
	return s, nil, nil
}

func (w *world) item(id int64) (*sale.Item, bool) {
	for _, s := range w.sales {
		for i := range s.Items {
			if s.Items[i].ID == id {
				return &s.Items[i], true
			}
		}
	}
	return nil, false
}

func (w *world) Sale(_ context.Context, id int64) (sale.Sale, bool, error) {
	if err := w.did("sale", &w.databaseDown); err != nil {
		return sale.Sale{}, false, err
	}
	s, ok := w.sales[id]
	return s, ok, nil
}

func (w *world) Sales(_ context.Context, after int64, limit int) ([]sale.Sale, error) {
	if err := w.did("sales", &w.databaseDown); err != nil {
		return nil, err
	}
	var page []sale.Sale
	for _, s := range w.sales {
		if s.ID > after {
			page = append(page, s)
		}
	}
	slices.SortFunc(page, func(a, b sale.Sale) int { return int(a.ID - b.ID) })
	return page[:min(limit, len(page))], nil
}

func (w *world) Item(_ context.Context, id int64) (sale.Item, bool, error) {
	if err := w.did("item", &w.databaseDown); err != nil {
		return sale.Item{}, false, err
	}
	if it, ok := w.item(id); ok {
		return *it, true, nil
	}
	return sale.Item{}, false, nil
}

func (w *world) Standing(_ context.Context, id int64, orders []sale.OrderID) (admin.Standing, bool, error) {
	if err := w.did("standing", &w.databaseDown); err != nil {
		return admin.Standing{}, false, err
	}
	it, ok := w.item(id)
	if !ok {
		return admin.Standing{}, false, nil
	}
	st := admin.Standing{Item: *it}
	for _, order := range orders {
		st.Held += w.held[order]
	}
	return st, true, nil
}

func (w *world) Restock(_ context.Context, id, units int64, key string) (admin.Restock, admin.RestockOutcome, error) {
	if err := w.did("restock", &w.databaseDown); err != nil {
		return admin.Restock{}, 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.outcomeUnknown {
		return admin.Restock{}, 0, errors.Join(errAway, admin.ErrOutcomeUnknown)
	}
	it, ok := w.item(id)
	switch {
	case !ok:
		return admin.Restock{}, admin.NoItem, nil
	case !it.RetiredAt.IsZero():
		return admin.Restock{}, admin.Retired, nil
	case it.Quantity > sale.MaxQuantity-units:
		return admin.Restock{}, admin.TooMany, nil
	}
	if known, ok := w.restocks[key]; ok && key != "" {
		if w.units[key] != units {
			return admin.Restock{}, admin.RestockKeyReused, nil
		}
		known.Repeated = true
		return known, admin.Restocked, nil
	}
	it.Quantity += units
	done := admin.Restock{Quantity: it.Quantity, Correction: w.id()}
	w.restocks[key], w.units[key] = done, units
	w.waiting[done.Correction] = true
	return done, admin.Restocked, nil
}

func (w *world) CorrectionDone(_ context.Context, correction int64) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.databaseDown {
		return false, errAway
	}
	return !w.waiting[correction], nil
}

// relay carries out the waiting corrections: units go to the first shard of the item, if it is loaded.
func (w *world) relay(id, units int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.waiting)
	if stock := w.shards[id][0].Stock; stock != nil {
		more := *stock + units // readings that were handed out stay as they were
		w.shards[id][0].Stock = &more
	}
}

func (w *world) Ping(context.Context) error { return w.did("ping", &w.redisDown) }

func (w *world) Read(_ context.Context, it sale.Item) ([]admin.Shard, error) {
	w.readings++
	if w.read != nil {
		w.read(w.readings)
	}
	if err := w.did("read", &w.redisDown); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.shards[it.ID]), nil
}

func (w *world) Free(_ context.Context, it sale.Item) (int64, bool, error) {
	if err := w.did("free", &w.redisDown); err != nil {
		return 0, false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var units int64
	for _, s := range w.shards[it.ID] {
		if !s.Known || s.Stock == nil {
			return 0, false, nil
		}
		units += *s.Stock
	}
	return units, true, nil
}

func (w *world) Load(ctx context.Context, it sale.Item) error {
	if err := w.did("load", &w.redisDown); err != nil {
		<-ctx.Done() // a loader tries until the time is over
		return ctx.Err()
	}
	if w.loads != nil {
		return w.loads(it)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range it.Shards {
		units := it.Quantity / int64(it.Shards)
		if int64(i) < it.Quantity%int64(it.Shards) {
			units++
		}
		w.shards[it.ID] = append(w.shards[it.ID], admin.Shard{Known: true, Stock: &units})
	}
	return nil
}

func (w *world) Refresh(context.Context) error {
	if w.refresh != nil {
		return w.refresh()
	}
	return w.did("refresh", &w.databaseDown)
}

// api returns the API in front of a world.
func (w *world) api(tb testing.TB) *admin.API {
	tb.Helper()
	return w.apiWith(tb, func(*admin.Config) {})
}

// apiWith is api with another configuration.
func (w *world) apiWith(tb testing.TB, change func(*admin.Config)) *admin.API {
	tb.Helper()
	cfg := w.config()
	change(&cfg)
	api, err := admin.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return api
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

// do asks the API directly, with the token. Headers are NAME: VALUE.
func do(api http.Handler, method, target, body string, headers ...string) answer {
	return doContext(context.Background(), api, method, target, body, headers...)
}

// doContext is do for a caller who may go away.
func doContext(ctx context.Context, api http.Handler, method, target, body string, headers ...string) answer {
	r := httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+token)
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	response := w.Result()
	defer response.Body.Close() //nolint:errcheck // a test
	text, _ := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(text)}
}

// put adds a sale with one item of the given quantity in two shards, loaded, and returns the item.
func (w *world) put(id, quantity int64) *sale.Item {
	start := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	w.sales[id] = sale.Sale{
		ID: id, Name: "sale", StartsAt: start, EndsAt: start.Add(time.Hour), PurchaseLimit: sale.PerItem, PaymentWindow: 10 * time.Minute, TimeZone: "UTC",
		Items: []sale.Item{{ID: 1000 + id, SaleID: id, Quantity: quantity, Price: "1980", Currency: "JPY", Shards: 2, MaxPerUser: 1, Model: sale.Counter, Epoch: 1}},
	}
	it, _ := w.item(1000 + id)
	_ = w.Load(context.Background(), *it)
	return it
}
