package broker

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"flashgate/internal/sale"
)

// What Publish reports when an event was not acknowledged. After ErrFull and ErrClosed it was never sent, except that ErrClosed may also mean a
// record that was on its way when Close ran out of time.
var (
	// ErrDeadline: the deadline passed. The event may be in Kafka or, for a moment still, arrive there.
	ErrDeadline = errors.New("not acknowledged by the broker before the deadline")
	// ErrFull: too many records wait for the broker in this process.
	ErrFull = errors.New("too many records wait for the broker")
	// ErrClosed: the producer is closed.
	ErrClosed = errors.New("the producer is closed")
)

// ProducerConfig is what a Producer needs beyond the connection.
type ProducerConfig struct {
	Config
	// MaxRecords bounds the records that wait for the broker. Default 50,000: more than two seconds of what two cores reserve.
	MaxRecords int
	// MaxBytes bounds their keys, values and headers. Default 64 MiB.
	MaxBytes int64
	// Registerer receives the metrics flashgate_broker_*. Default: none are registered.
	Registerer prometheus.Registerer
	// Now is the clock of dlq_time. Deadlines are kept by the runtime's timers. Default time.Now.
	Now func() time.Time
}

// WithDefaults returns c with the defaults filled in.
func (c ProducerConfig) WithDefaults() ProducerConfig {
	c.Config = c.Config.WithDefaults()
	if c.MaxRecords == 0 {
		c.MaxRecords = 50_000
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 64 << 20
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Validate reports the first setting, after WithDefaults, that cannot work.
func (c ProducerConfig) Validate() error {
	switch {
	case c.MaxRecords < 1:
		return fmt.Errorf("max records: %d is less than 1", c.MaxRecords)
	case c.MaxBytes < 1<<20:
		return fmt.Errorf("max bytes: %d is less than one record may have (1 MiB)", c.MaxBytes)
	}
	return c.Config.Validate()
}

// Producer writes records and says what became of each call, by its deadline at the latest. It never blocks its callers, and no failure outlives
// the call that it belongs to. All methods are safe for concurrent use.
//
// Lock order: Producer.mu is a leaf. No method of a client and no callback is called while it is held, because the client calls back into the
// producer from its own goroutines.
type Producer struct {
	cfg     ProducerConfig
	opts    []kgo.Opt
	metrics *metrics

	ctx   context.Context // the producer's own life; a request's context never reaches a record
	abort context.CancelFunc
	wg    sync.WaitGroup // callbacks and timers under way

	mu      sync.Mutex
	client  *kgo.Client
	renewed time.Time     // when the client was last being replaced
	closed  bool          // takes no more calls
	dead    bool          // and tries nothing again
	calls   int           // not finished
	idle    chan struct{} // closed when closed and calls == 0
	records int           // not yet given back by the client
	bytes   int64
	order   uint64     // of attempts
	waiting *list.List // of *attempt, by order: those whose context stands
}

// NewProducer makes a Producer. It connects when something is first published. The caller must Close it.
func NewProducer(cfg ProducerConfig) (*Producer, error) { return newProducer(cfg) }

// newProducer lets tests watch the client.
func newProducer(cfg ProducerConfig, watch ...kgo.Opt) (*Producer, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure the Kafka producer: %w", err)
	}
	opts, err := ClientOpts(cfg.Config)
	if err != nil {
		return nil, err
	}
	opts = append(append(opts, producerOpts(cfg)...), watch...)
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("make the Kafka producer: %w", err)
	}
	p := &Producer{cfg: cfg, opts: opts, client: client, idle: make(chan struct{}), waiting: list.New()}
	p.metrics = newMetrics(cfg.Registerer, p)
	p.ctx, p.abort = context.WithCancel(context.Background())
	return p, nil
}

func producerOpts(cfg ProducerConfig) []kgo.Opt {
	return []kgo.Opt{
		kgo.RequiredAcks(kgo.AllISRAcks()),
		// Without this the context of a record that was sent is ignored until its broker answers: one frozen broker would hold records, and
		// the memory that they take, for as long as it likes. The price is that a record given up and published again may be there twice,
		// which the ledger does not mind.
		kgo.AllowIdempotentProduceCancellation(),
		// How long the leader waits for its followers. Longer than that is for the record's deadline to decide.
		kgo.ProduceRequestTimeout(cfg.RequestTimeout),
		// Reservations come in batches already, and what arrives while requests are in flight is sent together. Waiting gains nothing.
		kgo.ProducerLinger(0),
		// The hash of the Java client: the same key is in the same partition whoever wrote it.
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		// The limits are Publish's own: a record that franz-go refuses for being over its limit can make its caller wait for earlier refusals to
		// be reported. These are out of its reach.
		kgo.MaxBufferedRecords(cfg.MaxRecords + 1_000),
		kgo.ProducerBatchMaxBytesFn(func(topic string) int32 {
			if topic == DeadLetters {
				return deadLetterMaxBytes
			}
			return 1_000_012 // the default of brokers for every other topic
		}),
	}
}

