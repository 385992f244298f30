package shard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"flashgate/internal/sale"
)

// TestAccountsAreOfOneInstant reads an item while it is sold: the units of each shard are there in every account, free or marked.
func TestAccountsAreOfOneInstant(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 7, Shards: 1}
		s := l.stock(nil)
		const units = 300
		l.load(s, layout, 1, units, nil)
		ctx, stop := context.WithCancel(l.ctx)
		var selling sync.WaitGroup
		for n := range 4 {
			selling.Go(func() {
				for i := 0; i < units/4; i++ {
					s.Reserve(l.ctx, layout, sale.Request{OrderID: sale.NewOrderID(7), UserID: fmt.Sprint(n, "-", i), Quantity: 1, Price: "1", Currency: "JPY"})
				}
			})
		}
		go func() { selling.Wait(); stop() }()
		read := 0
		for last := false; !last; {
			last = ctx.Err() != nil
			accounts, err := s.Accounts(l.ctx, layout)
			if err != nil {
				t.Fatal(err)
			}
			a := accounts[0]
			if !a.Whole {
				continue
			}
			read++
			if *a.Stock+int64(len(a.Marks)) != units || a.Buyers != int64(len(a.Marks)) {
				t.Fatalf("%d free, %d marks", *a.Stock, len(a.Marks))
			}
		}
		if read == 0 {
			t.Error("nothing was read")
		}
	})
}

func TestAccountsOfWhatIsOff(t *testing.T) {
	everywhere(t, func(t *testing.T, b backend) {
		l := newLab(t, b)
		layout := Layout{Item: 7, Shards: 4}
		s := l.stock(nil)
		mark := sale.Mark{OrderID: sale.NewOrderID(7), Quantity: 1, Price: "1", Currency: "JPY", ReservedAt: time.UnixMilli(1_800_000_000_000)}
		l.load(s, layout, 1, 8, map[string]sale.Mark{"4": mark})
		l.do("HSET", keysOf(7, 0).buyers, "8", "no mark")
		l.do("DEL", keysOf(7, 1).stock)
		l.do("SET", keysOf(7, 2).buyers, "no marks")
		accounts, err := s.Accounts(l.ctx, layout)
		if !errors.Is(err, ErrUnreadable) {
			t.Errorf("the error is %v", err)
		}
		if a := accounts[0]; a.Whole || len(a.Marks) != 1 || a.Marks[0].OrderID != mark.OrderID {
			t.Errorf("a shard with what is no mark: %+v", a)
		}
		if a := accounts[1]; a.Loaded || a.Stock != nil {
			t.Errorf("a shard without a stock: %+v", a)
		}
		if a := accounts[2]; a.Whole || a.Marks != nil {
			t.Errorf("a shard without marks: %+v", a)
		}
		if a := accounts[3]; !a.Whole || *a.Stock != 2 || len(a.Marks) != 0 {
			t.Errorf("a shard: %+v", a)
		}
		if _, err := s.Accounts(l.ctx, Layout{Item: 7}); err == nil {
			t.Error("a layout of no shards was read")
		}
	})
}
