package gateway

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"flashgate/internal/pause"
)

const (
	// maxLingering bounds the goroutines that see connections off, lingerTime how long each of them may take.
	maxLingering = 64
	lingerTime   = 500 * time.Millisecond

	// The pause after a failure to accept starts small and doubles, as in net/http.
	minAcceptPause = 5 * time.Millisecond
	maxAcceptPause = time.Second
)

// listener hands out at most limit connections at a time and refuses the others in the words of the API. fasthttp's own refusal is plain text, and
// its accept loop ends for good when the process runs out of file descriptors, which is when a gateway is needed most.
type listener struct {
	net.Listener
	limit       int64
	open        *atomic.Int64 // connections handed out and not yet closed; shared with the server, which counts down
	connections *connections  // which ones; likewise
	refused     func()
	log         *slog.Logger
	ctx         context.Context // ends when the gateway stops, and every pause and lingering connection with it
	refusal     []byte
	lingering   chan struct{}     // a place per connection that is seen off
	spawn       func(func()) bool // runs what the gateway waits for when it stops; false when it has stopped

	cors       *cors
	readBuffer int // the size of the buffers that the server reads into, in bytes
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	again := time.Duration(0)
	for {
		conn, err := l.Listener.Accept()
		switch {
		case err == nil:
			if l.open.Add(1) <= l.limit {
				c := &connection{Conn: conn, listener: l}
				l.connections.add(c)
				return c, nil
			}
			l.open.Add(-1)
			l.refused()
			l.refuse(conn)
			again = 0
		case !passing(err):
			return nil, err
		default:
			again = min(max(2*again, minAcceptPause), maxAcceptPause)
			l.log.Warn("accept connection: will try again", "error", err, "pause", again)
			if !pause.For(l.ctx, again) {
				return nil, net.ErrClosed
			}
		}
	}
}

// passing reports whether accepting may work again by itself: too many open files, no memory for a socket, a client who has gone already.
func passing(err error) bool {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.ECONNRESET} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// refuse answers a connection that there is no room for.
func (l *listener) refuse(conn net.Conn) { l.linger(conn, l.refusal) }

// linger writes last words, if there are any, and closes the connection, as a lingering close: closing a socket with unread bytes resets
// it, and the client may lose the answer with it; so a bounded number of connections is read to the end first, for a short time.
func (l *listener) linger(conn net.Conn, words []byte) {
	select {
	case l.lingering <- struct{}{}:
	default:
		_ = conn.Close()
		return
	}
	spawned := l.spawn(func() {
		defer func() { <-l.lingering }()
		defer func() { _ = conn.Close() }()
		stop := context.AfterFunc(l.ctx, func() { _ = conn.Close() })
		defer stop()
		if conn.SetDeadline(time.Now().Add(lingerTime)) != nil {
			return
		}
		if _, err := conn.Write(words); err != nil {
			return
		}
		if half, ok := conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
			_, _ = io.Copy(io.Discard, conn)
		}
	})
	if !spawned {
		<-l.lingering
		_ = conn.Close()
	}
}

// refusalBytes is a whole HTTP answer that closes the connection. lines are further headers, each with its line end.
func refusalBytes(a *answer, lines string) []byte {
	out := []byte("HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: application/json\r\nCache-Control: no-store\r\nRetry-After: ")
	out = append(out, a.retryAfter...)
	out = append(out, "\r\n"+lines+"Content-Length: "...)
	out = strconv.AppendInt(out, int64(len(a.body)), 10)
	out = append(out, "\r\n\r\n"...)
	return append(out, a.body...)
}
