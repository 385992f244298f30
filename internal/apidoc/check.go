package apidoc

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// Request is a request as it was sent.
type Request struct {
	Method string
	Target string // path and query
	Admin  bool   // it was sent to the listener for operators
	Header http.Header
	Body   []byte
}

// Answer is what came back.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Case is one of the answers of an operation: a status and, for an error, its code.
type Case struct {
	Operation string // method and path
	Status    int
	Code      string
}

// String is the case on one line.
func (c Case) String() string {
	return strings.TrimRight(fmt.Sprintf("%s → %d %s", c.Operation, c.Status, c.Code), " ")
}

// Verdict is what the document has to say about an exchange.
type Verdict struct {
	// Case is which documented answer it was; zero where the document has no such operation.
	Case Case
	// Misfit says what the document does not allow about the request; nil when there is nothing, or no such operation.
	Misfit error
	// Problems are what the document does not allow about the answer, and a success for a request that it does not allow. Empty: all is well.
	Problems []string
}

// Check compares an exchange with the document.
func (d *Document) Check(ctx context.Context, request Request, answer Answer) Verdict {
	path, query, _ := strings.Cut(request.Target, "?")
	template, values, known := d.match(path)
	if known && template != "/livez" && template != "/readyz" {
		known = onAdminListener(template) == request.Admin
	}
	known = known && (!request.Admin || plainPath(path))
	method := request.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	x := exchange{Document: d, request: request, answer: answer, values: values}
	switch operation := d.Operation(method, template); {
	case !known:
		x.nowhere()
	case operation == nil:
		x.wrongMethod(template)
	default:
		x.operation = operation
		x.known(ctx, query)
	}
	x.commonHeaders()
	return x.verdict
}

// plainPath reports whether a path is in the one spelling that the listener for operators knows: without anything that is escaped, or could be, and
// without segments that lead elsewhere.
func plainPath(path string) bool {
	for segment := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if segment == "." || segment == ".." || !plainSegment.MatchString(segment) {
			return false
		}
	}
	return true
}

var plainSegment = regexp.MustCompile(`^[0-9A-Za-z._~-]+$`)

type exchange struct {
	*Document
	request   Request
	answer    Answer
	operation *Operation
	values    map[string]string
	verdict   Verdict
}

func (x *exchange) problem(format string, args ...any) {
	x.verdict.Problems = append(x.verdict.Problems, fmt.Sprintf(format, args...))
}

// nowhere checks the answer for a path that the document does not have.
func (x *exchange) nowhere() {
	if x.unauthorized() {
		return
	}
	x.component("NoSuchPath", http.StatusNotFound)
}

// wrongMethod checks the answer for a method that the document does not have for a path.
func (x *exchange) wrongMethod(template string) {
	want := x.allowed(template)
	switch {
	case x.unauthorized():
		return
	case x.request.Admin:
		want = slices.DeleteFunc(want, func(method string) bool { return method == http.MethodOptions })
		x.component("MethodNotAllowed", http.StatusMethodNotAllowed)
	case x.request.Method == http.MethodOptions:
		if x.answer.Status != http.StatusNoContent || len(x.answer.Body) > 0 {
			x.problem("OPTIONS is answered with %d and %d bytes, not with 204", x.answer.Status, len(x.answer.Body))
		}
	default:
		x.component("MethodNotAllowed", http.StatusMethodNotAllowed)
	}
	got := strings.Split(x.answer.Header.Get("Allow"), ", ")
	slices.Sort(got)
	if !slices.Equal(got, want) {
		x.problem("Allow names %v, the document %v", got, want)
	}
}

// unauthorized checks the refusal of an admin request without the token, which comes before anything else is looked at.
func (x *exchange) unauthorized() bool {
	if !x.request.Admin || x.answer.Status != http.StatusUnauthorized {
		return false
	}
	x.component("AdminUnauthorized", http.StatusUnauthorized)
	return true
}

