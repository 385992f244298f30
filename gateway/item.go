package gateway

import (
	"time"

	"github.com/valyala/fasthttp"

	"flashgate/internal/sale"
)

// readItem answers GET …/items/{id}, out of memory. It may be cached for a second by whoever stands in front.
func (g *Gateway) readItem(ctx *fasthttp.RequestCtx, now time.Time, idText []byte) kind {
	e, bad := g.item(idText)
	if bad != nil {
		return g.answer(ctx, bad)
	}
	status := e.item.StatusAt(now)
	if status == sale.OnSale {
		if _, soldOut := e.state.flag.soldOut(now); soldOut {
			status = sale.SoldOut
		}
	}
	a := answer{kind: kindOK, body: appendItem(nil, &e.item, status, now), cache: cacheItem}
	return g.answer(ctx, &a)
}

func appendItem(dst []byte, it *sale.Item, status sale.Status, now time.Time) []byte {
	dst = appendInt(append(dst, `{"itemId":`...), it.ID)
	dst = appendInt(append(dst, `,"saleId":`...), it.SaleID)
	dst = appendString(append(dst, `,"status":`...), string(status))
	dst = appendTime(append(dst, `,"startsAt":`...), it.StartsAt)
	dst = appendTime(append(dst, `,"endsAt":`...), it.EndsAt)
	dst = appendString(append(dst, `,"price":`...), string(it.Price))
	dst = appendString(append(dst, `,"currency":`...), it.Currency)
	dst = appendInt(append(dst, `,"maxPerUser":`...), it.MaxPerUser)
	dst = appendTime(append(dst, `,"serverTime":`...), now)
	return append(dst, '}')
}
