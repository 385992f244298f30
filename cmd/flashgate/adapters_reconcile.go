package main

import (
	"context"

	"flashgate/internal/admin"
	"flashgate/internal/keeper"
	"flashgate/internal/reconcile"
)

// This file lets the admin API compare Redis with the database.

var _ admin.Reconciler = deskReconciler{}

type deskReconciler struct {
	checker  *reconcile.Checker
	reloader deskReloader
}

func newDeskReconciler(reloader deskReloader) (deskReconciler, error) {
	checker, err := reloader.loader.Checker()
	return deskReconciler{checker, reloader}, err
}

// Repair implements admin.Reconciler.
func (r deskReconciler) Repair(ctx context.Context, item int64) error {
	return r.reloader.load(ctx, item, keeper.ReasonRepair)
}

// Compare implements admin.Reconciler.
func (r deskReconciler) Compare(ctx context.Context, item int64) (admin.Comparison, bool, error) {
	found, ok, err := r.checker.Check(ctx, item)
	if err != nil || !ok {
		return admin.Comparison{}, false, err
	}
	c := admin.Comparison{
		Item: found.Item, Shards: make([]admin.ShardView, len(found.Shards)), Available: found.Free, Pending: found.InFlight, InTransfer: found.Moving,
		Drift: found.Drift, Undecided: found.Undecided, Unknown: found.Unknown,
	}
	for i, s := range found.Shards {
		c.Shards[i] = admin.ShardView{Shard: i}
		if s.Loaded {
			c.Shards[i].Stock = s.Stock
		}
		c.Shards[i].Buyers, c.Shards[i].Pending = known(s.Buyers), known(s.Pending)
	}
	for _, o := range found.Orders {
		c.Orders = append(c.Orders, admin.ConcernView{OrderID: o.OrderID.String(), Quantity: o.Quantity, Reason: string(o.Reason)})
	}
	return c, true, nil
}
