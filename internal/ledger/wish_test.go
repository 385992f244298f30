package ledger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// wish changes an item, and returns the number of its wish.
func (l *lab) wish(item int64, patch ItemPatch) int64 {
	l.tb.Helper()
	got, outcome, err := l.UpdateItem(l.tb.Context(), item, patch)
	if outcome != Patched || err != nil {
		l.tb.Fatalf("update %+v: %v, %v", patch, outcome, err)
	}
	return got.Wish
}

func (l *lab) wants(item int64, want Wish) {
	l.tb.Helper()
	if got, err := l.Wish(l.tb.Context(), item); got != want || err != nil {
		l.tb.Errorf("the wish is %+v, want %+v; %v", got, want, err)
	}
}

// due is why the ledger says that the load of its only item is due.
func (l *lab) loadDue() string {
	l.tb.Helper()
	states, err := l.LoadWatch(l.tb.Context())
	if err != nil || len(states) != 1 {
		l.tb.Fatal(states, err)
	}
	return states[0].Due
}

func TestAWishIsCarriedOutByTheNextSnapshot(t *testing.T) {
	l := newLab(t)
	id := l.item(100)
	l.load(id)
	if l.loadDue() != "" {
		t.Error("a load is due for nothing")
	}
	if n := l.wish(id, ItemPatch{Shards: to(4), Quantity: to[int64](80), Paused: to(true)}); n != 1 {
		t.Errorf("the wish has number %d", n)
	}
	what, before, after := l.lastChange(fmt.Sprint("item:", id))
	if what != "item.update" || before["wanted_shards"] != nil || after["wanted_shards"] != 4. || after["wanted_reduction"] != 20. || after["quantity"] != 100. || after["paused"] != true {
		t.Errorf("audit: %s\n%v\n%v", what, before, after)
	}
	l.wants(id, Wish{Number: 1, Shards: 4, Reduction: 20})
	if it, _, err := l.Item(t.Context(), id); err != nil || it.Shards != 13 || it.Quantity != 100 || !it.Paused || l.loadDue() != DuePlanned {
		t.Errorf("before the load: %+v, due %q, %v", it, l.loadDue(), err)
	}
	// Units that are added in between stay added, in the correction and in the snapshot.
	if _, err := l.Restock(t.Context(), id, 7, ""); err != nil {
		t.Fatal(err)
	}
	token, ok, err := l.ClaimLoad(t.Context(), id, 0)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	snap, ok, err := l.Snapshot(t.Context(), id, token)
	if err != nil || !ok || snap.Shards != 4 || snap.Quantity != 87 || snap.Free() != 87 {
		t.Errorf("snapshot: %+v, %v, %v", snap, ok, err)
	}
	what, before, after = l.lastChange(fmt.Sprint("item:", id))
	if what != "item.planned" || before["quantity"] != 107. || after["quantity"] != 87. || before["shards"] != 13. || after["shards"] != 4. || after["wanted_shards"] != nil {
		t.Errorf("audit: %s\n%v\n%v", what, before, after)
	}
	l.wants(id, Wish{Number: 1})
	if l.loadDue() != "" {
		t.Errorf("a load is due for %q", l.loadDue())
	}
	if it, _, err := l.Item(t.Context(), id); err != nil || it.Shards != 4 || it.Quantity != 87 {
		t.Errorf("behind the load: %+v, %v", it, err)
	}
	if events := l.claimEvents(10, time.Hour); len(events) != 1 || events[0].Type != "stock.increased" || events[0].Delta != 7 {
		t.Errorf("events: %+v", events)
	}
	// Nothing more is done by the one behind it.
	rows := l.changes()
	if err := l.EndLoad(t.Context(), id, token); err != nil {
		t.Fatal(err)
	}
	l.load(id)
	if it, _, err := l.Item(t.Context(), id); err != nil || it.Shards != 4 || it.Quantity != 87 || l.changes() != rows {
		t.Errorf("behind another load: %+v, %d rows, %v", it, l.changes()-rows, err)
	}
}

