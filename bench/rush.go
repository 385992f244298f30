package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/valyala/fasthttp"

	"flashgate/internal/sale"
)

// Rush is the crowd at the opening of a sale: every shopper, with a token, an address and a key of his own, asks for one unit.
type Rush struct {
	Shoppers    int // people who try to buy, each one unit
	Stock       int // units of the item
	Shards      int // of the item
	Concurrency int // requests in flight at once
	Retries     int // times a shopper repeats after 429, 503 or a broken connection; default 5

	Gateways       []string // base URLs of the public edge; shoppers are spread over them
	ClientIPHeader string   // header by which the generator, as a trusted proxy, names each shopper's address; default X-Forwarded-For

	CreateItem func(ctx context.Context, stock, shards int) (item int64, err error)
	Sign       func(user string) (token string, err error)
	Audit      Auditor

	Settle   time.Duration // longest wait until every accepted order is in the database; default 60 s
	Progress io.Writer     // of the progress bar; nil for none
	Seed     uint64        // makes user ids differ between runs against one gateway; default: the time
}

// Auditor looks at the database and Redis after the crowd has gone.
type Auditor interface {
	// Audit waits until nothing of the item is on its way, or ctx ends, and checks I1 to I4; accepted are the order ids that were answered
	// with 202. What is still on its way at the end of ctx is a violation.
	Audit(ctx context.Context, item int64, accepted []sale.OrderID) (Audit, error)
}

// Audit is what the database and Redis say of an item.
type Audit struct {
	Quantity, Sold, Available, Pending, InTransfer int64 // in units
	Violations                                     []string
}

// ErrInvariant is wrapped by the error of a run whose sale did not end as it must.
var ErrInvariant = errors.New("an invariant does not hold")

// ErrNothingSold is wrapped by the error of a run in which no request was accepted.
var ErrNothingSold = errors.New("no request was accepted")

func (r Rush) withDefaults() Rush {
	if r.Retries == 0 {
		r.Retries = 5
	}
	if r.ClientIPHeader == "" {
		r.ClientIPHeader = "X-Forwarded-For"
	}
	if r.Settle == 0 {
		r.Settle = 60 * time.Second
	}
	if r.Seed == 0 {
		r.Seed = uint64(time.Now().UnixNano())
	}
	return r
}

// Validate names the first setting that cannot be.
func (r Rush) Validate() error {
	switch {
	case r.Shoppers < 1 || r.Shoppers > 1<<24:
		return fmt.Errorf("shoppers is %d: must be between 1 and %d", r.Shoppers, 1<<24)
	case r.Stock < 0:
		return fmt.Errorf("stock is %d: must not be negative", r.Stock)
	case r.Shards < 1 || r.Shards > sale.MaxShards:
		return fmt.Errorf("shards is %d: must be between 1 and %d", r.Shards, sale.MaxShards)
	case r.Concurrency < 1 || r.Concurrency > 65536:
		return fmt.Errorf("concurrency is %d: must be between 1 and 65536", r.Concurrency)
	case len(r.Gateways) == 0:
		return errors.New("no gateway is named")
	}
	return nil
}

// Run lets the crowd in, waits until the orders are settled and checks the sale. The report is complete even when the error is not nil, unless
// the run could not begin.
func (r Rush) Run(ctx context.Context) (*Report, error) {
	r = r.withDefaults()
	if err := r.Validate(); err != nil {
		return nil, fmt.Errorf("begin the rush: %w", err)
	}
	item, err := r.CreateItem(ctx, r.Stock, r.Shards)
	if err != nil {
		return nil, fmt.Errorf("create the item for the rush: %w", err)
	}
	crowd, err := r.gather(item)
	if err != nil {
		return nil, err
	}
	report := &Report{Rush: r, Item: item}
	crowd.run(ctx, r, report)
	if err := ctx.Err(); err != nil {
		return report, err
	}
	if err := r.settle(ctx, report); err != nil {
		return report, err
	}
	return report, report.verdict()
}

// crowd is everything that a run needs and that would cost time inside it.
type crowd struct {
	path    string
	hosts   []*fasthttp.HostClient
	users   []string // tokens
	name    uint64   // first user id
	next    atomic.Int64
	session string
}

