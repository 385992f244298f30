package limiter

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"
)

// The bounds of a Rate. They are far beyond any use; what they give is that the
// longest refill (MaxBurst at one per hour, 114 years) still fits the arithmetic
// of time.Duration.
const (
	MaxEvents = 1_000_000
	MaxBurst  = 1_000_000
)

// errRateUnset is what the zero Rate is: forgotten, which must not mean "no limit".
var errRateUnset = errors.New(`rate is not set: write it like 5/s:10, or off`)

// Rate is a limit: Events per Per on average, and up to Burst at once. It is a
// plain value, comparable. The zero value is not a rate: Validate refuses it.
type Rate struct {
	Events int           // 1 to MaxEvents
	Per    time.Duration // time.Second, time.Minute or time.Hour
	Burst  int           // 1 to MaxBurst
	off    bool
}

// Off is the rate that limits nothing.
func Off() Rate { return Rate{off: true} }

// PerSecond is events per second with the given burst.
func PerSecond(events, burst int) Rate {
	return Rate{Events: events, Per: time.Second, Burst: burst}
}

// ParseRate reads EVENTS/UNIT:BURST, where UNIT is s, m or h ("5/s:10",
// "30/m:5"), or "off". Both numbers are plain decimals.
func ParseRate(text string) (Rate, error) {
	if text == "off" {
		return Off(), nil
	}
	fail := func(format string, args ...any) (Rate, error) {
		return Rate{}, fmt.Errorf("parse rate %.40q: "+format, append([]any{text}, args...)...)
	}
	average, burst, ok := strings.Cut(text, ":")
	if !ok {
		return fail("the burst is missing: write it like 5/s:10, or off")
	}
	events, unit, ok := strings.Cut(average, "/")
	if !ok {
		return fail("the unit is missing: write it like 5/s:10, or off")
	}
	var r Rate
	switch unit {
	case "s":
		r.Per = time.Second
	case "m":
		r.Per = time.Minute
	case "h":
		r.Per = time.Hour
	default:
		return fail("the unit must be s, m or h")
	}
	if r.Events, ok = parseCount(events); !ok {
		return fail("the number of events must be a whole number from 1 to %d", MaxEvents)
	}
	if r.Burst, ok = parseCount(burst); !ok {
		return fail("the burst must be a whole number from 1 to %d", MaxBurst)
	}
	if err := r.Validate(); err != nil {
		return fail("%w", err)
	}
	return r, nil
}

// parseCount takes digits alone: strconv would also take "+5".
func parseCount(s string) (int, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}

// Validate says what is wrong with a rate that was not made by ParseRate.
func (r Rate) Validate() error {
	switch {
	case r.off:
		return nil
	case r == Rate{}:
		return errRateUnset
	case r.Per != time.Second && r.Per != time.Minute && r.Per != time.Hour:
		return fmt.Errorf("a rate must be per second, minute or hour, not per %v", r.Per)
	case r.Events < 1 || r.Events > MaxEvents:
		return fmt.Errorf("the number of events must be from 1 to %d, not %d", MaxEvents, r.Events)
	case r.Burst < 1 || r.Burst > MaxBurst:
		return fmt.Errorf("the burst must be from 1 to %d, not %d", MaxBurst, r.Burst)
	}
	return nil
}

// IsOff tells whether the rate limits nothing.
func (r Rate) IsOff() bool { return r.off }

// String gives the form that ParseRate reads.
func (r Rate) String() string {
	if r.off {
		return "off"
	}
	unit := "?"
	switch r.Per {
	case time.Second:
		unit = "s"
	case time.Minute:
		unit = "m"
	case time.Hour:
		unit = "h"
	}
	return fmt.Sprintf("%d/%s:%d", r.Events, unit, r.Burst)
}

// UnmarshalText is ParseRate for configuration loaders.
func (r *Rate) UnmarshalText(text []byte) error {
	parsed, err := ParseRate(string(text))
	if err != nil {
		return err
	}
	*r = parsed
	return nil
}

// limit is the average as the library counts it, in events per second.
func (r Rate) limit() rate.Limit {
	return rate.Limit(float64(r.Events) / r.Per.Seconds())
}

// refill is how long an empty bucket takes to be full again.
func (r Rate) refill() time.Duration {
	return time.Duration(float64(r.Burst) * float64(r.Per) / float64(r.Events))
}
