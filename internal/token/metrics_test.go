package token

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// Each refusal is counted under its reason, by all verifiers of a process together, and nothing else is.
func TestRefusalsAreCounted(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	cfg := Config{Keys: keysFor(t, HS256), Registerer: registry}
	v, other := newVerifier(t, cfg), newVerifier(t, cfg)
	for reason, raw := range map[Reason][]byte{
		ReasonMalformed: []byte("a.b"),
		ReasonAlgorithm: signedBy(t, RS256, goodPayload()),
		ReasonKey:       signedAs(t, RS256, "k1", testKeys()[RS256]),
		ReasonSignature: signedAs(t, HS256, "", []byte("another")),
		ReasonExpired:   signedBy(t, HS256, fmt.Sprintf(`{"sub":"u1","exp":%d}`, at(-time.Hour))),
		ReasonNotYet:    signedBy(t, HS256, fmt.Sprintf(`{"sub":"u1","exp":%d,"nbf":%d}`, at(time.Hour), at(time.Minute))),
		ReasonClaims:    signedBy(t, HS256, `{"sub":"u1"}`),
		"":              signedBy(t, HS256, goodPayload()),
	} {
		if _, err := v.Verify(raw); ReasonOf(err) != reason {
			t.Errorf("%v, want %q", err, reason)
		}
		PeekSubject(raw, nil)
	}
	if _, err := other.Verify(nil); ReasonOf(err) != ReasonMalformed {
		t.Errorf("nothing at all: %v", err)
	}
	const want = `
# HELP flashgate_token_refused_total Tokens refused, by reason; those that are pending get 503, as the key set was never fetched.
# TYPE flashgate_token_refused_total counter
flashgate_token_refused_total{reason="algorithm"} 1
flashgate_token_refused_total{reason="claims"} 1
flashgate_token_refused_total{reason="expired"} 1
flashgate_token_refused_total{reason="key"} 1
flashgate_token_refused_total{reason="malformed"} 2
flashgate_token_refused_total{reason="not_yet"} 1
flashgate_token_refused_total{reason="pending"} 0
flashgate_token_refused_total{reason="signature"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "flashgate_token_refused_total"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	registry = prometheus.NewPedanticRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "flashgate_token_refused_total", Help: "Tokens refused, by reason."}))
	if _, err := NewVerifier(Config{Keys: cfg.Keys, Registerer: registry}); err == nil {
		t.Error("somebody else's metric of the same name is taken")
	}
}
