package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Inputs whose end or meaning a proxy in front could see elsewhere. They are pinned against changes of fasthttp.
func TestAmbiguousFraming(t *testing.T) {
	w := newWorld(t)
	s := w.serve(t)
	line := "POST /api/flash-sales/items/1001/purchase HTTP/1.1\r\n"
	auth := "Authorization: Bearer " + w.token(t, "1") + "\r\n"
	for name, raw := range map[string]string{
		"two Transfer-Encoding":                line + "Host: h\r\n" + auth + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"two Transfer-Encoding, one identity":  line + "Host: h\r\n" + auth + "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"unknown Transfer-Encoding":            line + "Host: h\r\n" + auth + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"two Content-Length":                   line + "Host: h\r\n" + auth + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
		"two equal Content-Length":             line + "Host: h\r\n" + auth + "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
		"list in Content-Length":               line + "Host: h\r\n" + auth + "Content-Length: 2, 2\r\n\r\n{}",
		"signed Content-Length":                line + "Host: h\r\n" + auth + "Content-Length: +1\r\n\r\n1",
		"negative Content-Length":              line + "Host: h\r\n" + auth + "Content-Length: -1\r\n\r\n1",
		"hexadecimal Content-Length":           line + "Host: h\r\n" + auth + "Content-Length: 0x1\r\n\r\n1",
		"empty Content-Length":                 line + "Host: h\r\n" + auth + "Content-Length:\r\n\r\n",
		"space before colon":                   line + "Host: h\r\n" + auth + "Content-Length : 2\r\n\r\n{}",
		"space before colon of the encoding":   line + "Host: h\r\n" + auth + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
		"two Host":                             line + "Host: h\r\nHost: h\r\n" + auth + "\r\n",
		"no Host":                              line + auth + "\r\n",
		"NUL in a value":                       line + "Host: h\r\n" + auth + "X: a\x00b\r\n\r\n",
		"NUL in a name":                        line + "Host: h\r\n" + auth + "X\x00: a\r\n\r\n",
		"bare CR in a value":                   line + "Host: h\r\n" + auth + "X: a\rb\r\n\r\n",
		"space in the target":                  "POST /api/flash-sales/items/1001 /purchase HTTP/1.1\r\nHost: h\r\n\r\n",
		"control character in the target":      "POST /api/flash-sales/items/1001\x01/purchase HTTP/1.1\r\nHost: h\r\n\r\n",
		"bad chunk size":                       line + "Host: h\r\n" + auth + "Transfer-Encoding: chunked\r\n\r\nx\r\n\r\n",
		"chunk without its end":                line + "Host: h\r\n" + auth + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}X\r\n0\r\n\r\n",
		"chunked in HTTP/1.0":                  strings.Replace(line, "1.1", "1.0", 1) + "Host: h\r\n" + auth + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"no version":                           "GET /livez\r\nHost: h\r\n\r\n",
		"not HTTP":                             "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
		"Authorization in a trailer":           line + "Host: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + auth + "\r\n",
		"Content-Length in a trailer":          line + "Host: h\r\n" + auth + "Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 5\r\n\r\n",
		"Transfer-Encoding value with a comma": line + "Host: h\r\n" + auth + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := s.dial(t)
			c.send(t, raw+"GET /livez HTTP/1.1\r\nHost: h\r\n\r\n")
			r, body := c.answer(t, "POST")
			if r.StatusCode != 400 || !strings.HasPrefix(body, `{"error":"BAD_REQUEST","message":`) || !r.Close {
				t.Errorf("%d %s, close %v", r.StatusCode, body, r.Close)
			}
			c.closed(t) // what follows is not served
		})
	}
	if n := w.askedCount(); n != 0 {
		t.Errorf("%d reservations", n)
	}
}

// A length and chunks: whoever believes the length sees one request, whoever believes the chunks sees two. The second is not served.
func TestHiddenRequest(t *testing.T) {
	w := newWorld(t)
	s := w.serve(t)
	hidden := "GET /api/flash-sales/items/1001 HTTP/1.1\r\nHost: h\r\n\r\n"
	for _, framing := range []string{"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked\r\nContent-Length: %d\r\n"} {
		before := w.askedCount()
		c := s.dial(t)
		c.send(t, "POST /api/flash-sales/items/1001/purchase HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer "+w.token(t, "1")+"\r\n"+
			fmt.Sprintf(framing, 5+len(hidden))+"\r\n0\r\n\r\n"+hidden)
		r, body := c.answer(t, "POST")
		if strings.Contains(body, "serverTime") || !r.Close {
			t.Errorf("%d %s, close %v", r.StatusCode, body, r.Close)
		}
		c.closed(t)
		if n := w.askedCount() - before; n > 1 {
			t.Errorf("%d reservations", n)
		}
	}
}

func TestLimits(t *testing.T) {
	w := newWorld(t)
	s := w.serve(t, func(c *Config) {
		c.MaxHeader, c.MaxBody, c.ReadTimeout = 1024, 64, 200*time.Millisecond
	})
	line := "POST /api/flash-sales/items/1001/purchase HTTP/1.1\r\nHost: h\r\n"
	for name, c := range map[string]struct {
		raw    string
		status int
		code   string
	}{
		"header":            {line + "X: " + strings.Repeat("x", 1100) + "\r\n\r\n", 431, "HEADER_TOO_LARGE"},
		"request line":      {"GET /" + strings.Repeat("x", 1100) + " HTTP/1.1\r\nHost: h\r\n\r\n", 431, "HEADER_TOO_LARGE"},
		"body":              {line + "Content-Length: 65\r\n\r\n" + strings.Repeat("x", 65), 413, "BODY_TOO_LARGE"},
		"announced body":    {line + "Content-Length: 65\r\nExpect: 100-continue\r\n\r\n", 413, "BODY_TOO_LARGE"},
		"chunked body":      {line + "Transfer-Encoding: chunked\r\n\r\n41\r\n" + strings.Repeat("x", 65) + "\r\n0\r\n\r\n", 413, "BODY_TOO_LARGE"},
		"huge length":       {line + "Content-Length: 99999999999999999999\r\n\r\n", 400, "BAD_REQUEST"},
		"multipart":         {line + "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 9\r\n\r\n--b--\r\nxx", 401, "UNAUTHORIZED"},
		"slow header":       {line, 408, "REQUEST_TIMEOUT"},
		"slow body":         {line + "Content-Length: 10\r\n\r\nabc", 408, "REQUEST_TIMEOUT"},
		"slow chunks":       {line + "Transfer-Encoding: chunked\r\n\r\n5\r\nab", 408, "REQUEST_TIMEOUT"},
		"nothing":           {"", 408, "REQUEST_TIMEOUT"},
		"biggest good body": {line + "Content-Length: 64\r\n\r\n" + strings.Repeat(" ", 64), 401, "UNAUTHORIZED"},
	} {
		t.Run(name, func(t *testing.T) {
			conn := s.dial(t)
			conn.send(t, c.raw)
			r, body := conn.answer(t, "POST")
			if r.StatusCode == 100 {
				r, body = conn.answer(t, "POST")
			}
			if r.StatusCode != c.status || !strings.HasPrefix(body, `{"error":"`+c.code+`","message":`) || r.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%d %s %s", r.StatusCode, body, r.Header.Get("Content-Type"))
			}
			if r.Header.Get("Server") != "" {
				t.Errorf("Server %q", r.Header.Get("Server"))
			}
			if c.status != 401 {
				conn.closed(t)
			}
		})
	}
}
