package apidoc

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sort"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"flashgate/docs"
)

// Document is docs/openapi.yaml. It is safe for concurrent use.
type Document struct {
	spec       *openapi3.T
	operations []*Operation
}

// Operation is a method of a path.
type Operation struct {
	Method string
	Path   string // with the names of parameters in braces

	item *openapi3.PathItem
	spec *openapi3.Operation
}

// String is the method and the path.
func (o *Operation) String() string { return o.Method + " " + o.Path }

// ID is the name of the operation.
func (o *Operation) ID() string { return o.spec.OperationID }

// Succeeds reports whether the operation has an answer that is a success.
func (o *Operation) Succeeds() bool {
	return slices.ContainsFunc(o.Cases(), func(c Case) bool { return c.Status < http.StatusMultipleChoices })
}

// Admin reports whether the operation is on the listener for operators.
func (o *Operation) Admin() bool { return onAdminListener(o.Path) }

func onAdminListener(path string) bool {
	return path == "/metrics" || path == "/admin" || strings.HasPrefix(path, "/admin/")
}

// Load reads the document and checks that it is a valid one.
func Load(ctx context.Context) (*Document, error) {
	spec, err := openapi3.NewLoader().LoadFromData(docs.OpenAPI)
	if err != nil {
		return nil, fmt.Errorf("read openapi.yaml: %w", err)
	}
	if err := spec.Validate(ctx, openapi3.EnableExamplesValidation(), openapi3.EnableSchemaDefaultsValidation()); err != nil {
		return nil, fmt.Errorf("check openapi.yaml: %w", err)
	}
	d := &Document{spec: spec}
	for path, item := range spec.Paths.Map() {
		for method, operation := range item.Operations() {
			d.operations = append(d.operations, &Operation{Method: method, Path: path, item: item, spec: operation})
		}
	}
	sort.Slice(d.operations, func(i, j int) bool { return d.operations[i].String() < d.operations[j].String() })
	return d, nil
}

// Operations returns all operations, by their names.
func (d *Document) Operations() []*Operation { return slices.Clone(d.operations) }

// Operation finds an operation by method and path with the parameters in braces; nil where there is none.
func (d *Document) Operation(method, path string) *Operation {
	for _, o := range d.operations {
		if o.Method == method && o.Path == path {
			return o
		}
	}
	return nil
}

// Methods returns the methods that a path is documented with, sorted.
func (d *Document) Methods(path string) []string {
	var methods []string
	for _, o := range d.operations {
		if o.Path == path {
			methods = append(methods, o.Method)
		}
	}
	slices.Sort(methods)
	return methods
}

// allowed is what the Allow header of a path has to say.
func (d *Document) allowed(path string) []string {
	methods := d.Methods(path)
	if slices.Contains(methods, http.MethodGet) {
		methods = append(methods, http.MethodHead)
	}
	if !onAdminListener(path) {
		methods = append(methods, http.MethodOptions)
	}
	slices.Sort(methods)
	return methods
}

// match finds the path of the document that a path of a request is, letter by letter, as the servers do; the values of its parameters are as they
// were written. A path without parameters goes before one with: /orders/{id} is not asked where there is /orders/all.
func (d *Document) match(path string) (template string, values map[string]string, ok bool) {
	got := strings.Split(path, "/")
	for _, candidate := range d.spec.Paths.InMatchingOrder() {
		want := strings.Split(candidate, "/")
		if len(want) != len(got) {
			continue
		}
		values = map[string]string{}
		fits := true
		for i := range want {
			name, variable := strings.CutPrefix(want[i], "{")
			switch {
			case variable && got[i] != "":
				values[strings.TrimSuffix(name, "}")] = got[i]
			case want[i] != got[i]:
				fits = false
			}
		}
		if fits {
			return candidate, values, true
		}
	}
	return "", nil, false
}
