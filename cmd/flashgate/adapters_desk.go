package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"flashgate/internal/admin"
	"flashgate/internal/keeper"
	"flashgate/internal/ledger"
	"flashgate/internal/pause"
	"flashgate/internal/sale"
	"flashgate/shard"
)

// This file lets the admin API change sales, and answer about orders and changes.

var (
	_ admin.Changes      = deskLedger{}
	_ admin.Orders       = deskLedger{}
	_ admin.Audit        = deskLedger{}
	_ admin.Reservations = deskReservations{}
	_ admin.Reloader     = deskReloader{} // adapters_wish.go has the half that is about wishes
)

type deskLedger struct{ *ledger.DB }

var patchOutcomes = map[ledger.PatchOutcome]admin.ChangeOutcome{
	ledger.Patched: admin.Changed, ledger.NoSuch: admin.NothingThere, ledger.AlreadyStarted: admin.SaleStarted, ledger.BadWindow: admin.BadWindow,
	ledger.PatchRetired: admin.ChangeRetired, ledger.BelowSold: admin.BelowSold,
}

func (l deskLedger) UpdateSale(ctx context.Context, id int64, c admin.SaleChange) (sale.Sale, admin.ChangeOutcome, error) {
	s, outcome, err := l.DB.UpdateSale(ctx, id, ledger.SalePatch{Name: c.Name, StartsAt: c.StartsAt, EndsAt: c.EndsAt, Paused: c.Paused})
	return s, patchOutcomes[outcome], unknown(err)
}

func (l deskLedger) UpdateItem(ctx context.Context, id int64, c admin.ItemChange) (admin.ChangedItem, admin.ChangeOutcome, error) {
	it, outcome, err := l.DB.UpdateItem(ctx, id, ledger.ItemPatch{
		Shards: c.Shards, Quantity: c.Quantity, Price: c.Price, MaxPerUser: c.MaxPerUser, Paused: c.Paused,
	})
	return admin.ChangedItem(it), patchOutcomes[outcome], unknown(err)
}

func (l deskLedger) Orders(ctx context.Context, f admin.OrderFilter) ([]sale.Order, string, error) {
	page, next, err := l.DB.Orders(ctx, ledger.OrderFilter{Item: f.Item, Status: f.Status, After: f.Cursor, Limit: f.Limit})
	if errors.Is(err, ledger.ErrBadCursor) {
		err = errors.Join(admin.ErrBadCursor, err)
	}
	return page, next, err
}

func (l deskLedger) Payments(ctx context.Context, id sale.OrderID) ([]admin.Payment, error) {
	rows, err := l.DB.Payments(ctx, id)
	payments := make([]admin.Payment, len(rows))
	for i, row := range rows {
		payments[i] = admin.Payment{
			EventID: row.EventID, Succeeded: row.Succeeded, Amount: row.Amount, Currency: row.Currency, Effect: string(row.Effect),
			ReceivedAt: row.ReceivedAt, RefundedAt: row.RefundedAt,
		}
	}
	return payments, err
}

var refundOutcomes = map[ledger.RefundOutcome]admin.RefundOutcome{
	ledger.RefundDone: admin.RefundMarked, ledger.RefundBefore: admin.RefundMarkedBefore, ledger.RefundNotDue: admin.RefundNotDue,
	ledger.RefundNoOrder: admin.RefundNoOrder,
}

func (l deskLedger) Refunded(ctx context.Context, id sale.OrderID, events []string) (admin.Refund, error) {
	r, err := l.DB.Refunded(ctx, id, events)
	return admin.Refund{Outcome: refundOutcomes[r.Outcome], Order: r.Order, Event: r.Event}, unknown(err)
}

func (l deskLedger) Audit(ctx context.Context, f admin.AuditFilter) ([]admin.AuditEntry, error) {
	rows, err := l.DB.Audit(ctx, ledger.AuditFilter{Subject: f.Subject, After: f.Before, Limit: f.Limit})
	entries := make([]admin.AuditEntry, len(rows))
	for i, row := range rows {
		entries[i] = admin.AuditEntry{ID: row.ID, At: row.At, What: row.What, Subject: row.Subject, Before: row.Before, After: row.After}
	}
	return entries, err
}

