package token

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Which key a token is held against, by what it says and what is there.
func TestKeySetChooses(t *testing.T) {
	static, a, b := newKey(t, ES256), newKey(t, ES256), newKey(t, ES256)
	keys, err := NewKeys(KeyConfig{Secret: testSecret, PublicKeys: publicPEM(t, static)})
	if err != nil {
		t.Fatal(err)
	}
	ja, jb := jwkOf(a, "a"), jwkOf(b, "b")
	type verdicts map[string]Reason // by signer and kid
	for name, c := range map[string]struct {
		set    string
		beside *Keys
		size   int
		want   verdicts
	}{
		"two with ids": {setOf(ja, jb), nil, 2, verdicts{
			"a a": "", "b b": "", "a b": ReasonSignature, "a c": ReasonKey, "a ": ReasonAlgorithm, "static static": ReasonKey,
		}},
		"one with an id": {setOf(ja), nil, 1, verdicts{"a a": "", "a ": "", "b ": ReasonSignature, "a b": ReasonKey}},
		"one without":    {setOf(ja.with("kid", nil)), nil, 1, verdicts{"a ": "", "a a": ReasonKey, "b ": ReasonSignature}},
		"an empty id":    {setOf(ja.with("kid", "")), nil, 1, verdicts{"a ": "", "a a": ReasonKey}},
		"one with, one without": {setOf(ja, jb.with("kid", nil)), nil, 1, verdicts{
			"a a": "", "a ": ReasonAlgorithm, "b ": ReasonAlgorithm, "b b": ReasonKey,
		}},
		"two keys of one id": {setOf(ja, jb.with("kid", "a"), jwkOf(static, "s")), nil, 1, verdicts{
			"a a": ReasonKey, "b a": ReasonKey, "static s": "", "a ": ReasonAlgorithm,
		}},
		"one key twice":       {setOf(ja, ja), nil, 1, verdicts{"a a": "", "a ": ""}},
		"one key, two ids":    {setOf(ja, ja.with("kid", "b"), ja.with("kid", nil)), nil, 1, verdicts{"a a": "", "a b": "", "a ": ""}},
		"an id of two kinds":  {setOf(ja, jwkOf(testKeys()[RS256], "a")), nil, 2, verdicts{"a a": "", "a ": ""}},
		"beside others":       {setOf(ja, jb), keys, 2, verdicts{"a a": "", "b b": "", "a ": ReasonSignature, "static ": "", "static c": "", "static a": ReasonSignature, "a c": ReasonSignature}},
		"one beside others":   {setOf(ja), keys, 1, verdicts{"a a": "", "a ": "", "static ": "", "static c": "", "b ": ReasonSignature}},
		"the same beside":     {setOf(jwkOf(static, "s")), keys, 1, verdicts{"static s": "", "static ": "", "static c": ""}},
		"in an escaped spell": {strings.Replace(setOf(ja), `"kid":"a"`, `"kid":"\u0061"`, 1), nil, 1, verdicts{"a a": ""}},
	} {
		s := newSet(t, KeySetConfig{URL: newSource(t, body(c.set)).URL + "/keys", Beside: c.beside})
		if err := s.Refresh(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if n := s.ring.Load().size; n != c.size {
			t.Errorf("%s: %d keys, want %d", name, n, c.size)
		}
		v := newVerifier(t, Config{Keys: s})
		for which, want := range c.want {
			signer, kid, _ := strings.Cut(which, " ")
			raw := signedAs(t, ES256, kid, map[string]any{"a": a, "b": b, "static": static}[signer])
			if _, err := v.Verify(raw); ReasonOf(err) != want || (err == nil) != (want == "") {
				t.Errorf("%s: signed by %s, kid %q: %v, want %q", name, signer, kid, err, want)
			}
		}
		if c.beside != nil {
			if _, err := v.Verify(signedAs(t, HS256, "a", testSecret)); err != nil {
				t.Errorf("%s: the secret: %v", name, err)
			}
		}
	}
}

// A key of a set is for the algorithm of its kind, whatever a token says.
func TestKeySetPinsTheAlgorithm(t *testing.T) {
	var members []any
	for _, a := range []string{RS256, ES256, EdDSA} {
		members = append(members, jwkOf(testKeys()[a], a))
	}
	s := newSet(t, KeySetConfig{URL: newSource(t, body(setOf(members...))).URL + "/keys"})
	if err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.Algorithms(); !slices.Equal(got, []string{RS256, ES256, EdDSA}) {
		t.Errorf("keys for %v", got)
	}
	v := newVerifier(t, Config{Keys: s})
	for _, claimed := range algorithms {
		for _, kid := range algorithms {
			for _, used := range algorithms {
				raw := signedBySaying(t, used, claimed, kid)
				_, err := v.Verify(raw)
				good := used == claimed && kid == claimed && claimed != HS256
				if good != (err == nil) {
					t.Errorf("signed with %s, says %s, kid %s: %v", used, claimed, kid, err)
				}
			}
		}
	}
	// The text of a public key, which everybody can read, is no secret.
	for _, secret := range []string{string(publicPEM(t, testKeys()[RS256])), jwkOf(testKeys()[RS256], "")["n"].(string)} {
		for _, kid := range []string{"", RS256} {
			if _, err := v.Verify(signedAs(t, HS256, kid, []byte(secret))); err == nil {
				t.Errorf("kid %q: a public key counts as a secret", kid)
			}
		}
	}
}

// Whatever the source answers, the set that was there stays, and the reason is counted.
func TestKeySetStays(t *testing.T) {
	key := newKey(t, ES256)
	good := setOf(jwkOf(key, "a"))
	for name, bad := range badAnswers(setOf(jwkOf(newKey(t, ES256), "b"))) {
		src := newSource(t, bad.answer)
		s := newSet(t, KeySetConfig{URL: src.URL + "/keys"})
		v := newVerifier(t, Config{Keys: s})
		raw := signedAs(t, ES256, "a", key)
		for _, before := range []bool{false, true} {
			if before {
				src.set(body(good))
				if err := s.Refresh(t.Context()); err != nil {
					t.Fatal(err)
				}
				src.set(bad.answer)
			}
			counted := refreshes(s, bad.result)
			f := s.refresh(t.Context())
			if f == nil || f.result != bad.result || !f.reached || refreshes(s, bad.result) != counted+1 {
				t.Errorf("%s, a set before: %v: failed as %+v, want %s, counted %v", name, before, f, bad.result, refreshes(s, bad.result)-counted)
			}
			if _, err := v.Verify(raw); (err == nil) != before {
				t.Errorf("%s, a set before: %v: %v", name, before, err)
			}
			if err := s.Check(t.Context()); (err == nil) != before {
				t.Errorf("%s, a set before: %v: the check says %v", name, before, err)
			}
		}
	}
}

func TestKeySetMetricsAndLog(t *testing.T) {
	now := testNow
	var log bytes.Buffer
	registry := prometheus.NewPedanticRegistry()
	src := newSource(t, status(500))
	s := newSet(t, KeySetConfig{
		URL: src.URL + "/keys?code=S3CRET", Now: func() time.Time { return now }, Registerer: registry,
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	expect := func(what string, keys, age float64) {
		t.Helper()
		if got := value(t, registry, "flashgate_token_jwks_keys"); got != keys {
			t.Errorf("%s: %v keys, want %v", what, got, keys)
		}
		if got := value(t, registry, "flashgate_token_jwks_age_seconds"); got != age {
			t.Errorf("%s: an age of %v, want %v", what, got, age)
		}
	}
	now = now.Add(time.Minute)
	s.refresh(t.Context())
	expect("never fetched", 0, 60)
	private := jwkOf(newKey(t, EdDSA), "c").with("d", "PRIVATEPART")
	a, b := jwkOf(newKey(t, EdDSA), "a"), jwkOf(newKey(t, ES256), "b")
	src.set(body(setOf(a, b, private)))
	s.refresh(t.Context())
	expect("fetched", 2, 0)
	now = now.Add(90 * time.Second)
	expect("later", 2, 90)
	src.set(body(`{"keys":[]}`))
	s.refresh(t.Context())
	expect("failed", 2, 90)
	changes := strings.Count(log.String(), "has changed")
	src.set(body(setOf(a, b, private)))
	s.refresh(t.Context())
	expect("the same again", 2, 0)
	if n := strings.Count(log.String(), "has changed"); n != changes || n != 1 {
		t.Errorf("%d changes are logged:\n%s", n, log.String())
	}
	src.set(body(setOf(b)))
	s.refresh(t.Context())
	expect("one is gone", 1, 0)
	src.Close()
	s.refresh(t.Context())
	for result, want := range map[string]float64{resultOK: 3, resultStatus: 1, resultNoKeys: 1, resultUnreachable: 1, resultMalformed: 0} {
		if got := refreshes(s, result); got != want {
			t.Errorf("%s: counted %v, want %v", result, got, want)
		}
	}
	for _, secret := range []string{"S3CRET", "PRIVATEPART", a["x"].(string), b["x"].(string)} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log holds %s:\n%s", secret, log.String())
		}
	}
	if !strings.Contains(log.String(), "shows a private key to everybody") {
		t.Errorf("no alarm for a published private key:\n%s", log.String())
	}
	if _, err := NewKeySet(KeySetConfig{URL: src.URL, Registerer: registry}); err == nil {
		t.Error("two key sets share one age")
	}
}

// Tokens are verified while the set is replaced: those whose key stays never fail, those whose key comes and goes do
// either.
func TestKeySetIsSafeForConcurrentUse(t *testing.T) {
	stays, comes := newKey(t, EdDSA), newKey(t, EdDSA)
	both, one := setOf(jwkOf(stays, "a"), jwkOf(comes, "b")), setOf(jwkOf(stays, "a"))
	src := newSource(t, body(both))
	s := newSet(t, KeySetConfig{URL: src.URL + "/keys"})
	v := newVerifier(t, Config{Keys: s})
	if err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			a, b := signedAs(t, EdDSA, "a", stays), signedAs(t, EdDSA, "b", comes)
			for {
				select {
				case <-done:
					return
				default:
				}
				if _, err := v.Verify(a); err != nil {
					t.Errorf("a key that stays: %v", err)
				}
				if _, err := v.Verify(b); err != nil && ReasonOf(err) != ReasonKey {
					t.Errorf("a key that comes and goes: %v", err)
				}
				_, _ = s.Algorithms(), s.Check(t.Context())
			}
		})
	}
	for i := range 20 {
		src.set(body([]string{both, one}[i%2]))
		if err := s.Refresh(t.Context()); err != nil {
			t.Error(err)
		}
	}
	close(done)
	wg.Wait()
}

