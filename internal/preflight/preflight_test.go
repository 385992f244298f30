package preflight_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/twmb/franz-go/pkg/kgo"

	"flashgate/internal/broker"
	"flashgate/internal/devstack/devtest"
	"flashgate/internal/ledger"
	"flashgate/internal/preflight"
	"flashgate/internal/sale"
	"flashgate/shard"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// timeout is for a machine under load; no test is about it.
const timeout = time.Minute

// field is a system before its sale, on real servers.
type field struct {
	*testing.T
	ctx    context.Context
	cfg    preflight.Config
	db     *ledger.DB
	client rueidis.Client
	stock  *shard.Stock
}

type silent struct{}

func (silent) Publish(_ time.Time, _ []sale.Event, done func(error)) { done(errors.New("not here")) }

func newField(t *testing.T) *field {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	t.Cleanup(cancel)
	f := &field{T: t, ctx: ctx}
	f.cfg = preflight.Config{
		Database:   devtest.DatabaseLike(t, "preflight", ledger.Migrate),
		Redis:      devtest.Redis(t, "--appendonly", "yes").URL(),
		Kafka:      broker.Config{Brokers: devtest.Kfake(t).Brokers(), Partitions: 3},
		Keys:       func(context.Context) (string, error) { return "a key", nil },
		PaymentKey: 32,
		Timeout:    timeout,
	}
	var err error
	f.db, err = ledger.Open(ctx, ledger.Config{URL: f.cfg.Database})
	f.must(err)
	t.Cleanup(f.db.Close)
	f.client, err = shard.Connect(shard.ConnectConfig{URL: f.cfg.Redis})
	f.must(err)
	t.Cleanup(f.client.Close)
	f.stock, err = shard.New(shard.Config{Client: f.client, Publisher: silent{}, CallTimeout: timeout, RecordDeadline: timeout})
	f.must(err)
	t.Cleanup(func() { f.must(f.stock.Close(context.Background())) })
	return f
}

func (f *field) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// prepare makes everything that a sale needs but its stock, and returns the item.
func (f *field) prepare() sale.Item {
	f.Helper()
	_, err := broker.EnsureTopics(f.ctx, f.cfg.Kafka)
	f.must(err)
	member, err := kgo.NewClient(kgo.SeedBrokers(f.cfg.Kafka.Brokers...), kgo.ConsumerGroup("order-writer"), kgo.ConsumeTopics(broker.Orders))
	f.must(err)
	f.Cleanup(member.Close)
	go member.PollFetches(f.ctx) // joins the group
	now := time.Now()
	created, err := f.db.CreateSale(f.ctx, sale.Sale{
		Name: "test", StartsAt: now.Add(time.Hour), EndsAt: now.Add(2 * time.Hour), PurchaseLimit: sale.PerItem, PaymentWindow: time.Hour, TimeZone: "UTC",
		Items: []sale.Item{{Quantity: 10, Price: "1980", Currency: "JPY", Shards: 2, MaxPerUser: 1, Model: sale.Counter}},
	})
	f.must(err)
	return created.Items[0]
}

// load writes the stock of an item as a load does.
func (f *field) load(it sale.Item) {
	f.Helper()
	token, ok, err := f.db.ClaimLoad(f.ctx, it.ID, 0)
	f.must(err)
	if !ok {
		f.Fatal("somebody else loads")
	}
	_, err = f.stock.Fence(f.ctx, it.ID, it.Shards, token)
	f.must(err)
	snap, _, err := f.db.Snapshot(f.ctx, it.ID, token)
	f.must(err)
	_, err = f.stock.Load(f.ctx, shard.Layout{Item: it.ID, Shards: it.Shards}, shard.Image{Token: token, Free: snap.Free()})
	f.must(err)
}

// spread lays the units of an item into its shards by hand.
func (f *field) spread(item int64, stock ...int64) {
	f.Helper()
	for n, units := range stock {
		key := fmt.Sprintf("{item:%d:%d}:stock", item, n)
		f.must(f.client.Do(f.ctx, f.client.B().Set().Key(key).Value(fmt.Sprint(units)).Build()).Error())
	}
}

// wait runs preflight until it finds check with a verdict; the detail has to hold text.
func (f *field) wait(check string, verdict preflight.Verdict, text string) *preflight.Report {
	f.Helper()
	var report *preflight.Report
	devtest.Eventually(f, timeout, func() bool {
		report = preflight.Run(f.ctx, f.cfg)
		return found(report, check, verdict, text)
	}, "%s is %s: %s; at last %+v", check, verdict, text, &report)
	return report
}

func found(report *preflight.Report, check string, verdict preflight.Verdict, text string) bool {
	for _, finding := range report.Findings {
		if strings.HasPrefix(finding.Check, check) && finding.Verdict == verdict && strings.Contains(finding.Detail, text) {
			return true
		}
	}
	return false
}

