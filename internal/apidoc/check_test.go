package apidoc

import (
	"net/http"
	"strings"
	"testing"
)

const anOrder = "00000000-001f-8480-9f4b-6c1d2e3f4a5b"

func accepted() (Request, Answer) {
	header := http.Header{"Idempotency-Key": {"k"}}
	return Request{Method: "POST", Target: "/api/flash-sales/items/1001/purchase", Header: header, Body: []byte(`{"quantity":2}`)},
		Answer{Status: 202, Body: []byte(`{"orderId":"` + anOrder + `","status":"PENDING"}`), Header: http.Header{
			"Content-Type": {"application/json"}, "Cache-Control": {"no-store"}, "Location": {"/api/flash-sales/orders/" + anOrder},
		}}
}

func TestCheckAcceptsWhatIsDocumented(t *testing.T) {
	d := load(t)
	request, answer := accepted()
	v := d.Check(t.Context(), request, answer)
	if len(v.Problems) > 0 || v.Misfit != nil || v.Case != (Case{"POST /api/flash-sales/items/{itemId}/purchase", 202, ""}) {
		t.Errorf("%+v", v)
	}
}

// Each of these is one thing wrong with an exchange that is right otherwise.
func TestCheckFindsWhatIsNotDocumented(t *testing.T) {
	d := load(t)
	for name, spoil := range map[string]func(*Request, *Answer){
		"status":               func(_ *Request, a *Answer) { a.Status = 200 },
		"unknown code":         func(_ *Request, a *Answer) { a.Status = 409; a.Body = []byte(`{"error":"TAKEN","message":"m"}`) },
		"code of another":      func(_ *Request, a *Answer) { a.Status = 409; a.Body = []byte(`{"error":"SOLD_OUT","message":"m"}`) },
		"member too many":      func(_ *Request, a *Answer) { a.Body = []byte(`{"orderId":"` + anOrder + `","status":"PENDING","x":1}`) },
		"member missing":       func(_ *Request, a *Answer) { a.Body = []byte(`{"orderId":"` + anOrder + `"}`) },
		"member of other type": func(_ *Request, a *Answer) { a.Body = []byte(`{"orderId":"` + anOrder + `","status":7}`) },
		"order id":             func(_ *Request, a *Answer) { a.Body = []byte(`{"orderId":"7","status":"PENDING"}`) },
		"empty body":           func(_ *Request, a *Answer) { a.Body = nil },
		"no JSON":              func(_ *Request, a *Answer) { a.Body = []byte(`accepted`) },
		"no header":            func(_ *Request, a *Answer) { a.Header.Del("Location") },
		"value of a header":    func(_ *Request, a *Answer) { a.Header.Set("Cache-Control", "max-age=1") },
		"header too many":      func(_ *Request, a *Answer) { a.Header.Set("X-Order", "7") },
		"content type":         func(_ *Request, a *Answer) { a.Header.Set("Content-Type", "text/plain") },
		"charset":              func(_ *Request, a *Answer) { a.Header.Set("Content-Type", "application/json; charset=utf-8") },
		"bad body taken":       func(r *Request, _ *Answer) { r.Body = []byte(`{"quantity":0}`) },
		"unknown member taken": func(r *Request, _ *Answer) { r.Body = []byte(`{"units":1}`) },
		"bad key taken":        func(r *Request, _ *Answer) { r.Header.Set("Idempotency-Key", "a b") },
		"two keys taken":       func(r *Request, _ *Answer) { r.Header.Add("Idempotency-Key", "k") },
		"bad id taken":         func(r *Request, _ *Answer) { r.Target = "/api/flash-sales/items/0/purchase" },
		"no such path":         func(r *Request, _ *Answer) { r.Target = "/api/flash-sales/items/1001/buy" },
		"no such method":       func(r *Request, _ *Answer) { r.Method = "PUT" },
		"other listener":       func(r *Request, _ *Answer) { r.Admin = true },
	} {
		request, answer := accepted()
		spoil(&request, &answer)
		if v := d.Check(t.Context(), request, answer); len(v.Problems) == 0 {
			t.Errorf("%s: nothing is found", name)
		}
	}
}