// A token whose key is unknown costs a look into memory, whether somebody listens or not.
func TestKeySetCostsNothing(t *testing.T) {
	key := newKey(t, EdDSA)
	s := newSet(t, KeySetConfig{URL: newSource(t, body(setOf(jwkOf(key, "a")))).URL + "/keys"})
	if err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b", ""} {
		if n := testing.AllocsPerRun(100, func() { s.Key(EdDSA, id); s.Key(ES256, id); s.Key(HS256, id) }); n != 0 {
			t.Errorf("kid %q: %v allocations", id, n)
		}
	}
	// A refusal for its key costs as much as one for its algorithm, with a name more.
	v, static := newVerifier(t, Config{Keys: s}), newVerifier(t, Config{Keys: keysFor(t, HS256)})
	raw := signedAs(t, EdDSA, "b", key)
	cost := func(v *Verifier) float64 { return testing.AllocsPerRun(100, func() { _, _ = v.Verify(raw) }) }
	if a, b := cost(v), cost(static); a != b {
		t.Errorf("refused with a key set: %v allocations, without: %v", a, b)
	}
}

func TestKeySetConfig(t *testing.T) {
	for name, cfg := range map[string]KeySetConfig{
		"no URL":             {},
		"no scheme":          {URL: "id.example/keys"},
		"a file":             {URL: "file:///etc/keys"},
		"no host":            {URL: "https:///keys"},
		"a password":         {URL: "https://user:S3CRET@id.example/keys"},
		"a fragment":         {URL: "https://id.example/keys#S3CRET"},
		"not a URL":          {URL: "https://id.example/%zzS3CRET"},
		"negative cool-down": {URL: "https://id.example/keys", CoolDown: -1},
		"seldom":             {URL: "https://id.example/keys", RefreshEvery: time.Second, CoolDown: 2 * time.Second},
		"negative timeout":   {URL: "https://id.example/keys", Timeout: -1},
	} {
		_, err := NewKeySet(cfg)
		if err == nil || !strings.HasPrefix(err.Error(), "make key set: ") || strings.Contains(err.Error(), "S3CRET") {
			t.Errorf("%s: %v", name, err)
		}
	}
	cfg := KeySetConfig{URL: "https://id.example/keys"}.WithDefaults()
	if err := cfg.Validate(); err != nil || cfg.RefreshEvery != 5*time.Minute || cfg.CoolDown != 30*time.Second || cfg.Timeout != 5*time.Second {
		t.Errorf("%+v, %v", cfg, err)
	}
	s := newSet(t, KeySetConfig{URL: "https://id.example/keys", Beside: keysFor(t, HS256)})
	if got := s.Algorithms(); !slices.Equal(got, []string{HS256}) || s.Check(t.Context()) == nil {
		t.Errorf("before the first set: %v", got)
	}
	if _, err := newVerifier(t, Config{Keys: s}).Verify(signedBy(t, HS256, goodPayload())); err != nil {
		t.Errorf("before the first set the secret does not verify: %v", err)
	}
}
