package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"flashgate/internal/sale"
)

// Pay is the ledger's: it pays the row, if there is one.
func (w *world) Pay(ctx context.Context, p sale.Payment) (sale.PaymentResult, PayOutcome, error) {
	w.mu.Lock()
	w.told = append(w.told, "pay")
	w.payments = append(w.payments, p)
	f := w.pay
	w.mu.Unlock()
	if f != nil {
		return f(ctx, p)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	o, ok := w.rows[p.OrderID]
	if !ok {
		return sale.PaymentResult{}, PayNoOrder, nil
	}
	if p.Succeeded {
		if o.Status != sale.Pending {
			o.RefundsDue++
		}
		if o.Status == sale.Pending {
			o.Status = sale.Paid
		}
		w.rows[p.OrderID] = o
	}
	return sale.PaymentResult{Status: o.Status, RefundDue: o.RefundDue()}, PayDone, nil
}

func (w *world) Unwritten(ctx context.Context, item int64) (bool, error) {
	w.mu.Lock()
	w.told = append(w.told, "unwritten")
	f := w.unwritten
	w.mu.Unlock()
	if f != nil {
		return f(ctx, item)
	}
	return false, nil
}

// toldOf returns the calls about payments so far.
func (w *world) toldOf() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.told)
}

// withSecret is the configuration of a gateway that takes payments.
func withSecret(c *Config) { c.PaymentSecret = paymentSecret }

func paymentBody(id sale.OrderID, status string) string {
	return `{"eventId":"evt-1","orderId":"` + id.String() + `","status":"` + status + `","amount":"39.60","currency":"EUR"}`
}

// payment is a request of the provider's, signed now.
func payment(body string) ask {
	return ask{method: "POST", path: paymentsPath, body: body, headers: []string{"Flashgate-Signature: " + signedAt(time.Now(), body)}}
}