func TestEverythingThatKeepsASaleFromOpening(t *testing.T) {
	f := newField(t)
	report := preflight.Run(f.ctx, f.cfg)
	for _, want := range []struct {
		check   string
		verdict preflight.Verdict
		text    string
	}{
		{"keys", preflight.Go, "a key"},
		{"payments", preflight.Go, ""},
		{"postgresql", preflight.Go, "takes writes"},
		{"schema", preflight.Go, "version"},
		{"connections", preflight.Go, "pool_max_conns="},
		{"redis 127.0.0.1", preflight.Caution, "no replica"},
		{"topic flash-sale-orders", preflight.NoGo, "flashgate migrate"},
		{"consumers", preflight.NoGo, "start `flashgate consumer`"},
		{"clock of postgresql", preflight.Go, "from this machine's"},
		{"clock of redis", preflight.Go, "from this machine's"},
		{"items", preflight.Caution, "nothing is on sale"},
	} {
		verdict := want.verdict
		if want.check == "redis 127.0.0.1" {
			verdict, want.text = preflight.Go, "noeviction" // it has an append-only file
		}
		if !found(report, want.check, verdict, want.text) {
			t.Errorf("%s is not %s (%q) in %+v", want.check, verdict, want.text, report.Findings)
		}
	}
	if report.Verdict != preflight.NoGo {
		t.Errorf("the verdict is %s", report.Verdict)
	}

	it := f.prepare()
	f.wait("consumers", preflight.Go, "1 in the group")
	f.wait("item", preflight.NoGo, "not loaded")
	f.load(it)
	f.spread(it.ID, 9, 1)
	f.wait("item", preflight.Caution, "unevenly spread")
	f.spread(it.ID, 5, 5)
	report = f.wait("item", preflight.Go, "10 of 10 units free in 2 shards of 5 to 5")
	if report.Verdict == preflight.NoGo {
		t.Errorf("the verdict is %s: %+v", report.Verdict, report.Findings)
	}

	// What works and is no good.
	half := sale.Price("1980.50")
	_, _, err := f.db.UpdateItem(f.ctx, it.ID, ledger.ItemPatch{Price: &half})
	f.must(err)
	f.wait("item", preflight.Caution, "1980.50 JPY has more decimals")
	for bytes, want := range map[int]string{0: "is not set", 15: "has 15 bytes"} {
		f.cfg.PaymentKey = bytes
		f.wait("payments", preflight.Caution, want)
	}

	// One unit too many.
	f.spread(it.ID, 5, 6)
	f.wait("item", preflight.NoGo, "I2")
	// A server that throws stock away.
	f.must(f.client.Do(f.ctx, f.client.B().ConfigSet().ParameterValue().ParameterValue("maxmemory-policy", "allkeys-lru").Build()).Error())
	f.wait("redis 127.0.0.1", preflight.NoGo, "allkeys-lru")
	f.must(f.client.Do(f.ctx, f.client.B().ConfigSet().ParameterValue().ParameterValue("maxmemory-policy", "noeviction").Build()).Error())
	// A full one.
	f.must(f.client.Do(f.ctx, f.client.B().ConfigSet().ParameterValue().ParameterValue("maxmemory", "100000").Build()).Error())
	f.wait("redis 127.0.0.1", preflight.NoGo, "is full")
	f.must(f.client.Do(f.ctx, f.client.B().ConfigSet().ParameterValue().ParameterValue("maxmemory", "0").Build()).Error())
	// A server that takes no writes.
	f.must(f.client.Do(f.ctx, f.client.B().Replicaof().Host("127.0.0.1").Port(1).Build()).Error())
	f.wait("redis 127.0.0.1", preflight.NoGo, "replica")
}

func TestMoreBuyersThanALoadCanBringBack(t *testing.T) {
	f := newField(t)
	it := f.prepare()
	f.load(it)
	if _, err := f.db.Restock(f.ctx, it.ID, 800_000, ""); err != nil {
		t.Fatal(err)
	}
	f.wait("item", preflight.Caution, "800010 units in 2 shards")
}

// Apache Kafka makes the topic in which groups are kept when the first one comes, and until then has no coordinator for any.
func TestKafkaThatNeverHadAGroup(t *testing.T) {
	f := newField(t)
	f.cfg.Kafka.Brokers = devtest.PrivateKafka(t).Brokers()
	report := preflight.Run(f.ctx, f.cfg)
	if !found(report, "consumers", preflight.NoGo, "start `flashgate consumer`") {
		t.Errorf("%+v", report.Findings)
	}
}

func TestServersThatAreAway(t *testing.T) {
	report := preflight.Run(t.Context(), preflight.Config{
		Database: "postgres://nobody@127.0.0.1:1/none", Redis: "redis://127.0.0.1:1", Kafka: broker.Config{Brokers: []string{"127.0.0.1:1"}},
		Keys:    func(context.Context) (string, error) { return "", errors.New("the file is empty") },
		Timeout: time.Second,
	})
	for _, check := range []string{"keys", "postgresql", "redis", "kafka"} {
		if !found(report, check, preflight.NoGo, "") {
			t.Errorf("%s is not no-go: %+v", check, report.Findings)
		}
	}
	if report.Verdict != preflight.NoGo {
		t.Errorf("the verdict is %s", report.Verdict)
	}
}

func TestAnOldSchema(t *testing.T) {
	f := newField(t)
	f.cfg.Database = devtest.Database(t)
	f.wait("schema", preflight.NoGo, "flashgate migrate")
}
