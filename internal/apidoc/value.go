package apidoc

import (
	"fmt"
	"math"
	"math/rand/v2"
	"regexp/syntax"
	"slices"
	"strings"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
)

// values makes values that fit schemas. Limits and their neighbours come often, because that is where faults are.
type values struct {
	*rand.Rand
	// caps bounds what integers with these names get, below what the schema allows: so that one request is not the work of a thousand.
	caps map[string]int64
}

// maxElements bounds arrays.
const maxElements = 3

// value makes a value of a schema, for the member or parameter with this name.
func (g *values) value(name string, schema *openapi3.Schema) any {
	if len(schema.OneOf) > 0 {
		return g.value(name, schema.OneOf[g.IntN(len(schema.OneOf))].Value)
	}
	if len(schema.Enum) > 0 {
		return schema.Enum[g.IntN(len(schema.Enum))]
	}
	switch {
	case schema.Type.Is(openapi3.TypeInteger):
		return g.integer(name, schema)
	case schema.Type.Is(openapi3.TypeBoolean):
		return g.IntN(2) == 0
	case schema.Type.Is(openapi3.TypeString):
		return g.text(schema)
	case schema.Type.Is(openapi3.TypeArray):
		list := []any{}
		least := int(schema.MinItems)
		for range least + g.IntN(maxElements-least+1) {
			list = append(list, g.value(name, schema.Items.Value))
		}
		return list
	case schema.Type.Is(openapi3.TypeObject):
		return g.object(schema)
	}
	panic(fmt.Sprintf("apidoc: no way to make a value of type %v for %s", schema.Type, name))
}

// object has the required members, and the others as it comes.
func (g *values) object(schema *openapi3.Schema) map[string]any {
	made := map[string]any{}
	for _, name := range sortedKeys(schema.Properties) {
		if slices.Contains(schema.Required, name) || g.IntN(2) == 0 {
			made[name] = g.value(name, schema.Properties[name].Value)
		}
	}
	// A window that ends before it begins is refused whatever else is in it.
	start, _ := made["startsAt"].(string)
	end, _ := made["endsAt"].(string)
	if from, to := parsed(start), parsed(end); !from.IsZero() && !to.IsZero() && to.Before(from) {
		made["startsAt"], made["endsAt"] = end, start
	}
	return made
}

// parsed is a time, zero for what is none.
func parsed(text string) time.Time {
	t, _ := time.Parse(time.RFC3339, text)
	return t
}

func (g *values) integer(name string, schema *openapi3.Schema) int64 {
	least, most := bounds(schema)
	if highest, ok := g.caps[name]; ok {
		most = min(most, highest)
	}
	switch g.IntN(4) {
	case 0:
		return least
	case 1:
		return most
	case 2:
		return least + g.Int64N(min(most-least, 5)+1)
	}
	return least + g.Int64N(max(most-least, 1))
}

// bounds of an integer; without any in the schema those that JSON's other readers keep exactly.
func bounds(schema *openapi3.Schema) (least, most int64) {
	const widest = 1<<53 - 1
	least, most = -widest, widest
	if schema.Min != nil {
		least = int64(math.Ceil(*schema.Min))
	}
	if schema.Max != nil {
		most = int64(math.Floor(*schema.Max))
	}
	return least, most
}

func (g *values) text(schema *openapi3.Schema) string {
	if schema.Format == "date-time" {
		return g.instant()
	}
	if schema.Pattern != "" {
		text := g.matching(schema.Pattern)
		if schema.MaxLength != nil && uint64(len(text)) > *schema.MaxLength {
			text = text[:*schema.MaxLength] // what has both is made of letters that stand for themselves
		}
		return text
	}
	most := 12
	if schema.MaxLength != nil {
		most = int(*schema.MaxLength)
	}
	var b strings.Builder
	for range int(schema.MinLength) + g.IntN(most-int(schema.MinLength)+1) {
		b.WriteByte(byte(' ' + g.IntN('~'-' '+1)))
	}
	return b.String()
}

// instant is a time with offset, near to now or anywhere in the two centuries that sales are made for.
func (g *values) instant() string {
	from := time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC)
	t := from.Add(time.Duration(g.Int64N(int64(200 * 365 * 24 * time.Hour))))
	if g.IntN(3) == 0 {
		t = t.Truncate(24 * time.Hour)
	}
	zone := time.FixedZone("", (g.IntN(27)-12)*3600+g.IntN(2)*1800)
	if g.IntN(2) == 0 {
		zone = time.UTC
	}
	return t.In(zone).Format(time.RFC3339Nano)
}

// matching makes a text that a pattern matches.
func (g *values) matching(pattern string) string {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		panic(fmt.Sprintf("apidoc: pattern %s: %v", pattern, err)) // the document was checked
	}
	var b strings.Builder
	g.expand(&b, parsed.Simplify())
	return b.String()
}

func (g *values) expand(b *strings.Builder, re *syntax.Regexp) {
	switch re.Op {
	case syntax.OpLiteral:
		b.WriteString(string(re.Rune))
	case syntax.OpCharClass:
		at := g.IntN(len(re.Rune)/2) * 2
		low, high := re.Rune[at], re.Rune[at+1]
		if high > 0xffff { // the class goes on to the end of Unicode: letters of one byte, or two, are enough
			high = max(low, 0x2ff)
		}
		b.WriteRune(low + rune(g.IntN(int(high-low)+1)))
	case syntax.OpCapture, syntax.OpConcat:
		for _, sub := range re.Sub {
			g.expand(b, sub)
		}
	case syntax.OpAlternate:
		g.expand(b, re.Sub[g.IntN(len(re.Sub))])
	case syntax.OpQuest:
		g.repeat(b, re.Sub[0], 0, 1)
	case syntax.OpStar:
		g.repeat(b, re.Sub[0], 0, 8)
	case syntax.OpPlus:
		g.repeat(b, re.Sub[0], 1, 4)
	case syntax.OpBeginText, syntax.OpEndText, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpEmptyMatch:
	default:
		panic(fmt.Sprintf("apidoc: no way to make what %v matches", re))
	}
}

func (g *values) repeat(b *strings.Builder, re *syntax.Regexp, least, most int) {
	for range least + g.IntN(most-least+1) {
		g.expand(b, re)
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
