package token

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

func sleep(d time.Duration) { time.Sleep(d); synctest.Wait() } // within a bubble: virtual

// running starts a key set, and returns when it has fetched for the first time. It ends with the test.
func running(t *testing.T, cfg KeySetConfig) (*KeySet, *Verifier) {
	t.Helper()
	s := newSet(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	synctest.Wait()
	return s, newVerifier(t, Config{Keys: s})
}

// A key is used from the refresh on that finds it, beside the old one, which is refused from the refresh on that does
// not find it any more.
func TestKeySetRotates(t *testing.T) {
	a, b := newKey(t, ES256), newKey(t, ES256)
	ja, jb := jwkOf(a, "a"), jwkOf(b, "b")
	src := newSource(t, body(setOf(ja)))
	synctest.Test(t, func(t *testing.T) {
		_, v := running(t, KeySetConfig{URL: src.URL + "/keys"})
		rawA, rawB := signedAs(t, ES256, "a", a), signedAs(t, ES256, "b", b)
		expect := func(when string, wantA, wantB Reason, downloads int64) {
			t.Helper()
			if n := src.downloads.Load(); n != downloads { // first: the tokens may ask for one more
				t.Errorf("%s: %d downloads, want %d", when, n, downloads)
			}
			if _, err := v.Verify(rawA); ReasonOf(err) != wantA {
				t.Errorf("%s: the old key: %v, want %q", when, err, wantA)
			}
			if _, err := v.Verify(rawB); ReasonOf(err) != wantB {
				t.Errorf("%s: the new key: %v, want %q", when, err, wantB)
			}
		}
		expect("at the start", "", ReasonKey, 1) // and asks for the new one
		src.set(body(setOf(ja, jb)))
		sleep(DefaultCoolDown - 1)
		expect("in the cool-down", "", ReasonKey, 1)
		sleep(1)
		expect("after it", "", "", 2)
		src.set(body(setOf(jb)))
		sleep(DefaultRefreshEvery/2 - 1) // nothing is due before
		expect("published no more", "", "", 2)
		sleep(DefaultRefreshEvery/2 + 1)
		expect("refreshed", ReasonKey, "", 3) // and asks for the old one
		sleep(DefaultCoolDown)
		expect("asked for in vain", ReasonKey, "", 4)
	})
}

// A token signed with a key that has just appeared is refused, and fetches it for the next: nobody waits.
func TestKeySetFetchesWhatTokensName(t *testing.T) {
	a, b := newKey(t, ES256), newKey(t, ES256)
	src := newSource(t, body(setOf(jwkOf(a, "a"))))
	synctest.Test(t, func(t *testing.T) {
		_, v := running(t, KeySetConfig{URL: src.URL + "/keys"})
		sleep(DefaultCoolDown) // long past it
		src.set(body(setOf(jwkOf(a, "a"), jwkOf(b, "b"))))
		raw := signedAs(t, ES256, "b", b)
		begun := time.Now()
		if _, err := v.Verify(raw); ReasonOf(err) != ReasonKey {
			t.Errorf("before the download: %v", err)
		}
		synctest.Wait()
		if _, err := v.Verify(raw); err != nil {
			t.Errorf("after the download: %v", err)
		}
		if !time.Now().Equal(begun) {
			t.Error("the download waited for something")
		}
		// What is not for a set to know asks for nothing.
		sleep(DefaultCoolDown)
		for _, raw := range [][]byte{signedBy(t, HS256, goodPayload()), signedAs(t, HS256, "x", testSecret), []byte("a.b.c"), nil} {
			_, _ = v.Verify(raw)
		}
		sleep(DefaultCoolDown)
		if n := src.downloads.Load(); n != 2 {
			t.Errorf("%d downloads, want 2", n)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Who asks while a download is under way has asked for that one.
func TestKeySetIsAskedMeanwhile(t *testing.T) {
	a, b := newKey(t, EdDSA), newKey(t, EdDSA)
	src := newSource(t, body(setOf(jwkOf(a, "a"))))
	synctest.Test(t, func(t *testing.T) {
		var meanwhile func()
		own := newTransport()
		s, v := running(t, KeySetConfig{URL: src.URL + "/keys", Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			if meanwhile != nil {
				meanwhile()
			}
			return own.RoundTrip(r)
		})})
		sleep(DefaultCoolDown)
		src.set(body(setOf(jwkOf(a, "a"), jwkOf(b, "b"))))
		meanwhile = s.ask
		if _, err := v.Verify(signedAs(t, EdDSA, "b", b)); ReasonOf(err) != ReasonKey {
			t.Errorf("before the download: %v", err)
		}
		sleep(2 * DefaultCoolDown)
		if n := src.downloads.Load(); n != 2 {
			t.Errorf("%d downloads, want 2", n)
		}
	})
}

// Made-up key ids cause one download in a cool-down, whatever the source answers, and good tokens pass all the while.
// A rotation is found all the same.
func TestUnknownKeysAreNoLever(t *testing.T) {
	a, b := newKey(t, EdDSA), newKey(t, EdDSA)
	ja, jb := jwkOf(a, "a"), jwkOf(b, "b")
	answers := badAnswers(setOf(jb))
	for _, seldom := range []string{"a long set", "keys of other uses", "304"} { // one of a kind is enough here
		delete(answers, seldom)
	}
	answers["the same set"] = struct {
		result string
		answer http.HandlerFunc
	}{resultOK, body(setOf(ja))}
	for name, c := range answers {
		for _, good := range []bool{true, false} { // was there a set before?
			src := newSource(t, c.answer)
			if good {
				src.set(body(setOf(ja)))
			}
			name := fmt.Sprintf("%s, a set before: %v", name, good)
			synctest.Test(t, func(t *testing.T) {
				s, v := running(t, KeySetConfig{URL: src.URL + "/keys"})
				if good {
					sleep(DefaultCoolDown)
					src.set(c.answer)
				}
				rawA, rawB := signedAs(t, EdDSA, "a", a), signedAs(t, EdDSA, "b", b)
				flood := func(rounds int, each time.Duration) {
					for i := range rounds {
						sleep(each)
						forged := segment(fmt.Sprintf(`{"alg":"EdDSA","kid":"%d"}`, i)) + "." + segment(goodPayload()) + ".AAAA"
						want := ReasonKey
						if s.Check(t.Context()) != nil {
							want = ReasonPending
						}
						if _, err := v.Verify([]byte(forged)); ReasonOf(err) != want {
							t.Fatalf("%s: forged: %v, want %q", name, err, want)
						}
						if !good || i%10 > 0 {
							continue
						}
						if _, err := v.Verify(rawA); err != nil {
							t.Fatalf("%s: a good token: %v", name, err)
						}
					}
				}
				before := src.downloads.Load()
				if !good {
					before-- // the cool-down began with the first
				}
				flood(1000, 10*time.Millisecond) // 10 s
				if n := src.downloads.Load() - before; n != 1 {
					t.Errorf("%s: %d downloads in 10 s", name, n)
				}
				flood(100, 800*time.Millisecond) // 90 s in all
				if n := src.downloads.Load() - before; n < 3 || n > 4 {
					t.Errorf("%s: %d downloads in 90 s, want one per cool-down", name, n)
				}
				src.set(body(setOf(ja, jb)))
				flood(100, DefaultCoolDown/100)
				for _, raw := range [][]byte{rawA, rawB} {
					if _, err := v.Verify(raw); err != nil {
						t.Errorf("%s: after a rotation: %v", name, err)
					}
				}
			})
		}
	}
}

// A source that answers with a failure is asked again after a cool-down, though nobody asks: without a set there are
// no tokens whose key is missing, as nobody is sent here.
func TestKeySetRecovers(t *testing.T) {
	key := newKey(t, EdDSA)
	src := newSource(t, status(503))
	synctest.Test(t, func(t *testing.T) {
		s, v := running(t, KeySetConfig{URL: src.URL + "/keys"})
		for i := int64(1); i <= 20; i++ {
			if n := src.downloads.Load(); n != i || s.Check(t.Context()) == nil {
				t.Fatalf("%d downloads, want %d", n, i)
			}
			// From a cool-down to one and a half.
			sleep(DefaultCoolDown - 1)
			if n := src.downloads.Load(); n != i {
				t.Fatalf("%d downloads, want %d", n, i)
			}
			for src.downloads.Load() == i {
				sleep(100 * time.Millisecond)
			}
		}
		src.set(body(setOf(jwkOf(key, "a"))))
		sleep(DefaultCoolDown * 3 / 2)
		if _, err := v.Verify(signedAs(t, EdDSA, "a", key)); err != nil || s.Check(t.Context()) != nil {
			t.Errorf("after it has recovered: %v", err)
		}
	})
}

// gate is a network that can be cut.
type gate struct {
	mu    sync.Mutex
	cut   bool
	dials []time.Time
}

func (g *gate) set(cut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cut = cut
}

// dialed is when connections were wanted.
func (g *gate) dialed() []time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.dials)
}

// dial notes a connection that is wanted, and tells whether it may be.
func (g *gate) dial() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dials = append(g.dials, time.Now())
	return !g.cut
}

