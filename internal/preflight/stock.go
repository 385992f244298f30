package preflight

import (
	"context"
	"fmt"
	"time"

	"flashgate/internal/invariant"
	"flashgate/internal/sale"
	"flashgate/shard"
)

// items looks at every item that is on sale or will be.
func (f *flight) items(ctx context.Context) {
	if f.ledger == nil || f.stock == nil {
		return
	}
	all, err := f.ledger.Catalogue(ctx)
	if err != nil {
		f.report.add("items", NoGo, "cannot be read: %v", err)
		return
	}
	open := 0
	for i := range all {
		it := &all[i]
		if it.StatusAt(time.Now()) == sale.Ended || it.Model != sale.Counter {
			continue
		}
		open++
		if f.ctx.Err() != nil {
			return
		}
		// Each has a time of its own: an item with many buyers must not use up that of the others.
		bounded, cancel := context.WithTimeout(f.ctx, f.Timeout)
		f.item(bounded, it)
		cancel()
	}
	if open == 0 {
		f.report.add("items", Caution, "nothing is on sale, or will be")
	}
}

func (f *flight) item(ctx context.Context, it *sale.Item) {
	check := fmt.Sprintf("item %d", it.ID)
	readings, err := f.stock.Read(ctx, shard.Layout{Item: it.ID, Shards: it.Shards})
	if err != nil {
		f.report.add(check, NoGo, "its shards cannot be read: %v", err)
		return
	}
	if most := sale.CurrencyDecimals(it.Currency); it.Price.Decimals() > most {
		f.report.add(check, Caution, "its price of %s %s has more decimals than the %d of the currency: it may be impossible to pay", it.Price, it.Currency, most)
	}
	if room := int64(it.Shards) * shard.MaxMarks * 4 / 5; it.Quantity > room {
		// Each unit may have a buyer of its own, and users do not fall on shards quite evenly.
		f.report.add(check, Caution, "%d units in %d shards: with more than %d buyers a shard cannot be loaded again if Redis loses it; set more shards", it.Quantity, it.Shards, room)
	}
	free := make([]int64, 0, len(readings))
	for _, r := range readings {
		switch {
		case r.Fault != nil:
			f.report.add(check, NoGo, "shard %d: %v", r.Shard, r.Fault)
			return
		case !r.Loaded || r.Stock == nil:
			f.report.add(check, NoGo, "the stock of shard %d is not loaded", r.Shard)
			return
		case r.Epoch != it.Epoch:
			f.report.add(check, NoGo, "shard %d is of epoch %d, the item of %d: a load is due", r.Shard, r.Epoch, it.Epoch)
			return
		}
		free = append(free, *r.Stock)
	}
	report, err := invariant.Check(ctx, f.pool, f.stock, it.ID)
	switch {
	case err != nil:
		f.report.add(check, NoGo, "cannot be checked: %v", err)
	case len(report.Violations) > 0:
		f.report.add(check, NoGo, "%s", report.Violations[0])
	case len(report.Unsettled) > 0:
		f.report.add(check, Caution, "not at rest: %s", report.Unsettled[0])
	default:
		f.judgeSpread(check, it, free)
	}
}

// judgeSpread says how evenly the free units lie. Units move to where buyers are, and each move costs the first of them a round trip.
func (f *flight) judgeSpread(check string, it *sale.Item, free []int64) {
	var sum, most int64
	least := free[0]
	for _, n := range free {
		sum, most, least = sum+n, max(most, n), min(least, n)
	}
	status := it.StatusAt(time.Now())
	text := fmt.Sprintf("%s, %d of %d units free in %d shards of %d to %d", status, sum, it.Quantity, len(free), least, most)
	switch {
	case it.Sold == 0 && most-least > 1 && status == sale.Upcoming:
		f.report.add(check, Caution, "%s: unevenly spread, `flashgate item reload %d` spreads them", text, it.ID)
	case status == sale.Paused:
		f.report.add(check, Caution, "%s", text)
	default:
		f.report.add(check, Go, "%s", text)
	}
}