type deskReservations struct{ *shard.Stock }

// Find looks through the marks of the item. A mark does not say in which epoch it was made, nor what the trace was: that is in the outbox, as long as
// it is there.
func (s deskReservations) Find(ctx context.Context, it sale.Item, id sale.OrderID) (sale.Event, bool, error) {
	layout := layoutOf(&it)
	holdings, unread := s.Holdings(ctx, layout)
	for at, held := range holdings {
		for _, mark := range held.Marks {
			if mark.OrderID == id {
				return s.event(ctx, layout, at, mark)
			}
		}
	}
	readings, err := s.Read(ctx, layout)
	if err := errors.Join(unread, err); err != nil {
		return sale.Event{}, false, err
	}
	for _, r := range readings {
		// A shard that lost its marks gets those back that have a row by then.
		if !r.Of(it.Epoch) {
			return sale.Event{}, false, fmt.Errorf("find order %s: shard %d of item %d is not loaded", id, r.Shard, it.ID)
		}
	}
	return sale.Event{}, false, nil
}

// event finds out what a mark does not say.
func (s deskReservations) event(ctx context.Context, layout shard.Layout, at int, mark shard.Holding) (sale.Event, bool, error) {
	if mark.Batch != "" {
		outbox, err := s.Outbox(ctx, layout, at)
		if err != nil {
			return sale.Event{}, false, err
		}
		for _, entry := range outbox.Entries {
			for _, event := range entry.Events {
				if event.OrderID == mark.OrderID {
					return event, true, nil
				}
			}
		}
	}
	readings, err := s.Read(ctx, layout)
	if err != nil {
		return sale.Event{}, false, err
	}
	return sale.Event{
		// A load replaces the marks by those of the database: one that is not there is of the epoch of its shard.
		OrderID: mark.OrderID, ItemID: layout.Item, UserID: mark.User, Quantity: mark.Quantity, Shard: at, Epoch: readings[at].Epoch,
		ReservedAt: mark.ReservedAt, Price: mark.Price, Currency: mark.Currency, KeyHash: mark.KeyHash,
	}, true, nil
}

// deskReloader loads items that people want to be loaded.
type deskReloader struct {
	loader *keeper.Loader
	ledger *ledger.DB
	stock  *shard.Stock
}

// loadSteps are the waits between two looks at a load that somebody wishes for, and that somebody else has begun or that has to wait. Each is an attempt
// to load, too, which asks the servers in vain while one of them is away.
var loadSteps = pause.Steps{First: 100 * time.Millisecond, Longest: time.Second}

// Reload loads because somebody asked for it.
func (r deskReloader) Reload(ctx context.Context, item int64) error {
	return r.load(ctx, item, keeper.ReasonAsked)
}

// load loads, or waits for somebody else who began after the call: his claim is above the one that the item had. While brokers or order writers do not
// keep up an item that sells is left alone.
func (r deskReloader) load(ctx context.Context, item int64, reason string) error {
	before, ok, err := r.ledger.Item(ctx, item)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("load item %d: it does not exist", item)
	}
	for n := 1; ; n++ {
		outcome, err := r.loader.Load(ctx, item, reason)
		if err != nil || outcome == keeper.Loaded {
			return err
		}
		if done, err := r.loadedSince(ctx, item, before.Claim); err != nil || done {
			return err
		}
		if !pause.For(ctx, loadSteps.After(n)) {
			return fmt.Errorf("load item %d, last %s: %w", item, outcome, ctx.Err())
		}
	}
}

// loadedSince reports whether every shard has the stock of a load with a newer claim.
func (r deskReloader) loadedSince(ctx context.Context, item, claim int64) (bool, error) {
	it, ok, err := r.ledger.Item(ctx, item)
	if err != nil || !ok || it.Epoch <= claim {
		return false, err
	}
	readings, err := r.stock.Read(ctx, layoutOf(&it))
	if err != nil {
		return false, err
	}
	for _, reading := range readings {
		if !reading.Of(it.Epoch) {
			return false, nil
		}
	}
	return true, nil
}
