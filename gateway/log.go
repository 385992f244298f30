package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"
)

// throttledLog writes a kind of line at most once a second, with the number of those left out in between: what goes wrong for one request during a sale
// goes wrong for fifty thousand others.
type throttledLog struct {
	log *slog.Logger
	now func() time.Time

	mu    sync.Mutex
	kinds map[string]*throttledKind // as many as there are messages in the program
}

type throttledKind struct {
	last    time.Time
	skipped int
}

func newThrottledLog(log *slog.Logger, now func() time.Time) *throttledLog {
	return &throttledLog{log: log, now: now, kinds: map[string]*throttledKind{}}
}

// warn logs message, which must be a constant.
func (l *throttledLog) warn(message string, args ...any) {
	now := l.now()
	l.mu.Lock()
	k := l.kinds[message]
	if k == nil {
		k = &throttledKind{}
		l.kinds[message] = k
	}
	if !k.last.IsZero() && now.Sub(k.last) < time.Second {
		k.skipped++
		l.mu.Unlock()
		return
	}
	skipped := k.skipped
	k.last, k.skipped = now, 0
	l.mu.Unlock()
	if skipped > 0 {
		args = append(args, "not logged in between", skipped)
	}
	l.log.Warn(message, args...)
}

// serverLog takes what fasthttp logs. Of its arguments only errors are kept, without the addresses in them: who came from where is personal data.
type serverLog struct{ log *slog.Logger }

// Printf implements fasthttp.Logger.
func (l serverLog) Printf(format string, args ...any) {
	var attrs []any
	for _, arg := range args {
		err, ok := arg.(error)
		if !ok {
			continue
		}
		var op *net.OpError
		if errors.As(err, &op) {
			err = fmt.Errorf("%s: %w", op.Op, op.Err)
		}
		attrs = append(attrs, "error", err)
	}
	l.log.Debug("http server: "+format, attrs...)
}
