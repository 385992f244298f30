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

// Gateway is the HTTP edge. New makes it, Serve serves, Open gives it what it needs from others, Start lets its loops run, Shutdown ends all of it.
// Serve may come first: until Open, every route of the API is answered with 503. Its methods are safe for concurrent use.
type Gateway struct {
	cfg     Config
	ports   Ports       // written once, before opened
	opened  atomic.Bool // whoever has seen it set may use ports
	opening atomic.Bool
	metrics *metrics
	log     *throttledLog
	server  *fasthttp.Server
	cors    *cors

	catalogue    *catalogue
	looks        chan struct{} // one place per winner being looked up
	tooManyLooks chan struct{} // one place per user being looked up who asks for too many
	checks       chan struct{} // one place per look at whether an order has ended
	answeredAt   atomic.Int64  // when the database last answered the catalogue or a look-up, in Unix nanoseconds
	proofs       chan struct{} // one place per item being proven empty again
	redis        callee
	database     callee

	base     context.Context // the life of the gateway: everything that runs for it hangs on this, requests too
	stop     context.CancelFunc
	start    sync.Once
	running  sync.WaitGroup // loops and proofs
	shutdown sync.Once
	ended    error

	mu          sync.Mutex
	draining    atomic.Bool // changes once, under mu
	stopped     bool        // nothing may be spawned any more
	listeners   []net.Listener
	openConns   atomic.Int64
	connections connections
	refusal     []byte
}

// New makes a gateway. It starts nothing and asks nobody.
func New(cfg Config) (*Gateway, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("make gateway: %w", err)
	}
	g := &Gateway{
		cfg:          cfg,
		log:          newThrottledLog(cfg.Logger, cfg.Now),
		cors:         newCORS(cfg.CORSOrigins),
		catalogue:    newCatalogue(),
		looks:        make(chan struct{}, cfg.MaxLooks),
		tooManyLooks: make(chan struct{}, cfg.MaxLooks),
		checks:       make(chan struct{}, maxChecks),
		proofs:       make(chan struct{}, maxProofs),
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

// Open gives the gateway what it needs from others, once. From then on requests are answered by it.
func (g *Gateway) Open(ports Ports) error {
	if err := ports.validate(); err != nil {
		return fmt.Errorf("open gateway: %w", err)
	}
	if !g.opening.CompareAndSwap(false, true) {
		return errors.New("open gateway: it is open already")
	}
	g.ports = ports
	g.opened.Store(true)
	return nil
}

// Start reads the catalogue and lets the loops run that keep it and the flags true. It comes after Open, and returns when the catalogue was
// read or ctx has ended; an error means that it was not read, and the gateway goes on trying. Until it succeeds purchases are answered with
// 503.
func (g *Gateway) Start(ctx context.Context) error {
	if !g.opened.Load() {
		return errors.New("start gateway: it is not open")
	}
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
		Listener:    ln,
		limit:       int64(g.cfg.MaxConns),
		open:        &g.openConns,
		connections: &g.connections,
		refused:     g.metrics.refusedConns.Inc,
		log:         g.cfg.Logger,
		ctx:         g.base,
		refusal:     g.refusal,
		lingering:   make(chan struct{}, maxLingering),
		spawn:       g.spawn,

		cors:       g.cors,
		readBuffer: g.cfg.MaxHeader,
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
func (g *Gateway) connState(conn net.Conn, state fasthttp.ConnState) {
	if c, ok := conn.(*connection); ok && state == fasthttp.StateClosed {
		g.connections.remove(c)
		g.openConns.Add(-1)
	}
}