func (g *gate) transport() *http.Transport {
	tr := newTransport()
	tr.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if !g.dial() {
			return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("no route to host")}
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	return tr
}

// A source that cannot be reached at the start is tried after growing waits, which no token shortens; the keys of the
// configuration verify meanwhile.
func TestKeySetStartsWithoutItsSource(t *testing.T) {
	key := newKey(t, EdDSA)
	src := newSource(t, body(setOf(jwkOf(key, "a"))))
	synctest.Test(t, func(t *testing.T) {
		var g gate
		g.set(true)
		s, v := running(t, KeySetConfig{URL: src.URL + "/keys", Transport: g.transport(), Beside: keysFor(t, HS256)})
		raw := signedAs(t, EdDSA, "a", key)
		for range 180 {
			if _, err := v.Verify(raw); ReasonOf(err) != ReasonPending {
				t.Fatalf("without a set: %v", err)
			}
			if _, err := v.Verify(signed(t, jwt.SigningMethodHS256, []byte("another secret"), `{"alg":"HS256"}`, goodPayload())); ReasonOf(err) != ReasonSignature {
				t.Fatalf("another secret, which no set can hold: %v", err)
			}
			if _, err := v.Verify(signedBy(t, HS256, goodPayload())); err != nil {
				t.Fatalf("the secret: %v", err)
			}
			sleep(time.Second)
		}
		if s.Check(t.Context()) == nil {
			t.Error("it is ready without a set")
		}
		whole := time.Second
		dialed := g.dialed()
		for i := 1; i < len(dialed); i++ {
			if wait := dialed[i].Sub(dialed[i-1]); wait < whole/2 || wait > whole {
				t.Errorf("attempt %d after %v, want %v to %v", i+1, wait, whole/2, whole)
			}
			whole = min(2*whole, DefaultCoolDown)
		}
		if n := len(dialed); n < 9 || n > 18 {
			t.Errorf("%d attempts in 3 minutes", n)
		}
		if n := src.downloads.Load(); n != 0 {
			t.Fatalf("%d downloads over a cut network", n)
		}
		g.set(false)
		sleep(DefaultCoolDown)
		if _, err := v.Verify(raw); err != nil || s.Check(t.Context()) != nil {
			t.Errorf("with the network back: %v", err)
		}
		if _, err := v.Verify(signedAs(t, EdDSA, "b", key)); ReasonOf(err) != ReasonKey {
			t.Errorf("a key that is not in the set: %v", err)
		}
		// Later the set survives an outage of any length, which ends in the same way.
		before := len(g.dialed())
		g.set(true)
		sleep(48 * time.Hour)
		if d := g.dialed()[before:]; d[1].Sub(d[0]) > time.Second {
			t.Errorf("the second outage begins with a wait of %v", d[1].Sub(d[0]))
		}
		if _, err := v.Verify(raw); err != nil || s.Check(t.Context()) != nil {
			t.Errorf("two days without the source: %v", err)
		}
		if age := s.cfg.Now().Sub(*s.fetched.Load()); age < 47*time.Hour {
			t.Errorf("the set of two days ago has an age of %v", age)
		}
	})
}

