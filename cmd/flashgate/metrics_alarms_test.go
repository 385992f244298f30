package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"flashgate/internal/keeper"
)

// stringConstants are the constants with string values in the sources of a directory whose names match.
func stringConstants(t *testing.T, directory string, name *regexp.Regexp) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(directory, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			for i, id := range spec.Names {
				if i >= len(spec.Values) || !name.MatchString(id.Name) {
					continue
				}
				if literal, ok := spec.Values[i].(*ast.BasicLit); ok && literal.Kind == token.STRING {
					if found[id.Name], err = strconv.Unquote(literal.Value); err != nil {
						t.Fatal(err)
					}
				}
			}
			return true
		})
	}
	return found
}

// firstCells are the names in the first column of the table behind a heading.
func firstCells(t *testing.T, page, heading string) (cells []string) {
	t.Helper()
	_, table, ok := strings.Cut(page, "\n"+heading)
	if !ok {
		t.Fatalf("the page has no table %q", heading)
	}
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "|") {
			if len(cells) > 0 {
				break
			}
			continue
		}
		cell, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
			cells = append(cells, m[1])
		}
	}
	slices.Sort(cells)
	return cells
}

// Every alarm, and every reason of a load, has a row that says what it means, and there are no rows of others.
func TestAlarmsAreExplained(t *testing.T) {
	text, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	const keeperDir, ledgerDir = "../../internal/keeper", "../../internal/ledger"
	alarms := stringConstants(t, keeperDir, regexp.MustCompile(`^alarm[A-Z]`))
	ofShards := stringConstants(t, keeperDir, regexp.MustCompile(`^([rR]eason|due)[A-Z]`))
	reasons := map[string]bool{}
	for _, found := range []map[string]string{
		ofShards, stringConstants(t, ledgerDir, regexp.MustCompile(`^Due[A-Z]`)), stringConstants(t, keeperDir, regexp.MustCompile(`^Reason[A-Z]`)),
	} {
		if len(found) == 0 {
			t.Fatal("there are no reasons of loads")
		}
		for _, reason := range found {
			reasons[reason] = true
		}
	}
	prefix := alarms["alarmStock"]
	if prefix == "" {
		t.Fatal("there are no alarms about the stock")
	}
	var wanted []string
	for name, alarm := range alarms {
		if name != "alarmStock" {
			wanted = append(wanted, alarm)
		}
	}
	// Nothing is wrong with a stock that was never there, is being loaded, or is to be loaded because people ask for it.
	silent := []string{"reasonFirst", "reasonAbandoned", "ReasonAsked", "ReasonRepair"}
	for name, reason := range ofShards {
		if !slices.Contains(silent, name) {
			wanted = append(wanted, prefix+reason)
		}
	}
	slices.Sort(wanted)
	if got := firstCells(t, string(text), "| alarm |"); !slices.Equal(got, wanted) {
		t.Errorf("docs/metrics.md explains the alarms\n%q, and there are\n%q", got, wanted)
	}
	got := firstCells(t, string(text), "| reason |")
	got = slices.DeleteFunc(got, func(cell string) bool {
		return strings.Contains(cell, "…") || slices.Contains(wanted, cell)
	})
	var all []string
	for reason := range reasons {
		all = append(all, reason)
	}
	slices.Sort(all)
	if !slices.Equal(got, all) {
		t.Errorf("docs/metrics.md explains the reasons of loads\n%q, and there are\n%q", got, all)
	}
	results := []string{keeper.Loaded.String(), keeper.TakenOver.String(), keeper.Outcome(0).String()}
	slices.Sort(results)
	if got := firstCells(t, string(text), "| result |"); !slices.Equal(got, results) {
		t.Errorf("docs/metrics.md explains the results of loads\n%q, and there are\n%q", got, results)
	}
}
