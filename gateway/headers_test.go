package gateway

import (
	goflag "flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = goflag.Bool("update", false, "write testdata anew")

var (
	anyUUID = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	anyDate = regexp.MustCompile(`\nDate: [^\n]*`)
)

// Every header of every answer, without CORS and to a page of a listed origin. A change of testdata/headers.txt is a change that clients, caches and
// proxies see.
func TestHeaders(t *testing.T) {
	var b strings.Builder
	seen := map[kind]bool{}
	for _, s := range scenes() {
		plain, _ := s.play(t, nil)
		listed, _ := s.play(t, []string{"https://shop.example"}, "Origin: https://shop.example")
		if want := fmt.Sprintf("HTTP/1.1 %d ", s.status); !strings.HasPrefix(plain, want) || !strings.HasPrefix(listed, want) {
			t.Errorf("%s: %s and %s, want %d", s.name, plain, listed, s.status)
		}
		for k, info := range kindInfos {
			seen[kind(k)] = seen[kind(k)] || info == kindInfo{s.status, s.code}
		}
		fmt.Fprintf(&b, "# %s\n%s\n\n# %s, to a page\n%s\n\n", s.name, tidy(plain), s.name, tidy(listed))
	}
	for k, info := range kindInfos {
		// Those are for what cannot be read as a request.
		if info.code == "REQUEST_TIMEOUT" || info.code == "BODY_TOO_LARGE" || info.code == "HEADER_TOO_LARGE" {
			continue
		}
		if !seen[kind(k)] {
			t.Errorf("no scene has the answer %d %s", info.status, info.code)
		}
	}
	path := filepath.Join("testdata", "headers.txt")
	if *update {
		must(t, os.WriteFile(path, []byte(b.String()), 0o644))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	got := strings.Split(b.String(), "\n\n")
	for i, block := range strings.Split(string(want), "\n\n") {
		if i >= len(got) || got[i] != block {
			t.Errorf("want\n%s\nbut got\n%s", block, got[min(i, len(got)-1)])
		}
	}
	if b.String() != string(want) {
		t.Error("the headers are not those of testdata/headers.txt; -update writes it anew")
	}
}

// tidy leaves out what differs from one run to the next.
func tidy(head string) string {
	head = strings.ReplaceAll(head, "\r\n", "\n")
	return anyUUID.ReplaceAllString(anyDate.ReplaceAllString(head, ""), "ORDER")
}