func (r Rush) gather(item int64) (*crowd, error) {
	c := &crowd{
		path:    "/api/flash-sales/items/" + strconv.FormatInt(item, 10) + "/purchase",
		users:   make([]string, r.Shoppers),
		name:    1 + r.Seed%(1<<40)*1000,
		session: strconv.FormatUint(r.Seed, 36),
	}
	for _, gateway := range r.Gateways {
		target, err := url.Parse(gateway)
		if err != nil || target.Host == "" || (target.Scheme != "http" && target.Scheme != "https") {
			return nil, fmt.Errorf("begin the rush: %q is not the URL of a gateway", gateway)
		}
		c.hosts = append(c.hosts, &fasthttp.HostClient{
			Addr: hostPort(target), IsTLS: target.Scheme == "https", MaxConns: r.Concurrency,
			ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, MaxIdemponentCallAttempts: 1,
			DisableHeaderNamesNormalizing: true, NoDefaultUserAgentHeader: true,
		})
	}
	for i := range c.users {
		token, err := r.Sign(c.user(i))
		if err != nil {
			return nil, fmt.Errorf("sign the token of a shopper: %w", err)
		}
		c.users[i] = "Bearer " + token
	}
	return c, nil
}

func hostPort(target *url.URL) string {
	if target.Port() != "" {
		return target.Host
	}
	if target.Scheme == "https" {
		return target.Host + ":443"
	}
	return target.Host + ":80"
}

func (c *crowd) user(i int) string { return strconv.FormatUint(c.name+uint64(i), 10) }

func (c *crowd) run(ctx context.Context, r Rush, report *Report) {
	var bar *progressbar.ProgressBar
	if r.Progress != nil {
		bar = progressbar.NewOptions(r.Shoppers, progressbar.OptionSetWriter(r.Progress), progressbar.OptionSetDescription("shoppers"),
			progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
	}
	tallies := make([]*tally, r.Concurrency)
	start := time.Now()
	var workers sync.WaitGroup
	for w := range tallies {
		tallies[w] = newTally()
		workers.Go(func() {
			for ctx.Err() == nil {
				i := int(c.next.Add(1)) - 1
				if i >= len(c.users) {
					return
				}
				c.shop(ctx, r, i, tallies[w])
				if bar != nil {
					_ = bar.Add(1)
				}
			}
		})
	}
	workers.Wait()
	report.Took = time.Since(start)
	if bar != nil {
		_ = bar.Finish()
	}
	for _, host := range c.hosts {
		host.CloseIdleConnections()
	}
	report.tally = merge(tallies)
}

// shop is one shopper: he asks, and asks again with the same key while he is told to.
func (c *crowd) shop(ctx context.Context, r Rush, i int, t *tally) {
	request, response := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(request)
	defer fasthttp.ReleaseResponse(response)
	host := c.hosts[i%len(c.hosts)]
	request.Header.SetMethod(fasthttp.MethodPost)
	request.SetRequestURI(c.path)
	request.SetHost(host.Addr)
	if host.IsTLS {
		request.URI().SetScheme("https")
	}
	request.Header.Set("Authorization", c.users[i])
	request.Header.Set("Idempotency-Key", c.session+"-"+strconv.Itoa(i))
	request.Header.Set(r.ClientIPHeader, address(i))
	for attempt := 0; ; attempt++ {
		begin := time.Now()
		err := host.Do(request, response)
		answer := t.record(response, err, time.Since(begin))
		if !answer.again || attempt >= r.Retries {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(answer.after):
		}
	}
}

// address gives every shopper an address of his own, out of the block for benchmarks (RFC 2544) and, beyond its 131,072, one per IPv6 /64.
func address(i int) string {
	if i < 1<<17 {
		return fmt.Sprintf("198.%d.%d.%d", 18+i>>16, i>>8&0xff, i&0xff)
	}
	return fmt.Sprintf("2001:2:%x:%x::1", i>>16, i&0xffff) // the benchmark block of IPv6, RFC 5180
}

// settle waits until nothing is on its way, and takes the audit as the result.
func (r Rush) settle(ctx context.Context, report *Report) error {
	ctx, cancel := context.WithTimeout(ctx, r.Settle)
	defer cancel()
	audit, err := r.Audit.Audit(ctx, report.Item, report.Accepted())
	if err != nil {
		return fmt.Errorf("check the sale: %w", err)
	}
	report.Audit = audit
	return nil
}
