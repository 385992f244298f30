package gateway

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/valyala/fasthttp"

	"flashgate/internal/sale"
	"flashgate/internal/strictjson"
	"flashgate/internal/token"
)

const (
	headerKey   = "Idempotency-Key"
	headerTrace = "Traceparent"

	maxKey = 128
)

// wish is what a purchase asks for. It holds no bytes of the request.
type wish struct {
	quantity int64
	keyHash  string
}

// parseWish reads the Idempotency-Key and the body. ok is false with an answer that says what is wrong. A quantity above maxPerUser is not
// wrong in itself: maxPerUser may have been lowered since this very order was made.
func parseWish(ctx *fasthttp.RequestCtx, maxPerUser int64) (w wish, bad answer, ok bool) {
	lines := ctx.Request.Header.PeekAll(headerKey)
	switch {
	case len(lines) == 1 && validKey(lines[0]):
		w.keyHash = sale.HashKey(lines[0])
	case len(lines) > 0:
		return wish{}, answerBadKey, false
	}
	w.quantity = 1
	body := ctx.Request.Body()
	if len(body) == 0 {
		return w, answer{}, true
	}
	var parsed struct {
		Quantity *int64 `json:"quantity"`
	}
	if err := strictjson.Unmarshal(body, &parsed); err != nil {
		return wish{}, badRequest("body: " + err.Error()), false
	}
	if parsed.Quantity != nil {
		w.quantity = *parsed.Quantity
	}
	if w.quantity < 1 {
		return wish{}, badQuantity(maxPerUser), false
	}
	return w, answer{}, true
}

func badQuantity(maxPerUser int64) answer {
	if maxPerUser == 1 {
		return badRequest("body: quantity: must be 1")
	}
	return badRequest(fmt.Sprintf("body: quantity: must be between 1 and %d", maxPerUser))
}

// validKey reports whether key is 1 to 128 visible ASCII characters.
func validKey(key []byte) bool {
	if len(key) < 1 || len(key) > maxKey {
		return false
	}
	for _, c := range key {
		if c < 0x21 || c > 0x7e {
			return false
		}
	}
	return true
}

// bearer returns the token of a request, which is valid until the handler returns. Two Authorization lines are none: which of them counts would be
// a matter of taste, and a proxy in front may have another.
func bearer(ctx *fasthttp.RequestCtx) ([]byte, bool) {
	lines := ctx.Request.Header.PeekAll(fasthttp.HeaderAuthorization)
	if len(lines) != 1 {
		return nil, false
	}
	return token.FromHeader(lines[0])
}

// traceparent returns the W3C trace context of a request, or "" when there is none that version 00 allows.
func traceparent(ctx *fasthttp.RequestCtx) string {
	lines := ctx.Request.Header.PeekAll(headerTrace)
	if len(lines) != 1 || !validTrace(lines[0]) {
		return ""
	}
	return string(lines[0])
}

// validTrace checks 00-TRACE-SPAN-FLAGS in lower-case hexadecimal, with a trace and a span that are not all zeros
// (https://www.w3.org/TR/trace-context/#traceparent-header).
func validTrace(value []byte) bool {
	const length = 2 + 1 + 32 + 1 + 16 + 1 + 2
	if len(value) != length || string(value[:3]) != "00-" || value[35] != '-' || value[52] != '-' {
		return false
	}
	for i, c := range value {
		if i == 2 || i == 35 || i == 52 {
			continue
		}
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return !zeros(value[3:35]) && !zeros(value[36:52])
}

func zeros(digits []byte) bool {
	for _, c := range digits {
		if c != '0' {
			return false
		}
	}
	return true
}

// client returns the address of the client.
func (g *Gateway) client(ctx *fasthttp.RequestCtx) netip.Addr {
	var peer netip.Addr // stays invalid for what is no TCP connection: all of those share one bucket
	if tcp, ok := ctx.RemoteAddr().(*net.TCPAddr); ok {
		peer = tcp.AddrPort().Addr().Unmap()
	}
	return g.ports.Clients.Resolve(peer, ctx.Request.Header.PeekAll(g.ports.Clients.Header()))
}
