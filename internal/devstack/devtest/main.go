// Package devtest lends the servers of package devstack to tests. Servers that are slow to
// start (PostgreSQL, Apache Kafka) are shared by all tests of a test binary; the quick
// ones are private to each test.
//
// A test binary that uses it needs
//
//	func TestMain(m *testing.M) { devtest.Main(m) }
//
// A server that cannot be started fails the test: a test that skips itself where a
// server is missing has proven nothing.
package devtest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// startTimeout bounds the start of a server, and every statement that helpers send.
const startTimeout = 2 * time.Minute

// shared remembers what Main has to stop.
var shared struct {
	mu    sync.Mutex
	stops []func() error
}

// atEnd has stop called by Main after the tests.
func atEnd(stop func() error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.stops = append(shared.stops, stop)
}

// AtEnd has clean called by Main after the tests, for what a TestMain has made itself.
func AtEnd(clean func()) {
	atEnd(func() error {
		clean()
		return nil
	})
}

// sleepers are goroutines of rueidis that sleep for seconds and end by themselves, whether or not their client has been closed: before it looks again at
// nodes of a cluster that it could not reach, and before it closes connections to nodes that have left.
var sleepers = []goleak.Option{
	goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"),
	goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"),
}

// Main runs the tests, stops the shared servers, fails if a goroutine is left, and exits.
func Main(m *testing.M, opts ...goleak.Option) {
	code := m.Run()
	if err := stopShared(); err != nil {
		fmt.Fprintln(os.Stderr, "stop shared servers:", err)
		code = max(code, 1)
	}
	// After a failed test leftover goroutines are no news.
	if code == 0 {
		if err := goleak.Find(append(opts, sleepers...)...); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines left after the tests:", err)
			code = 1
		}
	}
	os.Exit(code)
}

func stopShared() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	var first error
	for _, stop := range shared.stops {
		if err := stop(); err != nil && first == nil {
			first = err
		}
	}
	shared.stops = nil
	return first
}

// once starts a shared server the first time it is asked for.
type once[T interface{ Stop() error }] struct {
	mu      sync.Mutex
	started bool
	server  T
	err     error
}

// get returns the server, or fails the test. A start that failed is not tried again: a
// hundred tests would wait for it in turn.
func (o *once[T]) get(tb testing.TB, start func(context.Context) (T, error)) T {
	tb.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.started {
		o.started = true
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		o.server, o.err = start(ctx)
		if o.err == nil {
			atEnd(o.server.Stop)
		}
	}
	if o.err != nil {
		tb.Fatal(o.err)
	}
	return o.server
}
