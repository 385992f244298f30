package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"flashgate/internal/config"
	"flashgate/internal/token"
)

// staticKeys reads the keys of the configuration, nil where there are none beside a key set. Its errors name the setting.
func staticKeys(auth config.Auth) (*token.Keys, error) {
	var keys token.KeyConfig
	if auth.JWTSecret.IsSet() {
		keys.Secret = []byte(auth.JWTSecret.Reveal())
		if _, err := token.NewKeys(token.KeyConfig{Secret: keys.Secret}); err != nil {
			return nil, &config.Error{Name: "FLASHGATE_JWT_SECRET", Problem: err.Error()}
		}
	}
	if auth.JWTPublicKeyFile != "" {
		pem, err := os.ReadFile(auth.JWTPublicKeyFile)
		if err == nil {
			keys.PublicKeys = pem
			_, err = token.NewKeys(token.KeyConfig{PublicKeys: pem})
		}
		if err != nil {
			return nil, &config.Error{Name: "FLASHGATE_JWT_PUBLIC_KEY_FILE", Value: auth.JWTPublicKeyFile, Problem: err.Error()}
		}
	}
	if keys.Secret == nil && keys.PublicKeys == nil {
		return nil, nil
	}
	known, err := token.NewKeys(keys)
	if err != nil {
		return nil, fmt.Errorf("read the keys of tokens: %w", err)
	}
	return known, nil
}

// newVerifier makes what checks the tokens of shoppers. A key set is kept up to date in the background until the role stops; until it was read
// for the first time the process is not ready.
func newVerifier(l *life, p *parts, auth config.Auth) (*token.Verifier, error) {
	static, err := staticKeys(auth)
	if err != nil {
		return nil, err
	}
	cfg := token.Config{Keys: static, Issuer: auth.JWTIssuer, Audience: auth.JWTAudience, Leeway: auth.JWTLeeway, Registerer: p.registry}
	if auth.JWKSURL != "" {
		set, err := token.NewKeySet(token.KeySetConfig{URL: auth.JWKSURL, Beside: static, Logger: p.logger, Registerer: p.registry})
		if err != nil {
			return nil, &config.Error{Name: "FLASHGATE_JWT_JWKS_URL", Problem: err.Error()}
		}
		p.ready.Add("jwks", set.Check)
		l.background("the key set", func(ctx context.Context) error {
			set.Run(ctx)
			return nil
		})
		cfg.Keys = set
	}
	return token.NewVerifier(cfg)
}

// checkKeys reads the keys of tokens as a gateway does, the key set too, and says which there are.
func checkKeys(ctx context.Context, auth config.Auth) (string, error) {
	static, err := staticKeys(auth)
	if err != nil {
		return "", err
	}
	var found []string
	if static != nil {
		found = append(found, "keys of the configuration for "+strings.Join(static.Algorithms(), ", "))
	}
	if auth.JWKSURL != "" {
		set, err := token.NewKeySet(token.KeySetConfig{URL: auth.JWKSURL})
		if err == nil {
			err = set.Refresh(ctx)
		}
		if err != nil {
			return "", fmt.Errorf("FLASHGATE_JWT_JWKS_URL: %w", err)
		}
		found = append(found, "a key set for "+strings.Join(set.Algorithms(), ", "))
	}
	return strings.Join(found, "; "), nil
}
