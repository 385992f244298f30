package strictjson_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"flashgate/internal/strictjson"
)

type part struct {
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
}

type document struct {
	Name    string     `json:"name"`
	Count   *int64     `json:"count"`
	Small   int8       `json:"small"`
	Yes     bool       `json:"yes"`
	At      *time.Time `json:"at"`
	Parts   []part     `json:"parts"`
	Nested  part       `json:"nested"`
	private int        //nolint:unused // must not be reachable by its name
}

func TestUnmarshalReadsWhatItKnows(t *testing.T) {
	var d document
	in := `{"name":"a\ud83d\ude00","count":9007199254740993,"small":-128,"yes":true,"at":"2026-11-27T20:00:00+08:00",
		"parts":[{"sku":"x","quantity":1},{}],"nested":{"sku":"\\ud800"}}`
	if err := strictjson.Unmarshal([]byte(in), &d); err != nil {
		t.Fatal(err)
	}
	if d.Name != "a😀" || *d.Count != 9007199254740993 || d.Small != -128 || !d.Yes || len(d.Parts) != 2 || d.Parts[0].SKU != "x" || d.Nested.SKU != `\ud800` {
		t.Errorf("read %+v", d)
	}
	if want := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC); !d.At.Equal(want) {
		t.Errorf("read the time %v, want %v", d.At, want)
	}
}

func TestAbsentMembersLeaveTheirFields(t *testing.T) {
	d := document{Name: "default"}
	if err := strictjson.Unmarshal([]byte(` {} `), &d); err != nil {
		t.Fatal(err)
	}
	if d.Name != "default" || d.Count != nil {
		t.Errorf("read %+v", d)
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	for _, test := range []struct{ in, field, problem string }{
		{``, "", "ends too early"},
		{`null`, "", "must be a JSON object"},
		{`[]`, "", "must be a JSON object"},
		{`"x"`, "", "must be a JSON object"},
		{`{"name":"x"`, "", "ends too early"},
		{`{"name":"x"}{}`, "", "follows"},
		{`{"name":"x"} x`, "", "follows"},
		{`{"name":"x",}`, "", "not JSON"},
		{`{"name":"x","name":"x"}`, "name", "comes twice"},
		{`{"name":"x","NAME":"y"}`, "NAME", "not known"},
		{`{"ſmall":1}`, `"\u017fmall"`, "not known"},
		{`{"private":1}`, "private", "not known"},
		{`{"count":"1"}`, "count", "must be an integer, not a string"},
		{`{"count":1.0}`, "count", "without fraction or exponent"},
		{`{"count":1e0}`, "count", "without fraction or exponent"},
		{`{"count":-0}`, "count", "without fraction or exponent"},
		{`{"count":01}`, "", "not JSON"},
		{`{"count":+1}`, "count", "not JSON"},
		{`{"count":9223372036854775808}`, "count", "does not fit 64 bits"},
		{`{"small":128}`, "small", "does not fit 8 bits"},
		{`{"count":null}`, "count", "not null"},
		{`{"count":{}}`, "count", "not an object"},
		{`{"name":1}`, "name", "must be a string, not a number"},
		{`{"yes":"true"}`, "yes", "must be true or false"},
		{`{"at":5}`, "at", "must be a string"},
		{`{"at":"2026-11-27T20:00:00"}`, "at", "cannot parse"},
		{`{"nested":[]}`, "nested", "must be an object, not an array"},
		{`{"parts":{}}`, "parts", "must be an array"},
		{`{"parts":[{"quantity":1},{"quantity":true}]}`, "parts[1].quantity", "must be an integer"},
		{`{"parts":[{"Quantity":1}]}`, "parts[0].Quantity", "not known"},
		{`{"nested":{"sku":"a","sku":"b"}}`, "nested.sku", "comes twice"},
		{`{"\ud800":1}`, "", "surrogate"},
		{`{"name":"\udc00"}`, "", "surrogate"},
		{`{"name":"\ud800\u0041"}`, "", "surrogate"},
		{"{\"name\":\"\xff\"}", "", "not UTF-8"},
	} {
		var d document
		err := strictjson.Unmarshal([]byte(test.in), &d)
		var refused *strictjson.Error
		if !errors.As(err, &refused) {
			t.Errorf("%s: got %v, want an *Error", test.in, err)
			continue
		}
		if refused.Field != test.field || !strings.Contains(refused.Problem, test.problem) {
			t.Errorf("%s: refused with field %q and problem %q, want %q and %q", test.in, refused.Field, refused.Problem, test.field, test.problem)
		}
	}
}

func TestAllowUnknown(t *testing.T) {
	var d document
	in := `{"later":{"a":[1,{"b":null}]},"NAME":"other","name":"x"}`
	if err := strictjson.Unmarshal([]byte(in), &d, strictjson.AllowUnknown()); err != nil {
		t.Fatal(err)
	}
	if d.Name != "x" {
		t.Errorf("name is %q: a member of another letter case was taken for it", d.Name)
	}
	for _, in := range []string{`{"later":{"a":1,"a":2}}`, `{"later":1,"later":1}`, `{"later":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`} {
		if err := strictjson.Unmarshal([]byte(in), &d, strictjson.AllowUnknown()); err == nil {
			t.Errorf("%.40s: accepted", in)
		}
	}
}

// What strictjson accepts, encoding/json reads as the same value: there is no document that the two understand differently.
func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte(`{"name":"x","count":1,"parts":[{"sku":"y","quantity":2}],"nested":{"sku":"z"}}`))
	f.Add([]byte(`{"name":"\ud83d\ude00","yes":true,"small":-1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var strict, loose document
		if strictjson.Unmarshal(data, &strict) != nil {
			return
		}
		if err := json.Unmarshal(data, &loose); err != nil {
			t.Fatalf("accepted what encoding/json refuses: %v", err)
		}
		a, _ := json.Marshal(strict)
		b, _ := json.Marshal(loose)
		if string(a) != string(b) {
			t.Fatalf("read %s, encoding/json reads %s", a, b)
		}
	})
}