// Publish writes the events to the orders topic and calls done exactly once: with nil when the brokers have acknowledged every one of them, else, at
// the deadline or earlier, with what went wrong first. Publish itself does not wait for anything. done runs on a goroutine of its own, possibly
// before Publish returns, and holds up nothing but Close.
//
// Nothing is handed to a connection after its deadline; a process that is stopped in the middle of writing may send late. Events of one key published one after another are written in that order while none fails; one that failed and
// is tried again may be overtaken, and one may be written twice.
func (p *Producer) Publish(deadline time.Time, events []sale.Event, done func(error)) {
	records := make([]*kgo.Record, len(events))
	for i, event := range events {
		records[i] = Encode(event)
	}
	p.submit(deadline, records, done)
}

// call is one set of records whose fate is reported together.
type call struct {
	started time.Time
	size    int
	done    func(error)

	ctx      context.Context // ends at the deadline
	cancel   context.CancelFunc
	unwatch  func() bool // takes back the watch over ctx
	deadline time.Time

	// Guarded by Producer.mu.
	left     int      // records not acknowledged
	finished bool     // done has been called, or is about to be
	current  *attempt // nil between two attempts
}

// submit admits records as one call, or refuses them at once.
func (p *Producer) submit(deadline time.Time, records []*kgo.Record, done func(error)) *call {
	c := &call{deadline: deadline, started: time.Now(), size: len(records), left: len(records), done: done}
	bytes := sizeOf(records)
	p.mu.Lock()
	var refused error
	switch {
	case p.closed:
		refused = ErrClosed
	case p.records+len(records) > p.cfg.MaxRecords || p.bytes+bytes > p.cfg.MaxBytes:
		refused = ErrFull
	case !c.started.Before(deadline):
		refused = ErrDeadline
	}
	if refused != nil || len(records) == 0 {
		c.finished = true
		p.mu.Unlock()
		p.metrics.finished(c, refused)
		go done(refused) // not Close's to wait for: it may have returned
		return c
	}
	p.calls++
	p.records += len(records)
	p.bytes += bytes
	p.wg.Add(2) // for the callback and for the watch over the deadline
	c.ctx, c.cancel = context.WithDeadline(p.ctx, deadline)
	c.unwatch = context.AfterFunc(c.ctx, func() {
		defer p.wg.Done()
		p.expired(c)
	})
	a, client := p.begin(c, 1, len(records))
	p.mu.Unlock()
	p.produce(client, a, records)
	return c
}

// finish reports the fate of a call unless that has happened. Called with mu held.
func (p *Producer) finish(c *call, err error) {
	if c.finished {
		return
	}
	c.finished = true
	p.metrics.finished(c, err)
	go func() {
		defer p.wg.Done()
		c.done(err)
	}()
	p.calls--
	if p.closed && p.calls == 0 {
		close(p.idle)
	}
}

// over lets go of a call none of whose records will be tried again or is with the client. Called with mu held.
func (p *Producer) over(c *call) {
	if c.unwatch() {
		p.wg.Done()
	}
	c.cancel()
}

// giveUp finishes a call before its time; its records are no longer tried.
func (p *Producer) giveUp(c *call, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finish(c, err)
}

// produceSync writes one record and waits until it is acknowledged, has failed or ctx is done.
func (p *Producer) produceSync(ctx context.Context, record *kgo.Record) error {
	deadline, ok := ctx.Deadline()
	if limit := time.Now().Add(syncLimit); !ok || deadline.After(limit) {
		deadline = limit
	}
	result := make(chan error, 1)
	c := p.submit(deadline, []*kgo.Record{record}, func(err error) { result <- err })
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		p.giveUp(c, ctx.Err())
		// The record may have been acknowledged between the two: then that is the answer.
		return <-result
	}
}

// syncLimit bounds a synchronous write whose caller set no bound.
const syncLimit = 30 * time.Second

// Close takes no more calls, waits until those under way are finished or ctx is done, fails the rest with ErrClosed, and returns when their
// callbacks have returned. It may be called again. The error says that calls were left when ctx was done.
func (p *Producer) Close(ctx context.Context) error {
	p.mu.Lock()
	first := !p.closed
	p.closed = true
	if first && p.calls == 0 {
		close(p.idle)
	}
	p.mu.Unlock()

	var err error
	select {
	case <-p.idle:
	case <-ctx.Done():
		p.mu.Lock()
		if p.calls > 0 {
			err = fmt.Errorf("close the Kafka producer: %d publications were not acknowledged in time: %w", p.calls, ctx.Err())
		}
		p.mu.Unlock()
	}
	p.mu.Lock()
	p.dead = true
	client := p.client
	p.mu.Unlock()
	// Ends every call: their contexts are children of this one.
	p.abort()
	client.Close()
	p.wg.Wait()
	p.metrics.unregister()
	return err
}

func sizeOf(records []*kgo.Record) (bytes int64) {
	for _, record := range records {
		bytes += size(record)
	}
	return bytes
}

// size is what a record takes in the buffer, as franz-go counts it.
func size(record *kgo.Record) int64 {
	n := len(record.Key) + len(record.Value)
	for _, header := range record.Headers {
		n += len(header.Key) + len(header.Value)
	}
	return int64(n)
}
