package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"flashgate/internal/apidoc"
)

// paths has values for the parameters of paths.
func (w *world) paths() map[string]string {
	return map[string]string{"itemId": "101", "saleId": "101", "orderId": w.names["first"]}
}

// plain is the shortest request of an operation that comes as far as its checks.
func (w *world) plain(o *apidoc.Operation) row {
	r := row{name: o.String(), call: o.String(), as: "1"}
	for name, value := range w.paths() {
		r.call = strings.ReplaceAll(r.call, "{"+name+"}", value)
	}
	switch {
	case strings.HasSuffix(o.Path, "/payments"):
		r.as = "provider"
	case o.Admin():
		r.as = "admin"
	}
	return r
}

// sizes sends more than is read, and what is no request, to every public path.
func (w *world) sizes(t *testing.T) {
	for _, o := range w.document.Operations() {
		if o.Admin() {
			continue
		}
		large := w.plain(o)
		large.name, large.body, large.status, large.code = "a large body: "+large.name, strings.Repeat(" ", 4097), 413, "BODY_TOO_LARGE"
		long := w.plain(o)
		long.name, long.header, long.status, long.code = "long headers: "+long.name, []string{"X-Long", strings.Repeat("x", 17<<10)}, 431, "HEADER_TOO_LARGE"
		w.play(t, []row{large, long})
	}
}

// fields spoils every parameter and every member of every body, one at a time, and wants to be told which one it was.
func (w *world) fields(t *testing.T) {
	tried := 0
	for _, o := range w.document.Operations() {
		path := w.paths()
		if o.ID() == "changeSale" || o.ID() == "changeItem" || o.ID() == "restockItem" || o.ID() == "reconcileItem" {
			path["itemId"], path["saleId"] = "110", "110"
		}
		list, err := w.document.Violations(t.Context(), o, path)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains([]string{"approveOrder", "refuseOrder"}, o.ID()) {
			list = nil // not built: they look at nothing
		}
		for _, v := range list {
			tried++
			w.violation(t, o, v)
		}
	}
	if tried < 300 {
		t.Errorf("only %d things were spoiled", tried)
	}
}

func (w *world) violation(t *testing.T, o *apidoc.Operation, v apidoc.Violation) {
	t.Helper()
	authorize(t, o, &v.Request)
	answer, err := w.send(t, w.at[""], v.Request)
	if err != nil {
		t.Errorf("%v: %s %s: %v", o, v.Names, v.How, err)
		return
	}
	got := decoded(answer)
	message, _ := got.body["message"].(string)
	if got.status != 400 || got.code() != "BAD_REQUEST" || !strings.Contains(message, v.Names) {
		t.Errorf("%v: %s %s: %v, want 400 BAD_REQUEST that names it", o, v.Names, v.How, got)
	}
	for _, problem := range w.check(t, v.Request, answer) {
		t.Errorf("%v: %s %s: %s", o, v.Names, v.How, problem)
	}
}

// authorize lets a request come as far as its checks.
func authorize(t *testing.T, o *apidoc.Operation, request *apidoc.Request) {
	t.Helper()
	if request.Header == nil {
		request.Header = http.Header{}
	}
	switch {
	case strings.HasSuffix(o.Path, "/payments"):
		request.Header.Set("Flashgate-Signature", signature(time.Now(), paymentSecret, request.Body))
	case o.Admin():
		request.Header.Set("Authorization", "Bearer "+adminToken)
	default:
		request.Header.Set("Authorization", "Bearer "+tokenOf(t, "spoiler"))
	}
}

// methods asks every path with methods that it does not have: 405 names those that it has, which are the document's. OPTIONS and HEAD are everywhere.
func (w *world) methods(t *testing.T) {
	asked := map[string]bool{}
	for _, o := range w.document.Operations() {
		if asked[o.Path] {
			continue
		}
		asked[o.Path] = true
		for _, method := range []string{"OPTIONS", "HEAD", "PUT", "TRACE", "get", "GET", "POST", "PATCH", "DELETE"} {
			if slices.Contains(w.document.Methods(o.Path), method) {
				continue
			}
			r := w.plain(o)
			_, target, _ := strings.Cut(r.call, " ")
			request := w.request(t, row{call: method + " " + target, as: r.as, header: []string{"Origin", pageOrigin, "Access-Control-Request-Method", "POST"}})
			answer, err := w.send(t, w.at[""], request)
			if err != nil {
				t.Errorf("%s %s: %v", method, target, err)
				continue
			}
			for _, problem := range w.check(t, request, answer) {
				t.Errorf("%s %s: %s", method, target, problem)
			}
		}
	}
}

// routes asks the gateway's metrics which routes it has: requests to the documented paths have reached every one.
func (w *world) routes(t *testing.T) {
	answer, err := w.send(t, w.at[""], apidoc.Request{Method: "GET", Target: "/metrics", Admin: true})
	if err != nil {
		t.Fatal(err)
	}
	routes := 0
	lines := bufio.NewScanner(bytes.NewReader(answer.Body))
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), `flashgate_gateway_request_seconds_count{route="`)
		if !ok {
			continue
		}
		routes++
		if name, number, _ := strings.Cut(rest, `"} `); number == "0" && name != "none" {
			t.Errorf("the gateway has a route %q, and none of the documented paths leads there", name)
		}
	}
	if routes < 2 {
		t.Error("the metrics have no routes")
	}
}

// slowRequests begins, for every public operation, a request that never ends, and returns how to wait for the answers. Meanwhile the rest may go on.
func (w *world) slowRequests() func(t *testing.T) {
	type outcome struct {
		request apidoc.Request
		answer  apidoc.Answer
		err     error
	}
	outcomes := make(chan outcome, 64)
	begun := 0
	for _, o := range w.document.Operations() {
		if o.Admin() {
			continue
		}
		_, target, _ := strings.Cut(o.String(), " ")
		target = strings.NewReplacer("{itemId}", "1", "{orderId}", w.names["nobody"]).Replace(target)
		if o.ID() == "findOrder" {
			target += "?itemId=1"
		}
		request := apidoc.Request{Method: o.Method, Target: target, Body: nil, Header: http.Header{}}
		if o.ID() == "recordPayment" {
			request.Body = []byte(event("slow", w.names["nobody"], "FAILED", "1", "JPY")) // what it would have been
		}
		begun++
		go func() {
			answer, err := halfRequest(w.at[""].public, o.Method, target)
			outcomes <- outcome{request, answer, err}
		}()
	}
	return func(t *testing.T) {
		for range begun {
			got := <-outcomes
			if got.err != nil || got.answer.Status != http.StatusRequestTimeout {
				t.Errorf("%s %s, half of it: %d %v", got.request.Method, got.request.Target, got.answer.Status, got.err)
				continue
			}
			for _, problem := range w.check(t, got.request, got.answer) {
				t.Errorf("%s %s, half of it: %s", got.request.Method, got.request.Target, problem)
			}
		}
	}
}

// halfRequest sends headers that announce a body which never comes.
func halfRequest(base, method, target string) (apidoc.Answer, error) {
	connection, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		return apidoc.Answer{}, err
	}
	defer func() { _ = connection.Close() }()
	_ = connection.SetDeadline(time.Now().Add(time.Minute))
	if _, err := fmt.Fprintf(connection, "%s %s HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{", method, target); err != nil {
		return apidoc.Answer{}, err
	}
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		return apidoc.Answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return apidoc.Answer{Status: response.StatusCode, Header: response.Header, Body: body}, err
}
