package main

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"flashgate/gateway"
	"flashgate/internal/sale"
)

// TestBuyersOfAnUnknownStock sees that Redis is not believed that an item has no buyers as long as it does not know the item.
func TestBuyersOfAnUnknownStock(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p, loader, redis, id := openStore(ctx, t, 10)
	ports := stockPorts{p.stock}
	buyers := func() (users []string, epoch int64, item sale.Item, err error) {
		t.Helper()
		item, _, err = p.ledger.Item(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		epoch, err = ports.Buyers(ctx, &item, func(user string) { users = append(users, user) })
		return users, epoch, item, err
	}
	if users, _, _, err := buyers(); !errors.Is(err, gateway.ErrUnknownStock) {
		t.Errorf("before the first load: %v, %v", users, err)
	}
	if err := loader.First(ctx, id); err != nil {
		t.Fatal(err)
	}
	users, epoch, item, err := buyers()
	if err != nil || len(users) != 0 || epoch == 0 || epoch != item.Epoch {
		t.Errorf("nobody has bought: %v of epoch %d, %v", users, epoch, err)
	}
	if got := ports.Reserve(ctx, &item, sale.Request{OrderID: sale.NewOrderID(id), UserID: "u", Quantity: 1, Price: item.Price, Currency: item.Currency}); got.Outcome != sale.Reserved {
		t.Fatalf("reserve: %+v", got)
	}
	if users, epoch, _, err := buyers(); err != nil || !slices.Equal(users, []string{"u"}) || epoch != item.Epoch {
		t.Errorf("one has bought: %v of epoch %d, %v", users, epoch, err)
	}
	other := item
	other.Shards = 5
	if _, err := ports.Buyers(ctx, &other, func(string) {}); !errors.Is(err, gateway.ErrUnknownStock) {
		t.Errorf("under another layout: %v", err)
	}
	if err := p.redis.Do(ctx, p.redis.B().Flushall().Build()).Error(); err != nil {
		t.Fatal(err)
	}
	if users, _, _, err := buyers(); !errors.Is(err, gateway.ErrUnknownStock) {
		t.Errorf("wiped: %v, %v", users, err)
	}
	if err := redis.Stop(); err != nil {
		t.Fatal(err)
	}
	if users, _, _, err := buyers(); err == nil || errors.Is(err, gateway.ErrUnknownStock) {
		t.Errorf("without Redis: %v, %v", users, err)
	}
}