func TestPayment(t *testing.T) {
	id := sale.NewOrderID(theItem)
	says := func(status sale.OrderStatus, refund bool) string {
		return fmt.Sprintf(`{"orderId":"%s","status":"%s","refundDue":%v}`, id, status, refund)
	}
	row := func(status sale.OrderStatus) func(*world) {
		return func(w *world) {
			o := pendingRow(id, "u")
			o.Status = status
			w.rows[id] = o
		}
	}
	ends := func(how PayOutcome, err error) func(*world) {
		return func(w *world) {
			w.pay = func(context.Context, sale.Payment) (sale.PaymentResult, PayOutcome, error) {
				return sale.PaymentResult{}, how, err
			}
		}
	}
	unwritten := func(coming bool, err error) func(*world) {
		return func(w *world) { w.unwritten = func(context.Context, int64) (bool, error) { return coming, err } }
	}
	for name, c := range map[string]struct {
		prepare func(*world)
		attempt string // SUCCEEDED unless given
		status  int
		code    string // or the body of a 200
		told    string
	}{
		"pending":             {row(sale.Pending), "", 200, says("PAID", false), "pay"},
		"an attempt failed":   {row(sale.Pending), "FAILED", 200, says("PENDING", false), "pay"},
		"late":                {row(sale.Expired), "", 200, says("EXPIRED", true), "pay"},
		"failed late":         {row(sale.Expired), "FAILED", 200, says("EXPIRED", false), "pay"},
		"cancelled":           {row(sale.Cancelled), "", 200, says("CANCELLED", true), "pay"},
		"rejected":            {row(sale.Rejected), "", 200, says("REJECTED", true), "pay"},
		"twice":               {row(sale.Paid), "", 200, says("PAID", true), "pay"},
		"another amount":      {ends(PayMismatch, nil), "", 422, "AMOUNT_MISMATCH", "pay"},
		"another payload":     {ends(PayEventReused, nil), "", 422, "EVENT_REUSED", "pay"},
		"no order":            {nil, "", 404, "NOT_FOUND", "pay unwritten pay"},
		"no row yet":          {unwritten(true, nil), "", 503, "UNAVAILABLE", "pay unwritten"},
		"no row, no Redis":    {unwritten(false, errDown), "", 503, "UNAVAILABLE", "pay unwritten"},
		"no database":         {ends(0, errDown), "", 503, "UNAVAILABLE", "pay"},
		"no order, and error": {ends(PayNoOrder, errDown), "", 503, "UNAVAILABLE", "pay"},
		"no such outcome":     {ends(0, nil), "", 503, "UNAVAILABLE", "pay"},
		"unknown outcome":     {ends(99, nil), "", 503, "UNAVAILABLE", "pay"},
		"panic": {func(w *world) {
			w.pay = func(context.Context, sale.Payment) (sale.PaymentResult, PayOutcome, error) { panic("boom") }
		}, "", 503, "UNAVAILABLE", "pay"},
		// The consumer writes the row between the two questions.
		"written in between": {func(w *world) {
			w.unwritten = func(context.Context, int64) (bool, error) {
				w.change(func() { row(sale.Pending)(w) })
				return false, nil
			}
		}, "", 200, says("PAID", false), "pay unwritten pay"},
		"database lost in between": {func(w *world) {
			w.unwritten = func(context.Context, int64) (bool, error) {
				w.change(func() { ends(0, errDown)(w) })
				return false, nil
			}
		}, "", 503, "UNAVAILABLE", "pay unwritten pay"},
		"the database hangs": {func(w *world) {
			w.pay = func(ctx context.Context, _ sale.Payment) (sale.PaymentResult, PayOutcome, error) {
				<-ctx.Done()
				time.Sleep(time.Minute) // and longer than its context
				return sale.PaymentResult{Status: sale.Paid}, PayDone, nil
			}
		}, "", 503, "UNAVAILABLE", "pay"},
		"Redis hangs": {func(w *world) {
			w.unwritten = func(ctx context.Context, _ int64) (bool, error) {
				<-ctx.Done()
				time.Sleep(time.Minute)
				return false, nil
			}
		}, "", 503, "UNAVAILABLE", "pay unwritten"},
		"no catalogue": {func(w *world) {
			row(sale.Pending)(w)
			w.catalogue = func(context.Context) ([]sale.Item, error) { return nil, errDown }
		}, "", 200, says("PAID", false), "pay"},
		"limited address": {func(w *world) {
			row(sale.Pending)(w)
			w.limited["addr"], w.limited["user"], w.limited["read"] = time.Second, time.Second, time.Second
		}, "", 200, says("PAID", false), "pay"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				if c.prepare != nil {
					c.prepare(w)
				}
				if c.attempt == "" {
					c.attempt = "SUCCEEDED"
				}
				g := w.start(t, withSecret)
				began := time.Now()
				r := do(t, g, payment(paymentBody(id, c.attempt)))
				if took := time.Since(began); took > 3*time.Second {
					t.Errorf("took %v", took)
				}
				sleep(2 * time.Minute) // what hangs comes to its end
				if strings.HasPrefix(c.code, "{") {
					if r.want(t, c.status, ""); r.body != c.code || r.header("Cache-Control") != "no-store" || r.header("Content-Type") != "application/json" {
						t.Errorf("got %s %q, want %s", r.body, r.header("Cache-Control"), c.code)
					}
				} else {
					checkHeaders(t, r.want(t, c.status, c.code))
				}
				if told := strings.Join(w.toldOf(), " "); told != c.told {
					t.Errorf("calls %s, want %s", told, c.told)
				}
			})
		})
	}
}

// What the ledger is told is what the provider has said.
func TestPaymentIsPassedOn(t *testing.T) {
	w := newWorld(t)
	g := w.start(t, withSecret)
	id := sale.NewOrderID(theItem)
	for body, want := range map[string]sale.Payment{
		paymentBody(id, "SUCCEEDED"): {EventID: "evt-1", OrderID: id, Succeeded: true, Amount: "39.60", Currency: "EUR"},
		paymentBody(id, "FAILED"):    {EventID: "evt-1", OrderID: id, Amount: "39.60", Currency: "EUR"},
		" {\"currency\" : \"JPY\", \"amount\":\"0\",\r\n\"status\":\"SUCCEEDED\",\"orderId\":\"" + strings.ToUpper(id.String()) + "\",\"eventId\":\"" +
			strings.Repeat("~", 128) + "\"}\n": {EventID: strings.Repeat("~", 128), OrderID: id, Succeeded: true, Amount: "0", Currency: "JPY"},
	} {
		do(t, g, payment(body)).want(t, 404, "NOT_FOUND")
		w.mu.Lock()
		if got := w.payments[len(w.payments)-1]; got != want {
			t.Errorf("%s: told of %+v, want %+v", body, got, want)
		}
		w.mu.Unlock()
	}
}

