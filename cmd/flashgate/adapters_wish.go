package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"flashgate/internal/admin"
	"flashgate/internal/ledger"
	"flashgate/internal/pause"
	"flashgate/internal/sale"
)

// CarryOut loads as long as something is wished of the item. Whoever has a lease of it, a keeper perhaps, carries out all that is wished for when he
// takes his snapshot; so this one only has to look again. A server that does not answer is waited for, too.
func (r deskReloader) CarryOut(ctx context.Context, item int64) error {
	var last error
	for n := 1; ; n++ {
		_, open, err := r.wishes(ctx, item)
		if err == nil && !open {
			return nil
		}
		if err == nil {
			_, err = r.loader.Plan(ctx, item)
		}
		if err != nil && ctx.Err() == nil {
			last = err
		}
		if !pause.For(ctx, loadSteps.After(n)) {
			return fmt.Errorf("change the stock of item %d: %w", item, errors.Join(ctx.Err(), last))
		}
	}
}

// wishes reads an item, and reports whether something is wished of it, or the load of that has not come to its end. Of a retired item nothing is.
func (r deskReloader) wishes(ctx context.Context, item int64) (it sale.Item, open bool, err error) {
	it, ok, err := r.ledger.Item(ctx, item)
	switch {
	case err != nil:
		return it, false, err
	case !ok:
		return it, false, fmt.Errorf("item %d does not exist", item)
	case !it.RetiredAt.IsZero():
		return it, false, nil
	}
	w, err := r.ledger.Wish(ctx, item)
	if err != nil || w.Open() {
		return it, true, err
	}
	loaded, err := r.loadedSince(ctx, item, 0)
	return it, !loaded, err
}

// WishEnd asks the audit table what became of a reduction: the numbers of the item alone do not tell. A quantity that is not what was wished may have
// been, and been raised since; that a later wish was refused does not say whether this one was carried out before, or was replaced by it; and what is
// sold now is not what was sold then, as orders end.
func (r deskReloader) WishEnd(ctx context.Context, item int64, wish admin.Wish) (admin.WishEnd, error) {
	it, open, err := r.wishes(ctx, item)
	switch {
	case err != nil || open:
		return admin.WishEnd{}, err
	case !it.RetiredAt.IsZero():
		return admin.WishEnd{Outcome: admin.WishRetired}, nil
	case wish.Fewer == 0:
		return admin.WishEnd{Outcome: admin.WishDone}, nil
	}
	snapshot, err := r.snapshotOf(ctx, item, wish.Number)
	switch {
	case err != nil:
		return admin.WishEnd{}, err
	case snapshot == nil || snapshot.after.Refused != snapshot.before.Wish:
		return admin.WishEnd{Outcome: admin.WishDone}, nil
	}
	end := admin.WishEnd{Outcome: admin.WishReplaced, Sold: snapshot.after.Sold, Quantity: snapshot.after.Quantity}
	// Another number of shards that is wished later leaves the reduction as it is, under another number.
	if snapshot.before.Wish == wish.Number || snapshot.before.Reduction == wish.Fewer {
		end.Outcome = admin.WishBelowSold
	}
	return end, nil
}

// plannedItem is what the audit table keeps of an item, as far as wishes go.
type plannedItem struct {
	Wish      int64 `json:"wish"`
	Refused   int64 `json:"wish_refused"`
	Reduction int64 `json:"wanted_reduction"`
	Quantity  int64 `json:"quantity"`
	Sold      int64 `json:"sold"`
}

// plannedRow is the row of a snapshot that came to a wish.
type plannedRow struct{ before, after plannedItem }

// wishRows is how many rows of the audit table are read at once.
const wishRows = 100

// snapshotOf finds the first snapshot that came to a wish or to what took its place, nil where that was withdrawn before. Numbers of wishes only grow. All
// changes of a wish and all snapshots hold the item's row while they write theirs, so that the ids of these have their order; the change that
// made the wish, or one before it, is the last that matters.
func (r deskReloader) snapshotOf(ctx context.Context, item, wish int64) (*plannedRow, error) {
	var first *plannedRow
	for after := int64(0); ; {
		page, err := r.ledger.Audit(ctx, ledger.AuditFilter{Subject: ledger.SubjectItem(item), After: after, Limit: wishRows})
		if err != nil {
			return nil, err
		}
		for _, row := range page {
			after = row.ID
			if row.What != ledger.ChangeUpdateItem && row.What != ledger.ChangePlanned {
				continue
			}
			var p plannedRow
			if err := errors.Join(json.Unmarshal(row.Before, &p.before), json.Unmarshal(row.After, &p.after)); err != nil {
				return nil, fmt.Errorf("read row %d of the audit: %w", row.ID, err)
			}
			if p.before.Wish < wish {
				return first, nil
			}
			if row.What == ledger.ChangePlanned {
				first = &p
			}
		}
		if len(page) < wishRows {
			return first, nil
		}
	}
}
