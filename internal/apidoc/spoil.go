package apidoc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// What ids and other parameters of paths are taken for by careless readers.
var strangeIDs = []string{
	"0", "-1", "+1", "01", "1.0", "1e3", "0x10", "9007199254740991", "9007199254740992", "9223372036854775808", "99999999999999999999", "abc", "null", "NaN",
	"%31", "1%2F2", "1%00", "..", ".", "1;2", "1,2", "１", " 1", "1 ", "1\t", "*", "{itemId}", "00000000-0000-0000-0000-000000000000",
	"00000000-0000-4000-8000-000000000000", "ffffffff-ffff-8fff-bfff-ffffffffffff", "00000000001f84809f4b6c1d2e3f4a5b",
	"{00000000-001f-8480-9f4b-6c1d2e3f4a5b}", "00000000-001f-8480-9f4b-6c1d2e3f4a5", "g0000000-001f-8480-9f4b-6c1d2e3f4a5b", strings.Repeat("9", 300),
}

var strangeMethods = []string{"GET", "POST", "PUT", "PATCH", "DELETE", "TRACE", "OPTIONS", "HEAD", "PROPFIND", "get", "X"}

// Whole bodies that are no object, or one that two readers understand differently. Each of them is to be refused wherever a body is read.
var malformedBodies = []string{
	"null", "[]", "{", "}", `"text"`, "7", "true", "{}{}", "{} x", "\ufeff{}", `{"quantity":1,"quantity":1}`, `{"a\ud800":1}`, "{\"\xff\":1}", `{'quantity':1}`,
	`{"quantity":1,}`, `{quantity:1}`, "\x00", strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100), strings.Repeat("[", 500),
}

// spoil changes one thing about a request, and says what.
func (g *Generator) spoil(d *draft) string {
	var ways []func(*draft) string
	if len(d.path) > 0 {
		ways = append(ways, g.strangeID, g.strangeID)
	}
	ways = append(ways, g.strangePath, g.strangeQuery, g.strangeHeader, g.strangeMethod)
	if d.operation.bodySchema() != nil {
		if d.body == nil {
			d.body = g.fromPools(g.values.value("", d.operation.bodySchema()))
		}
		ways = append(ways, g.malformedBody)
		for range 8 {
			ways = append(ways, g.strangeBody)
		}
	}
	return ways[g.values.IntN(len(ways))](d)
}

func (g *Generator) strangeID(d *draft) string {
	name := g.oneOf(sortedKeys(d.path))
	d.path[name] = g.oneOf(strangeIDs)
	return name + " is " + d.path[name]
}

func (g *Generator) strangePath(d *draft) string {
	plain := d.request().Target
	path, _, _ := strings.Cut(plain, "?")
	d.rawPath = g.oneOf([]string{
		path + "/", "/" + path, strings.ToUpper(path), strings.Replace(path, "/", "//", 2), path + "%20", path + ";x=1", "/./" + path[1:], "/x/.." + path,
		strings.Replace(path, "s", "%73", 1), path + "/x", path + "%2f",
	})
	return "path " + d.rawPath
}

func (g *Generator) strangeQuery(d *draft) string {
	if len(d.query) > 0 {
		i := g.values.IntN(len(d.query))
		switch g.values.IntN(4) {
		case 0:
			d.query[i].value = ""
		case 1:
			d.query[i].value = g.oneOf(strangeIDs)
		case 2:
			d.query = append(d.query, d.query[i])
		default:
			d.query[i].name = strings.ToUpper(d.query[i].name)
		}
		return fmt.Sprintf("query %v", d.query)
	}
	d.query = append(d.query, pair{g.oneOf([]string{"x", "limit", "cursor", "itemId", ""}), g.oneOf(strangeIDs)})
	return fmt.Sprintf("query %v", d.query)
}

func (g *Generator) strangeHeader(d *draft) string {
	name := g.oneOf([]string{"Idempotency-Key", "Idempotency-Key", "Traceparent", "Content-Type", "Accept", "Origin", "X-Forwarded-For", "Expect-Nothing"})
	values := []string{g.oneOf([]string{"", "a b", "é", strings.Repeat("k", 128), strings.Repeat("k", 129), "null", "\t", "text/html", "00-" + strings.Repeat("0", 52)})}
	if g.values.IntN(3) == 0 {
		values = append(values, "second")
	}
	d.header[http.CanonicalHeaderKey(name)] = values
	return fmt.Sprintf("header %s %q", name, values)
}

func (g *Generator) strangeMethod(d *draft) string {
	d.method = g.oneOf(strangeMethods)
	return "method " + d.method
}

func (g *Generator) malformedBody(d *draft) string {
	d.rawBody = []byte(g.oneOf(malformedBodies))
	d.malformed = true
	return fmt.Sprintf("body %.60q", d.rawBody)
}

// strangeBody changes one member somewhere in the body.
func (g *Generator) strangeBody(d *draft) string {
	at := g.places("", d.body, d.operation.bodySchema(), nil)
	if len(at) == 0 {
		return g.malformedBody(d)
	}
	p := at[g.values.IntN(len(at))]
	how := g.change(d, p)
	return "body: " + p.path + " " + how
}

