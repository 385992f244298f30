package invariant

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/rueidis"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/ledger"
	"flashgate/internal/sale"
	"flashgate/shard"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// timeout is for a machine under load; no test is about it.
const timeout = time.Minute

// recorder is a publisher whose events go nowhere by themselves.
type recorder struct{ events []sale.Event }

func (r *recorder) Publish(_ time.Time, events []sale.Event, done func(error)) {
	r.events = append(r.events, events...)
	done(nil)
}

// shop is an item of ten units in two shards, five of which are sold to two users.
type shop struct {
	testing.TB
	ctx    context.Context
	pool   *pgxpool.Pool
	db     *ledger.DB
	client rueidis.Client
	stock  *shard.Stock
	events *recorder
	layout shard.Layout
	orders []sale.OrderID
}

func newShop(t *testing.T) *shop {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	t.Cleanup(cancel)
	s := &shop{TB: t, ctx: ctx, events: &recorder{}}
	dsn := devtest.DatabaseLike(t, "invariant", ledger.Migrate)
	var err error
	s.pool, err = pgxpool.New(ctx, dsn)
	s.must(err)
	t.Cleanup(s.pool.Close)
	s.db, err = ledger.Open(ctx, ledger.Config{URL: dsn})
	s.must(err)
	t.Cleanup(s.db.Close)
	s.client, err = shard.Connect(shard.ConnectConfig{URL: devtest.MiniRedis(t).URL(), InProcess: true})
	s.must(err)
	t.Cleanup(s.client.Close)
	s.stock, err = shard.New(shard.Config{Client: s.client, Publisher: s.events, RecordDeadline: timeout, CallTimeout: timeout})
	s.must(err)

	now := time.Now()
	made, err := s.db.CreateSale(ctx, sale.Sale{
		Name: "test", StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour), PurchaseLimit: sale.PerItem, PaymentWindow: time.Hour, TimeZone: "UTC",
		Items: []sale.Item{{SKU: "sku", Quantity: 10, Price: "1980", Currency: "JPY", Shards: 2, MaxPerUser: 10, Model: sale.Counter}},
	})
	s.must(err)
	s.layout = shard.Layout{Item: made.Items[0].ID, Shards: 2}
	s.load()
	for user, quantity := range []int64{2, 3} {
		s.orders = append(s.orders, s.buy(fmt.Sprint(user), quantity))
	}
	s.write()
	return s
}

func (s *shop) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *shop) load() {
	s.Helper()
	token, ok, err := s.db.ClaimLoad(s.ctx, s.layout.Item, 0)
	if err != nil || !ok {
		s.Fatalf("claim: %v, %v", ok, err)
	}
	if ok, err := s.stock.Fence(s.ctx, s.layout.Item, 2, token); err != nil || !ok {
		s.Fatalf("fence: %v, %v", ok, err)
	}
	snapshot, ok, err := s.db.Snapshot(s.ctx, s.layout.Item, token)
	if err != nil || !ok {
		s.Fatalf("snapshot: %v, %v", ok, err)
	}
	if ok, err := s.stock.Load(s.ctx, s.layout, shard.Image{Token: token, Free: snapshot.Free(), Marks: snapshot.Marks}); err != nil || !ok {
		s.Fatalf("load: %v, %v", ok, err)
	}
	s.must(s.db.EndLoad(s.ctx, s.layout.Item, token))
}

func (s *shop) buy(user string, quantity int64) sale.OrderID {
	s.Helper()
	id := sale.NewOrderID(s.layout.Item)
	r := s.stock.Reserve(s.ctx, s.layout, sale.Request{OrderID: id, UserID: user, Quantity: quantity, Price: "1980", Currency: "JPY"})
	if r.Outcome != sale.Reserved {
		s.Fatalf("reserve: %s, %v", r.Outcome, r.Err)
	}
	<-r.Acked
	return id
}

func (s *shop) write() {
	s.Helper()
	_, err := s.db.Write(s.ctx, s.events.events)
	s.must(err)
}

func (s *shop) exec(sql string, args ...any) {
	s.Helper()
	_, err := s.pool.Exec(s.ctx, sql, args...)
	s.must(err)
}

func (s *shop) redis(n int, name string, command string, args ...string) {
	s.Helper()
	key := fmt.Sprintf("{item:%d:%d}:%s", s.layout.Item, n, name)
	s.must(s.client.Do(s.ctx, s.client.B().Arbitrary(command).Keys(key).Args(args...).Build()).Error())
}

// eventuallyChecked checks until the outbox entries, which are removed in the background, are gone.
func (s *shop) eventuallyChecked(want func(*Report) bool) *Report {
	s.Helper()
	var report *Report
	devtest.Eventually(s, timeout, func() bool {
		var err error
		report, err = Check(s.ctx, s.pool, s.stock, s.layout.Item, s.orders...)
		s.must(err)
		return want(report)
	}, "the report is as expected")
	return report
}

func TestWholeItem(t *testing.T) {
	s := newShop(t)
	report, err := Await(s.ctx, s.pool, s.stock, s.layout.Item, s.orders...)
	s.must(err)
	if !report.OK() || report.Quantity != 10 || report.Free != 5 || report.Live != 5 || report.Sold != 5 || report.Orders[sale.Pending] != 5 {
		t.Error(report)
	}
	if text := report.String(); !strings.Contains(text, "quantity 10 = free 5 + moving 0 + live 5") {
		t.Errorf("the text is %q", text)
	}
}

