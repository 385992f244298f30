package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"flashgate/gateway"
	"flashgate/internal/admin"
	"flashgate/internal/broker"
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

// drainShare is the part of the time that is left for stopping that the gateway may drain for. The rest is for what was accepted: events on their way to
// the broker, and writes to the database.
const drainShare = 2.0 / 3

// edge is a gateway on its public listener.
type edge struct {
	gateway  *gateway.Gateway
	settings edgeConfig
	address  string
	once     sync.Once
}

// listenForShoppers opens the public listener. Until the edge is opened, everybody who comes is told to come again; where nobody listened, a balancer and
// the shoppers behind it would take the outage that a start has to wait for, for the end of this gateway.
func listenForShoppers(l *life, logger *slog.Logger, registry *prometheus.Registry, cfg edgeConfig) (*edge, error) {
	made, err := gateway.New(gateway.Config{
		RequestTimeout: cfg.timeouts.Request, PublishTimeout: cfg.timeouts.PublishTimeout(), RecordDeadline: cfg.timeouts.RecordDeadline,
		MaxConns: maxConns(logger), CORSOrigins: cfg.browsers.CORSOrigins, PaymentSecret: []byte(cfg.payments.PaymentSecret.Reveal()),
		Logger: logger, Registerer: registry,
	})
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", cfg.listen)
	if err != nil {
		return nil, fmt.Errorf("listen on FLASHGATE_LISTEN: %w", err)
	}
	e := &edge{gateway: made, settings: cfg, address: listener.Addr().String()}
	l.onStopWithin(drainShare, "the public listener", e.stop)
	go func() {
		if err := made.Serve(listener); err != nil {
			l.fail(fmt.Errorf("serve the public edge: %w", err))
		}
	}()
	return e, nil
}

// open lets the edge sell what the parts have, and makes the admin API. loader loads the stock of new items, and of those that people want to be loaded.
func (e *edge) open(ctx context.Context, l *life, p *parts, loader adminLoader) (api http.Handler, err error) {
	cfg := e.settings
	verifier, err := newVerifier(l, p, cfg.auth)
	if err != nil {
		return nil, err
	}
	buckets, err := newLimits(cfg.limits.RateUser, cfg.limits.RateIP, cfg.limits.RateRead)
	if err != nil {
		return nil, fmt.Errorf("make the limits: %w", err)
	}
	clients, err := limiter.NewResolver(limiter.ResolverConfig{Trusted: cfg.proxies.TrustedProxies, Header: cfg.proxies.ClientIPHeader})
	if err != nil {
		return nil, fmt.Errorf("set up trusted proxies: %w", err)
	}
	reloader := deskReloader{loader.Loader, p.ledger, p.stock}
	reconciler, err := newDeskReconciler(reloader)
	if err != nil {
		return nil, err
	}
	desk, err := admin.New(admin.Config{
		Token: cfg.adminToken, Ledger: adminLedger{p.ledger}, Stock: adminStock{p.stock}, Loader: loader, Catalogue: e.gateway,
		Changes: deskLedger{p.ledger}, Orders: deskLedger{p.ledger}, Audit: deskLedger{p.ledger}, Reservations: deskReservations{p.stock},
		Reloader: reloader, Reconciler: reconciler, DeadLetters: deskLetters{p.admin, p.producer, p.ledger, replayStep},
		LetterReasons: broker.Reasons(), Logger: p.logger, Registerer: p.registry,
	})
	if err != nil {
		return nil, err
	}
	l.onStop("the loads that were asked for", desk.Close)
	p.ready.Add("catalogue", e.gateway.Check)
	l.background("the first look at what is there", p.noticeReady)
	// Once more, and this time it counts: what the gateway sells with was started after its listener, and has to end after it.
	l.onStopWithin(drainShare, "the gateway", e.stop)
	if err := e.gateway.Open(gateway.Ports{
		Seller: stockPorts{p.stock}, Zero: stockPorts{p.stock}, Marks: stockPorts{p.stock}, Notices: stockPorts{p.stock},
		Orders: ledgerPorts{p.ledger}, Payments: newPaymentPorts(p.ledger, p.stock), Source: ledgerPorts{p.ledger},
		Limits: buckets, Clients: clients, Tokens: verifier, Ready: p.canSell,
	}); err != nil {
		return nil, err
	}
	starting, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := e.gateway.Start(starting); err != nil {
		p.logger.Warn("the catalogue is not read yet", "error", err)
	}
	return desk, nil
}

// stop drains the gateway, the first time.
func (e *edge) stop(ctx context.Context) (err error) {
	e.once.Do(func() { err = e.gateway.Shutdown(ctx) })
	return err
}

// startEdge opens the public listener of a role whose servers are all there.
func startEdge(ctx context.Context, l *life, p *parts, cfg edgeConfig, loader adminLoader) (address string, api http.Handler, err error) {
	e, err := listenForShoppers(l, p.logger, p.registry, cfg)
	if err != nil {
		return "", nil, err
	}
	if api, err = e.open(ctx, l, p, loader); err != nil {
		return "", nil, err
	}
	return e.address, api, nil
}
