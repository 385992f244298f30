package token

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
)

const (
	// maxSetBytes is the longest key set that is read; usual ones have a few thousand bytes.
	maxSetBytes  = 1 << 20
	maxRedirects = 3
)

// failure is why an attempt gave no key set.
type failure struct {
	result  string // the metrics label
	reached bool   // a request was sent: the cool-down counts
	reason  error  // without the URL, whose query may hold a secret
}

var (
	errRedirects = errors.New("it was redirected too often")
	errScheme    = errors.New("it was redirected to another scheme or with a user; configure the address that it leads to")
	errTooLarge  = fmt.Errorf("it is longer than %d bytes", maxSetBytes)
)

// newTransport makes a client's own. Connections are not kept: there is one request in minutes, and a connection that
// waits for it is one that a firewall has forgotten.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DisableKeepAlives:      true,
		ForceAttemptHTTP2:      true,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// checkRedirect lets no redirect lead from https to http, where anybody on the way could put in a key, nor anywhere but
// to the scheme that was configured.
func checkRedirect(scheme string) func(*http.Request, []*http.Request) error {
	return func(r *http.Request, before []*http.Request) error {
		switch {
		case len(before) > maxRedirects:
			return errRedirects
		case r.URL.Scheme != scheme || r.URL.User != nil:
			return errScheme
		}
		return nil
	}
}

// download fetches the text of the set.
func (s *KeySet) download(ctx context.Context) ([]byte, *failure) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	var sent atomic.Bool // the trace may call from another goroutine
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(w httptrace.WroteRequestInfo) {
		if w.Err == nil {
			sent.Store(true)
		}
	}})
	request, err := http.NewRequestWithContext(traced, http.MethodGet, s.url.String(), http.NoBody)
	if err != nil {
		return nil, &failure{result: resultUnreachable, reason: plainError(err)}
	}
	request.Header.Set("Accept", "application/jwk-set+json, application/json")
	request.Header.Set("User-Agent", "flashgate")
	response, err := s.client.Do(request)
	if err != nil {
		return nil, failed(err, sent.Load())
	}
	defer response.Body.Close() //nolint:errcheck // it was read, or is of no use
	switch {
	case response.StatusCode != http.StatusOK:
		return nil, &failure{result: resultStatus, reached: true, reason: fmt.Errorf("the answer is %d, not 200", response.StatusCode)}
	case response.ContentLength > maxSetBytes:
		return nil, &failure{result: resultTooLarge, reached: true, reason: errTooLarge}
	}
	// What counts is the size after decompression.
	text, err := io.ReadAll(io.LimitReader(response.Body, maxSetBytes+1))
	switch {
	case err != nil:
		return nil, failed(err, true)
	case len(text) > maxSetBytes:
		return nil, &failure{result: resultTooLarge, reached: true, reason: errTooLarge}
	}
	return text, nil
}

// failed tells the errors of the client apart.
func failed(err error, sent bool) *failure {
	f := &failure{reached: sent, reason: plainError(err)}
	switch {
	case errors.Is(err, errRedirects), errors.Is(err, errScheme):
		f.result, f.reached = resultRedirect, true
	case sent:
		f.result = resultInterrupted
	default:
		f.result = resultUnreachable
	}
	return f
}

// plainError takes the URL out of an error of net/http.
func plainError(err error) error {
	var withURL *url.Error
	if errors.As(err, &withURL) {
		return withURL.Err
	}
	return err
}