// The refreshes of many gateways do not meet, and none comes later than promised.
func TestKeySetRefreshesInTime(t *testing.T) {
	src := newSource(t, body(setOf(jwkOf(newKey(t, EdDSA), "a"))))
	synctest.Test(t, func(t *testing.T) {
		var g gate
		running(t, KeySetConfig{URL: src.URL + "/keys", Transport: g.transport()})
		sleep(4 * time.Hour)
		seen := map[time.Duration]bool{}
		dialed := g.dialed()
		for i := 1; i < len(dialed); i++ {
			wait := dialed[i].Sub(dialed[i-1])
			if wait < DefaultRefreshEvery/2 || wait > DefaultRefreshEvery {
				t.Errorf("refreshed after %v", wait)
			}
			seen[wait] = true
		}
		if len(dialed) < 4*12 || len(seen) < len(dialed)/2 {
			t.Errorf("%d refreshes in 4 hours, after %d different waits", len(dialed), len(seen))
		}
	})
}

// Run ends with its context, in whatever it is doing.
func TestKeySetEnds(t *testing.T) {
	hangs := make(chan struct{})
	src := newSource(t, func(_ http.ResponseWriter, r *http.Request) { close(hangs); <-r.Context().Done() })
	s := newSet(t, KeySetConfig{URL: src.URL + "/keys"})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx)
	}()
	<-hangs // in a download
	cancel()
	<-ended
	good := newSource(t, body(setOf(jwkOf(newKey(t, EdDSA), "a"))))
	synctest.Test(t, func(t *testing.T) {
		for name, after := range map[string]time.Duration{"in the cool-down": time.Second, "after it": DefaultCoolDown + time.Second} {
			s := newSet(t, KeySetConfig{URL: good.URL + "/keys"})
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			begun := time.Now()
			s.Run(ctx)
			if ran := time.Since(begun); ran != after {
				t.Errorf("%s: it ran for %v, want %v", name, ran, after)
			}
		}
	})
}
