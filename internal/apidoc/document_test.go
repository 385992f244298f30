package apidoc

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

func load(tb testing.TB) *Document {
	tb.Helper()
	d, err := Load(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// responses calls visit for every answer of every operation, and for those that all paths share.
func (d *Document) responses(visit func(name string, status int, response *openapi3.Response)) {
	for _, o := range d.operations {
		for key, response := range o.spec.Responses.Map() {
			visit(o.String()+" "+key, statusOf(key), response.Value)
		}
	}
	visit("MethodNotAllowed", http.StatusMethodNotAllowed, d.spec.Components.Responses["MethodNotAllowed"].Value)
	visit("NoSuchPath", http.StatusNotFound, d.spec.Components.Responses["NoSuchPath"].Value)
}

// What is promised in general is in the description of every single answer.
func TestEveryAnswerSaysWhatAllAnswersSay(t *testing.T) {
	load(t).responses(func(name string, status int, response *openapi3.Response) {
		required := func(header string) bool {
			ref := response.Headers[header]
			return ref != nil && ref.Value.Required && ref.Value.Schema != nil
		}
		if status < 200 {
			t.Errorf("%s: the key is no status", name)
		}
		for header, statuses := range map[string][]int{"Retry-After": {429, 503}, "WWW-Authenticate": {401}, "Allow": {405}} {
			if got, want := required(header), slices.Contains(statuses, status); got != want {
				t.Errorf("%s: is %s documented as required: %v, want %v", name, header, got, want)
			}
		}
		if response.Content.Get("application/json") != nil && !required("Cache-Control") {
			t.Errorf("%s: nothing is said about caches", name)
		}
		for _, code := range codes(response) {
			if success := status < 300; (code == "") != success && name != "GET /readyz 503" {
				t.Errorf("%s: code %q", name, code)
			}
		}
	})
}

var codeForm = regexp.MustCompile(`^[A-Z]+(_[A-Z]+)*$`)

// A schema that lets pass what it does not name proves nothing about an answer.
func TestSchemasAreExact(t *testing.T) {
	d := load(t)
	var walk func(at string, ref *openapi3.SchemaRef)
	walk = func(at string, ref *openapi3.SchemaRef) {
		schema := ref.Value
		for _, sub := range schema.OneOf {
			walk(at, sub)
		}
		if schema.Items != nil {
			walk(at+"[]", schema.Items)
		}
		if len(schema.OneOf) == 0 && schema.Type == nil {
			t.Errorf("%s: any type is allowed", at)
		}
		if schema.Type.Is(openapi3.TypeObject) && ref.Ref != "#/components/schemas/Row" {
			if more := schema.AdditionalProperties.Has; more == nil || *more {
				t.Errorf("%s: members without a name are allowed", at)
			}
		}
		for name, member := range schema.Properties {
			walk(at+"."+name, member)
			if name == "error" && member.Value.Type.Is(openapi3.TypeString) {
				for _, code := range member.Value.Enum {
					if !codeForm.MatchString(code.(string)) {
						t.Errorf("%s: %q is no code", at, code)
					}
				}
			}
		}
	}
	d.responses(func(name string, _ int, response *openapi3.Response) {
		for mime, content := range response.Content {
			walk(name+" "+mime, content.Schema)
		}
	})
	for _, o := range d.operations {
		if o.spec.RequestBody != nil {
			walk(o.String(), o.spec.RequestBody.Value.Content.Get("application/json").Schema)
		}
	}
}

// Members of an answer are always there: what is unknown is null.
func TestAnswersHaveAllTheirMembers(t *testing.T) {
	load(t).responses(func(name string, _ int, response *openapi3.Response) {
		content := response.Content.Get("application/json")
		if content == nil {
			return
		}
		shapes := append(openapi3.SchemaRefs{content.Schema}, content.Schema.Value.OneOf...)
		for _, shape := range shapes {
			for member := range shape.Value.Properties {
				if !slices.Contains(shape.Value.Required, member) {
					t.Errorf("%s: %s may be missing", name, member)
				}
			}
		}
	})
}

func TestOperationsAreComplete(t *testing.T) {
	d := load(t)
	names := map[string]bool{}
	for _, o := range d.operations {
		s := o.spec
		if names[s.OperationID] || s.OperationID == "" || s.Summary == "" || len(s.Tags) != 1 {
			t.Errorf("%v: name %q, summary %q, tags %v", o, s.OperationID, s.Summary, s.Tags)
		}
		names[s.OperationID] = true
		guarded := s.Security != nil && len(*s.Security) == 1 && (*s.Security)[0]["admin"] != nil
		if below := strings.HasPrefix(o.Path, "/admin/"); guarded != below {
			t.Errorf("%v: is the admin token asked for: %v", o, guarded)
		}
		if open := s.Security != nil && len(*s.Security) == 0; open == (s.Responses.Status(http.StatusUnauthorized) != nil) {
			t.Errorf("%v: open to everybody %v, and its answers say otherwise", o, open)
		}
	}
}

func TestMatch(t *testing.T) {
	d := load(t)
	for path, want := range map[string]string{
		"/api/flash-sales/items/7": "/api/flash-sales/items/{itemId}", "/api/flash-sales/orders": "/api/flash-sales/orders",
		"/api/flash-sales/items/7/purchase": "/api/flash-sales/items/{itemId}/purchase", "/admin/dlq/replay": "/admin/dlq/replay",
		"/api/flash-sales/items/": "", "/api/flash-sales/Items/7": "", "//livez": "", "/livez/": "", "": "",
	} {
		if got, values, ok := d.match(path); got != want || ok != (want != "") || strings.Contains(want, "{itemId}") && values["itemId"] != "7" {
			t.Errorf("%q is %q %v, want %q", path, got, values, want)
		}
	}
}
