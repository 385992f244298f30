package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flashgate/internal/apidoc"
	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
)

// row is one request and the answer that it must get. Whatever comes back is held against docs/openapi.yaml as well, so that a row names only what tells its
// case from others. In call, body, header and values {name} stands for a name that the world knows.
type row struct {
	name   string
	call   string   // method, path and query
	as     string   // a user, "admin", or "provider", who signs the body; empty: nobody
	header []string // names and values
	body   string

	at    string // the gateway that is asked; empty: the first
	desk  bool   // its listener for operators, where the path does not say so
	until bool   // ask again until the answer is this one: it waits for something that is under way

	status  int
	code    string
	says    string            // part of the message
	values  map[string]any    // members of the body, and what they must be
	answers map[string]string // headers, and what they must be; "*" for anything
	keep    string            // the name for the orderId of the answer
}

// world is a running system and what the rows have made in it.
type world struct {
	*shop
	document *apidoc.Document
	seen     *apidoc.Coverage
	at       map[string]*role

	mutex sync.Mutex
	names map[string]string
}

const (
	paymentSecret = "a-payment-secret-for-tests" // what the payment provider signs with
	pageOrigin    = "https://shop.example"       // whose pages may call
)

// TestConformance brings about every status and every code of the public and of the admin API in running processes, holds every answer against
// docs/openapi.yaml, and in the end the document against the answers.
func TestConformance(t *testing.T) {
	document, err := apidoc.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen := &apidoc.Coverage{}
	var parts atomic.Int64
	whole := t.Run("all", func(t *testing.T) {
		t.Run("a system that runs", func(t *testing.T) {
			t.Parallel()
			openWorld(t, document, seen).everything(t, &parts)
		})
		// Outages are mostly waiting.
		t.Run("outages", func(t *testing.T) {
			t.Parallel()
			outages(t, document, seen)
			parts.Add(1)
		})
	})
	if !whole || parts.Load() < allParts {
		t.Log("not everything was tried, or not with success: what was not brought about is no news")
		return
	}
	missing, needless, unknown := seen.Compare(document, unreachable)
	for _, c := range missing {
		t.Errorf("documented and not brought about: %v", c)
	}
	for _, c := range needless {
		t.Errorf("said to be out of reach, and brought about: %v", c)
	}
	for _, c := range unknown {
		t.Errorf("said to be out of reach, and not documented: %v", c)
	}
}

// allParts is the number of parts of everything, and the outages.
const allParts = 9

// everything plays the table, and all that is made out of the document. It counts the parts that were run to their end.
func (w *world) everything(t *testing.T, parts *atomic.Int64) {
	slow := w.slowRequests()
	for _, part := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"table", func(t *testing.T) {
			for _, rows := range [][]row{saleRows, itemRows, purchaseRows, orderRows, cancelRows, paymentRows, refundRows, changeRows, deskRows, limitRows} {
				w.play(t, rows)
			}
		}},
		{"sizes", w.sizes},
		{"fields", w.fields},
		{"methods", w.methods},
		{"routes", w.routes},
		{"generated", w.generated},
		{"slow requests", slow},
		{"cleared away", func(t *testing.T) { w.play(t, retiredRows) }},
	} {
		t.Run(part.name, func(t *testing.T) {
			part.run(t)
			parts.Add(1)
		})
	}
}

// openWorld starts a gateway without limits, one with tight ones, and a consumer that clears sales away as soon as they are over.
func openWorld(t *testing.T, document *apidoc.Document, seen *apidoc.Coverage) *world {
	t.Helper()
	s := newShop(t, devtest.Redis(t).URL(), kfake(t), "FLASHGATE_PAYMENT_SECRET="+paymentSecret, "FLASHGATE_CORS_ORIGINS="+pageOrigin)
	plain := s.env
	s.env = append(slices.Clip(plain), "FLASHGATE_RATE_USER=off", "FLASHGATE_RATE_IP=off", "FLASHGATE_RATE_READ=off", "FLASHGATE_RETIRE_AFTER=0s")
	s.open(1, 1)
	s.env = append(slices.Clip(plain), "FLASHGATE_RATE_USER=1/h:1", "FLASHGATE_RATE_IP=1/h:2", "FLASHGATE_RATE_READ=1/h:1")
	s.open(1, 0)
	return newWorld(s, document, seen, "", "limited")
}

// newWorld names the gateways of a shop.
func newWorld(s *shop, document *apidoc.Document, seen *apidoc.Coverage, gateways ...string) *world {
	now := time.Now().UTC()
	w := &world{shop: s, document: document, seen: seen, at: map[string]*role{}, names: map[string]string{
		"past": now.Add(-2 * time.Hour).Format(time.RFC3339), "before": now.Add(-time.Hour).Format(time.RFC3339), "after": now.Add(time.Hour).Format(time.RFC3339),
		"later": now.Add(2 * time.Hour).Format(time.RFC3339), "now": now.Add(-time.Second).Format(time.RFC3339Nano),
		"nobody": "00000000-0000-8000-8000-000000000000", "ghost": sale.NewOrderID(109).String(), "large": strings.Repeat(" ", 1<<20+1),
	}}
	maps.Copy(w.names, badSignatures())
	for i, name := range gateways {
		w.at[name] = s.gateways[i]
	}
	return w
}

