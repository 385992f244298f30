package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"flashgate/gateway"
	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
	"flashgate/shard"
)

// TestPaymentBeforeItsRow follows a reservation through all the places where it is before the ledger knows it, without a consumer, and asks in each
// of them what the webhook asks.
func TestPaymentBeforeItsRow(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	p, loader, redis, id := openStore(ctx, t, 10)
	ports := newPaymentPorts(p.ledger, p.stock)
	item := func() sale.Item {
		t.Helper()
		it, ok, err := p.ledger.Item(ctx, id)
		if err != nil || !ok {
			t.Fatalf("item: %v, %v", ok, err)
		}
		return it
	}
	expect := func(when string, want bool) {
		t.Helper()
		if got, err := ports.Unwritten(ctx, id); err != nil || got != want {
			t.Errorf("%s: unwritten %v, %v, want %v", when, got, err, want)
		}
	}
	do := func(args ...string) {
		t.Helper()
		if err := p.redis.Do(ctx, p.redis.B().Arbitrary(args...).Build()).Error(); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}

	expect("before the first load", true)
	if err := loader.First(ctx, id); err != nil {
		t.Fatal(err)
	}
	expect("nothing reserved", false)
	if coming, err := ports.Unwritten(ctx, 4711); coming || err != nil {
		t.Errorf("an item that nobody knows: %v, %v", coming, err)
	}

	it := item()
	request := sale.Request{OrderID: sale.NewOrderID(id), UserID: "u", Quantity: 2, Price: it.Price, Currency: it.Currency}
	payment := sale.Payment{EventID: "e", OrderID: request.OrderID, Succeeded: true, Amount: "39.6", Currency: "EUR"}
	pay := func(when string, want gateway.PayOutcome) {
		t.Helper()
		if _, outcome, err := ports.Pay(ctx, payment); err != nil || outcome != want {
			t.Errorf("%s: pay %v, %v, want %v", when, outcome, err, want)
		}
	}
	r := p.stock.Reserve(ctx, layoutOf(&it), request)
	if r.Outcome != sale.Reserved {
		t.Fatalf("reserve: %v", r)
	}
	expect("reserved", true)
	select {
	case <-r.Acked:
	case <-ctx.Done():
		t.Fatal("not acknowledged")
	}
	devtest.Eventually(t, time.Minute, func() bool {
		readings, err := p.stock.Read(ctx, layoutOf(&it))
		return err == nil && readings[r.Shard].Entries == 0
	}, "the outbox is empty")
	expect("in Kafka", true)
	pay("in Kafka", gateway.PayNoOrder)

	mark, ok, err := p.stock.Mark(ctx, layoutOf(&it), "u")
	if err != nil || !ok {
		t.Fatalf("mark: %v, %v", ok, err)
	}
	if _, err := p.ledger.Write(ctx, []sale.Event{{
		OrderID: mark.OrderID, ItemID: id, UserID: "u", Quantity: mark.Quantity, Shard: r.Shard, Epoch: r.Epoch, ReservedAt: mark.ReservedAt,
		Price: mark.Price, Currency: mark.Currency,
	}}); err != nil {
		t.Fatal(err)
	}
	expect("written", false)
	payment.Amount = "39.61"
	pay("another amount", gateway.PayMismatch)
	payment.Amount = "39.60"
	pay("written", gateway.PayDone)
	pay("again", gateway.PayDone)
	payment.Currency = "USD"
	pay("under the same id", gateway.PayEventReused)
	expect("paid", false)

	const pending, stock, meta = ":pending", ":stock", ":meta"
	key := func(part string) string { return fmt.Sprintf("{item:%d:1}%s", id, part) }
	do("HSET", key(pending), "batch", "nobody can read this")
	expect("an outbox entry, whatever it is", true)
	do("DEL", key(pending))
	expect("without it", false)
	do("RENAME", key(stock), key(":away"))
	expect("stock unknown", true)
	do("RENAME", key(":away"), key(stock))
	do("HSET", key(meta), "epoch", fmt.Sprint(it.Epoch+1))
	expect("a shard of another load", true)
	do("HSET", key(meta), "epoch", fmt.Sprint(it.Epoch))
	expect("as it was", false)

	if err := redis.Stop(); err != nil {
		t.Fatal(err)
	}
	if coming, err := ports.Unwritten(ctx, id); err == nil {
		t.Errorf("without Redis: %v and no error", coming)
	}
}

// TestPaymentBesideAWipe: Redis loses everything between the look at the shards and the one at the marks.
func TestPaymentBesideAWipe(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	p, loader, _, id := openStore(ctx, t, 10)
	if err := loader.First(ctx, id); err != nil {
		t.Fatal(err)
	}
	ports := newPaymentPorts(p.ledger, wipedStock{p.stock, func() {
		if err := p.redis.Do(ctx, p.redis.B().Flushall().Build()).Error(); err != nil {
			t.Error(err)
		}
	}})
	if coming, err := ports.Unwritten(ctx, id); !coming || err != nil {
		t.Errorf("an order may be on its way: %v, %v", coming, err)
	}
}

// wipedStock is wiped before its marks are read.
type wipedStock struct {
	markedStock
	wipe func()
}

func (s wipedStock) Holdings(ctx context.Context, layout shard.Layout) ([]shard.Holdings, error) {
	s.wipe()
	return s.markedStock.Holdings(ctx, layout)
}
