package token

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"flashgate/internal/pause"
)

// firstRetry is the wait after the first attempt in which the source could not be reached.
const firstRetry = time.Second

// Run fetches the set, and again whenever it is due, until ctx ends. It starts no goroutine that outlives it. Call it
// once.
func (s *KeySet) Run(ctx context.Context) {
	retry := pause.Steps{First: min(firstRetry, s.cfg.CoolDown), Longest: s.cfg.CoolDown}
	for unreachable := 0; ; {
		f := s.refresh(ctx)
		if ctx.Err() != nil {
			return
		}
		if f != nil && !f.reached {
			// Nobody was bothered, so this is no download in the sense of the cool-down. What tokens ask for
			// changes nothing: the next attempt is near.
			unreachable++
			if !pause.For(ctx, retry.After(unreachable)) {
				return
			}
			continue
		}
		unreachable = 0
		next := pause.Jitter(s.cfg.RefreshEvery)
		if f != nil {
			next = s.cfg.CoolDown + pause.Jitter(s.cfg.CoolDown/2)
		}
		if !pause.For(ctx, s.cfg.CoolDown) || !s.await(ctx, next-s.cfg.CoolDown) {
			return
		}
	}
}

// await waits for d, or until a token has asked. Asking while the cool-down lasted counts: the channel remembers it.
func (s *KeySet) await(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.asked:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// Refresh fetches the set now, whatever the cool-down says: for a look at the source, from the shell for example. An
// error says why the set was not replaced, and holds nothing of it.
func (s *KeySet) Refresh(ctx context.Context) error {
	f := s.refresh(ctx)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("fetch key set from %s: %w", s.source, context.Cause(ctx))
	case f != nil:
		return fmt.Errorf("fetch key set from %s: %w", s.source, f.reason)
	}
	return nil
}

// refresh makes one attempt, and counts it unless ctx ended.
func (s *KeySet) refresh(ctx context.Context) *failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, f := s.download(ctx)
	if f == nil {
		f = s.replace(text)
	}
	// Those who have asked until now asked for what has just been fetched. If one of them is still missing, its next
	// token asks again.
	select {
	case <-s.asked:
	default:
	}
	switch {
	case ctx.Err() != nil && f != nil: // not the source's failure
	case f != nil:
		s.metrics.refreshes.WithLabelValues(f.result).Inc()
		s.cfg.Logger.Warn("the key set for tokens was not fetched, the keys stay as they are",
			"source", s.source, "result", f.result, "error", f.reason, "keys", s.ring.Load().size)
	default:
		s.metrics.refreshes.WithLabelValues(resultOK).Inc()
	}
	return f
}

// replace makes the keys of a text those that tokens are held against. The caller holds mu.
func (s *KeySet) replace(text []byte) *failure {
	hash := sha256.Sum256(text)
	if !s.ready.Load() || hash != s.last {
		keys, out, err := parseKeySet(text)
		if err != nil {
			return &failure{result: resultMalformed, reached: true, reason: err}
		}
		ring, more := newKeyring(keys, s.static)
		out = append(out, more...)
		if ring.size == 0 {
			return &failure{result: resultNoKeys, reached: true, reason: noKeys(out)}
		}
		s.ring.Store(ring)
		s.last = hash
		s.metrics.keys.Set(float64(ring.size))
		s.logChange(ring, out)
	}
	now := s.cfg.Now()
	s.fetched.Store(&now)
	s.ready.Store(true)
	return nil
}

func (s *KeySet) logChange(ring *keyring, out []ignored) {
	s.cfg.Logger.Info("the key set for tokens has changed",
		"source", s.source, "keys", ring.size, "ignored", len(out), "because", firstOf(out))
	for _, i := range out {
		if errors.Is(i.reason, errPrivate) {
			s.cfg.Logger.Warn("the key set for tokens shows a private key to everybody; the provider must replace that key",
				"source", s.source, "key", i.number)
		}
	}
}

// noKeys is the reason to keep the old set.
func noKeys(out []ignored) error {
	if len(out) == 0 {
		return errors.New("it is empty")
	}
	return fmt.Errorf("it holds %d keys, and none that could be used: %v", len(out), firstOf(out))
}

// firstOf bounds what is written of a set with many strange keys.
func firstOf(out []ignored) []ignored { return out[:min(len(out), 8)] }