// play asks and compares, row by row: later ones rely on what earlier ones have made.
func (w *world) play(t *testing.T, rows []row) {
	t.Helper()
	for _, r := range rows {
		var faults []string
		try := func() bool { faults = w.try(t, r); return len(faults) == 0 }
		if !r.until {
			try()
		} else if deadline(t, try) {
			continue
		}
		if len(faults) > 0 {
			t.Errorf("%s: %s\n  %s", r.name, r.call, strings.Join(faults, "\n  "))
		}
	}
}

// deadline tries again for a while, without failing the test.
func deadline(t *testing.T, try func() bool) bool {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !try() {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}

// try sends the request of a row and returns what is wrong with the answer.
func (w *world) try(t *testing.T, r row) (faults []string) {
	t.Helper()
	request := w.request(t, r)
	answer, err := w.send(t, w.at[r.at], request)
	if err != nil {
		return []string{err.Error()}
	}
	faults = w.check(t, request, answer)
	wrong := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	got := decoded(answer)
	if code, _ := got.body["error"].(string); answer.Status != r.status || code != r.code {
		wrong("%d %s, want %d %s", answer.Status, answer.Body, r.status, r.code)
		return faults
	}
	if r.keep != "" {
		w.name(r.keep, got.orderID())
	}
	if message, _ := got.body["message"].(string); !strings.Contains(message, r.says) {
		wrong("the message is %q and does not name %q", message, r.says)
	}
	for name, value := range r.values {
		if text, ok := value.(string); ok {
			value = w.fill(text)
		}
		if actual, there := at(got.body, name); !there || value != any(anything) && fmt.Sprint(actual) != fmt.Sprint(value) {
			wrong("%s is %v, want %v", name, actual, value)
		}
	}
	for name, value := range r.answers {
		if actual := answer.Header.Get(name); actual == "" || value != "*" && actual != w.fill(value) {
			wrong("the header %s is %q, want %q", name, actual, w.fill(value))
		}
	}
	return faults
}

// anything stands for a value that has to be there, whatever it is.
const anything = "*"

// at finds a member by a path such as items.0.sold.
func at(body any, path string) (any, bool) {
	for name := range strings.SplitSeq(path, ".") {
		switch v := body.(type) {
		case map[string]any:
			member, ok := v[name]
			if !ok {
				return nil, false
			}
			body = member
		case []any:
			var i int
			if _, err := fmt.Sscan(name, &i); err != nil || i >= len(v) {
				return nil, false
			}
			body = v[i]
		default:
			return nil, false
		}
	}
	return body, true
}

// check holds an exchange against the document and notes which answer it was.
func (w *world) check(t *testing.T, request apidoc.Request, answer apidoc.Answer) []string {
	t.Helper()
	verdict := w.document.Check(t.Context(), request, answer)
	if verdict.Case.Operation != "" && request.Method != http.MethodHead {
		w.seen.Add(verdict.Case)
	}
	return verdict.Problems
}

// send sends a request to the listener of a gateway that it is for.
func (w *world) send(t *testing.T, gateway *role, request apidoc.Request) (apidoc.Answer, error) {
	t.Helper()
	base := gateway.public
	if request.Admin {
		base = gateway.admin
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return apidoc.Send(ctx, w.client, base, request)
}

// request makes the request of a row.
func (w *world) request(t *testing.T, r row) apidoc.Request {
	t.Helper()
	method, target, _ := strings.Cut(w.fill(r.call), " ")
	request := apidoc.Request{Method: method, Target: target, Header: http.Header{}, Body: []byte(w.fill(r.body))}
	request.Admin = r.desk || strings.HasPrefix(target, "/admin") || strings.HasPrefix(target, "/metrics")
	switch r.as {
	case "":
	case "admin":
		request.Header.Set("Authorization", "Bearer "+adminToken)
	case "provider":
		request.Header.Set("Flashgate-Signature", signature(time.Now(), paymentSecret, request.Body))
	default:
		request.Header.Set("Authorization", "Bearer "+tokenOf(t, r.as))
		request.Header.Set("X-Forwarded-For", addressOf(r.as))
	}
	for i := 0; i+1 < len(r.header); i += 2 {
		name, value := r.header[i], w.fill(r.header[i+1])
		if name == "Flashgate-Signature" || name == "Authorization" || name == "X-Forwarded-For" {
			request.Header.Set(name, value)
		} else {
			request.Header.Add(name, value)
		}
	}
	return request
}

// fill puts what the world knows in the place of names.
func (w *world) fill(text string) string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for name, value := range w.names {
		text = strings.ReplaceAll(text, "{"+name+"}", value)
	}
	return text
}

func (w *world) name(name, value string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.names[name] = value
}

// together runs the functions side by side and waits for them.
func together(functions ...func()) {
	var group sync.WaitGroup
	for _, f := range functions {
		group.Go(f)
	}
	group.Wait()
}