func TestCheckOfOtherMethods(t *testing.T) {
	d := load(t)
	refused := func(allow string) Answer {
		return Answer{Status: 405, Body: []byte(`{"error":"METHOD_NOT_ALLOWED","message":"m"}`), Header: http.Header{
			"Content-Type": {"application/json"}, "Cache-Control": {"no-store"}, "Allow": {allow},
		}}
	}
	const order = "/api/flash-sales/orders/" + anOrder
	for _, test := range []struct {
		method, target string
		answer         Answer
		fine           bool
	}{
		{"PUT", order, refused("GET, HEAD, DELETE, OPTIONS"), true},
		{"PUT", order, refused("GET, HEAD, OPTIONS"), false},
		{"PUT", order, refused("GET, HEAD, DELETE, OPTIONS, PUT"), false},
		{"GET", order, refused("GET, HEAD, DELETE, OPTIONS"), false},
		{"OPTIONS", order, Answer{Status: 204, Header: http.Header{"Cache-Control": {"no-store"}, "Allow": {"GET, HEAD, DELETE, OPTIONS"}}}, true},
		{"OPTIONS", order, Answer{Status: 204, Header: http.Header{"Cache-Control": {"no-store"}}}, false},
		{"HEAD", "/api/flash-sales/items/7", Answer{Status: 200, Header: http.Header{"Content-Type": {"application/json"}, "Cache-Control": {"public, max-age=1"}}}, true},
		{"HEAD", "/api/flash-sales/items/7", Answer{Status: 200, Header: http.Header{"Content-Type": {"application/json"}}}, false},
	} {
		v := d.Check(t.Context(), Request{Method: test.method, Target: test.target}, test.answer)
		if fine := len(v.Problems) == 0; fine != test.fine {
			t.Errorf("%s %s with %v: %v", test.method, test.target, test.answer.Header, v.Problems)
		}
	}
}

func TestMisfit(t *testing.T) {
	d := load(t)
	for target, fits := range map[string]bool{
		"/admin/orders": true, "/admin/orders?limit=100&status=REFUND_DUE&item=7": true, "/admin/orders?limit=101": false, "/admin/orders?limit=": false,
		"/admin/orders?status=paid": false, "/admin/orders?page=2": false, "/admin/orders?limit=1&limit=1": false, "/admin/orders?limit=%zz": false,
	} {
		if err := d.Misfit(t.Context(), Request{Method: "GET", Target: target, Admin: true}); (err == nil) != fits {
			t.Errorf("%s: %v, want it to fit: %v", target, err, fits)
		}
	}
	body := func(text string) Request {
		return Request{Method: "POST", Target: "/admin/sales", Admin: true, Body: []byte(text)}
	}
	const sale = `{"startsAt":"2026-11-27T20:00:00+08:00","endsAt":"2026-11-27T22:00:00Z","items":[{"quantity":0,"price":"1.5","currency":"JPY"}]}`
	for from, to := range map[string]string{"": "", `"quantity":0,`: "", `+08:00`: "", `"1.5"`: "1.5", `"JPY"`: `"JP"`, `[{`: `[{"x":1,`, "0": "1e400"} {
		changed := strings.Replace(sale, from, to, 1)
		if err := d.Misfit(t.Context(), body(changed)); (err == nil) != (from == "") {
			t.Errorf("%s: %v", changed, err)
		}
	}
}

func TestCoverage(t *testing.T) {
	d := load(t)
	var seen Coverage
	all := d.Cases()
	for _, c := range all[1:] {
		seen.Add(c)
	}
	if missing, needless, unknown := seen.Compare(d, nil); len(missing) != 1 || missing[0] != all[0] || len(needless)+len(unknown) > 0 {
		t.Errorf("missing %v, needless %v, unknown %v", missing, needless, unknown)
	}
	strange := Case{"GET /nothing", 200, ""}
	missing, needless, unknown := seen.Compare(d, map[Case]string{all[0]: "r", all[1]: "r", strange: "r"})
	if len(missing) > 0 || len(needless) != 1 || needless[0] != all[1] || len(unknown) != 1 || unknown[0] != strange {
		t.Errorf("missing %v, needless %v, unknown %v", missing, needless, unknown)
	}
	if seen.Count(all[0]) != 0 || seen.Count(all[1]) != 1 {
		t.Errorf("seen %d and %d times", seen.Count(all[0]), seen.Count(all[1]))
	}
}