// component checks the answer against one of the document's responses.
func (x *exchange) component(name string, status int) {
	if x.answer.Status != status {
		x.problem("status %d, want %d as for %s", x.answer.Status, status, name)
		return
	}
	responses := openapi3.NewResponses(openapi3.WithStatus(status, x.spec.Components.Responses[name]))
	x.validateAnswer(&openapi3.Operation{Responses: responses})
}

// known checks an exchange with an operation of the document.
func (x *exchange) known(ctx context.Context, query string) {
	x.verdict.Case = Case{x.operation.String(), x.answer.Status, codeOf(x.answer.Body)}
	x.verdict.Misfit = x.validateRequest(ctx, query)
	x.validateAnswer(x.operation.spec)
	if len(x.verdict.Problems) == 0 && x.request.Method != http.MethodHead && !slices.Contains(x.operation.Cases(), x.verdict.Case) {
		x.problem("the answer %v is not documented", x.verdict.Case)
	}
	if x.answer.Status < 300 && x.verdict.Misfit != nil {
		x.problem("the server took what the document refuses: %v", x.verdict.Misfit)
	}
}

// commonHeaders are those that any answer may have; all others must be those of the documented answer.
func (x *exchange) commonHeaders() {
	common := []string{"Content-Type", "Content-Length", "Date", "Connection"}
	switch {
	case x.request.Admin:
		common = append(common, "X-Content-Type-Options")
	default:
		common = append(common, "Vary", "Access-Control-Allow-Origin", "Access-Control-Expose-Headers")
	}
	if x.request.Method == http.MethodOptions {
		common = append(common, "Cache-Control", "Allow", "Access-Control-Allow-Methods", "Access-Control-Allow-Headers", "Access-Control-Max-Age")
	}
	for name := range x.answer.Header {
		if !slices.Contains(common, name) && !x.documentedHeader(name) {
			x.problem("the header %s is not documented", name)
		}
	}
	if value := x.answer.Header.Get("Content-Type"); len(x.answer.Body) > 0 && value != "application/json" && !x.metrics() {
		x.problem("Content-Type is %q", value)
	}
	if len(x.answer.Body) > 0 && x.request.Admin && x.answer.Header.Get("X-Content-Type-Options") != "nosniff" && !x.metrics() {
		x.problem("a browser may guess the type of the answer")
	}
}

func (x *exchange) documentedHeader(name string) bool {
	if x.operation == nil {
		// These have been checked as a component.
		return slices.Contains([]string{"Cache-Control", "Allow", "Www-Authenticate"}, name)
	}
	response := x.operation.spec.Responses.Status(x.answer.Status)
	if response == nil {
		return true // the status is what is wrong
	}
	for documented := range response.Value.Headers {
		if http.CanonicalHeaderKey(documented) == name {
			return true
		}
	}
	return false
}

// codeOf is the error code in a body, or "".
func codeOf(body []byte) string {
	var parsed struct {
		Code string `json:"error"`
	}
	if json.Unmarshal(body, &parsed) != nil {
		return ""
	}
	return parsed.Code
}

// queryOf reads a query as the document means it. One that cannot be decoded has no parameters.
func queryOf(query string) url.Values {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil
	}
	return values
}

// statusOf reads a key of the responses of an operation.
func statusOf(key string) int {
	status, err := strconv.Atoi(key)
	if err != nil {
		return 0
	}
	return status
}

// Misfit returns what the document does not allow about a request, nil for one that fits an operation.
func (d *Document) Misfit(ctx context.Context, request Request) error {
	path, query, _ := strings.Cut(request.Target, "?")
	template, values, ok := d.match(path)
	operation := d.Operation(request.Method, template)
	if !ok || operation == nil {
		return fmt.Errorf("there is no operation %s %s", request.Method, path)
	}
	x := exchange{Document: d, request: request, values: values, operation: operation}
	return x.validateRequest(ctx, query)
}

// metrics reports whether the answer is that of Prometheus' own handler, which is in plain text and has headers of its own.
func (x *exchange) metrics() bool {
	return x.operation != nil && x.operation.ID() == "metrics" && x.answer.Status == http.StatusOK
}
