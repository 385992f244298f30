package token

import (
	"strings"
	"testing"
	"time"
)

func TestSign(t *testing.T) {
	now := testNow.Add(900 * time.Millisecond)
	for _, cfg := range []SignerConfig{
		{Secret: testSecret},
		{Secret: testSecret, Issuer: "us", Audience: "ours"},
	} {
		signer, err := NewSigner(cfg)
		if err != nil {
			t.Fatal(err)
		}
		clock := now
		v := newVerifier(t, Config{
			Keys: keysFor(t, HS256), Issuer: cfg.Issuer, Audience: cfg.Audience,
			Now: func() time.Time { return clock },
		})
		for _, sub := range []string{"u1", "söb ✓ a:b", `"quoted" <&>`, strings.Repeat("a", MaxSubject)} {
			raw, err := signer.Sign(sub, time.Hour, now)
			if err != nil {
				t.Errorf("%q: %v", sub, err)
				continue
			}
			if claims, err := v.Verify([]byte(raw)); err != nil || claims.Subject != sub {
				t.Errorf("%q verifies as %+v, %v", sub, claims, err)
			}
			if got, ok := PeekSubject([]byte(raw), nil); !ok || string(got) != sub {
				t.Errorf("%q peeks as %q, %v", sub, got, ok)
			}
			clock = now.Add(time.Hour)
			if _, err := v.Verify([]byte(raw)); ReasonOf(err) != ReasonExpired {
				t.Errorf("%q after its hour: %v", sub, err)
			}
			clock = now
		}
	}
}

func TestSignRefuses(t *testing.T) {
	signer, err := NewSigner(SignerConfig{Secret: testSecret})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		sub string
		ttl time.Duration
		now time.Time
	}{
		"no user":        {"", time.Hour, testNow},
		"a long user":    {strings.Repeat("a", 65), time.Hour, testNow},
		"a line break":   {"a\nb", time.Hour, testNow},
		"not UTF-8":      {"\xff", time.Hour, testNow},
		"no life":        {"u1", 0, testNow},
		"a negative one": {"u1", -time.Hour, testNow},
		"half a second":  {"u1", time.Second / 2, testNow},
		"year 10000":     {"u1", time.Hour, time.Unix(maxSeconds, 0)},
		"year 1":         {"u1", time.Hour, time.Time{}},
	} {
		if raw, err := signer.Sign(c.sub, c.ttl, c.now); err == nil || !strings.HasPrefix(err.Error(), "sign token: ") {
			t.Errorf("%s: %q, %v", name, raw, err)
		}
	}
}
