package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"flashgate/internal/ops"
)

// Codes of errors beside those of package ops.
const (
	CodeAlreadyExists  = "ALREADY_EXISTS"
	CodeKeyReused      = "KEY_REUSED"
	CodeRetired        = "RETIRED"
	CodeBelowSold      = "BELOW_SOLD"
	CodeOutcomeUnknown = "OUTCOME_UNKNOWN"
	CodeSaleStarted    = "SALE_STARTED"
	CodeNotDue         = "NOT_DUE"
	CodeNotImplemented = "NOT_IMPLEMENTED"
)

// failure is an answer that is an error.
type failure struct {
	status  int
	code    string
	message string
	cause   error // for the log alone
}

// Error is what the log says.
func (f *failure) Error() string {
	if f.cause != nil {
		return f.message + ": " + f.cause.Error()
	}
	return f.message
}

func badRequest(message string) *failure {
	return &failure{status: http.StatusBadRequest, code: ops.CodeBadRequest, message: message}
}

func notFound(message string) *failure {
	return &failure{status: http.StatusNotFound, code: ops.CodeNotFound, message: message}
}

func notBuilt(message string) *failure {
	return &failure{status: http.StatusNotImplemented, code: CodeNotImplemented, message: message}
}

func noItem(id int64) *failure { return notFound(fmt.Sprintf("item %d does not exist", id)) }

func retiredItem(id int64) *failure {
	return &failure{status: http.StatusConflict, code: CodeRetired, message: fmt.Sprintf("item %d is retired: its sale is over and cleared away", id)}
}

// handler answers a request that fits its route. An error that is a *failure is the answer; any other is logged and answered as unavailable.
type handler func(w http.ResponseWriter, r *http.Request) error

// endpoint is what a method does at a path. Parameters of the query that are not named here are refused before handle is called.
type endpoint struct {
	handle     handler
	parameters []string
}

// paged are the parameters of a list, those in more beside those that every list has.
func paged(more ...string) []string { return append(more, "limit", "cursor") }

// routes are the patterns of paths: a segment in braces stands for any one segment, which r.PathValue returns.
func (a *API) routes() []route {
	return []route{
		{"/admin/sales", map[string]endpoint{"GET": {a.listSales, paged()}, "POST": {a.createSale, nil}}},
		{"/admin/sales/{id}", map[string]endpoint{"GET": {a.showSale, nil}, "PATCH": {a.changeSale, nil}}},
		{"/admin/items/{id}", map[string]endpoint{"GET": {a.showItem, nil}, "PATCH": {a.changeItem, nil}}},
		{"/admin/items/{id}/restock", map[string]endpoint{"POST": {a.restock, nil}}},
		{"/admin/items/{id}/reload", map[string]endpoint{"POST": {a.reload, nil}}},
		{"/admin/items/{id}/reconcile", map[string]endpoint{"POST": {a.reconcile, []string{"fix"}}}},
		{"/admin/orders", map[string]endpoint{"GET": {a.listOrders, paged("item", "status")}}},
		{"/admin/orders/{id}", map[string]endpoint{"GET": {a.showOrder, nil}}},
		{"/admin/orders/{id}/refunded", map[string]endpoint{"POST": {a.refunded, nil}}},
		{"/admin/orders/{id}/approve", map[string]endpoint{"POST": {later("approving orders"), nil}}},
		{"/admin/orders/{id}/refuse", map[string]endpoint{"POST": {later("refusing orders"), nil}}},
		{"/admin/audit", map[string]endpoint{"GET": {a.listAudit, paged("subject")}}},
		{"/admin/dlq", map[string]endpoint{"GET": {a.listLetters, paged()}}},
		{"/admin/dlq/replay", map[string]endpoint{"POST": {a.replayLetters, nil}}},
	}
}

// later answers for what the contract names and this version does not do.
func later(what string) handler {
	return func(http.ResponseWriter, *http.Request) error {
		return notBuilt(what + " is not built in this version")
	}
}

type route struct {
	pattern string
	methods map[string]endpoint
}

// match compares a path with the pattern, letter by letter, and hands out what stands for the braces.
func (rt route) match(path string, set func(name, value string)) bool {
	want, got := strings.Split(rt.pattern, "/"), strings.Split(path, "/")
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		if name, variable := strings.CutPrefix(want[i], "{"); variable {
			set(strings.TrimSuffix(name, "}"), got[i])
		} else if want[i] != got[i] {
			return false
		}
	}
	return true
}

// route finds the handler. Its path is the one that package ops has checked: served in another way, no other spelling of it is taken either.
func (a *API) route(w http.ResponseWriter, r *http.Request) {
	path, ok := ops.Path(r)
	if !ok {
		a.answer(w, r, "none", notFound("there is nothing at this path"))
		return
	}
	for _, rt := range a.table {
		if !rt.match(path, r.SetPathValue) {
			continue
		}
		method := r.Method
		if method == http.MethodHead {
			method = http.MethodGet
		}
		if at, ok := rt.methods[method]; ok {
			if err := checkQuery(r, at.parameters); err != nil {
				a.answer(w, r, rt.pattern, err)
				return
			}
			ctx, cancel := context.WithTimeout(r.Context(), a.cfg.Timeout)
			defer cancel()
			recorder := &recorder{ResponseWriter: w}
			a.answer(recorder, r, rt.pattern, at.handle(recorder, r.WithContext(ctx)))
			return
		}
		w.Header().Set("Allow", strings.Join(rt.allowed(), ", "))
		a.answer(w, r, rt.pattern, &failure{
			status: http.StatusMethodNotAllowed, code: ops.CodeMethodNotAllowed, message: "only " + isAllowed(rt.allowed()) + " allowed here",
		})
		return
	}
	a.answer(w, r, "none", notFound("there is nothing at this path"))
}

func (rt route) allowed() (methods []string) {
	for method := range rt.methods {
		methods = append(methods, method)
		if method == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
	}
	slices.Sort(methods)
	return methods
}

// isAllowed is "POST is", "GET and HEAD are", "GET, HEAD and PATCH are".
func isAllowed(methods []string) string {
	last := len(methods) - 1
	if last == 0 {
		return methods[0] + " is"
	}
	return strings.Join(methods[:last], ", ") + " and " + methods[last] + " are"
}

// answer writes the error that a handler returned, if it did, and counts the request.
func (a *API) answer(w http.ResponseWriter, r *http.Request, route string, err error) {
	status := http.StatusOK
	if recorder, ok := w.(*recorder); ok && recorder.status != 0 {
		status = recorder.status
	}
	var refused *failure
	switch {
	case err == nil:
	case errors.As(err, &refused):
	case errors.Is(err, ErrOutcomeUnknown):
		refused = &failure{
			status: http.StatusServiceUnavailable, code: CodeOutcomeUnknown, message: "whether the change was stored is unknown: look before you repeat it",
		}
	default:
		refused = &failure{status: http.StatusServiceUnavailable, code: ops.CodeUnavailable, message: "the database does not answer or refused"}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			refused.message += "; nothing was changed"
		}
	}
	if err != nil && refused.status == http.StatusServiceUnavailable {
		a.cfg.Logger.Warn("admin request failed", "method", r.Method, "route", route, "path", r.URL.Path, "error", err)
	}
	if refused != nil {
		status = refused.status
		if status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "1")
		}
		ops.WriteError(w, status, refused.code, refused.message)
	}
	a.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
}

// recorder remembers the status of an answer.
type recorder struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach what is behind.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
