package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"flashgate/gateway"
	"flashgate/internal/admin"
	"flashgate/internal/config"
	"flashgate/internal/token"
	"flashgate/limiter"
)

// edgeConfig is what a gateway needs beyond the servers.
type edgeConfig struct {
	listen     string
	adminToken string
	auth       config.Auth
	limits     config.Limits
	proxies    config.Proxies
	timeouts   config.Timeouts
}

// startEdge opens the public listener and makes the admin API. loader loads the stock of new items.
func startEdge(ctx context.Context, l *life, p *parts, cfg edgeConfig, loader admin.Loader) (address string, api http.Handler, err error) {
	verifier, err := newVerifier(cfg.auth)
	if err != nil {
		return "", nil, err
	}
	buckets, err := newLimits(cfg.limits.RateUser, cfg.limits.RateIP, cfg.limits.RateRead)
	if err != nil {
		return "", nil, fmt.Errorf("make the limits: %w", err)
	}
	clients, err := limiter.NewResolver(limiter.ResolverConfig{Trusted: cfg.proxies.TrustedProxies, Header: cfg.proxies.ClientIPHeader})
	if err != nil {
		return "", nil, fmt.Errorf("set up trusted proxies: %w", err)
	}
	edge, err := gateway.New(gateway.Config{
		RequestTimeout: cfg.timeouts.Request, PublishTimeout: cfg.timeouts.PublishTimeout(), RecordDeadline: cfg.timeouts.RecordDeadline,
		Logger: p.logger, Registerer: p.registry,
	}, gateway.Ports{
		Seller: stockPorts{p.stock}, Zero: stockPorts{p.stock}, Marks: stockPorts{p.stock}, Notices: stockPorts{p.stock},
		Orders: ledgerPorts{p.ledger}, Source: ledgerPorts{p.ledger}, Limits: buckets, Clients: clients, Tokens: verifier, Ready: p.canSell,
	})
	if err != nil {
		return "", nil, err
	}
	api, err = admin.New(admin.Config{
		Token: cfg.adminToken, Ledger: adminLedger{p.ledger}, Stock: adminStock{p.stock}, Loader: loader, Catalogue: edge, Logger: p.logger, Registerer: p.registry,
	})
	if err != nil {
		return "", nil, err
	}
	p.ready.Add("catalogue", edge.Check)
	listener, err := net.Listen("tcp", cfg.listen)
	if err != nil {
		return "", nil, fmt.Errorf("listen on FLASHGATE_LISTEN: %w", err)
	}
	l.onStop("the gateway", edge.Shutdown)
	starting, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := edge.Start(starting); err != nil {
		p.logger.Warn("the catalogue is not read yet", "error", err)
	}
	go func() {
		if err := edge.Serve(listener); err != nil {
			l.fail(fmt.Errorf("serve the public edge: %w", err))
		}
	}()
	return listener.Addr().String(), api, nil
}

// newVerifier reads the keys of the configuration.
func newVerifier(auth config.Auth) (*token.Verifier, error) {
	keys := token.KeyConfig{Secret: []byte(auth.JWTSecret.Reveal())}
	if auth.JWTPublicKeyFile != "" {
		pem, err := os.ReadFile(auth.JWTPublicKeyFile)
		if err != nil {
			return nil, &config.Error{Name: "FLASHGATE_JWT_PUBLIC_KEY_FILE", Value: auth.JWTPublicKeyFile, Problem: err.Error()}
		}
		keys.PublicKeys = pem
	}
	known, err := token.NewKeys(keys)
	if err != nil && keys.PublicKeys != nil {
		return nil, &config.Error{Name: "FLASHGATE_JWT_PUBLIC_KEY_FILE", Value: auth.JWTPublicKeyFile, Problem: err.Error()}
	}
	if err != nil {
		return nil, fmt.Errorf("read the keys of tokens: %w", err)
	}
	return token.NewVerifier(token.Config{Keys: known, Issuer: auth.JWTIssuer, Audience: auth.JWTAudience, Leeway: auth.JWTLeeway})
}
