package shard

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"flashgate/internal/sale"
)

// metrics are described in the package comment.
type metrics struct {
	calls        *prometheus.CounterVec
	callSeconds  prometheus.Histogram
	batch        prometheus.Histogram
	outcomes     [sale.Unknown + 1]prometheus.Counter
	moves        *prometheus.CounterVec
	movedUnits   prometheus.Counter
	proofs       *prometheus.CounterVec
	lost         *prometheus.CounterVec
	publications *prometheus.CounterVec
	unacked      prometheus.Counter
}

// newMetrics registers with r, unless it is nil; waiting is asked for the number of queued requests.
func newMetrics(r prometheus.Registerer, waiting func() float64) (*metrics, error) {
	name := func(what, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "flashgate", Subsystem: "shard", Name: what, Help: help}
	}
	counter := func(what, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts(name(what, help)))
	}
	vec := func(what, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts(name(what, help)), []string{label})
	}
	histogram := func(what, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "flashgate", Subsystem: "shard", Name: what, Help: help, Buckets: buckets,
		})
	}
	outcomes := vec("outcomes_total", "Answers to requests for units.", "outcome")
	m := &metrics{
		calls:        vec("reserve_calls_total", "Reserve scripts sent.", "result"),
		callSeconds:  histogram("reserve_call_seconds", "Time of a reserve script, round trip included.", prometheus.ExponentialBuckets(0.0001, 2, 15)),
		batch:        histogram("batch_requests", "Requests in one reserve script.", prometheus.ExponentialBuckets(1, 2, 9)),
		moves:        vec("moves_total", "Transfers of units between shards.", "result"),
		movedUnits:   counter("moved_units_total", "Units that arrived at another shard."),
		proofs:       vec("proofs_total", "Two-pass readings of all shards of an item.", "result"),
		lost:         vec("lost_replies_total", "Reserve calls without a reply, by what was read back.", "found"),
		publications: vec("publications_total", "Batches of events handed to the publisher.", "result"),
		unacked:      counter("unacked_entries_total", "Outbox entries left to the sweep though their events are in Kafka."),
	}
	for o := sale.Reserved; o <= sale.Unknown; o++ {
		m.outcomes[o] = outcomes.WithLabelValues(o.String())
	}
	if r == nil {
		return m, nil
	}
	depth := prometheus.NewGaugeFunc(prometheus.GaugeOpts(name("waiting_requests", "Requests that wait in this process for a reserve script.")), waiting)
	var errs []error
	for _, c := range []prometheus.Collector{m.calls, m.callSeconds, m.batch, outcomes, m.moves, m.movedUnits, m.proofs, m.lost, m.publications, m.unacked, depth} {
		errs = append(errs, r.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("shard: register metrics: %w", err)
	}
	return m, nil
}
