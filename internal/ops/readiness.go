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
	answer   *reading // the newest one, perhaps still being made
	known    *reading // the newest complete one; nil before the first
}

type check struct {
	name  string
	probe func(context.Context) error

	// Guarded by Readiness.mu.
	last    *call // the newest
	failing bool
}

// call is one call of a probe.
type call struct {
	begun time.Time
	done  chan struct{} // closed when err is filled in
	err   error
}

func isDone(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// reading is one answer for all who asked while it was made or fresh.
type reading struct {
	done    chan struct{} // closed when missing is filled in
	at      time.Time     // when it was begun
	missing []Missing
}

// NewReadiness returns a Readiness without checks, which is ready.
func NewReadiness(cfg ReadinessConfig) *Readiness {
	return &Readiness{cfg: cfg.WithDefaults()}
}

// Add adds a check. probe returns nil, or what is missing; it gets a context that ends with the timeout and is not called again before it has
// returned. A check that is added later counts from the next reading on.
func (r *Readiness) Add(name string, probe func(context.Context) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checks = append(r.checks, &check{name: name, probe: probe})
	r.answer, r.known = nil, nil
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
	r.mu.Lock()
	if r.draining {
		r.mu.Unlock()
		return []Missing{{Check: "shutdown", Reason: "the process is stopping"}}
	}
	answer := r.newest()
	r.mu.Unlock()
	select {
	case <-answer.done:
		return answer.missing
	case <-ctx.Done():
		return []Missing{{Check: "readiness", Reason: "was not found out in time"}}
	}
}

// Ready reports whether nothing is missing, without waiting: it answers from the newest reading that is complete, and begins another one when
// that is no longer fresh. Before the first is complete it answers no. Whoever calls it once in a while, as every probe does, gets an answer
// as old as his last call.
func (r *Readiness) Ready() bool { return r.ReadyBut() }

// ReadyBut is Ready for somebody who can do without some of the checks.
func (r *Readiness) ReadyBut(checks ...string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.draining {
		return false
	}
	r.newest()
	return r.known != nil && !slices.ContainsFunc(r.known.missing, func(m Missing) bool { return !slices.Contains(checks, m.Check) })
}

// newest returns a reading that is fresh or still being made, and begins one where there is none. The caller holds mu.
func (r *Readiness) newest() *reading {
	if r.answer == nil || isDone(r.answer.done) && r.cfg.Now().Sub(r.answer.at) >= r.cfg.Fresh {
		r.answer = &reading{done: make(chan struct{}), at: r.cfg.Now()}
		// The reading belongs to everybody who waits for it: it must not end with the request of the one who came first.
		go r.read(r.answer, slices.Clone(r.checks))
	}
	return r.answer
}

// read makes one reading.
func (r *Readiness) read(answer *reading, checks []*check) {
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		// A reading that was begun before a check was added says nothing about that check.
		if r.answer == answer {
			r.known = answer
		}
		close(answer.done)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), r.cfg.Timeout)
	defer cancel()
	calls := make([]*call, len(checks))
	for i, c := range checks {
		calls[i] = r.start(ctx, c)
	}
	for i, c := range checks {
		err := errHangs
		if calls[i] != nil {
			select {
			case <-calls[i].done:
			case <-ctx.Done():
			}
			// Both may be there, and an answer that came in time counts.
			if isDone(calls[i].done) {
				err = calls[i].err
			} else {
				err = errors.New("no answer within " + r.cfg.Timeout.String())
			}
		}
		if err != nil {
			answer.missing = append(answer.missing, Missing{Check: c.name, Reason: oneLine(err.Error())})
		}
		r.note(c, err)
	}
}

var errHangs = errors.New("the check before has not returned yet")

// start calls a probe. A call that a reading just before has begun serves this one, too. One that has outlived its timeout does not heed it: nil,
// and no further call, as a probe that never returns must cost one goroutine, not one per reading.
func (r *Readiness) start(ctx context.Context, c *check) *call {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.cfg.Now()
	if c.last != nil && !isDone(c.last.done) {
		if now.Sub(c.last.begun) >= r.cfg.Timeout {
			return nil
		}
		return c.last
	}
	started := &call{begun: now, done: make(chan struct{})}
	c.last = started
	go func() {
		defer close(started.done)
		started.err = c.probe(ctx)
	}()
	return started
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
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