func TestWishesReplaceEachOther(t *testing.T) {
	l := newLab(t)
	id := l.item(100)
	l.load(id)
	for _, step := range []struct {
		patch ItemPatch
		mine  int64
		want  Wish
	}{
		{ItemPatch{Quantity: to[int64](90)}, 1, Wish{Number: 1, Reduction: 10}},
		{ItemPatch{Quantity: to[int64](90)}, 1, Wish{Number: 1, Reduction: 10}}, // said again
		{ItemPatch{Quantity: to[int64](95)}, 2, Wish{Number: 2, Reduction: 5}},
		{ItemPatch{Shards: to(256)}, 3, Wish{Number: 3, Reduction: 5, Shards: 256}}, // leaves the other half alone
		{ItemPatch{Shards: to(1), MaxPerUser: to[int64](2)}, 4, Wish{Number: 4, Reduction: 5, Shards: 1}},
		{ItemPatch{Paused: to(true)}, 0, Wish{Number: 4, Reduction: 5, Shards: 1}},
		{ItemPatch{Shards: to(13)}, 0, Wish{Number: 5, Reduction: 5}},                       // as it is: withdrawn
		{ItemPatch{Quantity: to[int64](100)}, 0, Wish{Number: 6}},                           // likewise
		{ItemPatch{Quantity: to[int64](100), Shards: to(13)}, 0, Wish{Number: 6}},           // there is nothing to withdraw
		{ItemPatch{Quantity: to[int64](0)}, 7, Wish{Number: 7, Reduction: 100}},             // everything
		{ItemPatch{Quantity: to[int64](120), Shards: to(3)}, 8, Wish{Number: 8, Shards: 3}}, // a restock takes its place
	} {
		if n := l.wish(id, step.patch); n != step.mine {
			t.Errorf("%+v has number %d, want %d", step.patch, n, step.mine)
		}
		l.wants(id, step.want)
		if due := l.loadDue(); (due == DuePlanned) != step.want.Open() || due != "" && due != DuePlanned {
			t.Errorf("%+v: due is %q", step.patch, due)
		}
	}
	if n := lookup[int64](l, `SELECT quantity FROM flash_sale_item`); n != 120 {
		t.Errorf("quantity %d", n)
	}
	if _, err := l.Wish(t.Context(), 999); !errors.As(err, new(*NotFoundError)) {
		t.Errorf("no item: %v", err)
	}
	// A real reason goes before a wish.
	l.exec(`UPDATE flash_sale_item SET load_due_at = now(), load_due_reason = 'no_room'`)
	if due := l.loadDue(); due != "no_room" {
		t.Errorf("due is %q", due)
	}
}

func TestAWishBelowWhatIsSold(t *testing.T) {
	l := newLab(t)
	id := l.item(10)
	token := l.load(id)
	sell := func(user string, units int64) {
		t.Helper()
		e := reserved(id, user)
		e.Quantity, e.Epoch = units, token
		l.expect(l.write(e), Stored)
	}
	sell("a", 4)
	rows := l.changes()
	got, outcome, err := l.UpdateItem(t.Context(), id, ItemPatch{Quantity: to[int64](3), Shards: to(2), Paused: to(true)})
	if outcome != BelowSold || err != nil || got.Sold != 4 || got.Paused || got.Wish != 0 || l.changes() != rows {
		t.Errorf("%+v, %v, %v", got, outcome, err)
	}
	l.wants(id, Wish{})
	// Sold between wish and snapshot: the units stay, the shards change.
	l.wish(id, ItemPatch{Quantity: to[int64](4), Shards: to(2)})
	sell("b", 1)
	l.load(id)
	l.wants(id, Wish{Number: 1, Refused: 1})
	what, before, after := l.lastChange(fmt.Sprint("item:", id))
	if it, _, err := l.Item(t.Context(), id); err != nil || it.Shards != 2 || it.Quantity != 10 || what != "item.planned" || before["wish_refused"] != 0. || after["wish_refused"] != 1. {
		t.Errorf("%+v, %v; audit %s %v %v", it, err, what, before, after)
	}
	// Exactly what is sold.
	l.wish(id, ItemPatch{Quantity: to[int64](5)})
	l.load(id)
	l.wants(id, Wish{Number: 2, Refused: 1})
	if it, _, err := l.Item(t.Context(), id); err != nil || it.Quantity != 5 || it.Sold != 5 {
		t.Errorf("%+v, %v", it, err)
	}
}

