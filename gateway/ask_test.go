package gateway

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
)

// ask is a request to the handler itself.
type ask struct {
	method, path, token, body string
	headers                   []string // whole lines
}

func purchaseOf(token string, headers ...string) ask {
	return ask{method: "POST", path: "/api/flash-sales/items/1001/purchase", token: token, headers: headers}
}

func (a ask) raw() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: shop.example\r\n", a.method, a.path)
	if a.token != "" {
		fmt.Fprintf(&b, "Authorization: Bearer %s\r\n", a.token)
	}
	for _, h := range a.headers {
		b.WriteString(h + "\r\n")
	}
	if a.body != "" {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(a.body))
	}
	return b.String() + "\r\n" + a.body
}

// reply is an answer as a client sees it.
type reply struct {
	status int
	body   string
	header func(name string) string
}

// do runs the handler on a request as fasthttp would.
func do(tb testing.TB, g *Gateway, a ask) reply {
	tb.Helper()
	return doRaw(tb, g, a.raw())
}

func doRaw(tb testing.TB, g *Gateway, raw string) reply {
	tb.Helper()
	var ctx fasthttp.RequestCtx
	ctx.Init2(nil, nil, false)
	ctx.SetRemoteAddr(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1234})
	if err := ctx.Request.Read(bufio.NewReaderSize(strings.NewReader(raw), 16<<10)); err != nil {
		tb.Fatalf("read request %q: %v", raw, err)
	}
	g.handle(&ctx)
	return reply{
		status: ctx.Response.StatusCode(), body: string(ctx.Response.Body()),
		header: func(name string) string {
			for key, value := range ctx.Response.Header.All() {
				if strings.EqualFold(string(key), name) {
					return string(value)
				}
			}
			return ""
		},
	}
}

// want fails the test unless the answer has a status and an error code ("" for none).
func (r reply) want(tb testing.TB, status int, code string) reply {
	tb.Helper()
	if r.status != status || (code != "" && !strings.HasPrefix(r.body, `{"error":"`+code+`","message":"`)) || (code == "" && strings.Contains(r.body, `"error"`)) {
		tb.Fatalf("got %d %s, want %d %s", r.status, r.body, status, code)
	}
	return r
}
