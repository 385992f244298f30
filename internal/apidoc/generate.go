package apidoc

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// Generator makes requests out of the document. It is not safe for concurrent use.
type Generator struct {
	document *Document
	values   values
	pools    map[string][]string
}

// NewGenerator returns a generator; the same seed makes the same requests. Pools hold, by the name of a parameter or a member of a body, values that
// the server knows, of which most requests get one. Caps bound integers by name below what the document allows.
func NewGenerator(d *Document, seed uint64, pools map[string][]string, caps map[string]int64) *Generator {
	return &Generator{document: d, values: values{rand.New(rand.NewPCG(seed, 0)), caps}, pools: pools} //nolint:gosec // requests for tests, to be made again from the seed
}

// Made is a request, and how it was made.
type Made struct {
	Request
	Operation *Operation
	// How says what was done to a request that fits the document; empty for nothing.
	How string
	// Malformed: whatever the document says, no server that reads as strictly as it promises may answer with a success.
	Malformed bool
}

// Fitting makes a request that the document allows, as far as the document can say.
func (g *Generator) Fitting(o *Operation) Made {
	d := g.draft(o)
	return Made{Request: d.request(), Operation: o}
}

// Spoiled makes a request and changes one thing about it, so that mostly it does not fit any more.
func (g *Generator) Spoiled(o *Operation) Made {
	d := g.draft(o)
	how := g.spoil(d)
	return Made{Request: d.request(), Operation: o, How: how, Malformed: d.malformed}
}

// draft is a request in parts.
type draft struct {
	operation *Operation
	method    string
	path      map[string]string // values of the parameters of the path
	rawPath   string            // in the place of the whole path, if not empty
	query     []pair
	header    http.Header
	body      any    // nil for none
	rawBody   []byte // in the place of body, if not nil
	malformed bool
}

type pair struct{ name, value string }

func (g *Generator) draft(o *Operation) *draft {
	d := &draft{operation: o, method: o.Method, path: map[string]string{}, header: http.Header{}}
	for _, parameter := range o.parameters() {
		if !parameter.Required && g.values.IntN(2) == 0 {
			continue
		}
		text := g.parameter(parameter)
		switch parameter.In {
		case openapi3.ParameterInPath:
			d.path[parameter.Name] = text
		case openapi3.ParameterInQuery:
			d.query = append(d.query, pair{parameter.Name, text})
		case openapi3.ParameterInHeader:
			d.header.Set(parameter.Name, text)
		}
	}
	if schema := o.bodySchema(); schema != nil && (o.spec.RequestBody.Value.Required || g.values.IntN(4) > 0) {
		d.body = g.fromPools(g.values.value("", schema))
	}
	return d
}

// parameters are those of the operation and of its path.
func (o *Operation) parameters() []*openapi3.Parameter {
	var all []*openapi3.Parameter
	for _, list := range []openapi3.Parameters{o.item.Parameters, o.spec.Parameters} {
		for _, ref := range list {
			all = append(all, ref.Value)
		}
	}
	return all
}

// bodySchema is the schema of the body; nil where there is none.
func (o *Operation) bodySchema() *openapi3.Schema {
	if o.spec.RequestBody == nil {
		return nil
	}
	return o.spec.RequestBody.Value.Content.Get("application/json").Schema.Value
}

func (g *Generator) parameter(p *openapi3.Parameter) string {
	if pool := g.pools[p.Name]; len(pool) > 0 && g.values.IntN(4) > 0 {
		return pool[g.values.IntN(len(pool))]
	}
	return fmt.Sprint(g.values.value(p.Name, p.Schema.Value))
}

// fromPools puts known values into a body, at its first level.
func (g *Generator) fromPools(body any) any {
	object, ok := body.(map[string]any)
	if !ok {
		return body
	}
	for _, name := range sortedKeys(object) {
		if _, text := object[name].(string); text && len(g.pools[name]) > 0 && g.values.IntN(4) > 0 {
			object[name] = g.pools[name][g.values.IntN(len(g.pools[name]))]
		}
	}
	return object
}

// request puts the parts together.
func (d *draft) request() Request {
	target := d.rawPath
	if target == "" {
		target = d.operation.Path
		for name, value := range d.path {
			target = strings.ReplaceAll(target, "{"+name+"}", escapePath(value))
		}
	}
	for i, p := range d.query {
		target += string("?&"[min(i, 1)]) + url.QueryEscape(p.name) + "=" + url.QueryEscape(p.value)
	}
	body := d.rawBody
	if body == nil && d.body != nil {
		var err error
		if body, err = json.Marshal(d.body); err != nil {
			panic(fmt.Sprintf("apidoc: write a body: %v", err)) // it is made of what JSON can say
		}
	}
	return Request{Method: d.method, Target: target, Admin: d.operation.Admin(), Header: d.header, Body: body}
}

// escapePath escapes what cannot stand in a request line at all; slashes, dots and what is escaped already stay as they are.
func escapePath(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		if c <= ' ' || c >= 0x7f || c == '?' || c == '#' || c == '"' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
