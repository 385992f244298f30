package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"flashgate/docs"
	"flashgate/internal/devstack"
	"flashgate/internal/devstack/devtest"
)

// The page of the shop: the module as it is in docs, and around it what lets a test see what the page asked and was answered.
const storefrontPage = `<!doctype html><title>shop</title><script type="module">
import * as storefront from './storefront.js';
const plain = window.fetch;
window.answers = [];
window.fetch = async (...request) => {
  const response = await plain(...request).catch(error => { window.answers.push(error.name); throw error; });
  const body = await response.clone().json().catch(() => ({}));
  window.answers.push(response.status + ' ' + (body.error ?? body.status ?? ''));
  return response;
};
window.begin = promise => { window.answers = []; window.outcome = promise.then(value => ({value}), error => ({code: String(error.code ?? ''), name: error.name, message: error.message})); };
window.storefront = storefront;
</script>`

// page is a tab of a real browser that has the page open.
type page struct {
	t    *testing.T
	ctx  context.Context
	base string // of the gateway
}

// outcome is what a promise of the page came to.
type outcome struct {
	Value map[string]any `json:"value"`
	Code  string         `json:"code"`
	Name  string         `json:"name"`
}

// origin serves the page from an address of its own.
func origin(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = w.Write([]byte(storefrontPage))
		case "/storefront.js":
			w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
			_, _ = w.Write(docs.Storefront)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// browser starts Chromium and returns the context of its tabs.
func browser(t *testing.T) context.Context {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Fatal("the page for storefronts is tried in a real browser, and there is none: apt-get install --no-install-recommends chromium")
	}
	dir := t.TempDir()
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("disable-dev-shm-usage", true), chromedp.UserDataDir(dir),
		chromedp.Env("HOME="+dir, "TMPDIR="+dir), chromedp.WSURLReadTimeout(time.Minute))
	allocated, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, closeBrowser := chromedp.NewContext(allocated)
	t.Cleanup(func() {
		closeBrowser()
		stop()
		chromedp.FromContext(ctx).Allocator.Wait()
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	return ctx
}

// visit opens the page of an origin in a tab of its own.
func visit(t *testing.T, browser context.Context, origin, base string) *page {
	t.Helper()
	ctx, closeTab := chromedp.NewContext(browser)
	t.Cleanup(closeTab)
	p := &page{t: t, ctx: ctx, base: base}
	// The first call opens the tab, which lives as long as the context of that call.
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("open a tab: %v", err)
	}
	do(p, chromedp.Navigate(origin+"/"))
	do(p, chromedp.Poll[bool]("window.storefront !== undefined", chromedp.WithPollingTimeout(time.Minute)))
	return p
}

// do runs an action in the tab of a page.
func do[T any](p *page, action chromedp.Action[T]) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, 2*time.Minute)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		p.t.Fatal(err)
	}
	return value
}

// begin calls a function of the module, with the gateway as its base, and returns at once.
func (p *page) begin(function string, arguments ...any) {
	p.t.Helper()
	options := map[string]any{}
	if last, ok := arguments[len(arguments)-1].(map[string]any); ok {
		options, arguments = last, arguments[:len(arguments)-1]
	}
	options["base"] = p.base
	list, err := json.Marshal(append(slices.Clone(arguments), options))
	if err != nil {
		p.t.Fatal(err)
	}
	do(p, chromedp.Evaluate[chromedp.Void]("window.begin(window.storefront."+function+"(..."+string(list)+"))"))
}

// end waits for what was begun.
func (p *page) end() outcome {
	p.t.Helper()
	return do(p, chromedp.Evaluate[outcome]("window.outcome", chromedp.EvalAwaitPromise))
}

func (p *page) call(function string, arguments ...any) outcome {
	p.t.Helper()
	p.begin(function, arguments...)
	return p.end()
}

// answers are those that the page has got since the last call.
func (p *page) answers() []string {
	p.t.Helper()
	return do(p, chromedp.Evaluate[[]string]("window.answers"))
}

func (p *page) awaitAnswer(answer string) {
	p.t.Helper()
	devtest.Eventually(p.t, time.Minute, func() bool { return slices.Contains(p.answers(), answer) }, "the page does not get %s", answer)
}

