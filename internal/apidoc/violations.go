package apidoc

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// Violation is a request with exactly one thing wrong, and what its refusal has to name.
type Violation struct {
	Request
	Names string // path of the member, such as items[0].quantity, or the name of the parameter
	How   string
}

// Values that are wrong somewhere, to be tried everywhere; where the document allows one it is no violation.
var (
	wrongTypes = []any{nil, true, "1", json.Number("1"), []any{}, map[string]any{}}
	wrongTexts = []string{"", "x y", "\x00", "é", "01", "-1", "1e3", "1.", "10", "2026-11-27T20:00:00", "OTHER", "other"}
	wrongIDs   = []string{"0", "-1", "01", "1.0", "x", "9007199254740992"}
	wrongQuery = []string{"", "0", "-1", "x", "101", "1.5", "9007199254740992", "item:0", "user:7"}
)

// Violations makes, systematically, every violation of the operation's parameters and of the members of its body, from the requests that the document
// gives as an example. path has values for the parameters of the path.
func (d *Document) Violations(ctx context.Context, o *Operation, path map[string]string) ([]Violation, error) {
	base := draft{operation: o, method: o.Method, path: path, header: http.Header{}}
	for _, p := range o.parameters() {
		if p.Required && p.In == openapi3.ParameterInQuery {
			base.query = append(base.query, pair{p.Name, fmt.Sprint(p.Example)})
		}
	}
	var list []Violation
	if schema := o.bodySchema(); schema != nil {
		body, err := o.exampleBody()
		if err != nil {
			return nil, err
		}
		for _, v := range bodyViolations(body, schema) {
			changed := base
			changed.body, changed.rawBody = v.body, nil
			list = append(list, Violation{changed.request(), v.names, v.how})
		}
		base.body = body
	}
	for _, p := range o.parameters() {
		for _, v := range base.parameterViolations(p) {
			if d.Misfit(ctx, v.Request) != nil {
				list = append(list, v)
			}
		}
	}
	return list, nil
}

// exampleBody is the example of the document, as a fresh copy.
func (o *Operation) exampleBody() (any, error) {
	text, err := json.Marshal(o.spec.RequestBody.Value.Content.Get("application/json").Example)
	if err != nil {
		return nil, fmt.Errorf("read the example of %v: %w", o, err)
	}
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	var body any
	if err := decoder.Decode(&body); err != nil {
		return nil, fmt.Errorf("read the example of %v: %w", o, err)
	}
	return body, nil
}

type bodyViolation struct {
	body  any
	names string
	how   string
}

// bodyViolations changes one member at a time and puts it back.
func bodyViolations(body any, schema *openapi3.Schema) (list []bodyViolation) {
	add := func(names, how string) {
		text, err := json.Marshal(body)
		if err != nil {
			panic(fmt.Sprintf("apidoc: write a body: %v", err)) // it is made of what JSON can say
		}
		list = append(list, bodyViolation{json.RawMessage(text), strings.TrimPrefix(names, "."), how})
	}
	var g Generator
	for _, p := range g.places("", body, schema, nil) {
		before, was := p.object[p.name]
		for _, wrong := range wrongValues(p.schema) {
			p.object[p.name] = wrong
			text, _ := json.Marshal(wrong)
			add(p.path, fmt.Sprintf("is %.40s", text))
		}
		delete(p.object, p.name)
		if required(schema, p) {
			add(p.path, "is missing")
		}
		if was {
			p.object[p.name] = before
		}
		neighbour := p.path[:len(p.path)-len(p.name)] + "unknown"
		p.object["unknown"] = json.Number("1")
		add(neighbour, "is not known")
		delete(p.object, "unknown")
	}
	return list
}

// required reports whether the schema of the object that p is in requires it.
func required(schema *openapi3.Schema, p place) bool {
	for part := range strings.SplitSeq(strings.TrimPrefix(p.path[:len(p.path)-len(p.name)-1], "."), ".") {
		if part == "" {
			continue
		}
		name, _, list := strings.Cut(part, "[")
		schema = schema.Properties[name].Value
		if list {
			schema = schema.Items.Value
		}
	}
	return slices.Contains(schema.Required, p.name)
}

// wrongValues are values that the schema does not allow: other types, and what is next to its limits.
func wrongValues(schema *openapi3.Schema) (wrong []any) {
	candidates := slices.Clone(wrongTypes)
	switch {
	case schema.Type.Is(openapi3.TypeInteger):
		least, most := bounds(schema)
		// In all its spellings a number with a fraction or an exponent is none of the servers' integers, though the first two of them have its value.
		wrong = append(wrong, json.RawMessage("1.0"), json.RawMessage("1e0"), json.RawMessage("-0"))
		candidates = append(candidates, json.Number(fmt.Sprint(least-1)), json.Number(fmt.Sprint(most+1)), json.Number("1.5"), json.Number("9223372036854775808"))
	case schema.Type.Is(openapi3.TypeString):
		for _, text := range wrongTexts {
			candidates = append(candidates, text)
		}
		if schema.MaxLength != nil {
			candidates = append(candidates, strings.Repeat("x", int(*schema.MaxLength)+1))
		}
	case schema.Type.Is(openapi3.TypeArray):
		candidates = append(candidates, []any{})
		if schema.MaxItems != nil {
			candidates = append(candidates, slices.Repeat([]any{map[string]any{}}, int(*schema.MaxItems)+1))
		}
	}
	for _, candidate := range candidates {
		if schema.VisitJSON(candidate) != nil {
			wrong = append(wrong, candidate)
		}
	}
	return wrong
}

// parameterViolations are requests that differ from the draft in the value of one parameter.
func (d *draft) parameterViolations(p *openapi3.Parameter) (list []Violation) {
	add := func(changed draft, names, value string) {
		list = append(list, Violation{changed.request(), names, fmt.Sprintf("%s is %.40q", p.Name, value)})
	}
	switch p.In {
	case openapi3.ParameterInPath:
		for _, value := range wrongIDs {
			changed := *d
			changed.path = map[string]string{}
			for name, known := range d.path {
				changed.path[name] = known
			}
			changed.path[p.Name] = value
			add(changed, "id", value)
		}
	case openapi3.ParameterInQuery:
		for _, value := range wrongQuery {
			changed := *d
			changed.query = []pair{{p.Name, value}}
			add(changed, p.Name, value)
		}
		changed := *d
		changed.query = []pair{{p.Name, "1"}, {p.Name, "1"}}
		add(changed, p.Name, "1, twice")
	case openapi3.ParameterInHeader:
		for _, lines := range [][]string{{""}, {"a b"}, {"é"}, {strings.Repeat("k", 129)}, {"k", "k"}} {
			changed := *d
			changed.header = http.Header{http.CanonicalHeaderKey(p.Name): lines}
			add(changed, p.Name, strings.Join(lines, ", "))
		}
	}
	return list
}
