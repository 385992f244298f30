package gateway

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"flashgate/internal/pause"
)

// clients are the connections that were let in and have not ended. A drain hurries them, and cuts off who is still there when its time is up.
type clients struct {
	mu   sync.Mutex
	open map[*client]struct{}
	by   atomic.Pointer[time.Time] // when the rest of a request must be there at the latest; nil until a drain begins
}

func (all *clients) add(c *client) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.open == nil {
		all.open = map[*client]struct{}{}
	}
	all.open[c] = struct{}{}
}

func (all *clients) remove(c *client) {
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.open, c)
}

// list returns the connections that are open now.
func (all *clients) list() []*client {
	all.mu.Lock()
	defer all.mu.Unlock()
	list := make([]*client, 0, len(all.open))
	for c := range all.open {
		list = append(list, c)
	}
	return list
}

func (all *clients) any() bool {
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
func (all *clients) hurry(by time.Time) {
	all.by.Store(&by)
	for _, c := range all.list() {
		_ = c.Conn.SetReadDeadline(by)
		_ = c.Conn.SetWriteDeadline(by)
	}
}

// cut closes every connection, whatever it is doing.
func (all *clients) cut() {
	for _, c := range all.list() {
		_ = c.Conn.Close()
	}
}

// gone waits until no connection is open or ctx has ended, and reports the former.
func (all *clients) gone(ctx context.Context) bool {
	for all.any() {
		if !pause.For(ctx, clientsLook) {
			return !all.any()
		}
	}
	return true
}

// clientsLook is the time between two looks at whether the last connection has ended.
const clientsLook = 5 * time.Millisecond

// client is a connection that was let in.
type client struct {
	net.Conn
	listener *listener
	unread   atomic.Bool // the last answer was given before the request was read whole
	closed   atomic.Bool
}

// SetReadDeadline implements net.Conn. A drain has the last word.
func (c *client) SetReadDeadline(t time.Time) error {
	err := c.Conn.SetReadDeadline(t)
	if by := c.listener.clients.by.Load(); by != nil && (t.IsZero() || t.After(*by)) {
		return c.Conn.SetReadDeadline(*by)
	}
	return err
}

// SetWriteDeadline implements net.Conn. Answers are small: who reads at all has his in time.
func (c *client) SetWriteDeadline(t time.Time) error {
	err := c.Conn.SetWriteDeadline(t)
	if c.listener.clients.by.Load() == nil {
		return err
	}
	if soon := time.Now().Add(drainHurry); t.IsZero() || t.After(soon) {
		return c.Conn.SetWriteDeadline(soon)
	}
	return err
}

// Close implements net.Conn. A client who is still sending, such as headers that are too long, is given the time to read his answer.
func (c *client) Close() error {
	if !c.closed.CompareAndSwap(false, true) {
		return net.ErrClosed
	}
	if !c.unread.Load() {
		return c.Conn.Close()
	}
	c.listener.seeOff(c.Conn, nil)
	return nil
}