// A page of the shop buys, in a real browser, from a gateway of another origin: what docs/storefront.js promises, and what CORS is for.
func TestStorefrontInABrowser(t *testing.T) {
	chromium := browser(t)
	shopOrigin, otherOrigin := origin(t), origin(t)
	redis := devtest.Redis(t)
	s := newShop(t, redis.URL(), kfake(t), "FLASHGATE_CORS_ORIGINS="+shopOrigin+",https://shop.example", "FLASHGATE_REQUEST_TIMEOUT=1s")
	plain := s.env
	s.env = append(slices.Clip(plain), "FLASHGATE_RATE_USER=off")
	s.open(1, 0)
	s.env = append(slices.Clip(plain), "FLASHGATE_RATE_USER=15/m:1") // one purchase in four seconds
	s.open(1, 0)
	consumer := start(t, s.env, "consumer")
	s.awaitReady(consumer)
	base, limited := s.gateways[0].public, s.gateways[1].public
	p := visit(t, chromium, shopOrigin, base)
	much, single, third, fourth := s.offer(1000, 3, `"maxPerUser":2`), s.offer(1, 1), s.offer(10, 1), s.offer(10, 1)

	first := p.call("buy", much, tokenOf(t, "1"), map[string]any{"quantity": 2, "key": "k"})
	id, _ := first.Value["orderId"].(string)
	if id == "" || first.Value["already"] != false || !slices.Equal(p.answers(), []string{"202 PENDING"}) {
		t.Fatalf("buy: %+v after %q", first, p.answers())
	}
	if order := p.call("waitUntilPayable", id, tokenOf(t, "1")); order.Value["payable"] != true || order.Value["orderId"] != id || order.Value["quantity"] != 2.0 {
		t.Errorf("wait until it is payable: %+v after %q", order, p.answers())
	}
	if again := p.call("buy", much, tokenOf(t, "1"), map[string]any{"quantity": 2, "key": "k"}); again.Value["orderId"] != id || again.Value["already"] != false {
		t.Errorf("buy again with the same key: %+v, want order %s", again, id)
	}
	if again := p.call("buy", much, tokenOf(t, "1")); again.Value["orderId"] != id || again.Value["already"] != true {
		t.Errorf("buy again with another key: %+v, want order %s, had already", again, id)
	}
	if a := s.order(0, "DELETE", id, "1"); a.status != 200 {
		t.Fatalf("cancel: %v", a)
	}
	if order := p.call("waitUntilPayable", id, tokenOf(t, "1")); order.Value["status"] != "CANCELLED" || order.Value["payable"] != false {
		t.Errorf("wait for an order that is cancelled: %+v", order)
	}

	if last := p.call("buy", single, tokenOf(t, "2")); last.Value["orderId"] == nil {
		t.Fatalf("buy the last unit: %+v", last)
	}
	if out := p.call("buy", single, tokenOf(t, "3")); out.Code != "SOLD_OUT" || out.Name != "SaleError" || !slices.Equal(p.answers(), []string{"410 SOLD_OUT"}) {
		t.Errorf("buy what is sold out: %+v after %q", out, p.answers())
	}

	t.Run("limited, then bought", func(t *testing.T) {
		p := visit(t, chromium, shopOrigin, limited)
		if a := s.buy(1, third, "4", ""); a.status != 202 {
			t.Fatalf("use the user's limit up: %v", a)
		}
		bought := p.call("buy", fourth, tokenOf(t, "4"))
		if got := p.answers(); bought.Value["orderId"] == nil || got[0] != "429 RATE_LIMITED" || got[len(got)-1] != "202 PENDING" {
			t.Errorf("%+v after %q, want 429 and in the end 202", bought, got)
		}
	})
	t.Run("warming up, then bought", func(t *testing.T) {
		p.t = t
		signal(t, consumer, syscall.SIGSTOP) // its keeper would load the stock anew at once
		redisCommand(t, redis, "DEL {item:"+itoa(third)+":0}:stock")
		p.begin("buy", third, tokenOf(t, "5"))
		p.awaitAnswer("503 WARMING_UP")
		signal(t, consumer, syscall.SIGCONT)
		bought := p.end()
		if got := p.answers(); bought.Value["orderId"] == nil || got[0] != "503 WARMING_UP" || got[len(got)-1] != "202 PENDING" {
			t.Errorf("%+v after %q, want 503 and in the end 202", bought, got)
		}
	})
	t.Run("outcome unknown, then bought once", func(t *testing.T) {
		p.t = t
		boughtInTheDark(t, s, p, redis, fourth)
	})
	t.Run("given up", func(t *testing.T) {
		p.t = t
		do(p, chromedp.Evaluate[chromedp.Void](`window.begin((() => { const stop = new AbortController(); const bought = window.storefront.buy(`+itoa(fourth)+`, 'x', {base: '`+base+`', signal: stop.signal}); stop.abort(); return bought; })())`))
		if got := p.end(); got.Name != "AbortError" {
			t.Errorf("%+v, want AbortError", got)
		}
	})
	t.Run("an origin that is not listed", func(t *testing.T) {
		other := visit(t, chromium, otherOrigin, base)
		refused := other.call("buy", much, tokenOf(t, "7"), map[string]any{"patience": 1})
		if refused.Name != "TypeError" || !slices.Equal(other.answers(), []string{"TypeError"}) {
			t.Errorf("%+v after %q, want that the browser refuses", refused, other.answers())
		}
		var a answer
		devtest.Eventually(t, time.Minute, func() bool { // 503: nobody can say, beside browsers that take the processor from the database
			a = s.try("GET", base+"/api/flash-sales/orders?itemId="+itoa(much), map[string]string{"Authorization": "Bearer " + tokenOf(t, "7")}, nil)
			return a.status != 503
		}, "nobody knows whether it was sold: %v", &a)
		if a.status != 404 {
			t.Errorf("the browser was to refuse before the purchase was sent: %v", a)
		}
	})
}

func signal(t *testing.T, r *role, s syscall.Signal) {
	t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// boughtInTheDark freezes Redis under a purchase, so that nobody knows what became of it, and lets it go on when the page was told so.
func boughtInTheDark(t *testing.T, s *shop, p *page, redis *devstack.Redis, item int64) {
	before := s.query("SELECT count(*) FROM flash_sale_order WHERE item_id = $1", item)
	if err := redis.Pause(); err != nil {
		t.Fatal(err)
	}
	p.begin("buy", item, tokenOf(t, "6"), map[string]any{"patience": 60_000})
	p.awaitAnswer("503 OUTCOME_UNKNOWN")
	if err := redis.Resume(); err != nil {
		t.Fatal(err)
	}
	bought := p.end()
	if got := p.answers(); bought.Value["orderId"] == nil || !strings.HasPrefix(got[len(got)-1], "202") {
		t.Fatalf("%+v after %q, want 202 in the end", bought, got)
	}
	if order := p.call("waitUntilPayable", bought.Value["orderId"], tokenOf(t, "6")); order.Value["payable"] != true {
		t.Errorf("the order: %+v", order)
	}
	s.settled(item)
	if rows := s.query("SELECT count(*) FROM flash_sale_order WHERE item_id = $1", item); rows != before+1 {
		t.Errorf("%d rows before, %d after: the purchase was made more than once", before, rows)
	}
}
