package broker

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of a Producer. A nil registerer registers nothing; counting costs the same.
type metrics struct {
	registerer prometheus.Registerer
	registered []prometheus.Collector

	records *prometheus.CounterVec
	seconds prometheus.Histogram
	retried prometheus.Counter
	renewed prometheus.Counter
}

// The values of the label "result".
const (
	resultAcknowledged = "acknowledged"
	resultDeadline     = "deadline"
	resultFull         = "full"
	resultClosed       = "closed"
	resultFailed       = "failed"
)

func newMetrics(registerer prometheus.Registerer, p *Producer) *metrics {
	m := &metrics{
		registerer: registerer,
		records: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "flashgate_broker_records_total",
			Help: "Records handed to the producer, by what was reported of them. A record reported as failed may have arrived.",
		}, []string{"result"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "flashgate_broker_publish_seconds",
			Help:    "Time from a publication to the acknowledgement of its last record.",
			Buckets: []float64{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2},
		}),
		retried: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "flashgate_broker_retries_total",
			Help: "Records handed to the client again after they failed together with another record.",
		}),
		renewed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "flashgate_broker_producer_replacements_total",
			Help: "Kafka clients replaced because the broker had refused them a producer id.",
		}),
	}
	for _, result := range []string{resultAcknowledged, resultDeadline, resultFull, resultClosed, resultFailed} {
		m.records.WithLabelValues(result)
	}
	m.register(m.records, m.seconds, m.retried, m.renewed,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "flashgate_broker_buffered_records", Help: "Records that wait for the broker.",
		}, func() float64 { records, _ := p.Buffered(); return float64(records) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "flashgate_broker_buffered_bytes", Help: "Keys, values and headers of the records that wait for the broker.",
		}, func() float64 { _, bytes := p.Buffered(); return float64(bytes) }),
	)
	return m
}

func (m *metrics) register(collectors ...prometheus.Collector) {
	if m.registerer == nil {
		return
	}
	for _, c := range collectors {
		m.registerer.MustRegister(c)
		m.registered = append(m.registered, c)
	}
}

// unregister makes room for another producer in the same registry.
func (m *metrics) unregister() {
	for _, c := range m.registered {
		m.registerer.Unregister(c)
	}
	m.registered = nil
}

func (m *metrics) finished(c *call, err error) {
	result := resultFailed
	switch {
	case err == nil:
		result = resultAcknowledged
		m.seconds.Observe(time.Since(c.started).Seconds())
	case errors.Is(err, ErrDeadline):
		result = resultDeadline
	case errors.Is(err, ErrFull):
		result = resultFull
	case errors.Is(err, ErrClosed):
		result = resultClosed
	}
	m.records.WithLabelValues(result).Add(float64(c.size))
}

// Buffered returns how many records wait for the broker, and the bytes that they take.
func (p *Producer) Buffered() (records int, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.records, p.bytes
}
