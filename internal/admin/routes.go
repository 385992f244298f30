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

// routes are the patterns of paths: a segment in braces stands for any one segment, which r.PathValue returns.
func (a *API) routes() []route {
	return []route{
		{"/admin/sales", map[string]handler{"GET": a.listSales, "POST": a.createSale}},
		{"/admin/sales/{id}", map[string]handler{"GET": a.showSale, "PATCH": a.changeSale}},
		{"/admin/items/{id}", map[string]handler{"GET": a.showItem, "PATCH": a.changeItem}},
		{"/admin/items/{id}/restock", map[string]handler{"POST": a.restock}},
		{"/admin/items/{id}/reload", map[string]handler{"POST": a.reload}},
		{"/admin/items/{id}/reconcile", map[string]handler{"POST": later("reconciling an item")}},
		{"/admin/orders", map[string]handler{"GET": a.listOrders}},
		{"/admin/orders/{id}", map[string]handler{"GET": a.showOrder}},
		{"/admin/orders/{id}/refunded", map[string]handler{"POST": a.refunded}},
		{"/admin/orders/{id}/approve", map[string]handler{"POST": later("approving orders")}},
		{"/admin/orders/{id}/refuse", map[string]handler{"POST": later("refusing orders")}},
		{"/admin/audit", map[string]handler{"GET": a.listAudit}},
		{"/admin/dlq", map[string]handler{"GET": a.listLetters}},
		{"/admin/dlq/replay", map[string]handler{"POST": later("replaying dead letters")}},
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
	methods map[string]handler
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
		if handle, ok := rt.methods[method]; ok {
			ctx, cancel := context.WithTimeout(r.Context(), a.cfg.Timeout)
			defer cancel()
			recorder := &recorder{ResponseWriter: w}
			a.answer(recorder, r, rt.pattern, handle(recorder, r.WithContext(ctx)))
			return
		}
		allowed := rt.allowed()
		w.Header().Set("Allow", allowed)
		a.answer(w, r, rt.pattern, &failure{
			status: http.StatusMethodNotAllowed, code: ops.CodeMethodNotAllowed, message: "only " + allowed + " are allowed here",
		})
		return
	}
	a.answer(w, r, "none", notFound("there is nothing at this path"))
}

func (rt route) allowed() string {
	var methods []string
	for method := range rt.methods {
		methods = append(methods, method)
		if method == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
	}
	slices.Sort(methods)
	return strings.Join(methods, ", ")
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
