package ledger

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"flashgate/internal/sale"
)

// BenchmarkWrite stores orders of one item, one per transaction against many. The numbers of interest are per order.
func BenchmarkWrite(b *testing.B) {
	for _, size := range []int{1, 64, 1000} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			l := newLab(b)
			item := l.item(sale.MaxQuantity)
			orders := 0
			for b.Loop() {
				events := make([]sale.Event, size)
				for i := range events {
					events[i] = reserved(item, strconv.Itoa(orders))
					orders++
				}
				if _, err := l.Write(b.Context(), events); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed())/float64(orders)/float64(time.Microsecond), "µs/order")
			b.ReportMetric(float64(orders)/b.Elapsed().Seconds(), "orders/s")
		})
	}
}

// BenchmarkRedelivery meets a thousand events whose rows are there, as after a consumer was killed.
func BenchmarkRedelivery(b *testing.B) {
	l := newLab(b)
	item := l.item(sale.MaxQuantity)
	events := make([]sale.Event, 1000)
	for i := range events {
		events[i] = reserved(item, strconv.Itoa(i))
	}
	l.write(events...)
	for b.Loop() {
		if w := l.write(events...); w[0] != Redelivered {
			b.Fatal(w[0])
		}
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/1000/float64(time.Microsecond), "µs/order")
}
