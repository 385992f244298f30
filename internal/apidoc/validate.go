package apidoc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

var options = &openapi3filter.Options{
	IncludeResponseStatus: true,
	SkipSettingDefaults:   true,
	AuthenticationFunc:    openapi3filter.NoopAuthenticationFunc, // who may ask is the business of the answers
}

// validateRequest returns what the document does not allow about the request.
func (x *exchange) validateRequest(ctx context.Context, query string) error {
	values := queryOf(query)
	if query != "" && values == nil {
		return errors.New("the query cannot be read")
	}
	if err := x.strayParameters(values); err != nil {
		return err
	}
	header := x.request.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	body := io.ReadCloser(http.NoBody)
	if len(x.request.Body) > 0 {
		// The servers read the body as JSON, whatever it says that it is.
		header.Set("Content-Type", "application/json")
		body = io.NopCloser(bytes.NewReader(x.request.Body))
	}
	return openapi3filter.ValidateRequest(ctx, &openapi3filter.RequestValidationInput{
		Request: &http.Request{
			Method: x.operation.Method, URL: &url.URL{Path: x.operation.Path, RawQuery: query}, Header: header,
			Body: body, ContentLength: int64(len(x.request.Body)),
		},
		PathParams: x.values, QueryParams: values, Route: x.route(x.operation.spec), Options: options,
	})
}

// strayParameters finds what openapi3filter lets pass: on the listener for operators, parameters of the query that the operation does not have; and
// everywhere, one of those that it has, and a header, that comes twice.
func (x *exchange) strayParameters(values url.Values) error {
	has := func(in, name string) bool {
		return x.operation.spec.Parameters.GetByInAndName(in, name) != nil || x.operation.item.Parameters.GetByInAndName(in, name) != nil
	}
	for name, all := range values {
		switch documented := has(openapi3.ParameterInQuery, name); {
		case documented && len(all) > 1:
			return fmt.Errorf("the parameter %s comes twice", name)
		case !documented && x.operation.Admin() && x.operation.strictQuery():
			return fmt.Errorf("there is no parameter %s", name)
		}
	}
	for name, all := range x.request.Header {
		if len(all) > 1 && has(openapi3.ParameterInHeader, name) && name != "Traceparent" {
			return fmt.Errorf("the header %s comes twice", name)
		}
	}
	return nil
}

// strictQuery reports whether the operation looks at its query at all. Those that do nothing in this version, and the metrics,
// do not.
func (o *Operation) strictQuery() bool {
	return o.spec.Responses.Status(http.StatusOK) != nil && o.Path != "/metrics"
}

// validateAnswer notes what an operation of the document does not allow about the answer.
func (x *exchange) validateAnswer(operation *openapi3.Operation) {
	opts := *options
	opts.ExcludeResponseBody = x.request.Method == http.MethodHead
	if opts.ExcludeResponseBody && len(x.answer.Body) > 0 {
		x.problem("HEAD is answered with %d bytes", len(x.answer.Body))
	}
	err := openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: &http.Request{Method: http.MethodGet}, Route: x.route(operation)},
		Status:                 x.answer.Status, Header: x.answer.Header, Body: io.NopCloser(bytes.NewReader(x.answer.Body)), Options: &opts,
	})
	if err != nil {
		x.problem("status %d: %s", x.answer.Status, strings.Join(strings.Fields(err.Error()), " "))
	}
}

func (x *exchange) route(operation *openapi3.Operation) *routers.Route {
	route := &routers.Route{Spec: x.spec, Method: x.request.Method, Operation: operation, PathItem: &openapi3.PathItem{}}
	if x.operation != nil {
		route.Path, route.PathItem = x.operation.Path, x.operation.item
	}
	return route
}
