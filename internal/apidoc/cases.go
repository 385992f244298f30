package apidoc

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
)

// Cases returns every answer that the operation is documented with.
func (o *Operation) Cases() []Case {
	var cases []Case
	for key, response := range o.spec.Responses.Map() {
		for _, code := range codes(response.Value) {
			cases = append(cases, Case{o.String(), statusOf(key), code})
		}
	}
	return cases
}

// codes returns the error codes of a response; "" for a body without one.
func codes(response *openapi3.Response) []string {
	content := response.Content.Get("application/json")
	if content == nil {
		return []string{""}
	}
	found := map[string]bool{}
	shapes := openapi3.SchemaRefs{content.Schema}
	if len(content.Schema.Value.OneOf) > 0 {
		shapes = content.Schema.Value.OneOf
	}
	for _, shape := range shapes {
		member := shape.Value.Properties["error"]
		if member == nil || !slices.Contains(shape.Value.Required, "error") {
			found[""] = true
			continue
		}
		for _, code := range member.Value.Enum {
			found[fmt.Sprint(code)] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// Cases returns every answer that the document has.
func (d *Document) Cases() []Case {
	var cases []Case
	for _, o := range d.operations {
		cases = append(cases, o.Cases()...)
	}
	slices.SortFunc(cases, compareCases)
	return cases
}

func compareCases(a, b Case) int {
	switch x, y := a.String(), b.String(); {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// Coverage remembers which answers were seen. The zero value has seen none. It is safe for concurrent use.
type Coverage struct {
	mutex sync.Mutex
	seen  map[Case]int
}

// Add notes an answer.
func (c *Coverage) Add(seen Case) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.seen == nil {
		c.seen = map[Case]int{}
	}
	c.seen[seen]++
}

// Count tells how often an answer was seen.
func (c *Coverage) Count(of Case) int {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.seen[of]
}

// Compare holds what was seen against the document. Unreachable are the cases that the tests cannot bring about, each with the reason. It returns the
// documented cases that were neither seen nor are excused, the excuses for what was seen all the same, and those for what is not documented.
func (c *Coverage) Compare(d *Document, unreachable map[Case]string) (missing, needless, unknown []Case) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	documented := d.Cases()
	for _, each := range documented {
		_, excused := unreachable[each]
		switch seen := c.seen[each] > 0; {
		case !seen && !excused:
			missing = append(missing, each)
		case seen && excused:
			needless = append(needless, each)
		}
	}
	for each := range unreachable {
		if !slices.Contains(documented, each) {
			unknown = append(unknown, each)
		}
	}
	slices.SortFunc(unknown, compareCases)
	return missing, needless, unknown
}
