package gateway

import (
	"testing"

	"flashgate/internal/sale"
)

// BenchmarkLook is what those cost who may be winners of a sold-out item, with Redis and a database that answer at once: a winner, and a stranger who
// claims to be one.
func BenchmarkLook(b *testing.B) {
	w, g := flagged(b, 10000)
	winner := w.buyers[7]
	id := sale.NewOrderID(theItem)
	w.change(func() {
		w.marks[winner] = sale.Mark{OrderID: id, Quantity: 1}
		w.rows[id] = sale.Order{ID: id, ItemID: theItem, UserID: winner, Status: sale.Pending}
	})
	for name, raw := range map[string]string{"winner": w.token(b, winner), "forged": w.forged(b, winner)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			c := &pipe{stream: newStream(purchaseOf(raw).raw()), left: b.N}
			if err := g.server.ServeConn(c); err != nil {
				b.Fatal(err)
			}
			w.change(func() { w.charged, w.looks = nil, nil })
		})
	}
}
