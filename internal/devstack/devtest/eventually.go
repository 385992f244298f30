package devtest

import (
	"testing"
	"time"
)

// pollEvery is how often Eventually looks.
const pollEvery = 5 * time.Millisecond

// Eventually waits until cond holds, and fails the test when it does not within timeout.
// The timeout is for a machine under load: it is no assertion about speed.
func Eventually(tb testing.TB, timeout time.Duration, cond func() bool, format string, args ...any) {
	tb.Helper()
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline.C:
			tb.Fatalf("not within %v: "+format, append([]any{timeout}, args...)...)
		case <-tick.C:
		}
	}
}
