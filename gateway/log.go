package gateway

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"flashgate/internal/sale"
)

// about is what a line says of the request that it comes from: by this an order is followed through every part. Who asked, from where and with what
// never gets into the log.
type about struct {
	order sale.OrderID
	item  int64
	trace string
}

// with returns what is known of it, and more behind.
func (a about) with(more ...any) []any {
	args := make([]any, 0, 6+len(more))
	if !a.order.IsZero() {
		args = append(args, "order", a.order)
	}
	if a.item > 0 {
		args = append(args, "item", a.item)
	}
	if a.trace != "" {
		args = append(args, "trace", a.trace)
	}
	return append(args, more...)
}

// throttledLog writes a kind of line at most once a second, with the number of those left out in between: what goes wrong for one request
// during a sale goes wrong for fifty thousand others.
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

// warnUnlessStopping logs what went wrong with somebody whom the gateway asked. Stopping ends every such call in its middle, which is nobody's news.
func (g *Gateway) warnUnlessStopping(message string, args ...any) {
	if g.base.Err() == nil {
		g.log.warn(message, args...)
	}
}

// serverLog takes what fasthttp logs. Of its arguments only errors are kept, and of those only what is known to hold nothing of the client: others
// quote the line of the request that could not be read, with a token in it perhaps, or name addresses.
type serverLog struct{ log *slog.Logger }

// Printf implements fasthttp.Logger.
func (l serverLog) Printf(format string, args ...any) {
	var attrs []any
	for _, arg := range args {
		err, ok := arg.(error)
		if !ok {
			continue
		}
		attrs = append(attrs, "error", harmless(err))
	}
	l.log.Debug("http server: "+format, attrs...)
}

// harmless is the text of an error of the server without anything that a client has sent or by which he can be found.
func harmless(err error) string {
	var (
		op    *net.OpError
		small *fasthttp.ErrSmallBuffer
	)
	if errors.As(err, &op) {
		return op.Op + ": " + op.Err.Error() // without the addresses
	}
	if errors.As(err, &small) {
		return fasthttp.ErrSmallReadBuffer.Error()
	}
	for _, known := range []error{fasthttp.ErrBodyTooLarge, fasthttp.ErrTimeout, fasthttp.ErrBadTrailer, io.ErrUnexpectedEOF, io.EOF, net.ErrClosed} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return "the request could not be read"
}
