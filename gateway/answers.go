package gateway

import (
	"time"

	"flashgate/internal/sale"
)

// The answers that are the same for everybody, built once.
var (
	answerSoldOut = refusal(kindSoldOut, "every unit is sold", nil)
	answerEnded   = refusal(kindSaleEnded, "the sale has ended", nil)
	answerPaused  = refusal(kindSalePaused, "the sale is paused", nil)

	answerNoRoute = refusal(kindNotFound, "there is nothing under this path", nil)
	answerNoItem  = refusal(kindNotFound, "there is no such item", nil)
	answerNoOrder = refusal(kindNotFound, "there is no such order", nil)

	answerBadItemID  = refusal(kindBadRequest, "item id: "+sale.ErrBadID.Error(), nil)
	answerBadOrderID = refusal(kindBadRequest, "order id: must be a UUID of the form 8-4-4-4-12", nil)
	answerBadQuery   = refusal(kindBadRequest, "itemId: must be given once, as a plain decimal between 1 and 9007199254740991", nil)
	answerTrailers   = refusal(kindBadRequest, "trailers are not accepted", nil)
	answerBadMessage = refusal(kindBadRequest, "this is not a well-formed HTTP request", nil)

	answerNoToken     = unauthorized("a valid bearer token is required", `Bearer realm="flashgate"`)
	answerBadToken    = unauthorized("a valid bearer token is required", `Bearer realm="flashgate", error="invalid_token"`)
	answerNoSignature = unauthorized("a valid Flashgate-Signature is required, at most five minutes off", `Flashgate-Signature realm="flashgate"`)

	answerRateLimited    = refusal(kindRateLimited, "too many requests", nil)
	answerKeyReused      = refusal(kindKeyReused, "this Idempotency-Key was used with another quantity", nil)
	answerAmountMismatch = refusal(kindAmountMismatch, "amount or currency is not what the order costs", nil)
	answerEventReused    = refusal(kindEventReused, "this eventId came with another payload before", nil)

	answerBodyTooLarge   = refusal(kindBodyTooLarge, "the body is too large", nil)
	answerHeaderTooLarge = refusal(kindHeaderTooLarge, "the request line and headers are too large", nil)
	answerRequestTimeout = refusal(kindRequestTimeout, "the request took too long to arrive", nil)
	answerInternal       = refusal(kindInternal, "something went wrong here", nil)
	answerWarmingUp      = refusal(kindWarmingUp, "the stock is being loaded", nil)
	answerQueueFull      = refusal(kindOverloaded, "too many purchases are waiting", nil)
	answerUnavailable    = refusal(kindUnavailable, "this cannot be answered at the moment", nil)
	answerNoCatalogue    = refusal(kindUnavailable, "the catalogue has not been read yet", nil)
	answerStarting       = refusal(kindUnavailable, "this gateway is still starting", nil)
	answerDraining       = refusal(kindUnavailable, "this gateway is not ready", nil)
	answerNoKeys         = refusal(kindUnavailable, "tokens like this one cannot be checked at the moment", nil)
	answerUnitsReturning = refusal(kindUnavailable, "your last order here has ended and its units are on their way back: try again", nil)
	answerUnreadable     = refusal(kindUnavailable, "the order cannot be looked up at the moment", nil)
	answerCannotCancel   = refusal(kindUnavailable, "the order cannot be cancelled at the moment", nil)
	answerCannotPay      = refusal(kindUnavailable, "the payment cannot be recorded at the moment: send the event again", nil)
	answerNotWritten     = refusal(kindUnavailable, "the order may not be in the database yet: send the event again", nil)
	answerLive           = answer{kind: kindOK, body: []byte(`{"status":"ok"}`)}
	answerReady          = answer{kind: kindOK, body: []byte(`{"status":"ready"}`)}
	answerNoRoom         = refusal(kindOverloaded, "too many connections are open", nil)
	answerBadKey         = refusal(kindBadRequest, "Idempotency-Key: must be given once, as 1 to 128 visible ASCII characters", nil)
	answerMethodFor      = methodAnswers()
	answerOptionsFor     = optionsAnswers()
	answerOptionsServer  = answer{kind: kindNoContent, allow: []byte("GET, HEAD, POST, DELETE, OPTIONS")}
)

// notStarted is the answer before the start of a sale.
func notStarted(startsAt time.Time) answer {
	extra := appendTime([]byte(`,"startsAt":`), startsAt)
	return refusal(kindNotStarted, "the sale has not started", extra)
}

// accepted is the answer to a purchase that stands.
func accepted(id sale.OrderID) answer {
	body := id.AppendTo([]byte(`{"orderId":"`))
	body = append(body, `","status":"PENDING"}`...)
	return answer{kind: kindAccepted, body: body, location: id.AppendTo([]byte(ordersPath + "/"))}
}

// alreadyPurchased is the answer to a user who holds units.
func alreadyPurchased(id sale.OrderID) answer {
	return refusal(kindAlreadyPurchased, "you have an order here already", orderIDMember(id))
}

// outcomeUnknown is the answer when nobody can say whether the units were taken.
func outcomeUnknown(id sale.OrderID) answer {
	return refusal(kindOutcomeUnknown, "it is not known whether the order was made: ask for it, or repeat with the same Idempotency-Key", orderIDMember(id))
}

// insufficient is the answer when fewer units are left than were asked for.
func insufficient(available int64) answer {
	return refusal(kindInsufficientStock, "fewer units are left than asked for", appendInt([]byte(`,"available":`), available))
}

// notCancellable is the answer to a wish to cancel an order that is paid or has ended in another way.
func notCancellable(status sale.OrderStatus) answer {
	extra := append([]byte(`,"status":"`), status...)
	return refusal(kindNotCancellable, "only a pending order can be cancelled", append(extra, '"'))
}

// paid is the answer to a payment that is recorded.
func paid(id sale.OrderID, result sale.PaymentResult) answer {
	body := id.AppendTo([]byte(`{"orderId":"`))
	body = appendString(append(body, `","status":`...), string(result.Status))
	body = appendBool(append(body, `,"refundDue":`...), result.RefundDue)
	return answer{kind: kindOK, body: append(body, '}')}
}

// unauthorized is a 401 with the challenge that it must have (RFC 9110, section 15.5.2).
func unauthorized(message, challenge string) answer {
	a := refusal(kindUnauthorized, message, nil)
	a.challenge = []byte(challenge)
	return a
}

// badRequest is a 400 that says what is wrong.
func badRequest(message string) answer { return refusal(kindBadRequest, message, nil) }

// rateLimited is a 429 that says when to come back.
func rateLimited(after time.Duration) answer {
	a := answerRateLimited
	a.retryAfter = retrySeconds(after)
	return a
}

func methodAnswers() (list [routes]answer) {
	for r := range list {
		list[r] = refusal(kindMethodNotAllowed, "this method is not allowed here", nil)
		list[r].allow = []byte(allowed[r])
	}
	return list
}

func optionsAnswers() (list [routes]answer) {
	for r := range list {
		list[r] = answer{kind: kindNoContent, allow: []byte(allowed[r])}
	}
	return list
}
