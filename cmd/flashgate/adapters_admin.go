package main

import (
	"context"
	"errors"

	"flashgate/internal/admin"
	"flashgate/internal/keeper"
	"flashgate/internal/ledger"
	"flashgate/internal/sale"
	"flashgate/shard"
)

// This file does for the admin API what adapters.go does for the gateway.

var (
	_ admin.Ledger = adminLedger{}
	_ admin.Stock  = adminStock{}
	_ admin.Loader = adminLoader{}
)

type adminLedger struct{ *ledger.DB }

// unknown translates the error after which a change may have been made.
func unknown(err error) error {
	var lost *ledger.UnknownError
	if errors.As(err, &lost) {
		return errors.Join(admin.ErrOutcomeUnknown, err)
	}
	return err
}

func (l adminLedger) CreateSale(ctx context.Context, s sale.Sale) (sale.Sale, *admin.Taken, error) {
	created, err := l.DB.CreateSale(ctx, s)
	var taken *ledger.ExistsError
	if errors.As(err, &taken) {
		return sale.Sale{}, &admin.Taken{What: taken.What, ID: taken.ID}, nil
	}
	return created, nil, unknown(err)
}

func (l adminLedger) Standing(ctx context.Context, item int64, orders []sale.OrderID) (admin.Standing, bool, error) {
	it, held, ok, err := l.DB.Standing(ctx, item, orders)
	return admin.Standing{Item: it, Held: held}, ok, err
}

func (l adminLedger) Restock(ctx context.Context, item, units int64, key string) (admin.Restock, admin.RestockOutcome, error) {
	done, err := l.DB.Restock(ctx, item, units, key)
	var missing *ledger.NotFoundError
	switch {
	case err == nil:
		return admin.Restock{Quantity: done.Quantity, Correction: done.CorrectionID, Repeated: done.Repeated}, admin.Restocked, nil
	case errors.As(err, &missing):
		return admin.Restock{}, admin.NoItem, nil
	case errors.Is(err, ledger.ErrKeyReused):
		return admin.Restock{}, admin.RestockKeyReused, nil
	case errors.Is(err, ledger.ErrTooMany):
		return admin.Restock{}, admin.TooMany, nil
	case errors.Is(err, ledger.ErrRetired):
		return admin.Restock{}, admin.Retired, nil
	}
	return admin.Restock{}, 0, unknown(err)
}

type adminStock struct{ *shard.Stock }

// Read reads the marks of the shards, then their numbers. What moves in between shows as a drift, and a drift makes the API read again.
func (s adminStock) Read(ctx context.Context, it sale.Item) ([]admin.Shard, error) {
	layout := layoutOf(&it)
	// The errors name the shards concerned, which show as not known.
	marks, _ := s.Holdings(ctx, layout)
	readings, _ := s.Stock.Read(ctx, layout)
	if len(marks) != layout.Shards || len(readings) != layout.Shards {
		return nil, errors.New("read shards: the item's number of shards cannot be")
	}
	shards := make([]admin.Shard, layout.Shards)
	for i, r := range readings {
		// A shard that lost everything has no counters either: -1 stands for them. One that lost marks alone has a stock that counts.
		shards[i] = admin.Shard{
			Known:   (r.Readable || r.Loaded) && marks[i].Marks != nil && r.Pending >= 0 && r.Moving >= 0,
			Partial: !r.Readable || !marks[i].Whole,
			Pending: r.Pending, Moving: r.Moving, Holdings: make([]admin.Holding, len(marks[i].Marks)),
		}
		if r.Loaded {
			shards[i].Stock = r.Stock
		}
		for j, mark := range marks[i].Marks {
			shards[i].Holdings[j] = admin.Holding{OrderID: mark.OrderID, Quantity: mark.Quantity}
		}
	}
	return shards, nil
}

func (s adminStock) Free(ctx context.Context, it sale.Item) (units int64, known bool, err error) {
	readings, err := s.Stock.Read(ctx, layoutOf(&it))
	if err != nil {
		return 0, false, err
	}
	for _, r := range readings {
		if !r.Loaded || r.Stock == nil {
			return 0, false, nil
		}
		units += *r.Stock
	}
	return units, true, nil
}

type adminLoader struct{ *keeper.Loader }

func (l adminLoader) Load(ctx context.Context, it sale.Item) error { return l.First(ctx, it.ID) }
