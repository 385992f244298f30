package gateway

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"flashgate/internal/sale"
)

// outcomes is the number of sale's outcomes, with a place for what is none.
const outcomes = int(sale.Unknown) + 1

// metrics counts. Series are looked up once and kept, so that counting a request costs one atomic addition and no allocation.
type metrics struct {
	requests     *prometheus.CounterVec
	byAnswer     [routes][kinds]atomic.Pointer[prometheus.Counter]
	seconds      [routes]prometheus.Observer
	reserves     [outcomes]prometheus.Counter
	acked        prometheus.Counter
	unacked      prometheus.Counter
	flagSets     prometheus.Counter
	flagClears   *prometheus.CounterVec
	looks        [lookEnds]prometheus.Counter
	reads        *prometheus.CounterVec
	refusedConns prometheus.Counter
}

// latencyBuckets go from a sold-out answer to a purchase that ran into its timeout.
var latencyBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}

func newMetrics(registerer prometheus.Registerer, g *Gateway) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "flashgate_gateway_requests_total", Help: "Requests answered, by route, HTTP status and error code.",
		}, []string{"route", "status", "error"}),
		acked:        prometheus.NewCounter(acceptedOpts("true")),
		unacked:      prometheus.NewCounter(acceptedOpts("false")),
		flagSets:     counter("flag_sets_total", "Sold-out flags set or renewed after they had run out."),
		refusedConns: counter("connections_refused_total", "Connections refused because too many were open."),
		flagClears: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "flashgate_gateway_flag_clears_total", Help: "Sold-out flags cleared, by reason.",
		}, []string{"reason"}),
		reads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "flashgate_gateway_catalogue_reads_total", Help: "Readings of the catalogue, by result.",
		}, []string{"result"}),
	}
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "flashgate_gateway_request_seconds", Help: "Time from the last byte of a request to its answer, by route.", Buckets: latencyBuckets,
	}, []string{"route"})
	for r := range m.seconds {
		m.seconds[r] = seconds.WithLabelValues(routeNames[r])
	}
	reserves := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "flashgate_gateway_reserves_total", Help: "Attempts to reserve, by outcome.",
	}, []string{"outcome"})
	for o := range m.reserves {
		m.reserves[o] = reserves.WithLabelValues(sale.Outcome(o).String())
	}
	looks := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "flashgate_gateway_winner_looks_total", Help: "Requests that may have come from a winner of a sold-out or ended item, by what was found.",
	}, []string{"found"})
	for end := range m.looks {
		m.looks[end] = looks.WithLabelValues(lookNames[end])
	}
	if registerer == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.requests, seconds, reserves, m.acked, m.unacked, m.flagSets, m.flagClears, looks, m.reads, m.refusedConns,
		gauge("connections_open", "Open connections.", func() float64 { return float64(g.openConns.Load()) }),
		gauge("flagged_items", "Items whose sold-out flag is set.", func() float64 { return float64(g.flagged()) }),
		gauge("catalogue_age_seconds", "Time since the catalogue was read; -1 before the first time.", func() float64 {
			age, ok := g.catalogueAge()
			if !ok {
				return -1
			}
			return age.Seconds()
		}),
	} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: "flashgate_gateway_" + name, Help: help})
}

func gauge(name, help string, value func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "flashgate_gateway_" + name, Help: help}, value)
}

func acceptedOpts(acked string) prometheus.CounterOpts {
	return prometheus.CounterOpts{
		Name: "flashgate_gateway_accepted_total", Help: "Purchases answered with 202, by whether the broker had acknowledged by then.",
		ConstLabels: prometheus.Labels{"acked": acked},
	}
}

// answered counts a request.
func (m *metrics) answered(r route, k kind, took time.Duration) {
	m.seconds[r].Observe(took.Seconds())
	m.count(r, k)
}

// count adds to a series, which is made when it is needed for the first time: most pairs of route and answer never come.
func (m *metrics) count(r route, k kind) {
	slot := &m.byAnswer[r][k]
	c := slot.Load()
	if c == nil {
		info := kindInfos[k]
		made := m.requests.WithLabelValues(routeNames[r], strconv.Itoa(info.status), info.code)
		c = &made
		slot.Store(c)
	}
	(*c).Inc()
}

// reserved counts an outcome.
func (m *metrics) reserved(o sale.Outcome) {
	if int(o) >= outcomes {
		o = 0
	}
	m.reserves[o].Inc()
}

// result is the label for how a call ended.
func result(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}
