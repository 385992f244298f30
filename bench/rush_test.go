package bench_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/valyala/fasthttp"
	"go.uber.org/goleak"

	"flashgate/bench"
	"flashgate/internal/sale"
)

func TestMain(m *testing.M) {
	// fasthttp's own housekeeping sleeps for seconds and ends by itself.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*HostClient).connsCleaner"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*TCPDialer).tcpAddrsClean"))
}

// serve starts a gateway of the test's own making and returns its URL.
func serve(t *testing.T, handler fasthttp.RequestHandler) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &fasthttp.Server{Handler: handler, CloseOnShutdown: true}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = server.Shutdown()
		<-served
	})
	return "http://" + listener.Addr().String()
}

type audit struct {
	sold, quantity int64
	violations     []string
}

func (a audit) Audit(context.Context, int64, []sale.OrderID) (bench.Audit, error) {
	return bench.Audit{Quantity: a.quantity, Sold: a.sold, Available: a.quantity - a.sold, Violations: a.violations}, nil
}

func rush(url string, a audit) bench.Rush {
	return bench.Rush{
		Shoppers: 50, Stock: 10, Shards: 4, Concurrency: 8, Retries: 1, Gateways: []string{url}, Audit: a,
		CreateItem: func(context.Context, int, int) (int64, error) { return 7, nil },
		Sign:       func(user string) (string, error) { return "token-of-" + user, nil },
	}
}

func reply(ctx *fasthttp.RequestCtx, status int, body string) {
	ctx.SetStatusCode(status)
	ctx.Response.Header.Set("Retry-After", "0")
	ctx.SetBodyString(body)
}

// A run against something that serves nobody must fail: none of these may look like a fast gateway.
func TestNothingSoldIsAnError(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	down := "http://" + closed.Addr().String()
	_ = closed.Close()
	for name, url := range map[string]string{
		"500 to all": serve(t, func(ctx *fasthttp.RequestCtx) { reply(ctx, 500, `{"error":"INTERNAL"}`) }),
		"429 to all": serve(t, func(ctx *fasthttp.RequestCtx) { reply(ctx, 429, `{"error":"RATE_LIMITED"}`) }),
		"not JSON":   serve(t, func(ctx *fasthttp.RequestCtx) { reply(ctx, 202, `<html>`) }),
		"down":       down,
	} {
		report, err := rush(url, audit{quantity: 10}).Run(t.Context())
		if !errors.Is(err, bench.ErrNothingSold) {
			t.Errorf("%s: error %v, want ErrNothingSold; answers %v", name, err, report.Answers())
		}
	}
}

func TestRunThatCannotBegin(t *testing.T) {
	broken := rush("http://127.0.0.1:1", audit{})
	broken.Sign = func(string) (string, error) { return "", errors.New("no key") }
	if _, err := broken.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "no key") {
		t.Errorf("error %v", err)
	}
	none := rush("http://127.0.0.1:1", audit{})
	none.Shoppers = 0
	if _, err := none.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "shoppers is 0") {
		t.Errorf("error %v", err)
	}
}

// shop is a gateway that sells to the first `sell` shoppers.
func shop(sell int64) fasthttp.RequestHandler {
	var sold atomic.Int64
	return func(ctx *fasthttp.RequestCtx) {
		if sold.Add(1) > sell {
			reply(ctx, 410, `{"error":"SOLD_OUT","message":"sold out"}`)
			return
		}
		reply(ctx, 202, `{"orderId":"`+sale.NewOrderID(7).String()+`","status":"PENDING"}`)
	}
}

func TestVerdicts(t *testing.T) {
	for _, test := range []struct {
		name string
		sell int64
		a    audit
		want error
	}{
		{"exactly the stock", 10, audit{sold: 10, quantity: 10}, nil},
		{"a unit too many", 11, audit{sold: 11, quantity: 10}, bench.ErrInvariant},
		{"a unit unsold", 9, audit{sold: 9, quantity: 10}, bench.ErrInvariant},
		{"the database disagrees", 10, audit{sold: 10, quantity: 10, violations: []string{"I4: order x has no row"}}, bench.ErrInvariant},
	} {
		report, err := rush(serve(t, shop(test.sell)), test.a).Run(t.Context())
		if !errors.Is(err, test.want) {
			t.Errorf("%s: error %v, want %v", test.name, err, test.want)
		}
		if got := report.Answers(); got["202 PENDING"] != test.sell || got["410 SOLD_OUT"] != 50-test.sell {
			t.Errorf("%s: answers %v", test.name, got)
		}
		var text strings.Builder
		if _, err := report.WriteTo(&text); err != nil || !strings.Contains(text.String(), "202 PENDING") || strings.Contains(text.String(), "VIOLATION") != (test.want != nil) {
			t.Errorf("%s: report (%v):\n%s", test.name, err, text.String())
		}
	}
}

// Every shopper comes with a token, an address and a key of his own, and repeats with the same ones.
func TestShoppersAreDifferentPeople(t *testing.T) {
	var mutex sync.Mutex
	asked := map[string]int{}
	sell := shop(50)
	url := serve(t, func(ctx *fasthttp.RequestCtx) {
		header := &ctx.Request.Header
		who := string(header.Peek("Authorization")) + " " + string(header.Peek("X-Forwarded-For")) + " " + string(header.Peek("Idempotency-Key"))
		mutex.Lock()
		asked[who]++
		first := asked[who] == 1
		mutex.Unlock()
		if first {
			reply(ctx, 503, `{"error":"OVERLOADED"}`)
			return
		}
		sell(ctx)
	})
	r := rush(url, audit{sold: 50, quantity: 50})
	r.Stock = 50
	report, err := r.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := report.Answers(); got["503 OVERLOADED"] != 50 || got["202 PENDING"] != 50 || len(report.Accepted()) != 50 {
		t.Errorf("answers %v", got)
	}
	for part, want := range map[int]int{1: 50, 2: 50, 3: 50} {
		values := map[string]bool{}
		for who := range asked {
			values[strings.Fields(who)[part]] = true
		}
		if len(values) != want {
			t.Errorf("field %d of the requests has %d values, want %d", part, len(values), want)
		}
	}
	if len(asked) != 50 {
		t.Errorf("%d different shoppers, want 50", len(asked))
	}
}
