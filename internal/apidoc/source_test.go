package apidoc

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// source parses a file of the repository.
func source(t *testing.T, path string) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../"+path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// text is the value of a string literal.
func text(node ast.Node) (string, bool) {
	literal, ok := node.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	value, err := strconv.Unquote(literal.Value)
	return value, err == nil
}

// sameParameters writes every parameter of a path as {}.
func sameParameters(path string) string {
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		if strings.HasPrefix(segment, "{") {
			segments[i] = "{}"
		}
	}
	return strings.Join(segments, "/")
}

// The table of the admin API's routes has the paths and methods of the document, and no others.
func TestAdminRoutesAreDocumented(t *testing.T) {
	routes := map[string][]string{}
	ast.Inspect(source(t, "internal/admin/routes.go"), func(node ast.Node) bool {
		entry, ok := node.(*ast.CompositeLit)
		if !ok || len(entry.Elts) != 2 {
			return true
		}
		path, ok := text(entry.Elts[0])
		if !ok || !strings.HasPrefix(path, "/admin") {
			return true
		}
		for _, pair := range entry.Elts[1].(*ast.CompositeLit).Elts {
			method, _ := text(pair.(*ast.KeyValueExpr).Key)
			routes[sameParameters(path)] = append(routes[sameParameters(path)], method)
		}
		return false
	})
	documented := map[string][]string{}
	for _, o := range load(t).operations {
		if strings.HasPrefix(o.Path, "/admin") {
			documented[sameParameters(o.Path)] = append(documented[sameParameters(o.Path)], o.Method)
		}
	}
	for path := range routes {
		slices.Sort(routes[path])
	}
	if len(routes) == 0 || !maps.EqualFunc(routes, documented, slices.Equal) {
		t.Errorf("the admin API has %v, the document %v", routes, documented)
	}
}

// The parts that a public path is made of in the source are those that the document's paths are made of. Which methods each path has is asked
// of a running gateway.
func TestPublicPathsAreDocumented(t *testing.T) {
	parts := map[string]bool{}
	for _, file := range []string{"gateway/route.go", "internal/ops/routes.go"} {
		ast.Inspect(source(t, file), func(node ast.Node) bool {
			if part, ok := text(node); ok && strings.HasPrefix(part, "/") {
				parts[strings.TrimSuffix(part, "/")] = true
			}
			return true
		})
	}
	// Profiles are those of net/http/pprof and have no description of ours; the paths below /admin are looked at above.
	for _, part := range []string{"/debug/pprof", "/admin", ""} {
		delete(parts, part)
	}
	documented := map[string]bool{}
	for _, o := range load(t).operations {
		if strings.HasPrefix(o.Path, "/admin") {
			continue
		}
		for piece := range strings.SplitSeq(sameParameters(o.Path), "{}") {
			documented[strings.TrimSuffix(piece, "/")] = true
		}
	}
	delete(documented, "")
	if !maps.Equal(parts, documented) {
		t.Errorf("the source has %v, the document %v", slices.Sorted(maps.Keys(parts)), slices.Sorted(maps.Keys(documented)))
	}
}

// Every code that the source can answer with is documented somewhere, and the other way round.
func TestCodesAreThoseOfTheSource(t *testing.T) {
	answered := map[string]bool{}
	ast.Inspect(source(t, "gateway/answer.go"), func(node ast.Node) bool {
		if pair, ok := node.(*ast.CompositeLit); ok && len(pair.Elts) == 2 {
			if code, ok := text(pair.Elts[1]); ok && code != "" {
				answered[code] = true
			}
		}
		return true
	})
	for _, file := range []string{"internal/ops/answer.go", "internal/admin/routes.go"} {
		ast.Inspect(source(t, file), func(node ast.Node) bool {
			if constant, ok := node.(*ast.ValueSpec); ok && strings.HasPrefix(constant.Names[0].Name, "Code") {
				code, _ := text(constant.Values[0])
				answered[code] = true
			}
			return true
		})
	}
	documented := map[string]bool{"METHOD_NOT_ALLOWED": true} // of no operation, see the response of that name
	for _, c := range load(t).Cases() {
		if c.Status >= http.StatusBadRequest && c.Code != "" {
			documented[c.Code] = true
		}
	}
	if !maps.Equal(answered, documented) {
		t.Errorf("the source has %v, the document %v", slices.Sorted(maps.Keys(answered)), slices.Sorted(maps.Keys(documented)))
	}
}
