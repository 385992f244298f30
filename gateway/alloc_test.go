package gateway

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"flashgate/internal/sale"
)

// flagged is a gateway whose item is sold out, with as many winners.
func flagged(tb testing.TB, winners int, change ...func(*Config)) (*world, *Gateway) {
	tb.Helper()
	w := newWorld(tb)
	w.noStock()
	for i := range winners {
		w.buyers = append(w.buyers, "winner-"+sale.OrderID{byte(i), byte(i >> 8), byte(i >> 16)}.String())
	}
	g := w.start(tb, change...)
	do(tb, g, purchaseOf(w.token(tb, "loser"))).want(tb, 410, "SOLD_OUT")
	eventually(tb, "the flag is set", func() bool { return g.SoldOut(theItem) })
	return w, g
}

// hotRequests are those that the crowd sends when everything is sold.
func hotRequests(tb testing.TB, w *world) map[string]string {
	tb.Helper()
	body := purchaseOf(w.token(tb, "loser"), "Idempotency-Key: 5f0c", "X-Forwarded-For: 203.0.113.7, 198.51.100.2", "User-Agent: shop", "Cookie: a=b; c=d")
	body.body = `{"quantity":1}`
	return map[string]string{
		"without a token": purchaseOf("").raw(),
		"with a token":    purchaseOf(w.token(tb, "loser")).raw(),
		"forged token":    purchaseOf(w.forged(tb, "loser")).raw(),
		"garbage":         purchaseOf("a.b.c").raw(),
		"like a browser":  body.raw(),
		"from a page":     purchaseOf(w.token(tb, "loser"), "Origin: https://shop.example").raw(),
		"another page":    purchaseOf(w.token(tb, "loser"), "Origin: https://evil.example").raw(),
		"two origins":     purchaseOf("", "Origin: https://shop.example", "Origin: https://shop.example").raw(),
	}
}

// corsSettings are the ways in which a gateway may be open to pages.
func corsSettings() map[string]func(*Config) {
	with := func(origins ...string) func(*Config) { return func(c *Config) { c.CORSOrigins = origins } }
	return map[string]func(*Config){"CORS off": with(), "listed origins": with("http://localhost:3000", "https://shop.example"), "any origin": with("*")}
}

// A request for a sold-out item costs no allocation, neither in the handler nor in the server around it.
func TestSoldOutAllocatesNothing(t *testing.T) {
	for setting, change := range corsSettings() {
		t.Run(setting, func(t *testing.T) { soldOutAllocatesNothing(t, change) })
	}
}

func soldOutAllocatesNothing(t *testing.T, change func(*Config)) {
	t.Helper()
	w, g := flagged(t, 1000, change)
	for name, raw := range hotRequests(t, w) {
		var ctx fasthttp.RequestCtx
		ctx.Init2(nil, nil, false)
		if err := ctx.Request.Read(bufio.NewReaderSize(strings.NewReader(raw), 16<<10)); err != nil {
			t.Fatal(err)
		}
		asked := w.askedCount()
		if n := testing.AllocsPerRun(2000, func() {
			ctx.Response.Reset()
			g.handle(&ctx)
		}); n != 0 {
			t.Errorf("%s: %v allocations in the handler", name, n)
		}
		if ctx.Response.StatusCode() != 410 || w.askedCount() != asked {
			t.Fatalf("%s: %d, %d reservations: not the path that was meant", name, ctx.Response.StatusCode(), w.askedCount()-asked)
		}
		const rounds = 1000
		stream := newStream(raw)
		c := &pipe{stream: stream}
		if n := testing.AllocsPerRun(5, func() {
			c.left = rounds
			if err := g.server.ServeConn(c); err != nil {
				t.Fatal(err)
			}
		}); n > rounds/4 { // what a connection costs, and the gateway's work beside it; a request that allocates costs four times as much
			t.Errorf("%s: %v allocations for a connection with %d requests", name, n, rounds)
		}
		if !strings.HasPrefix(c.last, "HTTP/1.1 410 Gone\r\n") || c.answers != 6*rounds {
			t.Fatalf("%s: %d answers, the last %q", name, c.answers, c.last)
		}
	}
}

// The other answers of the crowd, for an item that is not on sale, cost nothing either.
func TestClosedAllocatesNothing(t *testing.T) {
	for name, change := range map[string]func(*sale.Item){
		"not started": func(it *sale.Item) { it.StartsAt = time.Now().Add(time.Hour) },
		"paused":      func(it *sale.Item) { it.Paused = true },
		"ended":       func(it *sale.Item) { it.EndsAt = time.Now().Add(-time.Hour) },
		"retired":     func(it *sale.Item) { it.RetiredAt = time.Now() },
	} {
		w := newWorld(t)
		change(&w.items[0])
		w.buyers = []string{"winner"}
		g := w.start(t)
		if name == "ended" {
			eventually(t, "the winners are known", func() bool {
				_, complete := g.entryOf(theItem).endedWinners()
				return complete
			})
		}
		var ctx fasthttp.RequestCtx
		ctx.Init2(nil, nil, false)
		if err := ctx.Request.Read(bufio.NewReader(strings.NewReader(purchaseOf(w.token(t, "loser")).raw()))); err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(1000, func() {
			ctx.Response.Reset()
			g.handle(&ctx)
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// pipe is a connection on which the same request comes again and again, one at a time, and answers are counted.
type pipe struct {
	net.Conn
	stream  *strings.Reader
	left    int
	answers int
	last    string
}

func newStream(raw string) *strings.Reader { return strings.NewReader(raw) }

func (p *pipe) Read(b []byte) (int, error) {
	if p.stream.Len() == 0 || p.left == 0 {
		if p.left == 0 {
			return 0, io.EOF
		}
		_, _ = p.stream.Seek(0, io.SeekStart)
	}
	n, err := p.stream.Read(b)
	if p.stream.Len() == 0 {
		p.left--
	}
	return n, err
}

func (p *pipe) Write(b []byte) (int, error) {
	p.answers++
	if p.answers == 1 {
		p.last = string(b)
	}
	return len(b), nil
}

func (*pipe) Close() error                     { return nil }
func (*pipe) LocalAddr() net.Addr              { return pipeAddr }
func (*pipe) RemoteAddr() net.Addr             { return pipeAddr }
func (*pipe) SetDeadline(time.Time) error      { return nil }
func (*pipe) SetReadDeadline(time.Time) error  { return nil }
func (*pipe) SetWriteDeadline(time.Time) error { return nil }

var pipeAddr = &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}

// BenchmarkSoldOut is the answer that most requests of a sale get, with everything that fasthttp does around it but the network.
func BenchmarkSoldOut(b *testing.B) {
	for setting, change := range corsSettings() {
		w, g := flagged(b, 10000, change)
		for name, raw := range hotRequests(b, w) {
			b.Run(setting+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				c := &pipe{stream: newStream(raw), left: b.N}
				if err := g.server.ServeConn(c); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

// BenchmarkPurchase is a purchase whose stock and broker answer at once: what the gateway itself costs.
func BenchmarkPurchase(b *testing.B) {
	w := newWorld(b)
	w.reserve = func(_ context.Context, _ *sale.Item, q sale.Request) sale.Result {
		return sale.Result{Outcome: sale.Reserved, OrderID: q.OrderID, Acked: closedChannel()}
	}
	g := w.start(b)
	b.ReportAllocs()
	c := &pipe{stream: newStream(purchaseOf(w.token(b, "1")).raw()), left: b.N}
	if err := g.server.ServeConn(c); err != nil {
		b.Fatal(err)
	}
}
