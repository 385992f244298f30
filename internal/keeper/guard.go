package keeper

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"flashgate/internal/panics"
)

// guard runs work. A panic in it, which would be a fault of the program at one item, is logged and counted and ends there: the sale of
// everything else goes on.
func (m *metrics) guard(ctx context.Context, log *slog.Logger, loop string, work func()) {
	defer func() {
		if fault := recover(); fault != nil {
			m.panics.WithLabelValues(loop).Inc()
			log.ErrorContext(ctx, "keeper: caught a panic", "loop", loop, "panic", panics.Text(fault), "stack", string(debug.Stack()))
		}
	}()
	work()
}

// seldom lets what repeats itself with every round through once a minute.
type seldom struct {
	now func() time.Time

	mu   sync.Mutex
	last map[any]time.Time
}

const (
	seldomEvery = time.Minute
	// seldomKeys bounds what is remembered; then all of it is forgotten, and things are said once more.
	seldomKeys = 10_000
)

func newSeldom(now func() time.Time) *seldom {
	return &seldom{now: now, last: make(map[any]time.Time)}
}

// say reports whether what key stands for may be said now.
func (s *seldom) say(key any) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if last, ok := s.last[key]; ok && now.Sub(last) < seldomEvery {
		return false
	}
	if len(s.last) >= seldomKeys {
		clear(s.last)
	}
	s.last[key] = now
	return true
}