func TestRetirementDropsAWish(t *testing.T) {
	l := newLab(t)
	id := l.item(10)
	l.load(id)
	l.exec(`UPDATE flash_sale SET ends_at = now() - interval '1 second'`)
	if l.loadDue() != "" {
		t.Error("a load is due for nothing")
	}
	l.wish(id, ItemPatch{Shards: to(2)})
	if l.loadDue() != DuePlanned {
		t.Error("a wish about a sale that is over is carried out, too")
	}
	if done, err := l.Retire(t.Context(), id, 0); !done || err != nil {
		t.Fatal(done, err)
	}
	l.wants(id, Wish{Number: 1})
	if states, err := l.LoadWatch(t.Context()); err != nil || len(states) != 0 {
		t.Errorf("a retired item is watched: %v, %v", states, err)
	}
	if _, outcome, err := l.UpdateItem(t.Context(), id, ItemPatch{Shards: to(3)}); outcome != PatchRetired || err != nil {
		t.Errorf("%v, %v", outcome, err)
	}
}

// Several people reduce, add and load at once: what is there in the end is what all of them did, one after another.
func TestWishesAddUp(t *testing.T) {
	l := newLab(t)
	id := l.item(1000)
	l.load(id)
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			var err error
			var outcome PatchOutcome
			switch i % 3 {
			case 0:
				_, outcome, err = l.UpdateItem(t.Context(), id, ItemPatch{Quantity: to(int64(900 - i)), Shards: to(i + 1)})
			case 1:
				_, err = l.Restock(t.Context(), id, 10, "")
			case 2:
				var token int64
				var ok bool
				if token, ok, err = l.ClaimLoad(t.Context(), id, 0); err == nil && ok {
					if _, _, err = l.Snapshot(t.Context(), id, token); err == nil {
						err = l.EndLoad(t.Context(), id, token)
					}
				}
			}
			if err != nil || outcome != 0 && outcome != Patched {
				t.Error(outcome, err)
			}
		})
	}
	wg.Wait()
	l.load(id)
	reduced := lookup[int64](l, `
SELECT coalesce(sum((before->>'quantity')::bigint - (after->>'quantity')::bigint), 0)::bigint FROM flash_sale_audit WHERE what = 'item.planned'`)
	asked := lookup[int64](l, `
SELECT coalesce(sum((before->>'wanted_reduction')::bigint), 0)::bigint FROM flash_sale_audit WHERE what = 'item.planned'`)
	added := lookup[int64](l, `SELECT coalesce(sum(delta), 0)::bigint FROM flash_sale_event`)
	if quantity := lookup[int64](l, `SELECT quantity FROM flash_sale_item`); quantity != 1000+added-reduced || reduced != asked {
		t.Errorf("quantity %d: added %d, reduced by %d of %d", quantity, added, reduced, asked)
	}
}

// The reply to COMMIT is lost, and before the next attempt the item changes: what is returned is the wish that was written down, whatever the same
// patch would come to now.
func TestAWishWhoseCommitWentUnheard(t *testing.T) {
	for name, c := range map[string]struct {
		patch   ItemPatch
		between func(l *lab, id int64)
		want    int64
	}{
		"units are added": {ItemPatch{Quantity: to[int64](80)}, func(l *lab, id int64) {
			if _, err := l.Restock(l.tb.Context(), id, 7, ""); err != nil {
				l.tb.Error(err)
			}
		}, 1},
		"it is carried out": {ItemPatch{Shards: to(4)}, func(l *lab, id int64) { l.load(id) }, 1},
		"it was no wish, and would be one now": {ItemPatch{Shards: to(13), Paused: to(true)}, func(l *lab, id int64) {
			l.wish(id, ItemPatch{Shards: to(5)})
			l.load(id)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			id := l.item(100)
			l.load(id)
			db := l.open()
			breakWith(db, faults{commit: func(ctx context.Context, n int, tx pgx.Tx) error {
				err := tx.Commit(ctx)
				if n > 1 || err != nil {
					return err
				}
				c.between(l, id)
				return io.ErrUnexpectedEOF
			}})
			got, outcome, err := db.UpdateItem(t.Context(), id, c.patch)
			if err != nil || outcome != Patched || got.Wish != c.want {
				t.Errorf("wish %d, want %d; %v, %v", got.Wish, c.want, outcome, err)
			}
		})
	}
}
