package gateway

import (
	"strconv"
	"time"

	"github.com/valyala/fasthttp"
)

// kind names an answer: its status and, for an error, the code that clients act on. Metrics count by kind.
type kind uint8

// The kinds of answers.
const (
	kindOK kind = iota
	kindAccepted
	kindNoContent
	kindBadRequest
	kindUnauthorized
	kindNotStarted
	kindSalePaused
	kindNotFound
	kindMethodNotAllowed
	kindRequestTimeout
	kindAlreadyPurchased
	kindInsufficientStock
	kindNotCancellable
	kindSoldOut
	kindSaleEnded
	kindBodyTooLarge
	kindKeyReused
	kindAmountMismatch
	kindEventReused
	kindRateLimited
	kindHeaderTooLarge
	kindInternal
	kindWarmingUp
	kindOverloaded
	kindUnavailable
	kindOutcomeUnknown
	kinds // their number
)

// kindInfo is what a kind says on the wire.
type kindInfo struct {
	status int
	code   string // empty for a success
}

var kindInfos = [kinds]kindInfo{
	kindOK:                {200, ""},
	kindAccepted:          {202, ""},
	kindNoContent:         {204, ""},
	kindBadRequest:        {400, "BAD_REQUEST"},
	kindUnauthorized:      {401, "UNAUTHORIZED"},
	kindNotStarted:        {403, "NOT_STARTED"},
	kindSalePaused:        {403, "SALE_PAUSED"},
	kindNotFound:          {404, "NOT_FOUND"},
	kindMethodNotAllowed:  {405, "METHOD_NOT_ALLOWED"},
	kindRequestTimeout:    {408, "REQUEST_TIMEOUT"},
	kindAlreadyPurchased:  {409, "ALREADY_PURCHASED"},
	kindInsufficientStock: {409, "INSUFFICIENT_STOCK"},
	kindNotCancellable:    {409, "NOT_CANCELLABLE"},
	kindSoldOut:           {410, "SOLD_OUT"},
	kindSaleEnded:         {410, "SALE_ENDED"},
	kindBodyTooLarge:      {413, "BODY_TOO_LARGE"},
	kindKeyReused:         {422, "KEY_REUSED"},
	kindAmountMismatch:    {422, "AMOUNT_MISMATCH"},
	kindEventReused:       {422, "EVENT_REUSED"},
	kindRateLimited:       {429, "RATE_LIMITED"},
	kindHeaderTooLarge:    {431, "HEADER_TOO_LARGE"},
	kindInternal:          {500, "INTERNAL"},
	kindWarmingUp:         {503, "WARMING_UP"},
	kindOverloaded:        {503, "OVERLOADED"},
	kindUnavailable:       {503, "UNAVAILABLE"},
	kindOutcomeUnknown:    {503, "OUTCOME_UNKNOWN"},
}

// Values of Cache-Control. Everything is no-store but what a CDN shall take off the gateway's back: a 410 or a 404 that a cache remembers would keep
// a restocked or new item shut.
var (
	cacheNothing = []byte("no-store")
	cacheItem    = []byte("public, max-age=1")
)

// answer is a whole answer but for the headers that are the same for all. It is immutable once it is sent.
type answer struct {
	kind       kind
	body       []byte
	cache      []byte // Cache-Control; nil: no-store
	retryAfter []byte
	location   []byte
	allow      []byte
	challenge  []byte // WWW-Authenticate, of every 401
}

var (
	contentTypeJSON  = []byte("application/json")
	nameCache        = []byte(fasthttp.HeaderCacheControl)
	nameRetryAfter   = []byte(fasthttp.HeaderRetryAfter)
	nameLocation     = []byte(fasthttp.HeaderLocation)
	nameAllow        = []byte(fasthttp.HeaderAllow)
	nameAuthenticate = []byte(fasthttp.HeaderWWWAuthenticate)
)

// send writes the answer into the response of ctx. It does not allocate; the body is sent from where it is.
func (a *answer) send(ctx *fasthttp.RequestCtx) {
	response := &ctx.Response
	response.SetStatusCode(kindInfos[a.kind].status)
	header := &response.Header
	if len(a.body) > 0 {
		header.SetContentTypeBytes(contentTypeJSON)
		response.SetBodyRaw(a.body)
	}
	cache := a.cache
	if cache == nil {
		cache = cacheNothing
	}
	header.SetCanonical(nameCache, cache)
	if a.retryAfter != nil {
		header.SetCanonical(nameRetryAfter, a.retryAfter)
	}
	if a.location != nil {
		header.SetCanonical(nameLocation, a.location)
	}
	if a.allow != nil {
		header.SetCanonical(nameAllow, a.allow)
	}
	if a.challenge != nil {
		header.SetCanonical(nameAuthenticate, a.challenge)
	}
}

// refusal builds an error answer. extra is further members, each beginning with a comma, or nil.
func refusal(k kind, message string, extra []byte) answer {
	body := append([]byte(`{"error":"`), kindInfos[k].code...)
	body = append(body, `","message":`...)
	body = appendString(body, message)
	body = append(body, extra...)
	body = append(body, '}')
	a := answer{kind: k, body: body}
	if status := kindInfos[k].status; status == fasthttp.StatusTooManyRequests || status == fasthttp.StatusServiceUnavailable {
		a.retryAfter = oneSecond
	}
	return a
}

var oneSecond = []byte("1")

// retrySeconds is a Retry-After for a wait of d: whole seconds, rounded up, at least one.
func retrySeconds(d time.Duration) []byte {
	if d <= time.Second {
		return oneSecond
	}
	return strconv.AppendInt(nil, int64((d+time.Second-1)/time.Second), 10)
}
