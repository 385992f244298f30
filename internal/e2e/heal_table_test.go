package e2e

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
)

// Every row of the failure table in the README names tests, and they exist.
func TestHealTableNamesItsTests(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	must(t, err)
	_, behind, _ := strings.Cut(string(readme), "\n## When something fails\n")
	section, _, _ := strings.Cut(behind, "\n## ")
	tests, function := map[string]bool{}, regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	repository := os.DirFS("../..")
	must(t, fs.WalkDir(repository, ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == ".cache":
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source, err := fs.ReadFile(repository, path)
		for _, m := range function.FindAllStringSubmatch(string(source), -1) {
			tests[m[1]] = true
		}
		return err
	}))
	const columns = 5
	rows := 0
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != columns {
			t.Errorf("%d columns, want %d: %s", len(cells), columns, line)
			continue
		}
		if rows++; rows == 1 {
			continue // what the columns hold
		}
		named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(cells[columns-1], -1)
		if len(named) == 0 {
			t.Errorf("no test is named for: %s", cells[0])
		}
		for _, m := range named {
			if !tests[m[1]] {
				t.Errorf("there is no %s, which is named for: %s", m[1], cells[0])
			}
		}
	}
	if rows < 2 {
		t.Error("the README has no table of failures")
	}
}
