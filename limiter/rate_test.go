package limiter

import (
	"strings"
	"testing"
	"time"
)

func TestParseRate(t *testing.T) {
	for text, want := range map[string]Rate{
		"5/s:10":            {Events: 5, Per: time.Second, Burst: 10},
		"30/m:1":            {Events: 30, Per: time.Minute, Burst: 1},
		"1/h:1000000":       {Events: 1, Per: time.Hour, Burst: 1_000_000},
		"1000000/s:1000000": {Events: 1_000_000, Per: time.Second, Burst: 1_000_000},
		"off":               Off(),
	} {
		got, err := ParseRate(text)
		if err != nil || got != want {
			t.Errorf("ParseRate(%q) = %+v, %v; want %+v", text, got, err, want)
		}
		if got.String() != text {
			t.Errorf("String of %q is %q", text, got)
		}
		var r Rate
		if err := r.UnmarshalText([]byte(text)); err != nil || r != want {
			t.Errorf("UnmarshalText(%q) = %+v, %v", text, r, err)
		}
	}
	if PerSecond(5, 10).String() != "5/s:10" {
		t.Error("PerSecond(5, 10) is not 5/s:10")
	}
}

func TestParseRateNamesWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "burst is missing",
		"5/s":                      "burst is missing",
		"5:10":                     "unit is missing",
		"5/d:10":                   "unit must be s, m or h",
		"5/S:10":                   "unit must be s, m or h",
		"5/s /m:10":                "unit must be s, m or h",
		"0/s:10":                   "events must be from 1 to 1000000",
		"1000001/s:10":             "events must be from 1 to 1000000",
		"5/s:0":                    "burst must be from 1 to 1000000",
		"5/s:1000001":              "burst must be from 1 to 1000000",
		"-5/s:10":                  "events must be a whole number from 1",
		"+5/s:10":                  "events must be a whole number from 1",
		"1e3/s:10":                 "events must be a whole number from 1",
		"0.5/s:10":                 "events must be a whole number from 1",
		" 5/s:10":                  "events must be a whole number from 1",
		"/s:10":                    "events must be a whole number from 1",
		"5/s:":                     "burst must be a whole number from 1",
		"5/s:10 ":                  "burst must be a whole number from 1",
		"5/s:10:10":                "burst must be a whole number from 1",
		"OFF":                      "or off",
		"99999999999999999999/s:1": "events must be a whole number from 1",
	} {
		r, err := ParseRate(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseRate(%q) = %v, %v; want an error with %q", text, r, err, want)
			continue
		}
		if !strings.HasPrefix(err.Error(), "parse rate ") {
			t.Errorf("ParseRate(%q): %q does not say what could not be done", text, err)
		}
		kept := PerSecond(1, 1)
		if kept.UnmarshalText([]byte(text)) == nil || kept != PerSecond(1, 1) {
			t.Errorf("UnmarshalText(%q) changed the rate or gave no error", text)
		}
	}
}

func TestRateValidate(t *testing.T) {
	for _, r := range []Rate{
		{},
		{Events: 1, Burst: 1},
		{Events: 1, Per: time.Millisecond, Burst: 1},
		{Per: time.Second, Burst: 1},
		{Events: 1, Per: time.Second},
		PerSecond(MaxEvents+1, 1),
		PerSecond(1, MaxBurst+1),
	} {
		if r.Validate() == nil {
			t.Errorf("Validate(%+v) has nothing to say", r)
		}
		if _, err := New[int](Config{Rate: r}); err == nil {
			t.Errorf("New took the rate %+v", r)
		}
	}
}

func FuzzParseRate(f *testing.F) {
	for _, s := range []string{"5/s:10", "off", "1/h:1", "5/s", "//::"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRate(text)
		if err != nil {
			return
		}
		if again, err := ParseRate(r.String()); err != nil || again != r {
			t.Errorf("%q is %v, which reads as %v, %v", text, r, again, err)
		}
		if r.Validate() != nil {
			t.Errorf("%q is %+v, which is not valid", text, r)
		}
	})
}