// An id that cannot be of an order here is a payment for nobody, though well formed.
func TestPaymentForNoOrderOfOurs(t *testing.T) {
	w := newWorld(t)
	g := w.start(t, withSecret)
	for _, id := range []string{"00000000-0000-4000-8000-000000000000", "00000000-0000-8000-8000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"} {
		body := strings.Replace(paymentBody(sale.OrderID{}, "SUCCEEDED"), sale.OrderID{}.String(), id, 1)
		checkHeaders(t, do(t, g, payment(body)).want(t, 404, "NOT_FOUND"))
	}
	if told := w.toldOf(); len(told) > 0 {
		t.Errorf("the ledger was told %v", told)
	}
}

// Every request fails at its own stage and at all later ones; the earliest must answer.
func TestOrderOfPaymentChecks(t *testing.T) {
	stages := []struct {
		name   string
		spoil  func(w *world, a *ask)
		status int
		code   string
	}{
		{"route", func(_ *world, a *ask) { a.path += "/" }, 404, "NOT_FOUND"},
		{"method", func(_ *world, a *ask) { a.method = "PUT" }, 405, "METHOD_NOT_ALLOWED"},
		{"signature", func(_ *world, a *ask) { a.headers = nil }, 401, "UNAUTHORIZED"},
		{"body", func(_ *world, a *ask) { *a = payment(strings.Replace(a.body, "EUR", "eur", 1)) }, 400, "BAD_REQUEST"},
		{"order", func(w *world, _ *ask) {
			w.pay = func(context.Context, sale.Payment) (sale.PaymentResult, PayOutcome, error) {
				return sale.PaymentResult{}, PayMismatch, nil
			}
		}, 422, "AMOUNT_MISMATCH"},
	}
	for i, s := range stages {
		t.Run(s.name, func(t *testing.T) {
			w := newWorld(t)
			a := payment(paymentBody(sale.NewOrderID(theItem), "SUCCEEDED"))
			for j := len(stages) - 1; j >= i; j-- {
				stages[j].spoil(w, &a)
			}
			checkHeaders(t, do(t, w.start(t, withSecret), a).want(t, s.status, s.code))
			if told := w.toldOf(); len(told) > 0 && s.name != "order" {
				t.Errorf("the ledger was told %v", told)
			}
		})
	}
}

// Without a good signature nobody can tell an order that exists from one that does not, nor a good body from a bad one: the bytes are the same, and
// neither the ledger nor the token is looked at.
func TestNoPaymentOracle(t *testing.T) {
	w := newWorld(t)
	id, unknown := sale.NewOrderID(theItem), sale.NewOrderID(theItem)
	w.rows[id] = pendingRow(id, "u")
	closed := newWorld(t) // nobody has configured a secret
	closed.rows[id] = pendingRow(id, "u")
	g, shut := w.start(t, withSecret), closed.start(t)
	good := paymentBody(id, "SUCCEEDED")
	other := payment(strings.Replace(good, "39.60", "0.01", 1))
	empty := "t=" + fmt.Sprint(time.Now().Unix()) + ",v1=" + sumOf(nil, fmt.Sprint(time.Now().Unix()), good)
	var plain string
	for name, c := range map[string]struct {
		g *Gateway
		a ask
	}{
		"no signature":                   {g, ask{method: "POST", path: paymentsPath, body: good}},
		"the buyer's token":              {g, ask{method: "POST", path: paymentsPath, body: good, token: w.token(t, "u")}},
		"somebody's token":               {g, ask{method: "POST", path: paymentsPath, body: good, token: w.token(t, "v")}},
		"no such order":                  {g, ask{method: "POST", path: paymentsPath, body: paymentBody(unknown, "SUCCEEDED"), token: w.token(t, "u")}},
		"no body":                        {g, ask{method: "POST", path: paymentsPath, token: w.token(t, "u")}},
		"no JSON":                        {g, ask{method: "POST", path: paymentsPath, body: "]"}},
		"signed for another amount":      {g, ask{method: "POST", path: paymentsPath, body: good, headers: other.headers}},
		"signed too early":               {g, ask{method: "POST", path: paymentsPath, body: good, headers: []string{"Flashgate-Signature: " + signedAt(time.Now().Add(-301*time.Second), good)}}},
		"signed for later":               {g, ask{method: "POST", path: paymentsPath, body: good, headers: []string{"Flashgate-Signature: " + signedAt(time.Now().Add(310*time.Second), good)}}},
		"two signatures":                 {g, ask{method: "POST", path: paymentsPath, body: good, headers: append(payment(good).headers, payment(good).headers...)}},
		"signed with an empty key":       {g, ask{method: "POST", path: paymentsPath, body: good, headers: []string{"Flashgate-Signature: " + empty}}},
		"no secret, signed with none":    {shut, ask{method: "POST", path: paymentsPath, body: good, headers: []string{"Flashgate-Signature: " + empty}}},
		"no secret, signed with another": {shut, payment(good)},
	} {
		r := do(t, c.g, c.a).want(t, 401, "UNAUTHORIZED")
		checkHeaders(t, r)
		all := r.body + r.header("WWW-Authenticate") + r.header("Retry-After") + r.header("Location")
		if plain == "" {
			plain = all
		}
		if all != plain {
			t.Errorf("%s: %s, others get %s", name, all, plain)
		}
	}
	if told := append(w.toldOf(), closed.toldOf()...); len(told) > 0 {
		t.Errorf("the ledger was told %v", told)
	}
	if o := w.rows[id]; o.Status != sale.Pending {
		t.Errorf("the order is %s", o.Status)
	}
	do(t, g, payment(good)).want(t, 200, "")
}

