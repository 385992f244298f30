package ops

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// ReadinessConfig says how readiness is found out.
type ReadinessConfig struct {
	// Timeout bounds every check. Default 2 s.
	Timeout time.Duration
	// Fresh is how long an answer serves others, so that probes cannot be made a load. Default 1 s; negative: not at all.
	Fresh time.Duration
	// Logger is told when a check begins to fail and when it succeeds again. Default: nobody is.
	Logger *slog.Logger
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// WithDefaults returns c with the defaults filled in.
func (c ReadinessConfig) WithDefaults() ReadinessConfig {
	if c.Timeout == 0 {
		c.Timeout = 2 * time.Second
	}
	if c.Fresh == 0 {
		c.Fresh = time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Missing is a check that failed.
type Missing struct {
	Check  string `json:"check"`
	Reason string `json:"reason"`
}

// Readiness answers whether a role can do its work, by checks that have names: a dependency, a topic, a schema. It is safe for concurrent use.
type Readiness struct {
	cfg ReadinessConfig

	mu       sync.Mutex
	checks   []*check // in the order in which they were added
	draining bool
	was      bool // WasReady
}

type check struct {
	name   string
	probe  func(context.Context) error
	advice bool // AddAdvice

	// Guarded by Readiness.mu.
	last    *call // the newest; nil before the first
	failing bool
}

// call is one call of a probe: one answer for all who asked while it was made or fresh.
type call struct {
	begun    time.Time
	answered chan struct{} // closed when err is filled in: the probe has returned, or its time is up
	returned chan struct{} // closed when the probe has returned, and never after answered if that is what answered
	err      error
}

func isDone(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// NewReadiness returns a Readiness without checks, which is ready.
func NewReadiness(cfg ReadinessConfig) *Readiness {
	return &Readiness{cfg: cfg.WithDefaults()}
}

// Add adds a check. probe returns nil, or what is missing; it gets a context that ends with the timeout and is not called again before it has
// returned. A check that is added later counts for whoever asks from then on.
func (r *Readiness) Add(name string, probe func(context.Context) error) {
	r.add(&check{name: name, probe: probe})
}

// AddAdvice adds a check like Add does, that Missing tells and Ready does not wait for: somebody should see to it, and the role can do its work.
func (r *Readiness) AddAdvice(name string, probe func(context.Context) error) {
	r.add(&check{name: name, probe: probe, advice: true})
}

func (r *Readiness) add(c *check) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checks = append(r.checks, c)
}

// Drain makes the role not ready for the rest of its life, so that nobody sends it more work while it stops.
func (r *Readiness) Drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.draining = true
}

// Missing returns the checks that fail, in the order in which they were added; none means ready. All checks run at once, so it takes no longer
// than the timeout of one. It returns early, as not ready, when ctx ends.
func (r *Readiness) Missing(ctx context.Context) []Missing {
	checks, calls := r.ask(func(*check) bool { return true })
	if checks == nil {
		return []Missing{{Check: "shutdown", Reason: "the process is stopping"}}
	}
	var missing []Missing
	ready := true
	for i, c := range calls {
		select {
		case <-c.answered:
		case <-ctx.Done():
			return []Missing{{Check: "readiness", Reason: "was not found out in time"}}
		}
		if c.err != nil {
			missing = append(missing, Missing{Check: checks[i].name, Reason: oneLine(c.err.Error())})
			ready = ready && checks[i].advice
		}
	}
	if ready {
		r.noteReady()
	}
	return missing
}

func (r *Readiness) noteReady() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.was = true
}

// WasReady reports whether somebody has ever found that nothing was missing but advice: by Missing, or by Ready without a check left out.
func (r *Readiness) WasReady() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.was
}

// Ready reports whether nothing is missing, for somebody who can do without some of the checks: for these it does not wait either. Its answer is no
// older than an answer stays fresh, however long ago the last one asked; it takes no longer than the timeout of a check, and is no when ctx ends
// before. However many ask, each check runs once in that time.
func (r *Readiness) Ready(ctx context.Context, without ...string) bool {
	checks, calls := r.ask(func(c *check) bool { return !c.advice && !slices.Contains(without, c.name) })
	if checks == nil {
		return false
	}
	for _, c := range calls {
		select {
		case <-c.answered:
		case <-ctx.Done():
			return false
		}
		if c.err != nil {
			return false
		}
	}
	if len(without) == 0 {
		r.noteReady()
	}
	return true
}

// ask returns the checks that count and for each of them the call whose answer counts now, which is begun where there is none. While draining the
// checks are nil.
func (r *Readiness) ask(counts func(*check) bool) ([]*check, []*call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.draining {
		return nil, nil
	}
	checks, calls := make([]*check, 0, len(r.checks)), make([]*call, 0, len(r.checks))
	for _, c := range r.checks {
		if counts(c) {
			checks, calls = append(checks, c), append(calls, r.current(c))
		}
	}
	return checks, calls
}

// hanging is the answer of a probe that does not heed its timeout. It is not called again, as one that never returns must cost one goroutine, not one
// for each who asks.
var hanging = func() *call {
	c := &call{answered: make(chan struct{}), err: errors.New("the check before has not returned yet")}
	close(c.answered)
	return c
}()

// current returns a call that is fresh or under way, and begins one where there is none. The caller holds mu.
func (r *Readiness) current(c *check) *call {
	now := r.cfg.Now()
	if last := c.last; last != nil {
		switch {
		case !isDone(last.answered):
			return last
		case !isDone(last.returned):
			return hanging
		case now.Sub(last.begun) < r.cfg.Fresh:
			return last
		}
	}
	c.last = &call{begun: now, answered: make(chan struct{}), returned: make(chan struct{})}
	// The call belongs to everybody who waits for it: it must not end with the request of the one who came first.
	go r.run(c, c.last)
	return c.last
}

// run makes one call.
func (r *Readiness) run(c *check, made *call) {
	ctx, cancel := context.WithTimeout(context.Background(), r.cfg.Timeout)
	defer cancel()
	result := make(chan error, 1)
	go func() {
		err := c.probe(ctx)
		close(made.returned)
		result <- err
	}()
	select {
	case made.err = <-result:
	case <-ctx.Done():
		select { // both may be there, and an answer that came in time counts
		case made.err = <-result:
		default:
			made.err = errors.New("no answer within " + r.cfg.Timeout.String())
		}
	}
	r.note(c, made.err)
	close(made.answered)
}

// note logs the change of a check.
func (r *Readiness) note(c *check, err error) {
	r.mu.Lock()
	changed := c.failing != (err != nil)
	c.failing = err != nil
	r.mu.Unlock()
	switch {
	case changed && err != nil:
		r.cfg.Logger.Warn("not ready", "check", c.name, "error", err)
	case changed:
		r.cfg.Logger.Info("ready again", "check", c.name)
	}
}

// oneLine keeps the reasons of drivers, which may be long and have several lines, readable.
func oneLine(text string) string {
	const most = 300
	line := ""
	for part := range strings.Lines(text) {
		part = strings.Join(strings.Fields(part), " ")
		switch {
		case line == "" || part == "":
			line += part
		case strings.HasSuffix(line, ":"):
			line += " " + part
		default:
			line += "; " + part // errors that were joined, one a line
		}
	}
	if len(line) > most {
		return strings.ToValidUTF8(line[:most], "") + "…"
	}
	return line
}
