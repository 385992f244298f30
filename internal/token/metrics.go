package token

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// newRefusals makes the counter of refused tokens, a series for each reason, looked up once: counting one of a flood
// costs an atomic addition.
func newRefusals(registerer prometheus.Registerer) (map[Reason]prometheus.Counter, error) {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "flashgate_token_refused_total", Help: "Tokens refused, by reason; those that are pending get 503, as the key set was never fetched.",
	}, []string{"reason"})
	if registerer != nil {
		err := registerer.Register(vec)
		var there prometheus.AlreadyRegisteredError
		if errors.As(err, &there) {
			if old, ok := there.ExistingCollector.(*prometheus.CounterVec); ok {
				vec, err = old, nil
			}
		}
		if err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	refused := make(map[Reason]prometheus.Counter, len(reasons))
	for _, reason := range reasons {
		refused[reason] = vec.WithLabelValues(string(reason))
	}
	return refused, nil
}

// The results of a refresh, as a metrics label.
const (
	resultOK          = "ok"          // the set is there, changed or not
	resultUnreachable = "unreachable" // no request could be sent
	resultInterrupted = "interrupted" // a request was sent, and no whole answer came in time
	resultRedirect    = "redirect"    // too many, or to where none may lead
	resultStatus      = "status"      // an answer other than 200
	resultTooLarge    = "too_large"
	resultMalformed   = "malformed" // no key set
	resultNoKeys      = "no_keys"   // a key set without a key that could be used
)

var results = []string{
	resultOK, resultUnreachable, resultInterrupted, resultRedirect, resultStatus, resultTooLarge, resultMalformed, resultNoKeys,
}

// setMetrics are those of a KeySet.
type setMetrics struct {
	refreshes *prometheus.CounterVec
	keys      prometheus.Gauge
}

func newSetMetrics(registerer prometheus.Registerer, age func() float64) (setMetrics, error) {
	m := setMetrics{
		refreshes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "flashgate_token_jwks_refreshes_total", Help: "Attempts to fetch the key set, by result.",
		}, []string{"result"}),
		keys: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "flashgate_token_jwks_keys", Help: "Keys of the key set that tokens are held against.",
		}),
	}
	for _, result := range results {
		m.refreshes.WithLabelValues(result)
	}
	if registerer == nil {
		return m, nil
	}
	return m, errors.Join(registerer.Register(m.refreshes), registerer.Register(m.keys),
		registerer.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "flashgate_token_jwks_age_seconds",
			Help: "Time since the key set was fetched, or since the start as long as it never was.",
		}, age)))
}
