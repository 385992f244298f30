package gateway

import (
	"errors"
	"net"
	"runtime/debug"
	"time"

	"github.com/valyala/fasthttp"

	"flashgate/internal/panics"
)

// handle answers a request. The order of the routes is that of their frequency.
func (g *Gateway) handle(ctx *fasthttp.RequestCtx) {
	began := g.cfg.Now()
	path, query := splitTarget(ctx.Request.Header.RequestURI())
	r, id := match(path)
	k := g.dispatch(ctx, began, r, id, query)
	g.cors.share(ctx, r)
	g.metrics.answered(r, k, g.cfg.Now().Sub(began))
}

// dispatch answers and returns the kind of answer. A panic is answered too: without this it would end the process, and with it every other purchase
// in flight.
func (g *Gateway) dispatch(ctx *fasthttp.RequestCtx, began time.Time, r route, id, query []byte) (k kind) {
	defer func() {
		if p := recover(); p != nil {
			g.log.warn("handle request: panic", "route", routeNames[r], "panic", panics.Text(p), "stack", string(debug.Stack()))
			ctx.Response.Reset()
			k = g.answer(ctx, &answerInternal)
		}
	}()
	if r == routeNone {
		if string(ctx.Request.Header.RequestURI()) == "*" {
			return g.answer(ctx, &answerOptionsServer) // fasthttp lets it come with OPTIONS alone
		}
		return g.answer(ctx, &answerNoRoute)
	}
	for range ctx.Request.Header.Trailers() {
		// fasthttp looks a header up among the trailers too, and a proxy in front looks at the headers alone.
		return g.answer(ctx, &answerTrailers)
	}
	method := ctx.Method()
	switch {
	case string(method) == fasthttp.MethodOptions:
		g.cors.preflight(ctx, r)
		return g.answer(ctx, &answerOptionsFor[r])
	case r < routeLive && !g.opened.Load():
		return g.answer(ctx, &answerStarting)
	case r == routePurchase || r == routePayments:
		if string(method) != fasthttp.MethodPost {
			break
		}
		if r == routePayments {
			return g.pay(ctx, began)
		}
		return g.purchase(ctx, began, id)
	case r == routeOrder && string(method) == fasthttp.MethodDelete:
		return g.cancelOrder(ctx, began, id)
	case string(method) == fasthttp.MethodGet || string(method) == fasthttp.MethodHead:
		return g.read(ctx, began, r, id, query)
	}
	return g.answer(ctx, &answerMethodFor[r])
}

// read answers GET and HEAD; of the latter fasthttp sends the headers alone.
func (g *Gateway) read(ctx *fasthttp.RequestCtx, began time.Time, r route, id, query []byte) kind {
	switch r {
	case routeItem:
		return g.readItem(ctx, began, id)
	case routeOrder:
		return g.readOrder(ctx, began, id)
	case routeOrders:
		return g.findOrder(ctx, began, query)
	case routeReady:
		if !g.ready() {
			return g.answer(ctx, &answerDraining)
		}
		return g.answer(ctx, &answerReady)
	}
	return g.answer(ctx, &answerLive)
}

// answer sends a and returns its kind.
func (g *Gateway) answer(ctx *fasthttp.RequestCtx, a *answer) kind {
	a.send(ctx)
	return a.kind
}

// handleError answers what fasthttp could not read as a request; the connection is closed afterwards.
func (g *Gateway) handleError(ctx *fasthttp.RequestCtx, err error) {
	var (
		small   *fasthttp.ErrSmallBuffer
		timeout net.Error
		a       = &answerBadMessage
	)
	switch {
	case errors.As(err, &small):
		a = &answerHeaderTooLarge
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		a = &answerBodyTooLarge
	case errors.Is(err, fasthttp.ErrTimeout), errors.As(err, &timeout) && timeout.Timeout():
		a = &answerRequestTimeout
		if g.draining.Load() {
			a = &answerDraining // it was this side that had no time
		}
	}
	ctx.Response.Reset()
	a.send(ctx)
	var full *permission
	if c, ok := ctx.Conn().(*connection); ok {
		c.unread.Store(true)
		if small != nil {
			full = c.full
		}
	}
	g.cors.shareUnread(ctx, full)
	g.metrics.count(routeNone, a.kind)
	// The deadline of an earlier answer on this connection may have passed, and there may have been none before.
	_ = ctx.Conn().SetWriteDeadline(time.Now().Add(g.cfg.WriteTimeout))
}
