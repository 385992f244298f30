package token

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// source is a provider on loopback that publishes a key set at /keys. It is made outside of a bubble of synctest: what
// a bubble waits for on the network holds its clock.
type source struct {
	*httptest.Server
	answer    atomic.Pointer[http.HandlerFunc]
	downloads atomic.Int64 // requests for /keys
}

func newSource(tb testing.TB, answer http.HandlerFunc) *source {
	tb.Helper()
	s := &source{}
	s.answer.Store(&answer)
	s.Server = httptest.NewServer(s)
	tb.Cleanup(s.Close)
	return s
}

func (s *source) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/keys" {
		s.downloads.Add(1)
	}
	(*s.answer.Load())(w, r)
}

// set changes the answer.
func (s *source) set(answer http.HandlerFunc) { s.answer.Store(&answer) }

// body answers 200 with a text.
func body(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

// status answers without a set.
func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// redirect sends everybody to another place.
func redirect(to string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusFound) }
}

// oversized is a good set with too many blanks.
func oversized(good string) http.HandlerFunc { return body(good + strings.Repeat(" ", maxSetBytes)) }

// badAnswers are those that give no usable set, by the result that is counted. The first request for each is to /keys.
func badAnswers(good string) map[string]struct {
	result string
	answer http.HandlerFunc
} {
	type bad = struct {
		result string
		answer http.HandlerFunc
	}
	return map[string]bad{
		"an empty set":       {resultNoKeys, body(`{"keys":[]}`)},
		"keys of other uses": {resultNoKeys, body(`{"keys":[{"kty":"oct","k":"AQAB"},{"kty":"AKP"}]}`)},
		"500":                {resultStatus, status(500)},
		"500 with a set": {resultStatus, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			_, _ = io.WriteString(w, good)
		}},
		"404":              {resultStatus, status(404)},
		"204":              {resultStatus, status(204)},
		"304":              {resultStatus, status(304)},
		"no place to go":   {resultStatus, status(302)},
		"a page":           {resultMalformed, body("<html>maintenance</html>")},
		"half a set":       {resultMalformed, body(good[:len(good)/2])},
		"nothing":          {resultMalformed, body("")},
		"a long set":       {resultTooLarge, oversized(good)},
		"a circle":         {resultRedirect, redirect("/again")},
		"another scheme":   {resultRedirect, redirect("https://127.0.0.1/keys")},
		"a file":           {resultRedirect, redirect("file:///etc/passwd")},
		"somebody's place": {resultRedirect, redirect("//user:password@127.0.0.1/keys")},
		"a cut answer": {resultInterrupted, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(good)+1))
			_, _ = io.WriteString(w, good)
		}},
		"a cut connection": {resultInterrupted, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
	}
}

// newSet has patience with a machine that does much at once, unless the timeout is what is tested.
func newSet(tb testing.TB, cfg KeySetConfig) *KeySet {
	tb.Helper()
	if cfg.Timeout == 0 {
		cfg.Timeout = time.Minute
	}
	s, err := NewKeySet(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// refreshes is how often a result was counted.
func refreshes(s *KeySet, result string) float64 {
	return testutil.ToFloat64(s.metrics.refreshes.WithLabelValues(result))
}

// value is the value of a metric without labels.
func value(tb testing.TB, g prometheus.Gatherer, name string) float64 {
	tb.Helper()
	families, err := g.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name && len(f.GetMetric()) == 1 {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	tb.Fatalf("there is no metric %s", name)
	return 0
}
