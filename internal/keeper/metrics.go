package keeper

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Alarms: what an operator should look at, as the label `alarm` names it.
const (
	alarmEntry      = "unreadable_entry"      // an outbox entry that cannot be read: its orders wait for somebody who can
	alarmOutbox     = "unreadable_outbox"     // a whole outbox that is none
	alarmGiveUp     = "give_up_refused"       // the database refuses the row of a reservation
	alarmCorrection = "unreadable_correction" // the shard of a correction cannot be read; a load is due
	alarmLoad       = "load_failed"           // a load did not come to its end; it is tried again
	alarmDrift      = "drift"                 // Redis and the database do not agree about an item, and nothing that is under way explains it
	alarmStock      = "stock_"                // and the reason of the load that is due because of a shard
)

// alarmItems bounds the items that alarms are counted by; all others share the label "other".
const alarmItems = 200

// metrics are described in the package comment.
type metrics struct {
	swept       *prometheus.CounterVec
	expired     prometheus.Counter
	corrections *prometheus.CounterVec
	loads       *prometheus.CounterVec
	loadSeconds prometheus.Histogram
	alarms      *prometheus.CounterVec
	panics      *prometheus.CounterVec
	waiting     prometheus.Gauge
	oldest      prometheus.Gauge

	events        *prometheus.CounterVec
	eventsWaiting prometheus.Gauge
	eventsOldest  prometheus.Gauge
	retired       prometheus.Counter
	drift         *prometheus.GaugeVec
	concerned     *prometheus.GaugeVec

	mu      sync.Mutex
	items   map[int64]bool
	backlog map[int64]backlog
}

// backlog is what the last sweep of an item left in its outboxes.
type backlog struct {
	reservations int
	oldest       time.Duration
}

// newMetrics registers with r, unless it is nil. A loader and a keeper of one process share what the first of them registered.
func newMetrics(r prometheus.Registerer) (*metrics, error) {
	opts := func(what, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "flashgate", Subsystem: "keeper", Name: what, Help: help}
	}
	counter := func(what, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts(opts(what, help)), labels)
	}
	gauge := func(what, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts(opts(what, help)))
	}
	m := &metrics{items: make(map[int64]bool), backlog: make(map[int64]backlog)}
	var errs [15]error
	m.swept, errs[0] = register(r, counter("swept_reservations_total", "Reservations found in an outbox, by what became of them.", "result"))
	m.expired, errs[1] = register(r, prometheus.NewCounter(prometheus.CounterOpts(opts("expired_orders_total", "Orders that nobody paid for in time."))))
	m.corrections, errs[2] = register(r, counter("corrections_total", "Attempts to carry out a correction of Redis.", "op", "result"))
	m.loads, errs[3] = register(r, counter("loads_total", "Loads of an item, by why they were due and how they ended.", "reason", "result"))
	m.loadSeconds, errs[4] = register(r, prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: "flashgate", Subsystem: "keeper", Name: "load_seconds", Help: "Time from the claim of a load until the stock is there.",
		Buckets: prometheus.ExponentialBuckets(0.01, 2, 14),
	}))
	m.alarms, errs[5] = register(r, counter("alarms_total", "What an operator should look at.", "alarm", "item"))
	m.panics, errs[6] = register(r, counter("panics_total", "Faults of the program that were caught; the loop went on.", "loop"))
	m.waiting, errs[7] = register(r, gauge("outbox_reservations", "Reservations left in outboxes by the last sweep of each item."))
	m.oldest, errs[8] = register(r, gauge("outbox_oldest_seconds", "Age of the oldest of them."))
	m.events, errs[9] = register(r, counter("events_total", "Order events handed to the broker, by whether it acknowledged them. One that failed is tried again, and may have arrived.", "result"))
	m.eventsWaiting, errs[10] = register(r, gauge("events_waiting", "Order events in the database that are not known to be in Kafka. Every keeper counts them all, up to 100,000."))
	m.eventsOldest, errs[11] = register(r, gauge("events_oldest_seconds", "Age of the oldest of them."))
	m.retired, errs[12] = register(r, prometheus.NewCounter(prometheus.CounterOpts(opts("retired_items_total", "Items that this process retired."))))
	itemGauge := func(what, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts(opts(what, help)), []string{"item"})
	}
	m.drift, errs[13] = register(r, itemGauge("drift_units", "Units of an item that are missing from Redis, below 0: too many, and that nothing in flight explains. Of items on sale, by the keeper whose turn it is."))
	m.concerned, errs[14] = register(r, itemGauge("concerned_orders", "Orders that are not in Redis as they should be."))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	for _, result := range []string{"published", "failed"} {
		m.events.WithLabelValues(result)
	}
	return m, nil
}

func register[C prometheus.Collector](r prometheus.Registerer, c C) (C, error) {
	if r == nil {
		return c, nil
	}
	err := r.Register(c)
	var there prometheus.AlreadyRegisteredError
	if errors.As(err, &there) {
		if old, ok := there.ExistingCollector.(C); ok {
			return old, nil
		}
	}
	return c, err
}

// alarm counts an alarm.
func (m *metrics) alarm(what string, item int64) { m.alarms.WithLabelValues(what, m.label(item)).Inc() }

// label is how an item is named in alarms.
func (m *metrics) label(item int64) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.items) < alarmItems {
		m.items[item] = true
	}
	if m.items[item] {
		return strconv.FormatInt(item, 10)
	}
	return "other"
}

// left records what a sweep left.
func (m *metrics) left(item int64, b backlog) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b == (backlog{}) {
		delete(m.backlog, item)
	} else {
		m.backlog[item] = b
	}
	m.show()
}

// leftNothing forgets what was recorded: somebody else sweeps now.
func (m *metrics) leftNothing() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.backlog)
	m.show()
}

// show sets the gauges. Called with mu held.
func (m *metrics) show() {
	var sum backlog
	for _, b := range m.backlog {
		sum.reservations += b.reservations
		sum.oldest = max(sum.oldest, b.oldest)
	}
	m.waiting.Set(float64(sum.reservations))
	m.oldest.Set(sum.oldest.Seconds())
}