// place is a member of an object in a body.
type place struct {
	path   string
	object map[string]any
	name   string
	schema *openapi3.Schema
}

// places lists every member that a body could have.
func (g *Generator) places(path string, value any, schema *openapi3.Schema, list []place) []place {
	switch v := value.(type) {
	case map[string]any:
		for _, name := range sortedKeys(schema.Properties) {
			member := schema.Properties[name].Value
			list = append(list, place{path + "." + name, v, name, member})
			if inner, ok := v[name]; ok {
				list = g.places(path+"."+name, inner, member, list)
			}
		}
	case []any:
		for i, element := range v {
			list = g.places(fmt.Sprintf("%s[%d]", path, i), element, schema.Items.Value, list)
		}
	}
	return list
}

// change spoils one member.
func (g *Generator) change(d *draft, p place) string {
	switch g.values.IntN(8) {
	case 0:
		delete(p.object, p.name)
		return "is missing"
	case 1:
		name := g.oneOf([]string{"unknown", strings.ToUpper(p.name), p.name + " ", "", "__proto__"})
		p.object[name] = 1
		return fmt.Sprintf("has the unknown neighbour %q", name)
	case 2:
		// The same member in another spelling of the same value, which no schema can tell from it.
		return g.respell(d, p)
	case 3, 4:
		p.object[p.name] = g.otherType(p.schema)
	default:
		p.object[p.name] = g.beyond(p.schema)
	}
	text, _ := json.Marshal(p.object[p.name])
	return fmt.Sprintf("is %.60s", text)
}

// otherType is a value of a type that the schema does not have.
func (g *Generator) otherType(schema *openapi3.Schema) any {
	all := []any{nil, true, "1", json.Number("1"), json.Number("1.5"), []any{}, map[string]any{}}
	for {
		v := all[g.values.IntN(len(all))]
		if schema.VisitJSON(v) != nil {
			return v
		}
	}
}

// beyond is a value of the right type just beyond, or just at, a limit of the schema.
func (g *Generator) beyond(schema *openapi3.Schema) any {
	switch {
	case schema.Type.Is(openapi3.TypeInteger):
		least, most := bounds(schema)
		numbers := []string{
			fmt.Sprint(least - 1), fmt.Sprint(least), fmt.Sprint(most + 1), "-0", "9223372036854775807", "9223372036854775808", "-9223372036854775809",
			"1e400", "123456789012345678901234567890",
		}
		return json.Number(g.oneOf(numbers))
	case schema.Type.Is(openapi3.TypeString):
		texts := []string{
			"", " ", "\x00", "\u0085", "null", strings.Repeat("x", 101), strings.Repeat("é", 101), strings.Repeat("x", 201), "2026-02-30T00:00:00Z",
			"2026-11-27T20:00:00", "2026-11-27t20:00:00z", "1999-12-31T23:59:59Z", "2026-11-27T24:00:00Z", "2026-06-30T23:59:60Z", "-1", "+1", "1.", ".5", "1e3",
			"00", "1,5", "٣", "jpy", "JPYX", "Local", "0s", "999999h", "1d", "-5m", "10m ", strings.Repeat("9", 40),
		}
		return g.oneOf(texts)
	case schema.Type.Is(openapi3.TypeArray):
		return g.otherList(schema)
	}
	return g.otherType(schema)
}

// otherList is an array that is empty, or has more elements than the schema allows.
func (g *Generator) otherList(schema *openapi3.Schema) any {
	if schema.MaxItems == nil || g.values.IntN(2) == 0 {
		return []any{}
	}
	return slices.Repeat([]any{g.values.value("", schema.Items.Value)}, int(*schema.MaxItems)+1)
}

// respell writes the body anew with an integer as 1.0 or 1e0, or with a member twice.
func (g *Generator) respell(d *draft, p place) string {
	d.malformed = true
	if p.schema.Type.Is(openapi3.TypeInteger) {
		suffix := g.oneOf([]string{".0", "e0", "E+0"})
		p.object[p.name] = json.RawMessage("1" + suffix)
		return "is 1" + suffix
	}
	if _, ok := p.object[p.name]; !ok {
		p.object[p.name] = g.values.value(p.name, p.schema)
	}
	// The member gets a name that cannot be anywhere else, and in the text that name gives way to the member written twice.
	const mark = "\u2603"
	value := p.object[p.name]
	delete(p.object, p.name)
	p.object[mark] = value
	text, err := json.Marshal(d.body)
	if err != nil {
		panic(fmt.Sprintf("apidoc: write a body: %v", err))
	}
	once, _ := json.Marshal(value)
	name, _ := json.Marshal(p.name)
	twice := fmt.Sprintf("%s:%s,%s:", name, once, name)
	d.rawBody = bytes.Replace(text, []byte(`"`+mark+`":`), []byte(twice), 1)
	return "comes twice"
}

func (g *Generator) oneOf(texts []string) string { return texts[g.values.IntN(len(texts))] }
