package apidoc

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

var somePools = map[string][]string{"itemId": {"1001", "1002"}, "orderId": {anOrder}}

func newGenerator(d *Document, seed uint64) *Generator {
	return NewGenerator(d, seed, somePools, map[string]int64{"shards": 32})
}

// What is made to fit does fit.
func TestFittingRequestsFit(t *testing.T) {
	d := load(t)
	g := newGenerator(d, 1)
	for _, o := range d.Operations() {
		for range 100 {
			made := g.Fitting(o)
			if err := d.Misfit(t.Context(), made.Request); err != nil {
				t.Fatalf("%v: %s %s: %v", o, made.Target, made.Body, err)
			}
		}
	}
}

// Of what is spoiled most does not fit, of every operation that takes anything; and every way to spoil is taken.
func TestSpoiledRequestsMostlyDoNotFit(t *testing.T) {
	d := load(t)
	g := newGenerator(d, 2)
	ways := map[string]int{}
	for _, o := range d.Operations() {
		misfits := 0
		const rounds = 150
		for range rounds {
			made := g.Spoiled(o)
			way, _, _ := strings.Cut(made.How, " ")
			ways[way]++
			if made.Malformed || made.Method != o.Method || d.Misfit(t.Context(), made.Request) != nil {
				misfits++
			}
			if _, err := http.NewRequest(made.Method, "http://127.0.0.1"+made.Target, nil); err != nil && !strings.HasPrefix(made.Target, "//") && !strings.Contains(made.Target, "%zz") {
				t.Fatalf("%v, %s: cannot be sent: %v", o, made.How, err)
			}
		}
		if misfits < rounds/4 {
			t.Errorf("%v: of %d spoiled requests %d do not fit", o, rounds, misfits)
		}
	}
	for _, way := range []string{"path", "query", "header", "method", "body", "body:", "itemId", "orderId"} {
		if ways[way] < 10 {
			t.Errorf("spoiled by %s: %d times", way, ways[way])
		}
	}
}

func TestSameSeedMakesSameRequests(t *testing.T) {
	d := load(t)
	requests := func(seed uint64) (list []Request) {
		g := newGenerator(d, seed)
		for _, o := range d.Operations() {
			list = append(list, g.Fitting(o).Request, g.Spoiled(o).Request)
		}
		return list
	}
	if !reflect.DeepEqual(requests(7), requests(7)) {
		t.Error("two runs with one seed differ")
	}
	if reflect.DeepEqual(requests(7), requests(8)) {
		t.Error("two seeds make the same requests")
	}
}

// Limits come, and so do their neighbours on the other side.
func TestLimitsAndTheirNeighbours(t *testing.T) {
	d := load(t)
	g := newGenerator(d, 3)
	o := d.Operation("POST", "/admin/items/{itemId}/restock")
	seen := map[string]bool{}
	for range 1000 {
		for _, made := range []Made{g.Fitting(o), g.Spoiled(o)} {
			seen[string(made.Body)] = true
		}
	}
	for _, body := range []string{
		`{"quantity":1}`, `{"quantity":9007199254740991}`, `{"quantity":0}`, `{"quantity":9007199254740992}`, `{"quantity":null}`, `{"quantity":"1"}`,
		`{"quantity":1.0}`, `{"quantity":1e0}`, `{}`, `{"quantity":-0}`, `null`,
	} {
		if !seen[body] {
			t.Errorf("never made: %s", body)
		}
	}
}

func TestPatterns(t *testing.T) {
	g := newGenerator(load(t), 4)
	for _, pattern := range []string{`^[!-~]{1,128}$`, `^(0|[1-9][0-9]{0,13})(\.[0-9]{1,4})?$`, `^(\d+h)?(\d+m)?$`, `^[^\x00-\x1F]*$`, `^(ab|c+d*)?[é]$`} {
		schema := openapi3.NewStringSchema().WithPattern(pattern)
		for range 200 {
			if made := g.values.text(schema); schema.VisitJSON(made) != nil {
				t.Fatalf("%q does not match %s", made, pattern)
			}
		}
	}
}

// A request goes out as it was made: no library between here and the server may put it right.
func TestTargetsSurviveTheClient(t *testing.T) {
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.RequestURI }))
	defer server.Close()
	for _, target := range []string{"/a//b", "//a", "/x/../a", "/%61", "/a%2Fb", "/a?x=&x=1", "/./a"} {
		response, err := Send(t.Context(), server.Client(), server.URL, Request{Method: "GET", Target: target})
		if err != nil || response.Status != 200 || got != target {
			t.Errorf("%s arrives as %s: %v", target, got, err)
		}
	}
}
