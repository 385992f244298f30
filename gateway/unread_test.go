package gateway

import (
	"net"
	"strings"
	"testing"
)

// A client who is still sending when he is refused reads the refusal: without the time to send the rest he would find a broken connection instead.
func TestRefusalReachesWhoIsStillSending(t *testing.T) {
	s := newWorld(t).serve(t)
	// More than fits between client and gateway when nobody reads, and little enough to be sent while the gateway sees the client off.
	const size = 1 << 20
	dial := func() *conn {
		c := s.dial(t)
		must(t, c.Conn.(*net.TCPConn).SetWriteBuffer(64<<10))
		return c
	}
	for range 5 {
		c := dial()
		c.send(t, "GET /livez HTTP/1.1\r\nHost: a\r\nX-Long: "+strings.Repeat("x", size)+"\r\n\r\n")
		if r, body := c.answer(t, "GET"); r.StatusCode != 431 || !strings.Contains(body, "HEADER_TOO_LARGE") {
			t.Fatalf("the answer to a header that is too long: %d %s", r.StatusCode, body)
		}
		c = dial()
		c.send(t, "POST /api/flash-sales/items/1001/purchase HTTP/1.1\r\nHost: a\r\nContent-Length: 1048576\r\n\r\n"+strings.Repeat("x", size))
		if r, body := c.answer(t, "POST"); r.StatusCode != 413 || !strings.Contains(body, "BODY_TOO_LARGE") {
			t.Fatalf("the answer to a body that is too long: %d %s", r.StatusCode, body)
		}
	}
}
