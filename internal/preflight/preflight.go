// Package preflight looks at everything that a sale needs before it opens, and says go or no-go on one page. It changes nothing.
//
//	preflight.go  Run, the checks in their order, the report
//	postgres.go   the database: reachable, schema, connections, settings
//	redis.go      every server of Redis: role, eviction, memory, writes that are kept
//	kafka.go      topics, partitions, replicas, the order writers
//	stock.go      items: loaded, in balance, spread over their shards
//	clocks.go     how far the clocks of this machine, PostgreSQL and Redis are apart
package preflight

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/rueidis"

	"flashgate/internal/broker"
	"flashgate/internal/ledger"
	"flashgate/internal/sale"
	"flashgate/shard"
)

// Verdict says what a finding means for the sale.
type Verdict string

// The verdicts.
const (
	Go      Verdict = "go"
	Caution Verdict = "caution" // it will sell, and something can be better
	NoGo    Verdict = "no-go"   // do not open the sale like this
)

// Finding is the result of one check.
type Finding struct {
	Check   string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	Detail  string  `json:"detail"`
}

// Report is what all checks found, in a fixed order.
type Report struct {
	Verdict  Verdict   `json:"verdict"` // the worst of all findings
	Findings []Finding `json:"findings"`
}

func (r *Report) add(check string, v Verdict, format string, args ...any) {
	r.Findings = append(r.Findings, Finding{check, v, fmt.Sprintf(format, args...)})
	if v == NoGo || v == Caution && r.Verdict == Go {
		r.Verdict = v
	}
}

// Config says where everything is. Database, Redis and Kafka are required.
type Config struct {
	Database string        // connection string
	Redis    string        // URL
	Kafka    broker.Config // partitions and replication: what the topics should have at least

	// InProcessRedis is as in shard.ConnectConfig.
	InProcessRedis bool
	// BlameKafka puts the setting in front of an error of Kafka that speaks against it. Default: none.
	BlameKafka func(error) error
	// Keys checks the keys of tokens, and what else the process would refuse to start without. It returns what it found, such as "HS256".
	Keys func(ctx context.Context) (string, error)
	// PaymentKey is the length of the key of the payment webhook in bytes; 0: there is none.
	PaymentKey int
	// Timeout bounds each check. Default 5 s.
	Timeout time.Duration
	Logger  *slog.Logger // default: nothing is logged
}

// Run makes all checks, one after another. A server that does not answer is a finding, not an error.
func Run(ctx context.Context, cfg Config) *Report {
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Second
	}
	if cfg.BlameKafka == nil {
		cfg.BlameKafka = func(err error) error { return err }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Kafka = cfg.Kafka.WithDefaults()
	f := &flight{Config: cfg, ctx: ctx, report: &Report{Verdict: Go}}
	defer f.close()
	for _, check := range []func(context.Context){f.keys, f.openDatabase, f.schema, f.connections, f.openRedis, f.redisServers, f.kafka, f.clocks, f.items} {
		bounded, cancel := context.WithTimeout(ctx, cfg.Timeout)
		check(bounded)
		cancel()
	}
	return f.report
}

// flight is one run. What could not be opened is nil, and the checks that need it find nothing to say.
type flight struct {
	Config
	ctx    context.Context // of the run; each check has a shorter one
	report *Report

	pool   *pgxpool.Pool
	ledger *ledger.DB
	redis  rueidis.Client
	stock  *shard.Stock
}

func (f *flight) close() {
	if f.stock != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = f.stock.Close(ctx) // it was only read
	}
	if f.redis != nil {
		f.redis.Close()
	}
	if f.ledger != nil {
		f.ledger.Close()
	}
	if f.pool != nil {
		f.pool.Close()
	}
}

func (f *flight) keys(ctx context.Context) {
	if f.Keys == nil {
		return
	}
	found, err := f.Keys(ctx)
	if err != nil {
		f.report.add("keys", NoGo, "%v", err)
	} else {
		f.report.add("keys", Go, "%s", found)
	}
	switch {
	case f.PaymentKey == 0:
		f.report.add("payments", Caution, "FLASHGATE_PAYMENT_SECRET is not set: the webhook refuses, and orders expire unpaid")
	case f.PaymentKey < minPaymentKey:
		f.report.add("payments", Caution, "FLASHGATE_PAYMENT_SECRET has %d bytes: below %d it can be guessed", f.PaymentKey, minPaymentKey)
	default:
		f.report.add("payments", Go, "the webhook has a key")
	}
}

// minPaymentKey is the least length in bytes of a key that cannot be guessed. Providers make these keys, in forms of their own, so a shorter one works.
const minPaymentKey = 16

// nobody publishes for a stock that is only read.
type nobody struct{}

func (nobody) Publish(_ time.Time, _ []sale.Event, done func(error)) {
	done(errors.New("preflight publishes nothing"))
}
