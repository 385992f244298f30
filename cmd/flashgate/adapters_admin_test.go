package main

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"flashgate/internal/devstack/devtest"
	"flashgate/internal/sale"
	"flashgate/shard"
)

// What the admin API is shown of a shard of which Redis has lost something: the rest.
func TestStockOfADamagedShard(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client, err := shard.Connect(shard.ConnectConfig{URL: devtest.MiniRedis(t).URL(), InProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	stock, err := shard.New(shard.Config{Client: client, RecordDeadline: time.Minute, CallTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	item := sale.Item{ID: 7, Shards: 2}
	mark := func() sale.Mark {
		return sale.Mark{OrderID: sale.NewOrderID(7), Quantity: 2, Price: "5", Currency: "EUR", ReservedAt: time.UnixMilli(1_700_000_000_000)}
	}
	token := int64(0)
	for _, c := range []struct {
		name             string
		damage           []string
		known, partial   bool
		holdings         int
		stock, freeKnown bool
	}{
		{"whole", []string{"PING"}, true, false, 2, true, true},
		{"a mark that nobody can read", []string{"HSET", "{item:7:0}:buyers", "0", "x"}, true, true, 1, true, true},
		{"a mark lost", []string{"HDEL", "{item:7:0}:buyers", "0"}, true, true, 1, true, true},
		{"all marks lost", []string{"DEL", "{item:7:0}:buyers"}, true, true, 0, true, true},
		{"no marks at all", []string{"SET", "{item:7:0}:buyers", "x"}, false, true, 0, true, true},
		{"stock lost", []string{"DEL", "{item:7:0}:stock"}, true, false, 2, false, false},
		{"counters lost", []string{"DEL", "{item:7:0}:meta"}, false, true, 2, false, false},
	} {
		token++
		fenced, err := stock.Fence(ctx, 7, 2, token)
		if err != nil || !fenced {
			t.Fatalf("fence: %v, %v", fenced, err)
		}
		image := shard.Image{Token: token, Free: 10, Marks: map[string]sale.Mark{"0": mark(), "1": mark(), "2": mark()}}
		if loaded, err := stock.Load(ctx, layoutOf(&item), image); err != nil || !loaded {
			t.Fatalf("load: %v, %v", loaded, err)
		}
		if err := client.Do(ctx, client.B().Arbitrary(c.damage...).Build()).Error(); err != nil && !rueidis.IsRedisNil(err) {
			t.Fatal(err)
		}
		shards, err := adminStock{stock}.Read(ctx, item)
		if err != nil || len(shards) != 2 {
			t.Fatalf("%s: %+v, %v", c.name, shards, err)
		}
		if s := shards[0]; s.Known != c.known || s.Partial != c.partial || len(s.Holdings) != c.holdings || (s.Stock != nil) != c.stock || c.stock && *s.Stock != 5 {
			t.Errorf("%s: %+v", c.name, s)
		}
		if s := shards[1]; !s.Known || s.Partial || len(s.Holdings) != 1 || *s.Stock != 5 {
			t.Errorf("%s: the other shard %+v", c.name, s)
		}
		if units, known, err := (adminStock{stock}).Free(ctx, item); err != nil || known != c.freeKnown || known && units != 10 {
			t.Errorf("%s: free %d, %v, %v", c.name, units, known, err)
		}
	}
}
