package devtest_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"flashgate/internal/devstack/devtest"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// verdict is a test that notes how it failed.
type verdict struct {
	testing.TB
	failure string
}

func (v *verdict) Helper() {}

func (v *verdict) Fatalf(format string, _ ...any) {
	v.failure = format
	runtime.Goexit()
}

// judge runs check as a test of its own would run, and returns how it failed.
func judge(check func(tb testing.TB)) string {
	v := &verdict{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		check(v)
	}()
	<-done
	return v.failure
}

func TestEventuallyWaits(t *testing.T) {
	t.Parallel()
	calls := 0
	failure := judge(func(tb testing.TB) {
		devtest.Eventually(tb, time.Minute, func() bool { calls++; return calls == 3 }, "third call")
	})
	if failure != "" || calls != 3 {
		t.Errorf("%d calls, failure %q", calls, failure)
	}
}

func TestEventuallyFails(t *testing.T) {
	t.Parallel()
	failure := judge(func(tb testing.TB) {
		devtest.Eventually(tb, 20*time.Millisecond, func() bool { return false }, "the %s", "impossible")
	})
	if !strings.Contains(failure, "the %s") {
		t.Errorf("failure %q", failure)
	}
}

func TestNamesDiffer(t *testing.T) {
	t.Parallel()
	if a, b := devtest.Name("topic"), devtest.Name("topic"); a == b || !strings.HasPrefix(a, "topic-") {
		t.Errorf("%q and %q", a, b)
	}
}
