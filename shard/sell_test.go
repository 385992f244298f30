package shard

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"flashgate/internal/sale"
)

// crowd lets a thousand buyers at a hundred units, with 1, 4 and 13 shards on each Redis, through two sellers at once, and hands what came of it to judge.
func crowd(t *testing.T, sellers func(l *lab, kafka *broker) [2]seller, judge func(l *lab, layout Layout, kafka *broker, results map[string]sale.Result, err error)) {
	everywhere(t, func(t *testing.T, b backend) {
		for _, k := range []int{1, 4, 13} {
			t.Run(fmt.Sprintf("%d shards", k), func(t *testing.T) {
				l := newLab(t, b)
				layout := Layout{Item: 1001, Shards: k}
				kafka := &broker{}
				both := sellers(l, kafka)
				l.load(l.stock(kafka), layout, 1, 100, nil)

				counts, results := l.buyers(layout, numbered(1, crowdBuyers, 1), 1, both[0], both[1])
				judge(l, layout, kafka, results, soldExactly(counts, 100, crowdBuyers-100))
			})
		}
	})
}

const crowdBuyers = 1000

// A thousand buyers for a hundred units, through two Stocks at once: exactly a hundred get one, and the others are told
// so; afterwards Redis, the broker and the answers agree about who won.
func TestCrowd(t *testing.T) {
	stocks := func(l *lab, kafka *broker) [2]seller { return [2]seller{l.stock(kafka), l.stock(kafka)} }
	crowd(t, stocks, func(l *lab, layout Layout, kafka *broker, results map[string]sale.Result, err error) {
		if err != nil {
			l.Fatal(err)
		}
		l.sold(layout, kafka, results, 100, 0)
	})
}

// naive reads the stock and then takes from it.
type naive struct {
	l    *lab
	read *sync.WaitGroup // everybody has read before anybody takes, as it may happen to any two of them
}

func (n naive) Reserve(_ context.Context, layout Layout, req sale.Request) sale.Result {
	key := keysOf(layout.Item, sale.Home(req.UserID, layout.Shards)).stock
	stock, err := strconv.Atoi(n.l.do("GET", key))
	n.read.Done()
	n.read.Wait()
	if err != nil || stock < 1 {
		return sale.Result{Outcome: sale.NoStock}
	}
	n.l.do("DECR", key)
	return sale.Result{Outcome: sale.Reserved, OrderID: req.OrderID, Acked: closedChannel}
}

// The test of the crowd must be able to fail: the same crowd in front of GET, then DECR.
func TestCrowdCatchesNaiveSeller(t *testing.T) {
	naives := func(l *lab, _ *broker) [2]seller {
		read := new(sync.WaitGroup)
		read.Add(crowdBuyers)
		return [2]seller{naive{l, read}, naive{l, read}}
	}
	crowd(t, naives, func(l *lab, _ Layout, _ *broker, results map[string]sale.Result, err error) {
		if err == nil {
			l.Fatalf("the check takes this for a sale of 100 units: %v", results)
		}
	})
}

// sold checks that the item has given away exactly the units that the results say, and that nothing is under way.
func (l *lab) sold(layout Layout, kafka *broker, results map[string]sale.Result, units, free int64) {
	l.Helper()
	sum := l.rest(layout)
	winners := map[string]sale.OrderID{}
	for user, r := range results {
		if r.Outcome == sale.Reserved {
			winners[user] = r.OrderID
			<-r.Acked
		}
	}
	if sum != (totals{free: free, marks: int64(len(winners))}) {
		l.Errorf("Redis holds %+v, want %d free and %d marks", sum, free, len(winners))
	}
	var published int64
	for _, e := range kafka.seen() {
		if id, ok := winners[e.UserID]; !ok || id != e.OrderID {
			l.Errorf("event of %s for order %s, who was told %+v", e.UserID, e.OrderID, results[e.UserID])
		}
		if e.ItemID != layout.Item || e.Shard != sale.Home(e.UserID, layout.Shards) || e.Epoch != 1 || e.Price != "1980" ||
			e.Currency != "JPY" || e.ReservedAt.IsZero() || e.Trace == "" {
			l.Errorf("event %+v", e)
		}
		published += e.Quantity
	}
	if published != units {
		l.Errorf("%d units published, want %d", published, units)
	}
	for user, id := range winners {
		mark, ok, err := l.reader().Mark(l.ctx, layout, user)
		if err != nil || !ok || mark.OrderID != id {
			l.Errorf("mark of %s: %+v, %v, %v, want order %s", user, mark, ok, err, id)
		}
	}
}

// Twelve buyers for ten units on eight shards: ten get one, wherever their homes are.
func TestNoUnitIsStranded(t *testing.T) {
	crowds := map[string][]string{
		"spread":          numbered(1, 12, 1),
		"same home":       numbered(8, 12, 8),
		"shared low bits": numbered(1<<22, 12, 1<<22), // as generators of ids make them
		"opaque":          {"a1", "b2", "c3", "d4", "e5", "f6", "g7", "h8", "i9", "j10", "k11", "l12"},
	}
	everywhere(t, func(t *testing.T, b backend) {
		for name, users := range crowds {
			t.Run(name, func(t *testing.T) {
				l := newLab(t, b)
				layout := Layout{Item: 7, Shards: 8}
				kafka := &broker{}
				one, two := l.stock(kafka), l.stock(kafka)
				l.load(one, layout, 1, 10, nil)
				counts, results := l.buyers(layout, users, 1, one, two)
				if err := soldExactly(counts, 10, 2); err != nil {
					t.Fatal(err)
				}
				l.sold(layout, kafka, results, 10, 0)
			})
		}
	})
}
