package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"flashgate/internal/config"
	"flashgate/internal/ops"
)

// operators is what a process shows on its admin listener.
type operators struct {
	registry *prometheus.Registry
	ready    *ops.Readiness
	server   *ops.Server
	admin    atomic.Pointer[http.Handler] // nil on a role without an admin API
	started  atomic.Bool
}

// listenForOperators opens the admin listener. A role that will have an admin API says so from the first moment on: "there is none" would tell a
// machine that calls it to give up.
func listenForOperators(l *life, logger *slog.Logger, cfg config.Admin, api bool) (*operators, error) {
	o := &operators{registry: ops.NewRegistry(), ready: ops.NewReadiness(ops.ReadinessConfig{Logger: logger})}
	o.ready.Add("start", func(context.Context) error {
		if !o.started.Load() {
			return errors.New("it is still starting")
		}
		return nil
	})
	if api {
		o.admin.Store(unavailable("the process is still starting"))
	}
	var err error
	o.server, err = ops.Listen(ops.Config{
		Addr: cfg.AdminListen, Token: cfg.AdminToken.Reveal(), Readiness: o.ready, Gatherer: o.registry, Admin: http.HandlerFunc(o.serveAdmin), Logger: logger,
	})
	if err != nil {
		return nil, fmt.Errorf("listen on FLASHGATE_ADMIN_LISTEN: %w", err)
	}
	l.onStop("the admin listener", o.server.Shutdown)
	go func() {
		<-o.server.Done()
		if err := o.server.Err(); err != nil {
			l.fail(fmt.Errorf("serve the admin listener: %w", err))
		}
	}()
	return o, nil
}

func (o *operators) address() string { return o.server.Addr() }

// setAdmin puts the admin API into service, until the life ends: what it works with is taken from it then.
func (o *operators) setAdmin(l *life, api http.Handler) {
	o.admin.Store(&api)
	l.onStop("the admin API", func(context.Context) error {
		o.admin.Store(unavailable("the process is stopping"))
		return nil
	})
}

// unavailable answers everything with 503, for a reason that passes.
func unavailable(reason string) *http.Handler {
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		ops.WriteError(w, http.StatusServiceUnavailable, ops.CodeUnavailable, reason)
	})
	return &h
}

// serveAdmin answers for the admin API: not found on roles that have none.
func (o *operators) serveAdmin(w http.ResponseWriter, r *http.Request) {
	if api := o.admin.Load(); api != nil {
		(*api).ServeHTTP(w, r)
		return
	}
	ops.WriteError(w, http.StatusNotFound, ops.CodeNotFound, "there is no admin API here")
}
