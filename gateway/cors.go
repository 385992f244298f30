package gateway

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/valyala/fasthttp"
)

// anyOrigin stands for every origin.
const anyOrigin = "*"

// preflightAge is how long a browser may keep the answer to a preflight, in seconds. Browsers have limits of their own, from five seconds to a day.
const preflightAge = "600"

// cors lets pages of other origins call the public API (https://fetch.spec.whatwg.org/#http-cors-protocol). Requests are answered as ever, whoever
// asks: a browser shows a page the answer only where this says that it may. Credentials are not allowed to any of them: the API knows no cookies, and
// a token is a header that a page sets itself. A nil *cors says nothing.
type cors struct {
	origins map[string][]byte // each under itself, as it is sent back
	any     bool
	alone   []byte // what may be granted without knowing who asks: * or the only origin; nil if there are several
}

// newCORS makes what origins, which were checked, ask for; nil without any.
func newCORS(origins []string) *cors {
	if len(origins) == 0 {
		return nil
	}
	c := &cors{origins: make(map[string][]byte, len(origins)), any: origins[0] == anyOrigin}
	for _, origin := range origins {
		c.origins[origin] = []byte(origin)
	}
	if len(origins) == 1 {
		c.alone = []byte(origins[0])
	}
	return c
}

var (
	nameVary          = []byte(fasthttp.HeaderVary)
	nameAllowOrigin   = []byte(fasthttp.HeaderAccessControlAllowOrigin)
	nameExpose        = []byte(fasthttp.HeaderAccessControlExposeHeaders)
	nameAllowMethods  = []byte(fasthttp.HeaderAccessControlAllowMethods)
	nameAllowHeaders  = []byte(fasthttp.HeaderAccessControlAllowHeaders)
	nameMaxAge        = []byte(fasthttp.HeaderAccessControlMaxAge)
	valueVary         = []byte(fasthttp.HeaderOrigin)
	valueAny          = []byte(anyOrigin)
	valueExpose       = []byte("Location, Retry-After")
	valueAllowHeaders = []byte("Authorization, Content-Type, Idempotency-Key, Traceparent")
	valueMaxAge       = []byte(preflightAge)
)

// browsersCall reports whether pages have business at a route: all but the payment provider's.
func browsersCall(r route) bool { return r != routePayments }

// share says in an answer that was built who may read it. Vary is there whether the origin is listed or not, and whether there is one or not: a cache
// that kept the answer to another origin, or to none, would hand out the wrong permission. It does not allocate.
func (c *cors) share(ctx *fasthttp.RequestCtx, r route) {
	if c != nil && browsersCall(r) {
		c.grant(ctx, c.allowed(ctx.Request.Header.PeekAll(fasthttp.HeaderOrigin)))
	}
}

// grant writes who may read an answer: origin, or nobody if it is nil.
func (c *cors) grant(ctx *fasthttp.RequestCtx, origin []byte) {
	header := &ctx.Response.Header
	header.SetCanonical(nameVary, valueVary)
	if origin != nil {
		header.SetCanonical(nameAllowOrigin, origin)
		header.SetCanonical(nameExpose, valueExpose)
	}
}

// allowed returns the origin that may read the answer to a request with these Origin lines, or nil. Origins are compared byte by byte, as
// browsers write them.
func (c *cors) allowed(lines [][]byte) []byte {
	if c.any {
		return valueAny
	}
	if len(lines) != 1 {
		return nil
	}
	return c.origins[string(lines[0])]
}

// preflight adds to the answer to an OPTIONS request what a browser wants to know before it sends one that is not simple.
func (c *cors) preflight(ctx *fasthttp.RequestCtx, r route) {
	request := &ctx.Request.Header
	if c == nil || !browsersCall(r) || len(request.Peek(fasthttp.HeaderOrigin)) == 0 || len(request.Peek(fasthttp.HeaderAccessControlRequestMethod)) == 0 {
		return
	}
	if c.allowed(request.PeekAll(fasthttp.HeaderOrigin)) == nil {
		return
	}
	header := &ctx.Response.Header
	header.SetCanonical(nameAllowMethods, preflightMethods[r])
	header.SetCanonical(nameAllowHeaders, valueAllowHeaders)
	header.SetCanonical(nameMaxAge, valueMaxAge)
}

// preflightMethods are the methods of a route but for the one that asks for them.
var preflightMethods = func() (list [routes][]byte) {
	for r := range list {
		list[r] = []byte(strings.TrimSuffix(allowed[r], ", OPTIONS"))
	}
	return list
}()

// checkOrigins says what is wrong with the origins of a configuration: one that no browser ever sends would be a page that never works.
func checkOrigins(origins []string) error {
	for _, origin := range origins {
		if origin == anyOrigin {
			if len(origins) > 1 {
				return errors.New("CORSOrigins must be * alone, or origins without *")
			}
			return nil
		}
		if !isOrigin(origin) {
			return fmt.Errorf("CORSOrigins must hold origins as browsers send them, such as https://shop.example, in lower case, "+
				"without path or the scheme's own port, not %q", origin)
		}
	}
	return nil
}

// isOrigin reports whether text is an origin as browsers serialize it. The opaque origin, null, is none: every sandboxed page has it.
func isOrigin(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" || u.Hostname() == "" || u.User != nil || text != u.Scheme+"://"+u.Host || strings.HasSuffix(u.Host, ":") {
		return false
	}
	for _, c := range []byte(text) {
		if c <= ' ' || c > '~' || c == '*' || (c >= 'A' && c <= 'Z') {
			return false
		}
	}
	return (u.Scheme != "http" || u.Port() != "80") && (u.Scheme != "https" || u.Port() != "443")
}
