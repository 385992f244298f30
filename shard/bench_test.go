package shard

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"flashgate/internal/sale"
)

// benchLayout is loaded with more than any benchmark can take.
func benchLayout(l *lab, s *Stock, k int, free int64) Layout {
	layout := Layout{Item: 1, Shards: k}
	l.load(s, layout, 1, free, nil)
	return layout
}

func benchEverywhere(b *testing.B, run func(b *testing.B, l *lab)) {
	for _, on := range []backend{onReal, onMini} {
		b.Run(on.name, func(b *testing.B) { run(b, newLab(b, on)) })
	}
}

// BenchmarkReserveCall is one reserve script, by the number of users in it. A round is one user, so the numbers compare.
func BenchmarkReserveCall(b *testing.B) {
	benchEverywhere(b, func(b *testing.B, l *lab) {
		for _, won := range []bool{true, false} {
			for _, size := range []int{1, 64, 256} {
				b.Run(fmt.Sprintf("won=%v/users=%d", won, size), func(b *testing.B) {
					s := l.stock(&broker{}, func(c *Config) { c.OutboxLimit = 1 << 40 })
					l.do("FLUSHALL")
					free := int64(0)
					if won {
						free = 1 << 40
					}
					at := lane{benchLayout(l, s, 1, free), 0}
					user := 0
					for b.Loop() {
						// Loop counts one round for a whole call; the metric below is the one to read.
						a := &attempt{lane: at, batch: uuid.NewString(), deadline: time.Now().Add(timeout)}
						for range size {
							user++
							a.waiters = append(a.waiters, &waiter{req: request(at.layout, strconv.Itoa(user), 1, "k")})
						}
						if r, err := s.callReserve(context.Background(), a); err != nil || r.code != "OK" {
							b.Fatalf("%+v, %v", r, err)
						}
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(user), "ns/user")
				})
			}
		}
	})
}

// BenchmarkReserve is the whole way of a reservation, with many users at once, by the most that share a call.
func BenchmarkReserve(b *testing.B) {
	benchEverywhere(b, func(b *testing.B, l *lab) {
		for _, size := range []int{1, 64, 256} {
			b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
				s := l.stock(&broker{}, func(c *Config) { c.BatchSize = size; c.OutboxLimit = 1 << 40; c.QueueLimit = 1 << 20 })
				l.do("FLUSHALL")
				layout := benchLayout(l, s, 4, 1<<40)
				var user atomic.Int64
				b.SetParallelism(256)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						r := s.Reserve(context.Background(), layout, request(layout, strconv.FormatInt(user.Add(1), 10), 1, "k"))
						if r.Outcome != sale.Reserved {
							b.Errorf("%+v", r)
							return
						}
					}
				})
			})
		}
	})
}

// BenchmarkProve is the proof that thirteen shards are empty.
func BenchmarkProve(b *testing.B) {
	benchEverywhere(b, func(b *testing.B, l *lab) {
		s := l.stock(nil)
		layout := benchLayout(l, s, 13, 0)
		for b.Loop() {
			if p, err := s.Prove(context.Background(), layout); err != nil || !p.Empty {
				b.Fatalf("%+v, %v", p, err)
			}
		}
	})
}

// BenchmarkLoad is one shard with many marks.
func BenchmarkLoad(b *testing.B) {
	benchEverywhere(b, func(b *testing.B, l *lab) {
		for _, n := range []int{1000, 100_000} {
			b.Run(fmt.Sprintf("marks=%d", n), func(b *testing.B) {
				s := l.stock(nil)
				l.do("FLUSHALL")
				marks := make(map[string]sale.Mark, n)
				for i := range n {
					marks["user-"+strconv.Itoa(i)] = heldMark(sale.NewOrderID(1))
				}
				token := int64(0)
				for b.Loop() {
					token++
					l.load(s, Layout{1, 1}, token, 1000, marks)
				}
			})
		}
	})
}