// The clock of the configuration decides how old a signature is.
func TestPaymentWindowByTheClock(t *testing.T) {
	body := paymentBody(sale.NewOrderID(theItem), "FAILED")
	a := payment(body)
	var stamp int64
	if _, err := fmt.Sscanf(a.headers[0], "Flashgate-Signature: t=%d,", &stamp); err != nil {
		t.Fatal(err)
	}
	for off, status := range map[time.Duration]int{
		5 * time.Minute: 404, -5 * time.Minute: 404, 5*time.Minute + time.Millisecond: 401, -5*time.Minute - time.Millisecond: 401,
	} {
		now := time.Unix(stamp, 0).Add(off)
		if r := do(t, newWorld(t).start(t, withSecret, func(c *Config) { c.Now = func() time.Time { return now } }), a); r.status != status {
			t.Errorf("%v off: %d %s", off, r.status, r.body)
		}
	}
}

// Over a connection: the largest body is taken, one byte more is refused before anybody looks at its signature, and chunks are one body.
func TestPaymentOverTheWire(t *testing.T) {
	w := newWorld(t)
	s := w.serve(t, withSecret, func(c *Config) { c.MaxBody = 512 })
	id := sale.NewOrderID(theItem)
	w.change(func() { w.rows[id] = pendingRow(id, "u") })
	good := paymentBody(id, "SUCCEEDED")
	long := good + strings.Repeat(" ", 512-len(good))
	c := s.dial(t)
	for range 3 { // the provider tells it again
		c.send(t, payment(long).raw())
		if r, body := c.answer(t, "POST"); r.StatusCode != 200 || !strings.Contains(body, `"status":"PAID"`) {
			t.Fatalf("%d %s", r.StatusCode, body)
		}
	}
	c.send(t, "POST "+paymentsPath+" HTTP/1.1\r\nHost: h\r\n"+payment(good).headers[0]+"\r\nTransfer-Encoding: chunked\r\n\r\n"+
		fmt.Sprintf("10\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n", good[:16], len(good)-16, good[16:]))
	if r, body := c.answer(t, "POST"); r.StatusCode != 200 {
		t.Fatalf("chunked: %d %s", r.StatusCode, body)
	}
	told := len(w.toldOf())
	c.send(t, payment(long+" ").raw())
	if r, body := c.answer(t, "POST"); r.StatusCode != 413 || !strings.HasPrefix(body, `{"error":"BODY_TOO_LARGE"`) {
		t.Fatalf("%d %s", r.StatusCode, body)
	}
	c.closed(t)
	if n := len(w.toldOf()); n != told {
		t.Errorf("the ledger was told of a body that is too large")
	}
	c = s.dial(t)
	c.send(t, "POST "+paymentsPath+" HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"+payment("{}").headers[0]+"\r\n\r\n")
	if r, body := c.answer(t, "POST"); r.StatusCode != 400 {
		t.Errorf("a signature behind the body: %d %s", r.StatusCode, body)
	}
}
