package gateway

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

const (
	shopOrigin   = "https://shop.example"
	mobileOrigin = "https://m.shop.example"
)

// What cannot be read as a request is answered with what is known of it: the origin, wherever it can still be found; the only origin that
// there is, where it cannot; of several none.
func TestCORSOfWhatCannotBeRead(t *testing.T) {
	const maxHeader = 1024
	post := func(path string) string { return "POST " + path + " HTTP/1.1\r\nHost: h\r\n" }
	line := post(itemsPath + "/1001/purchase")
	from := func(origin string) string { return "Origin: " + origin + "\r\n" }
	long := "X-Long: " + strings.Repeat("x", maxHeader) + "\r\n"
	body := "Content-Length: 65\r\n\r\n" + strings.Repeat(" ", 65)
	good := func(origin string) string { return "GET /livez HTTP/1.1\r\nHost: h\r\n" + from(origin) + "\r\n" }
	nobody := "nobody"
	for name, c := range map[string]struct {
		parts  []string // sent one after the other
		before int      // so many answers to good requests come first
		status int
		origin string // granted, of several
		alone  string // granted if the shop's is the only one; "" for the same
	}{
		"body too large":             {[]string{line + from(shopOrigin) + body}, 0, 413, shopOrigin, ""},
		"body too large, another":    {[]string{line + from(mobileOrigin) + body}, 0, 413, mobileOrigin, nobody},
		"body too large, not listed": {[]string{line + from("https://evil.example") + body}, 0, 413, nobody, ""},
		"body too large, no origin":  {[]string{line + body}, 0, 413, nobody, ""},
		"half a body":                {[]string{line + from(mobileOrigin) + "Content-Length: 10\r\n\r\nabc"}, 0, 408, nobody, shopOrigin},
		"half a chunk":               {[]string{line + from(mobileOrigin) + "Transfer-Encoding: chunked\r\n\r\n5\r\nab"}, 0, 408, nobody, shopOrigin},
		"bad chunk":                  {[]string{line + from(mobileOrigin) + "Transfer-Encoding: chunked\r\n\r\nx\r\n\r\n"}, 0, 400, nobody, shopOrigin},

		"header too long":                    {[]string{line + from(shopOrigin) + long + "\r\n"}, 0, 431, shopOrigin, ""},
		"header too long, another":           {[]string{line + from(mobileOrigin) + long + "\r\n"}, 0, 431, mobileOrigin, nobody},
		"header too long, lower case":        {[]string{line + "origin:" + mobileOrigin + "\r\n" + long + "\r\n"}, 0, 431, mobileOrigin, nobody},
		"header too long, not listed":        {[]string{line + from("https://evil.example") + long + "\r\n"}, 0, 431, nobody, ""},
		"header too long, two origins":       {[]string{line + from(shopOrigin) + from(shopOrigin) + long + "\r\n"}, 0, 431, nobody, ""},
		"header too long, origin behind it":  {[]string{line + long + from(mobileOrigin) + "\r\n"}, 0, 431, nobody, shopOrigin},
		"header too long, half an origin":    {[]string{line + "X: " + strings.Repeat("x", maxHeader-len(line)-len("X: \r\nOrigin: https://shop")) + "\r\n" + from(shopOrigin) + long}, 0, 431, nobody, shopOrigin},
		"header too long, in pieces":         {[]string{line + "Or", "igin: " + mobileOrigin, "\r\nX: ", strings.Repeat("x", 500), strings.Repeat("x", 600), "\r\n\r\n"}, 0, 431, mobileOrigin, nobody},
		"request line too long":              {[]string{"GET /" + strings.Repeat("x", maxHeader) + " HTTP/1.1\r\n" + from(mobileOrigin) + "\r\n"}, 0, 431, nobody, shopOrigin},
		"the second too long":                {[]string{good(shopOrigin), line + from(mobileOrigin) + long + "\r\n"}, 1, 431, mobileOrigin, nobody},
		"the third too long, all in a piece": {[]string{good(shopOrigin) + good(shopOrigin) + line + from(mobileOrigin) + long + "\r\n"}, 2, 431, mobileOrigin, nobody},
		"the second too long, of nobody":     {[]string{good(shopOrigin) + line + long + "\r\n"}, 1, 431, nobody, shopOrigin},

		"nonsense":         {[]string{"nonsense\r\n\r\n"}, 0, 400, nobody, shopOrigin},
		"two lengths":      {[]string{line + from(mobileOrigin) + "Content-Length: 1\r\nContent-Length: 1\r\n\r\n"}, 0, 400, nobody, shopOrigin},
		"half a header":    {[]string{line + from(mobileOrigin)}, 0, 408, nobody, shopOrigin},
		"the second, half": {[]string{good(shopOrigin) + line + from(mobileOrigin)}, 1, 408, nobody, shopOrigin},
	} {
		for _, configured := range [][]string{{shopOrigin, mobileOrigin}, {shopOrigin}, {"*"}, nil} {
			want, vary := c.origin, "Origin"
			switch {
			case configured == nil:
				want, vary = "", ""
			case configured[0] == "*":
				want = "*"
			case len(configured) == 1 && c.alone != "":
				want = c.alone
			}
			if want == nobody {
				want = ""
			}
			t.Run(name+strings.Join(append([]string{""}, configured...), " "), func(t *testing.T) {
				t.Parallel()
				s := newWorld(t).serve(t, func(cfg *Config) {
					cfg.CORSOrigins, cfg.MaxBody, cfg.MaxHeader, cfg.ReadTimeout = configured, 64, maxHeader, 30*time.Second
					if c.status == 408 {
						cfg.ReadTimeout = 300 * time.Millisecond // these wait for it
					}
				})
				conn := s.dial(t)
				for _, part := range c.parts[:len(c.parts)-1] {
					conn.send(t, part)
				}
				conn.send(t, c.parts[len(c.parts)-1])
				for range c.before {
					conn.answer(t, "GET")
				}
				r, body := conn.answer(t, "POST")
				got := r.Header
				if r.StatusCode != c.status || got.Get("Access-Control-Allow-Origin") != want || got.Get("Vary") != vary {
					t.Errorf("%d %s, %v, want %d to %q", r.StatusCode, body, got, c.status, want)
				}
				if exposed := got.Get("Access-Control-Expose-Headers") != ""; exposed != (want != "") {
					t.Errorf("headers are shown: %v", exposed)
				}
				conn.closed(t)
			})
		}
	}
	// The webhook is no business of pages, however badly it is called.
	t.Run("payments", func(t *testing.T) {
		t.Parallel()
		s := newWorld(t).serve(t, func(cfg *Config) { cfg.CORSOrigins, cfg.MaxBody, cfg.MaxHeader = []string{shopOrigin}, 64, maxHeader })
		for raw, status := range map[string]int{
			post(paymentsPath) + from(shopOrigin) + body:          413,
			post(paymentsPath) + from(shopOrigin) + long + "\r\n": 431,
			post(paymentsPath) + long + "\r\n":                    431,
		} {
			conn := s.dial(t)
			conn.send(t, raw)
			if r, body := conn.answer(t, "POST"); r.StatusCode != status || r.Header.Get("Vary") != "" || r.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%d %s, %v, want %d", r.StatusCode, body, r.Header, status)
			}
			conn.closed(t)
		}
	})
}

// A connection that there is no room for is refused before it has asked.
func TestCORSOfRefusedConnections(t *testing.T) {
	for origins, want := range map[string]string{shopOrigin: shopOrigin, "*": "*", shopOrigin + " " + mobileOrigin: ""} {
		s := newWorld(t).serve(t, func(c *Config) { c.CORSOrigins, c.MaxConns = strings.Fields(origins), 1 })
		first := s.dial(t)
		first.send(t, "GET /livez HTTP/1.1\r\nHost: h\r\n\r\n")
		first.answer(t, "GET")
		second := s.dial(t)
		r, _ := second.answer(t, http.MethodGet)
		if r.StatusCode != 503 || r.Header.Get("Vary") != "Origin" || r.Header.Get("Access-Control-Allow-Origin") != want || r.ContentLength <= 0 {
			t.Errorf("%s: %d %v", origins, r.StatusCode, r.Header)
		}
	}
}
