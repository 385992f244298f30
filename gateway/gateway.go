package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/valyala/fasthttp"
)

// Gateway is the HTTP edge. New makes it, Start lets its loops run, Serve serves, Shutdown ends all of it. Its methods are safe for concurrent use.
type Gateway struct {
	cfg     Config
	ports   Ports
	metrics *metrics
	log     *throttledLog
	server  *fasthttp.Server
	cors    *cors

	catalogue *catalogue
	looks     chan struct{} // one place per possible winner being looked up
	proofs    chan struct{} // one place per item being proven empty again

	base     context.Context // the life of the gateway: everything that runs for it hangs on this, requests too
	stop     context.CancelFunc
	start    sync.Once
	running  sync.WaitGroup // loops and proofs
	shutdown sync.Once
	ended    error

	mu        sync.Mutex
	draining  atomic.Bool // changes once, under mu
	stopped   bool        // nothing may be spawned any more
	listeners []net.Listener
	conns     atomic.Int64
	refusal   []byte
}

// New makes a gateway. It starts nothing and asks nobody.
func New(cfg Config, ports Ports) (*Gateway, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("make gateway: %w", err)
	}
	if err := ports.validate(); err != nil {
		return nil, fmt.Errorf("make gateway: %w", err)
	}
	g := &Gateway{
		cfg:       cfg,
		ports:     ports,
		log:       newThrottledLog(cfg.Logger, cfg.Now),
		cors:      newCORS(cfg.CORSOrigins),
		catalogue: newCatalogue(),
		looks:     make(chan struct{}, cfg.MaxLooks),
		proofs:    make(chan struct{}, maxProofs),
	}
	g.refusal = refusalBytes(&answerNoRoom, g.cors.beforeReading())
	g.base, g.stop = context.WithCancel(context.Background())
	m, err := newMetrics(cfg.Registerer, g)
	if err != nil {
		g.stop()
		return nil, fmt.Errorf("make gateway: %w", err)
	}
	g.metrics = m
	g.server = &fasthttp.Server{
		Handler:      g.handle,
		ErrorHandler: g.handleError,
		ConnState:    g.connState,
		Logger:       serverLog{cfg.Logger},
		// The listener keeps the limit; a place in fasthttp's pool of workers is free again a moment after the connection is closed.
		Concurrency:                   2*cfg.MaxConns + 64,
		ReadBufferSize:                cfg.MaxHeader,
		WriteBufferSize:               writeBuffer,
		MaxRequestBodySize:            cfg.MaxBody,
		ReadTimeout:                   cfg.ReadTimeout,
		WriteTimeout:                  cfg.WriteTimeout,
		IdleTimeout:                   cfg.IdleTimeout,
		NoDefaultServerHeader:         true,
		NoDefaultContentType:          true,
		CloseOnShutdown:               true,
		SecureErrorLogMessage:         true,
		DisablePreParseMultipartForm:  true,
		DisableHeaderNamesNormalizing: false,
	}
	return g, nil
}

// writeBuffer holds the largest answer with its headers.
const writeBuffer = 2 << 10

// Start reads the catalogue and lets the loops run that keep it and the flags true. It returns when the catalogue was read or ctx has ended;
// an error means that it was not read, and the gateway goes on trying. Until it succeeds purchases are answered with 503.
func (g *Gateway) Start(ctx context.Context) error {
	g.start.Do(func() {
		g.spawn(g.catalogueLoop)
		g.spawn(g.watchSource)
		g.spawn(g.watchNotices)
		g.spawn(g.reproveLoop)
		g.spawn(g.endedLoop)
	})
	return g.Refresh(ctx)
}

// spawn runs a part of the gateway that Shutdown waits for; false means that it is too late for that.
func (g *Gateway) spawn(run func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return false
	}
	g.running.Go(run)
	return true
}

// Serve serves connections from ln until Shutdown, which makes it return nil. It closes ln.
func (g *Gateway) Serve(ln net.Listener) error {
	wrapped := &listener{
		Listener: ln,
		limit:    int64(g.cfg.MaxConns),
		open:     &g.conns,
		refused:  g.metrics.refusedConns.Inc,
		log:      g.cfg.Logger,
		ctx:      g.base,
		refusal:  g.refusal,
		farewell: make(chan struct{}, maxFarewells),
		spawn:    g.spawn,
	}
	g.mu.Lock()
	if g.draining.Load() {
		g.mu.Unlock()
		return ln.Close()
	}
	g.listeners = append(g.listeners, ln)
	g.mu.Unlock()
	if err := g.server.Serve(wrapped); err != nil {
		return fmt.Errorf("serve %s: %w", ln.Addr(), err)
	}
	return nil
}

// connState counts down what listener.Accept has counted up.
func (g *Gateway) connState(_ net.Conn, state fasthttp.ConnState) {
	if state == fasthttp.StateClosed {
		g.conns.Add(-1)
	}
}

// Shutdown drains: readiness turns false, no connection is accepted, requests in flight are answered and their connections closed, then the loops
// end. An error says that ctx ended first; what was still running then has been told to give up. Calls after the first wait for it and say the same.
func (g *Gateway) Shutdown(ctx context.Context) error {
	g.shutdown.Do(func() { g.ended = g.drain(ctx) })
	return g.ended
}

func (g *Gateway) drain(ctx context.Context) error {
	g.mu.Lock()
	g.draining.Store(true)
	listeners := g.listeners
	g.mu.Unlock()

	err := g.server.ShutdownWithContext(ctx)
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	// A Serve that was just starting may have come to fasthttp too late to be stopped by it: without its listener it ends.
	for _, ln := range listeners {
		_ = ln.Close()
	}
	g.stop()
	g.mu.Lock()
	g.stopped = true // a request that outlived ctx must not add to what is being waited for
	g.mu.Unlock()
	done := make(chan struct{})
	go func() {
		g.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		err = errors.Join(err, ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("drain gateway: %w", err)
	}
	return nil
}