func TestEveryViolationIsFound(t *testing.T) {
	for name, tc := range map[string]struct {
		do    func(*shop)
		rules []Rule
	}{
		"sold is not what orders hold": {func(s *shop) { s.exec(`UPDATE flash_sale_item SET sold = 4`) }, []Rule{NotOversold}},
		"more is sold than there is": {func(s *shop) {
			s.exec(`ALTER TABLE flash_sale_item DROP CONSTRAINT chk_not_oversold`)
			s.exec(`UPDATE flash_sale_item SET quantity = 4`)
		}, []Rule{NotOversold, Balance}},
		"a unit too many": {func(s *shop) { s.redis(0, "stock", "INCRBY", "1") }, []Rule{Balance}},
		"a unit lost":     {func(s *shop) { s.redis(1, "stock", "DECRBY", "1") }, []Rule{Balance}},
		"two orders of a user": {func(s *shop) {
			s.exec(`DROP INDEX uq_flash_sale_order_live`)
			s.exec(`UPDATE flash_sale_order SET user_id = '0'`)
		}, []Rule{Balance, OneOrder}},
		"a buyer whom Redis does not know": {func(s *shop) {
			s.redis(1, "buyers", "HDEL", "1")
			s.redis(1, "meta", "HINCRBY", "marks", "-1")
		}, []Rule{Balance}},
		"a mark of another quantity": {func(s *shop) {
			s.redis(1, "buyers", "HSET", "1", s.orders[1].String()+"\t2\t1980\tJPY\t1790000000000\t\t")
		}, []Rule{Balance}},
		"a mark of an ended order": {func(s *shop) {
			_, _, err := s.db.Cancel(s.ctx, s.orders[0], "0")
			s.must(err)
			s.exec(`DELETE FROM flash_sale_correction`)
		}, []Rule{Balance, Returned}},
		"a unit that returned twice": {func(s *shop) {
			_, _, err := s.db.Cancel(s.ctx, s.orders[0], "0")
			s.must(err)
			s.exec(`DELETE FROM flash_sale_correction`)
			s.redis(0, "buyers", "HDEL", "0")
			s.redis(0, "meta", "HINCRBY", "marks", "-1")
			s.redis(0, "stock", "INCRBY", "4")
		}, []Rule{Balance}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			s.eventuallyChecked((*Report).OK)
			tc.do(s)
			report, err := Check(s.ctx, s.pool, s.stock, s.layout.Item, s.orders...)
			s.must(err)
			var found []Rule
			for _, v := range report.Violations {
				found = append(found, v.Rule)
			}
			slices.Sort(found)
			if report.OK() || !slices.Equal(slices.Compact(found), tc.rules) {
				t.Errorf("found %v, want %v: %s", found, tc.rules, report)
			}
		})
	}
}

func TestWhatIsOnItsWayIsNoViolation(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(*shop)
		says string
	}{
		"a reservation without a row": {func(s *shop) { s.buy("7", 1) }, "is in Redis and not in the database"},
		"a correction": {func(s *shop) {
			_, _, err := s.db.Cancel(s.ctx, s.orders[0], "0")
			s.must(err)
		}, "1 corrections wait"},
		"an outbox entry": {func(s *shop) { s.redis(0, "pending", "HSET", "batch", "blob") }, "1 entries in the outbox"},
		"a lost stock":    {func(s *shop) { s.redis(1, "stock", "DEL") }, "its stock is unknown"},
		"text for stock":  {func(s *shop) { s.redis(1, "stock", "SET", "seven") }, "unreadable"},
		"lost buyers":     {func(s *shop) { s.redis(1, "buyers", "DEL") }, "unreadable"},
		"a load": {func(s *shop) {
			_, _, err := s.db.ClaimLoad(s.ctx, s.layout.Item, 0)
			s.must(err)
		}, "a load is due or under way"},
		"a promise": {func(s *shop) { s.orders = append(s.orders, sale.NewOrderID(s.layout.Item)) }, "was promised"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			s.eventuallyChecked((*Report).OK)
			tc.do(s)
			report := s.eventuallyChecked(func(r *Report) bool {
				return slices.ContainsFunc(r.Unsettled, func(text string) bool { return strings.Contains(text, tc.says) })
			})
			if report.OK() || len(report.Violations) > 0 {
				t.Error(report)
			}
		})
	}
}

func TestPromiseThatIsNotKept(t *testing.T) {
	s := newShop(t)
	s.orders = append(s.orders, sale.NewOrderID(s.layout.Item))
	s.buy("lost", 1) // its event never arrives
	ctx, cancel := context.WithTimeout(s.ctx, 100*time.Millisecond)
	defer cancel()
	report, err := Await(ctx, s.pool, s.stock, s.layout.Item, s.orders...)
	s.must(err)
	if len(report.Violations) != 2 || report.Violations[0].Rule != Kept || report.Violations[1].Rule != Kept {
		t.Error(report)
	}
}

func TestManyCasesAreSummedUp(t *testing.T) {
	var cases []string
	for i := range 20 {
		cases = append(cases, fmt.Sprintf("case %02d", 19-i))
	}
	got := some(cases)
	want := []string{"case 00", "case 01", "case 02", "case 03", "case 04", "and 15 more of this kind"}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestItemThatDoesNotExist(t *testing.T) {
	s := newShop(t)
	if _, err := Check(s.ctx, s.pool, s.stock, 4711); err == nil {
		t.Error("no error")
	}
}
