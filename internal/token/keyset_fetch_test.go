package token

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A source that takes the request and says nothing costs the timeout, and one that drips costs no more.
func TestKeySetTimeout(t *testing.T) {
	drip := func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, " "); err != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
		}
	}
	for name, answer := range map[string]http.HandlerFunc{
		"silence": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "drops": drip,
	} {
		src := newSource(t, answer)
		var f *failure
		// Before the timeout the request has to get there, which takes a busy machine longer.
		for timeout := 20 * time.Millisecond; (f == nil || !f.reached) && timeout < time.Minute; timeout *= 2 {
			f = newSet(t, KeySetConfig{URL: src.URL + "/keys", Timeout: timeout}).refresh(t.Context())
		}
		if f == nil || !f.reached || f.result != resultInterrupted && f.result != resultTooLarge {
			t.Errorf("%s: %+v", name, f)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	src := newSource(t, func(_ http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() })
	s := newSet(t, KeySetConfig{URL: src.URL + "/keys"})
	if err := s.Refresh(ctx); err == nil || !strings.Contains(err.Error(), "canceled") {
		t.Errorf("given up by the caller: %v", err)
	}
	for _, result := range results {
		if n := refreshes(s, result); n != 0 {
			t.Errorf("giving up counts as %v %s", n, result)
		}
	}
}

func TestKeySetRedirects(t *testing.T) {
	key := jwkOf(newKey(t, EdDSA), "a")
	hops := func(n int) http.HandlerFunc { // from /keys over n redirects
		return func(w http.ResponseWriter, r *http.Request) {
			var at int
			if _, err := fmt.Sscanf(r.URL.Path, "/hop/%d", &at); err == nil && at == n || n == 0 {
				body(setOf(key))(w, r)
				return
			}
			redirect(fmt.Sprintf("/hop/%d", at+1))(w, r)
		}
	}
	plain := newSource(t, body(setOf(key)))
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		ok     bool
	}{
		"none": {hops(0), true}, "three": {hops(3), true}, "four": {hops(4), false}, "to plain http": {redirect(plain.URL), false},
	} {
		secure := httptest.NewTLSServer(c.answer)
		s := newSet(t, KeySetConfig{URL: secure.URL + "/keys", Transport: secure.Client().Transport})
		if err := s.Refresh(t.Context()); (err == nil) != c.ok {
			t.Errorf("https, %s: %v", name, err)
		}
		plain.set(redirect(secure.URL))
		s = newSet(t, KeySetConfig{URL: plain.URL + "/keys", Transport: secure.Client().Transport})
		if err := s.Refresh(t.Context()); err == nil {
			t.Errorf("http follows a redirect to https, %s", name)
		}
		plain.set(c.answer)
		s = newSet(t, KeySetConfig{URL: plain.URL + "/keys"})
		if err := s.Refresh(t.Context()); (err == nil) != c.ok {
			t.Errorf("http, %s: %v", name, err)
		}
		plain.set(body(setOf(key)))
		secure.CloseClientConnections()
		secure.Close()
	}
}

// The longest set is read, one byte more is not, nor what unpacks to more.
func TestKeySetSize(t *testing.T) {
	set := setOf(jwkOf(newKey(t, EdDSA), "a"))
	padded := func(n int) string { return set + strings.Repeat(" ", n-len(set)) }
	packed := func(n int) http.HandlerFunc {
		var b bytes.Buffer
		z := must(gzip.NewWriterLevel(&b, gzip.BestSpeed))
		_, _ = io.WriteString(z, padded(n))
		_ = z.Close()
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(b.Bytes())
		}
	}
	chunked := func(n int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, padded(n))
		}
	}
	for name, answer := range map[string]func(int) http.HandlerFunc{
		"plain": func(n int) http.HandlerFunc { return body(padded(n)) }, "packed": packed, "without a length": chunked,
	} {
		for n, want := range map[int]string{maxSetBytes: "", maxSetBytes + 1: resultTooLarge, 4 * maxSetBytes: resultTooLarge} {
			s := newSet(t, KeySetConfig{URL: newSource(t, answer(n)).URL + "/keys"})
			f := s.refresh(t.Context())
			if (f == nil) != (want == "") || f != nil && f.result != want {
				t.Errorf("%s, %d bytes: %+v", name, n, f)
			}
		}
	}
}

// With the transport that it makes by itself, over HTTP/2: the set arrives, silence counts as reached, and no
// connection stays.
func TestKeySetOverHTTP2(t *testing.T) {
	var quiet atomic.Bool
	open := make(chan http.ConnState, 100)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("asked over %s", r.Proto)
		}
		if quiet.Load() {
			<-r.Context().Done()
			return
		}
		body(setOf(jwkOf(testKeys()[ES256], "a")))(w, r)
	}))
	srv.EnableHTTP2 = true
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew || state == http.StateClosed {
			open <- state
		}
	}
	srv.StartTLS()
	defer srv.Close()
	transport := newTransport()
	transport.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	transport.TLSClientConfig.RootCAs.AddCert(srv.Certificate())
	s := newSet(t, KeySetConfig{URL: srv.URL + "/keys", Transport: transport})
	if err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if first, second := <-open, <-open; first != http.StateNew || second != http.StateClosed {
		t.Errorf("the connection is %v, then %v", first, second)
	}
	quiet.Store(true)
	var f *failure
	for timeout := 50 * time.Millisecond; (f == nil || !f.reached) && timeout < time.Minute; timeout *= 2 {
		f = newSet(t, KeySetConfig{URL: srv.URL + "/keys", Transport: transport, Timeout: timeout}).refresh(t.Context())
	}
	if f == nil || !f.reached || f.result != resultInterrupted {
		t.Errorf("silence: %+v", f)
	}
}
