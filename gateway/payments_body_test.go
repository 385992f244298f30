package gateway

import (
	"strings"
	"testing"

	"flashgate/internal/sale"
)

func TestPaymentBody(t *testing.T) {
	w := newWorld(t)
	g := w.start(t, withSecret)
	good := paymentBody(sale.NewOrderID(theItem), "SUCCEEDED")
	with := func(old, changed string) string {
		t.Helper()
		if !strings.Contains(good, old) {
			t.Fatalf("%s is not in the body", old)
		}
		return strings.Replace(good, old, changed, 1)
	}
	for _, c := range []struct{ body, says string }{
		{"", "body: JSON ends too early"},
		{"null", "body: must be a JSON object"},
		{"[]", "body: must be a JSON object"},
		{"x", "body: is not JSON"},
		{`"` + strings.Repeat("x", 9) + `"`, "body: must be a JSON object"},
		{good[:len(good)-1], "body: JSON ends too early"},
		{good + good, "body: something follows"},
		{good + "x", "body: something follows"},
		{"\xef\xbb\xbf" + good, "body: "},
		{with("evt-1", "evt-\xff"), "body: is not UTF-8"},
		{with("evt-1", `\ud800`), "body: holds half of a surrogate pair"},
		{with(`"currency":"EUR"`, `"currency":"EUR","extra":1`), "body: extra: is not known here"},
		{with(`"currency":"EUR"`, `"currency":"EUR","amount":"39.60"`), "body: amount: comes twice"},
		{with(`"currency":"EUR"`, `"currency":"EUR","Amount":"1"`), "body: Amount: is not known here"},
		{with(`"amount":`, `"AMOUNT":`), "body: AMOUNT: is not known here"},
		{with(`"amount":"39.60",`, ""), "body: amount: is missing"},
		{with(`,"currency":"EUR"`, ""), "body: currency: is missing"},
		{with(`"eventId":"evt-1",`, ""), "body: eventId: is missing"},
		{with(`"status":"SUCCEEDED",`, ""), "body: status: is missing"},
		{"{}", "body: eventId: is missing"},
		{with(`"39.60"`, `39.60`), "body: amount: must be a string, not a number"},
		{with(`"39.60"`, `null`), "body: amount: must be a string, not null"},
		{with(`39.60`, ``), "body: amount: must be a decimal as text"},
		{with(`39.60`, `-1`), "body: amount: must be a decimal as text"},
		{with(`39.60`, `1e3`), "body: amount: must be a decimal as text"},
		{with(`39.60`, `01`), "body: amount: must be a decimal as text"},
		{with(`39.60`, ` 1`), "body: amount: must be a decimal as text"},
		{with(`39.60`, `1.`), "body: amount: must be a decimal as text"},
		{with(`39.60`, strings.Repeat("9", 21)), "at most 20 digits before the point"},
		{with(`39.60`, "1."+strings.Repeat("9", 11)), "and 10 behind it"},
		{with(`"evt-1"`, `1`), "body: eventId: must be a string, not a number"},
		{with(`evt-1`, ``), "body: eventId: must be 1 to 128 visible ASCII characters"},
		{with(`evt-1`, `a b`), "body: eventId: must be 1 to 128 visible ASCII characters"},
		{with(`evt-1`, `é`), "body: eventId: must be 1 to 128 visible ASCII characters"},
		{with(`evt-1`, strings.Repeat("x", 129)), "body: eventId: must be 1 to 128 visible ASCII characters"},
		{with(`SUCCEEDED`, `succeeded`), "body: status: must be SUCCEEDED or FAILED"},
		{with(`SUCCEEDED`, `PAID`), "body: status: must be SUCCEEDED or FAILED"},
		{with(`"SUCCEEDED"`, `true`), "body: status: must be a string, not a boolean"},
		{with(`EUR`, `eur`), "body: currency: must be three capital letters"},
		{with(`EUR`, `EURO`), "body: currency: must be three capital letters"},
		{with(`"EUR"`, `["EUR"]`), "body: currency: must be a string, not an array"},
		{strings.Replace(good, `"orderId":"`, `"orderId":"x`, 1), "body: orderId: must be a UUID of the form 8-4-4-4-12"},
		{with(`"orderId":"`, `"orderId":5,"x":"`), "body: orderId: must be a string, not a number"},
	} {
		r := do(t, g, payment(c.body)).want(t, 400, "BAD_REQUEST")
		checkHeaders(t, r)
		if !strings.Contains(r.body, c.says) {
			t.Errorf("%s: %s, want %q in it", c.body, r.body, c.says)
		}
	}
	if told := w.toldOf(); len(told) > 0 {
		t.Errorf("the ledger was told %v", told)
	}
}

// Whatever the body is: what is taken says everything, each thing in its form, and reads the same when it is written out again.
func FuzzPayment(f *testing.F) {
	f.Add([]byte(paymentBody(sale.NewOrderID(1), "SUCCEEDED")))
	f.Add([]byte(paymentBody(sale.NewOrderID(sale.MaxID), "FAILED")))
	f.Add([]byte(`{"eventId":"\u0041","orderId":"00000000-0000-8000-8000-000000000000","status":"FAILED","amount":"0","currency":"JPY"}`))
	f.Add([]byte(`{"eventId":"x","EVENTID":"y"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		p, err := parsePayment(body)
		if err != nil {
			if p != (sale.Payment{}) {
				t.Fatalf("%q: %v beside an error", body, p)
			}
			return
		}
		amount, err := sale.ParseAmount(string(p.Amount))
		if err != nil || !amount.Equal(p.Amount) || sale.CheckEventID(p.EventID) != nil || sale.CheckCurrency(p.Currency) != nil {
			t.Fatalf("%q was read as %+v", body, p)
		}
		status := "FAILED"
		if p.Succeeded {
			status = "SUCCEEDED"
		}
		again := `{"eventId":` + string(appendString(nil, p.EventID)) + `,"orderId":"` + p.OrderID.String() + `","status":"` + status +
			`","amount":"` + string(p.Amount) + `","currency":"` + p.Currency + `"}`
		if q, err := parsePayment([]byte(again)); err != nil || q != p {
			t.Fatalf("%q is %+v, and %s is %+v: %v", body, p, again, q, err)
		}
	})
}
