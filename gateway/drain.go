package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

const (
	// drainHurry is how long, once the gateway drains, a client may take to send the rest of his request, and to take his answer. The former are some
	// hundred bytes that were on their way already, the latter fits into the buffers of any connection that is read from.
	drainHurry = time.Second
	// lastWords is the end of the time for draining, at most a third of it: requests that are still in flight then are told to give up. For
	// three quarters of it they may say so to their clients; in the last one the connections are cut.
	lastWords = time.Second
)

// Shutdown drains: readiness turns false, no connection is accepted, idle ones are closed, and those whose request is incomplete get a
// second to send the rest. Requests in flight are answered and their connections closed, then the loops end. Shortly before ctx ends, what
// is still in flight is told to give up, and its connections are cut, which is no error: clients can be slow for longer than anybody may
// wait for them. An error says that something did not end even so. Calls after the first wait for it and say the same.
func (g *Gateway) Shutdown(ctx context.Context) error {
	g.shutdown.Do(func() { g.ended = g.drain(ctx) })
	return g.ended
}

func (g *Gateway) drain(ctx context.Context) error {
	g.mu.Lock()
	g.draining.Store(true)
	listeners := g.listeners
	g.mu.Unlock()
	g.connections.hurry(time.Now().Add(drainHurry))
	err := g.drainClients(ctx)
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

// drainClients returns when every connection has ended, at the latest with ctx, of which it says so.
func (g *Gateway) drainClients(ctx context.Context) error {
	patience, words := ctx, ctx
	if end, ok := ctx.Deadline(); ok {
		last := min(lastWords, time.Until(end)/3)
		var cancel context.CancelFunc
		patience, cancel = context.WithDeadline(ctx, end.Add(-last))
		defer cancel()
		words, cancel = context.WithDeadline(ctx, end.Add(-last/4))
		defer cancel()
	}
	// It closes idle connections and lets the others end after their answer, for as long as it runs: until the last one has gone.
	serving, over := context.WithCancel(context.WithoutCancel(ctx))
	defer over()
	served := make(chan error, 1)
	go func() { served <- g.server.ShutdownWithContext(serving) }()
	select {
	case err := <-served:
		return unlessClosed(err)
	case <-patience.Done():
	}
	g.stop()
	select {
	case err := <-served:
		return unlessClosed(err)
	case <-words.Done():
	}
	if open := g.connections.list(); len(open) > 0 {
		g.cfg.Logger.Info("the time for draining is up: connections are cut", "connections", len(open))
	}
	g.connections.cut()
	if !g.connections.gone(ctx) {
		return context.Cause(ctx)
	}
	return nil
}

// unlessClosed is the error of a server that was shut down: that its listener was closed already is none.
func unlessClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
