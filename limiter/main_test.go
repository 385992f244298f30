package limiter

import (
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is a clock that stands until it is moved.
type clock struct{ offset atomic.Int64 }

func (c *clock) Now() time.Time          { return time.Unix(1_700_000_000, c.offset.Load()) }
func (c *clock) Advance(d time.Duration) { c.offset.Add(int64(d)) }
func (c *clock) Elapsed() time.Duration  { return time.Duration(c.offset.Load()) }

func newTable[K comparable](tb testing.TB, cfg Config) *Table[K] {
	tb.Helper()
	table, err := New[K](cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return table
}
