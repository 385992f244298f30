package consumer

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"flashgate/internal/broker"
	"flashgate/internal/ledger"
)

// metrics of a Consumer. Without a registerer they are counted and not shown.
type metrics struct {
	registerer prometheus.Registerer
	registered []prometheus.Collector

	records      *prometheus.CounterVec
	letters      *prometheus.CounterVec
	batchSize    prometheus.Histogram
	writeSeconds prometheus.Histogram
	retries      prometheus.Counter
	letterErrors prometheus.Counter
	commitErrors prometheus.Counter
	fetchErrors  prometheus.Counter
	lag          *prometheus.GaugeVec
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		registerer: registerer,
		records: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "flashgate_consumer_records_total",
			Help: "Reservations handed to the ledger, by what it did with them: stored; redelivered, whose row was there; conflict, another one had its id; " +
				"rejected for one of four reasons; purged, let go because orders of the item had been deleted.",
		}, []string{"outcome"}),
		letters: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "flashgate_consumer_dead_letters_total",
			Help: "Records written to the dead-letter topic, by reason.",
		}, []string{"reason"}),
		batchSize: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "flashgate_consumer_batch_records", Help: "Records of one poll.", Buckets: prometheus.ExponentialBuckets(1, 4, 7),
		}),
		writeSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "flashgate_consumer_write_seconds", Help: "Time of one transaction of the ledger, failed ones too.",
			Buckets: []float64{0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10},
		}),
		retries:      counter("flashgate_consumer_write_retries_total", "Batches that were tried again because the database was in trouble."),
		letterErrors: counter("flashgate_consumer_dead_letter_errors_total", "Failed attempts to set a record aside; its partition waits."),
		commitErrors: counter("flashgate_consumer_commit_errors_total", "Failed commits of offsets."),
		fetchErrors:  counter("flashgate_consumer_fetch_errors_total", "Errors of partitions while fetching."),
		lag: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "flashgate_consumer_lag_records", Help: "Records of a partition of this member that are not stored yet.",
		}, []string{"partition"}),
	}
	for w := ledger.Stored; w.String() != "invalid"; w++ {
		m.records.WithLabelValues(w.String())
	}
	for _, reason := range []string{broker.ReasonTombstone, broker.ReasonEmpty, broker.ReasonMalformed, broker.ReasonVersion, broker.ReasonInvalid, broker.ReasonRefused} {
		m.letters.WithLabelValues(reason)
	}
	m.register(m.records, m.letters, m.batchSize, m.writeSeconds, m.retries, m.letterErrors, m.commitErrors, m.fetchErrors, m.lag)
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

// unregister makes room for another consumer in the same registry.
func (m *metrics) unregister() {
	for _, c := range m.registered {
		m.registerer.Unregister(c)
	}
	m.registered = nil
}

func (m *metrics) setLag(partition int32, records int64) {
	m.lag.WithLabelValues(strconv.Itoa(int(partition))).Set(float64(records))
}

// forgetLag removes the lag of partitions that are ours no longer.
func (m *metrics) forgetLag(partitions []int32) {
	for _, p := range partitions {
		m.lag.DeleteLabelValues(strconv.Itoa(int(p)))
	}
}
