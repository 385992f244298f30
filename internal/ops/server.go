package ops

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 15 * time.Second
	writeTimeout      = 45 * time.Second // longer than any answer of the admin API takes; profiles extend it themselves
	idleTimeout       = time.Minute
	scrapeTimeout     = 10 * time.Second
	maxHeaderBytes    = 16 << 10
)

// Config says what an admin listener shows.
type Config struct {
	// Addr is the address to listen on, host:port. Port 0 takes a free one.
	Addr string
	// Token guards /debug/pprof/. Empty: nobody may ask for profiles.
	Token string
	// Readiness answers /readyz. Required.
	Readiness *Readiness
	// Gatherer has the metrics. Required; see NewRegistry.
	Gatherer prometheus.Gatherer
	// Admin serves /admin and what is below it; it guards itself. Nil where a role has no admin API.
	Admin http.Handler
	// Logger is told what goes wrong. Default: nobody is.
	Logger *slog.Logger
}

// WithDefaults returns cfg with the defaults filled in.
func (cfg Config) WithDefaults() Config {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return cfg
}

// Validate reports what is missing.
func (cfg Config) Validate() error {
	switch {
	case cfg.Addr == "":
		return errors.New("the address is missing")
	case cfg.Readiness == nil:
		return errors.New("the readiness is missing")
	case cfg.Gatherer == nil:
		return errors.New("the metrics are missing")
	}
	return nil
}

// NewRegistry returns a registry of metrics with those of the Go runtime and of the process.
func NewRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// Server is an admin listener. It is safe for concurrent use.
type Server struct {
	http     *http.Server
	listener net.Listener
	done     chan struct{} // closed when serving has ended
	err      error         // why, if not by Shutdown; read after done

	stop    sync.Once
	stopErr error
}

// Listen opens an admin listener and serves it until Shutdown.
func Listen(cfg Config) (*Server, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("open admin listener: %w", err)
	}
	listener, err := net.Listen("tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("open admin listener: %w", err)
	}
	s := &Server{
		http: &http.Server{
			Handler:           cfg.handler(),
			ReadHeaderTimeout: readHeaderTimeout,
			ReadTimeout:       readTimeout,
			WriteTimeout:      writeTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeaderBytes,
			// "OPTIONS *" is answered like every other path that is none.
			DisableGeneralOptionsHandler: true,
			ErrorLog:                     slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelWarn),
		},
		listener: listener,
		done:     make(chan struct{}),
	}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.err = fmt.Errorf("serve admin listener: %w", err)
		}
	}()
	return s, nil
}

// Addr returns the address of the listener, with the port that was taken.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Done is closed when the server serves no more, by Shutdown or because of the error that Err returns.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err returns why the server stopped by itself, nil after Shutdown. It may be called after Done is closed.
func (s *Server) Err() error {
	<-s.done
	return s.err
}

// Shutdown stops listening, waits for requests in flight and, when ctx ends before they do, cuts them off. It may be called any number of times,
// and returns when nothing is served any more.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop.Do(func() {
		if err := s.http.Shutdown(ctx); err != nil {
			_ = s.http.Close()
			s.stopErr = fmt.Errorf("stop admin listener: requests were cut off: %w", err)
		}
	})
	<-s.done
	return s.stopErr
}

// promLog passes what the metrics handler has to complain about on to slog.
type promLog struct{ log *slog.Logger }

// Println implements promhttp.Logger.
func (l promLog) Println(v ...any) { l.log.Warn("collect metrics: " + fmt.Sprint(v...)) }
