package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/valyala/fasthttp"

	"flashgate/internal/sale"
	"flashgate/internal/strictjson"
)

var (
	errBadUUID          = errors.New("must be a UUID of the form 8-4-4-4-12")
	errBadPaymentStatus = errors.New("must be SUCCEEDED or FAILED")
)

// pay answers POST …/payments, by which the payment provider says how an attempt to pay ended. Nothing in the body is looked at, and nobody asked
// about the order, before the signature is known to be good: without it existing and unknown orders look the same, whatever token comes with the
// request. No limit by address applies; a forged call costs one hash.
func (g *Gateway) pay(ctx *fasthttp.RequestCtx, began time.Time) kind {
	body := ctx.Request.Body()
	if err := checkSignature(g.cfg.PaymentSecret, ctx.Request.Header.PeekAll(headerSignature), body, began); err != nil {
		g.log.warn("payment refused: signature", about{trace: traceparent(ctx)}.with("error", err)...)
		return g.answer(ctx, &answerNoSignature)
	}
	p, err := parsePayment(body)
	if err != nil {
		a := badRequest("body: " + err.Error())
		return g.answer(ctx, &a)
	}
	item, ok := p.OrderID.Item()
	of := about{order: p.OrderID, item: item, trace: traceparent(ctx)}
	if !ok { // it cannot be the id of an order of ours
		g.log.warn("payment for an order that does not exist", of.with("event", p.EventID)...)
		return g.answer(ctx, &answerNoOrder)
	}
	limited, cancel := g.limited(began)
	defer cancel()
	a := g.settle(limited, p, of)
	return g.answer(ctx, &a)
}

// parsePayment reads the body of a payment. It is as strict as the body of a purchase, and refuses members that it does not know as well: a provider
// that begins to say more, such as that the amount is only a part, must not be taken at the half that is understood. The error names the field.
func parsePayment(body []byte) (sale.Payment, error) {
	var parsed struct {
		EventID  *string `json:"eventId"`
		OrderID  *string `json:"orderId"`
		Status   *string `json:"status"`
		Amount   *string `json:"amount"`
		Currency *string `json:"currency"`
	}
	if err := strictjson.Unmarshal(body, &parsed); err != nil {
		return sale.Payment{}, err
	}
	var p sale.Payment
	for _, member := range []struct {
		name string
		text *string
		read func(text string) error
	}{
		{"eventId", parsed.EventID, func(text string) error { p.EventID = text; return sale.CheckEventID(text) }},
		{"orderId", parsed.OrderID, func(text string) (err error) {
			if p.OrderID, err = sale.ParseOrderID(text); err != nil {
				return errBadUUID
			}
			return nil
		}},
		{"status", parsed.Status, func(text string) error {
			if p.Succeeded = text == "SUCCEEDED"; !p.Succeeded && text != "FAILED" {
				return errBadPaymentStatus
			}
			return nil
		}},
		{"amount", parsed.Amount, func(text string) (err error) { p.Amount, err = sale.ParseAmount(text); return err }},
		{"currency", parsed.Currency, func(text string) error { p.Currency = text; return sale.CheckCurrency(text) }},
	} {
		if member.text == nil {
			return sale.Payment{}, fmt.Errorf("%s: is missing", member.name)
		}
		if err := member.read(*member.text); err != nil {
			return sale.Payment{}, fmt.Errorf("%s: %w", member.name, err)
		}
	}
	return p, nil
}

// settle tells the ledger of a payment and words the answer.
//
// An order that the ledger does not know may be on its way there: a buyer has his order id from the 202 on, and the consumer may be behind.
// While that can be so, the provider is told to come again; 404, after which he gives up, needs that nothing of the item is on its way. The
// row may come between the two questions, so that the first one is asked again:
//
//	this request                   consumer
//	pay: no such order
//	                               writes the row
//	unwritten: nothing any more
//	pay: done
func (g *Gateway) settle(ctx context.Context, p sale.Payment, of about) answer {
	done, err := g.recordPayment(ctx, p)
	if err == nil && done.how == PayNoOrder {
		coming, missing := g.unwrittenOrders(ctx, of.item)
		switch {
		case missing != nil:
			g.warnUnlessStopping("payment for an order without a row", of.with("error", missing)...)
			return answerNotWritten
		case coming:
			return answerNotWritten
		}
		done, err = g.recordPayment(ctx, p)
	}
	if err != nil {
		g.warnUnlessStopping("record payment", of.with("event", p.EventID, "error", err)...)
		return answerCannotPay
	}
	switch done.how {
	case PayDone:
		return paid(p.OrderID, done.result)
	case PayNoOrder:
		g.log.warn("payment for an order that does not exist", of.with("event", p.EventID)...)
		return answerNoOrder
	case PayMismatch:
		g.log.warn("payment of another amount or currency than the order's", of.with("event", p.EventID)...)
		return answerAmountMismatch
	case PayEventReused:
		g.log.warn("payment under the id of another event", of.with("event", p.EventID)...)
		return answerEventReused
	}
	g.log.warn("record payment: no such outcome", of.with("event", p.EventID, "outcome", done.how)...)
	return answerCannotPay
}
