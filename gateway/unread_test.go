package gateway

import (
	"strings"
	"testing"
)

// A client who is still sending when he is refused reads the refusal: without the time to send the rest he would find a broken connection instead.
func TestRefusalReachesWhoIsStillSending(t *testing.T) {
	s := newWorld(t).serve(t)
	for range 5 {
		c := s.dial(t)
		c.send(t, "GET /livez HTTP/1.1\r\nHost: a\r\nX-Long: "+strings.Repeat("x", 16<<20)+"\r\n\r\n")
		if r, body := c.answer(t, "GET"); r.StatusCode != 431 || !strings.Contains(body, "HEADER_TOO_LARGE") {
			t.Fatalf("the answer to a header that is too long: %d %s", r.StatusCode, body)
		}
		c = s.dial(t)
		c.send(t, "POST /api/flash-sales/items/1001/purchase HTTP/1.1\r\nHost: a\r\nContent-Length: 16777216\r\n\r\n"+strings.Repeat("x", 16<<20))
		if r, body := c.answer(t, "POST"); r.StatusCode != 413 || !strings.Contains(body, "BODY_TOO_LARGE") {
			t.Fatalf("the answer to a body that is too long: %d %s", r.StatusCode, body)
		}
	}
}
