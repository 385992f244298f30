package token

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// SignerConfig says how tokens are made, so that a Verifier with the same secret,
// issuer and audience accepts them.
type SignerConfig struct {
	Secret           []byte // HS256 key, at least MinSecret bytes
	Issuer, Audience string // left out of the token where empty
}

// Signer makes HS256 tokens. Immutable, safe for concurrent use.
type Signer struct{ cfg SignerConfig }

// NewSigner makes a signer.
func NewSigner(cfg SignerConfig) (*Signer, error) {
	if err := checkSecret(cfg.Secret); err != nil {
		return nil, fmt.Errorf("make token signer: secret: %w", err)
	}
	cfg.Secret = bytes.Clone(cfg.Secret)
	return &Signer{cfg: cfg}, nil
}

// Sign makes a token for the user sub, issued now and good for ttl, which is at least
// a second: tokens count in whole ones, rounded down.
func (s *Signer) Sign(sub string, ttl time.Duration, now time.Time) (string, error) {
	if !validSubject([]byte(sub)) {
		return "", fmt.Errorf("sign token: the user must be 1 to %d bytes of UTF-8 without control characters", MaxSubject)
	}
	expires := now.Add(ttl)
	if ttl < time.Second || expires.Unix() > maxSeconds {
		return "", fmt.Errorf("sign token: it must live for at least 1s and not beyond the year 9999, not for %v", ttl)
	}
	if now.Unix() < 0 {
		return "", errors.New("sign token: the clock is before 1970")
	}
	claims := jwt.RegisteredClaims{
		Subject:   sub,
		Issuer:    s.cfg.Issuer,
		IssuedAt:  jwt.NewNumericDate(now),
		ExpiresAt: jwt.NewNumericDate(expires),
	}
	if s.cfg.Audience != "" {
		claims.Audience = jwt.ClaimStrings{s.cfg.Audience}
	}
	signed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(s.cfg.Secret)
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	return signed, nil
}
