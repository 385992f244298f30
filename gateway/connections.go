package gateway

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"flashgate/internal/pause"
)

// connections are those that were let in and have not ended. A drain hurries them, and cuts off who is still there when its time is up.
type connections struct {
	mu   sync.Mutex
	open map[*connection]struct{}
	by   atomic.Pointer[time.Time] // when the rest of a request must be there at the latest; nil until a drain begins
}

func (all *connections) add(c *connection) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.open == nil {
		all.open = map[*connection]struct{}{}
	}
	all.open[c] = struct{}{}
}

func (all *connections) remove(c *connection) {
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.open, c)
}

// list returns the connections that are open now.
func (all *connections) list() []*connection {
	all.mu.Lock()
	defer all.mu.Unlock()
	list := make([]*connection, 0, len(all.open))
	for c := range all.open {
		list = append(list, c)
	}
	return list
}

func (all *connections) any() bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	return len(all.open) > 0
}

// hurry gives every connection, and those that are still to come, until then to send the rest of a request. Who has sent it whole has nothing more to
// send, and is not touched by this. Answers get as long from when they are written.
//
// The server sets deadlines of its own meanwhile, and neither waits for the other:
//
//	server                       drain
//	sets its deadline
//	                             stores by, sets by
//	loads by: sets by as well
//
// A connection that sets its deadline after the drain has set its own finds by; one that found none had set its own before.
func (all *connections) hurry(by time.Time) {
	all.by.Store(&by)
	for _, c := range all.list() {
		_ = c.Conn.SetReadDeadline(by)
		_ = c.Conn.SetWriteDeadline(by)
	}
}

// cut closes every connection, whatever it is doing.
func (all *connections) cut() {
	for _, c := range all.list() {
		_ = c.Conn.Close()
	}
}

// gone waits until no connection is open or ctx has ended, and reports the former.
func (all *connections) gone(ctx context.Context) bool {
	for all.any() {
		if !pause.For(ctx, goneLook) {
			return !all.any()
		}
	}
	return true
}

// goneLook is the time between two looks at whether the last connection has ended.
const goneLook = 5 * time.Millisecond

// connection is one that was let in.
type connection struct {
	net.Conn
	listener *listener
	unread   atomic.Bool // the last answer was given before the request was read whole
	closed   atomic.Bool

	// Of the goroutine that serves the connection.
	buffer []byte      // the server's, whole, as long as it reads into it
	full   *permission // for the request whose beginning has last filled it up
}

// Read implements net.Conn. The server reads into what is free of its buffer: all of it when it is empty. What is left of earlier requests
// it moves to the front before it reads on. When a header is too long, the last read has therefore filled up a buffer that begins with that
// header; and it is the last moment in which that can be looked at, because the server gives the buffer away before it asks for an answer.
// A buffer that fills up for another reason, with many requests that came together, is looked at in vain.
//
// All of this holds for a server that keeps its buffer between requests. With ReduceMemoryUsage, which nobody sets here, it would read the first byte
// of each request by itself, and the buffer would never be read into whole.
func (c *connection) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.listener.cors == nil {
		return n, err
	}
	if len(p) == c.listener.readBuffer {
		c.buffer = p
	}
	if n == len(p) && c.buffer != nil {
		full := c.listener.cors.ofBeginning(c.buffer)
		c.full = &full
	}
	return n, err
}

// SetReadDeadline implements net.Conn. A drain has the last word.
func (c *connection) SetReadDeadline(t time.Time) error {
	err := c.Conn.SetReadDeadline(t)
	if by := c.listener.connections.by.Load(); by != nil && (t.IsZero() || t.After(*by)) {
		return c.Conn.SetReadDeadline(*by)
	}
	return err
}

// SetWriteDeadline implements net.Conn. Answers are small: who reads at all has his in time.
func (c *connection) SetWriteDeadline(t time.Time) error {
	err := c.Conn.SetWriteDeadline(t)
	if c.listener.connections.by.Load() == nil {
		return err
	}
	if soon := time.Now().Add(drainHurry); t.IsZero() || t.After(soon) {
		return c.Conn.SetWriteDeadline(soon)
	}
	return err
}

// Close implements net.Conn. A client who is still sending, such as headers that are too long, is given the time to read his answer.
func (c *connection) Close() error {
	if !c.closed.CompareAndSwap(false, true) {
		return net.ErrClosed
	}
	if !c.unread.Load() {
		return c.Conn.Close()
	}
	c.listener.linger(c.Conn, nil)
	return nil
}
