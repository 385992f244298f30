package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"flashgate/gateway"
	"flashgate/internal/admin"
	"flashgate/internal/config"
	"flashgate/limiter"
)

// edgeConfig is what a gateway needs beyond the servers.
type edgeConfig struct {
	listen     string
	adminToken string
	auth       config.Auth
	browsers   config.Browsers
	payments   config.Payments
	limits     config.Limits
	proxies    config.Proxies
	timeouts   config.Timeouts
}

// startEdge opens the public listener and makes the admin API. loader loads the stock of new items, and of those that people want to be loaded.
func startEdge(ctx context.Context, l *life, p *parts, cfg edgeConfig, loader adminLoader) (address string, api http.Handler, err error) {
	verifier, err := newVerifier(l, p, cfg.auth)
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
		CORSOrigins: cfg.browsers.CORSOrigins, PaymentSecret: []byte(cfg.payments.PaymentSecret.Reveal()),
		Logger: p.logger, Registerer: p.registry,
	}, gateway.Ports{
		Seller: stockPorts{p.stock}, Zero: stockPorts{p.stock}, Marks: stockPorts{p.stock}, Notices: stockPorts{p.stock},
		Orders: ledgerPorts{p.ledger}, Payments: paymentPorts{p.ledger, p.stock}, Source: ledgerPorts{p.ledger},
		Limits: buckets, Clients: clients, Tokens: verifier, Ready: p.canSell,
	})
	if err != nil {
		return "", nil, err
	}
	desk, err := admin.New(admin.Config{
		Token: cfg.adminToken, Ledger: adminLedger{p.ledger}, Stock: adminStock{p.stock}, Loader: loader, Catalogue: edge,
		Changes: deskLedger{p.ledger}, Orders: deskLedger{p.ledger}, Audit: deskLedger{p.ledger}, Reservations: deskReservations{p.stock},
		Reloader: deskReloader{loader.Loader, p.ledger, p.stock}, DeadLetters: deskLetters{p.admin}, Logger: p.logger, Registerer: p.registry,
	})
	if err != nil {
		return "", nil, err
	}
	l.onStop("the loads that were asked for", desk.Close)
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
	return listener.Addr().String(), desk, nil
}
