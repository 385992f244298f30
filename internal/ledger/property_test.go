package ledger

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"flashgate/internal/sale"
)

// model is the ledger in memory, one event at a time: what the set-based statements must amount to.
type model struct {
	items    map[int64]*modelItem
	orders   map[sale.OrderID]*modelOrder
	payments map[string]*modelPayment
}

type modelItem struct {
	quantity, sold, epoch int64
	limit                 string
	keys                  map[string]int64 // restocks
	told                  []string
}

type modelOrder struct {
	event  sale.Event
	status sale.OrderStatus
	due    bool
	epoch  int64 // of the item when it ended or was refused: its correction has to carry it

	refunds  int64 // due
	refunded bool  // ever
	told     []string
}

func (o *modelOrder) tell(what string) { o.told = append(o.told, what) }

func (m *model) live(limit, user string) bool {
	for _, o := range m.orders {
		if o.status.Live() && o.event.UserID == user && m.items[o.event.ItemID].limit == limit {
			return true
		}
	}
	return false
}

func (m *model) end(o *modelOrder, status sale.OrderStatus) {
	o.status, o.epoch = status, m.items[o.event.ItemID].epoch
	o.tell(strings.ToLower(string(status)))
	m.items[o.event.ItemID].sold -= o.event.Quantity
}

// write decides about events one by one, in the order of reservation, and of the batch among equals.
func (m *model) write(events []sale.Event) []Written {
	order := make([]int, len(events))
	for i := range order {
		order[i] = i
	}
	first := make(map[sale.OrderID]time.Time)
	for _, e := range events {
		if _, ok := first[e.OrderID]; !ok {
			first[e.OrderID] = e.ReservedAt
		}
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := events[i].OrderID, events[j].OrderID
		return cmp.Or(first[a].Compare(first[b]), slices.Compare(a[:], b[:]))
	})
	written := make([]Written, len(events))
	for _, i := range order {
		written[i] = m.writeOne(events[i])
	}
	return written
}

func (m *model) writeOne(e sale.Event) Written {
	if o, ok := m.orders[e.OrderID]; ok {
		if o.event.UserID == e.UserID && o.event.Quantity == e.Quantity && o.event.KeyHash == e.KeyHash {
			return Redelivered
		}
		return Conflict
	}
	it := m.items[e.ItemID]
	w := Stored
	switch {
	case e.Epoch < it.epoch:
		w = RejectedStale
	case m.live(it.limit, e.UserID):
		w = RejectedDuplicate
	case it.sold+e.Quantity > it.quantity:
		w = RejectedNoRoom
	}
	o := &modelOrder{event: e, status: sale.Rejected, epoch: it.epoch}
	if w == Stored {
		o.status = sale.Pending
		it.sold += e.Quantity
		o.tell("created")
	} else {
		o.tell("rejected")
	}
	m.orders[e.OrderID] = o
	return w
}

func (m *model) expire() (n int) {
	for _, o := range m.orders {
		if o.status == sale.Pending && o.due {
			m.end(o, sale.Expired)
			n++
		}
	}
	return n
}

// trial is one run of the property: the ledger, the model, and what has been reserved so far.
type trial struct {
	*lab
	m     *model
	items []int64
	known []sale.Event
	clock time.Time
}

// Any sequence of writes, redeliveries, cancellations, give-ups, expiries, restocks and loads, over replies that get lost and conflicts.
func TestAnySequenceKeepsTheInvariants(t *testing.T) {
	l := newLab(t) // one for all runs, emptied by each
	rapid.Check(t, func(rt *rapid.T) {
		tr := &trial{lab: l, clock: time.Now().UTC().Truncate(time.Millisecond)}
		tr.start()
		rt.Repeat(map[string]func(*rapid.T){
			"write":            tr.writeSome,
			"cancel":           tr.cancel,
			"cancel unwritten": tr.cancelUnwritten,
			"give up":          tr.giveUp,
			"expire":           tr.expire,
			"pay":              tr.pay,
			"refunded":         tr.refunded,
			"restock":          tr.restock,
			"load":             tr.load,
			"":                 tr.check,
		})
	})
}

func (tr *trial) start() {
	perItem, perSale := aSale(3), aSale(2, 4)
	perSale.PurchaseLimit = sale.PerSale
	tr.m = &model{items: make(map[int64]*modelItem), orders: make(map[sale.OrderID]*modelOrder), payments: make(map[string]*modelPayment)}
	for _, table := range []string{"payment", "event", "order", "correction", "conflict", "restock", "item"} {
		tr.exec(`DELETE FROM flash_sale_` + table)
	}
	for _, s := range []sale.Sale{tr.create(perItem), tr.create(perSale)} {
		for _, it := range s.Items {
			tr.items = append(tr.items, it.ID)
			tr.m.items[it.ID] = &modelItem{quantity: it.Quantity, limit: it.LimitKey(), keys: make(map[string]int64)}
		}
	}
}

// draw makes a fresh event, tells an old one again, or forges one under an old id.
func (tr *trial) draw(t *rapid.T) sale.Event {
	kind := rapid.SampledFrom([]string{"fresh", "fresh", "fresh", "again", "forged"}).Draw(t, "event")
	if kind == "fresh" || len(tr.known) == 0 {
		item := rapid.SampledFrom(tr.items).Draw(t, "item")
		e := reserved(item, rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "user"))
		e.Quantity = rapid.Int64Range(1, 3).Draw(t, "quantity")
		e.Epoch = max(0, tr.m.items[item].epoch-rapid.SampledFrom([]int64{0, 0, 0, 1}).Draw(t, "age"))
		tr.clock = tr.clock.Add(time.Duration(rapid.IntRange(-2, 3).Draw(t, "later")) * time.Millisecond)
		e.ReservedAt = tr.clock
		tr.known = append(tr.known, e)
		return e
	}
	e := rapid.SampledFrom(tr.known).Draw(t, "known")
	if kind == "forged" {
		e.KeyHash = "forged"
	}
	return e
}

func (tr *trial) writeSome(t *rapid.T) {
	var events []sale.Event
	for range rapid.IntRange(1, 6).Draw(t, "events") {
		events = append(events, tr.draw(t))
	}
	got, err := tr.faulty(t).Write(context.Background(), events)
	if want := tr.m.write(events); err != nil || !slices.Equal(got, want) {
		t.Fatalf("wrote %v, want %v, %v", got, want, err)
	}
}

func (tr *trial) cancel(t *rapid.T) {
	e := tr.draw(t)
	if rapid.Bool().Draw(t, "somebody else") {
		e.UserID += "x"
	}
	_, got, err := tr.faulty(t).Cancel(context.Background(), e.OrderID, e.UserID)
	if want := tr.cancelled(e); err != nil || got != want {
		t.Fatalf("cancel: %v, want %v, %v", got, want, err)
	}
}

func (tr *trial) cancelled(e sale.Event) CancelOutcome {
	o, ok := tr.m.orders[e.OrderID]
	switch {
	case !ok || o.event.UserID != e.UserID:
		return CancelNotFound
	case o.status == sale.Pending:
		tr.m.end(o, sale.Cancelled)
		return CancelDone
	case o.status == sale.Cancelled:
		return CancelDone
	}
	return CancelRefused
}

func (tr *trial) cancelUnwritten(t *rapid.T) {
	e := tr.draw(t)
	_, got, err := tr.faulty(t).CancelUnwritten(context.Background(), e)
	tr.givenUp(e)
	if want := tr.cancelled(e); err != nil || got != want {
		t.Fatalf("cancel unwritten: %v, want %v, %v", got, want, err)
	}
}

func (tr *trial) giveUp(t *rapid.T) {
	events := []sale.Event{tr.draw(t), tr.draw(t)}
	if err := tr.faulty(t).GiveUp(context.Background(), events); err != nil {
		t.Fatal(err)
	}
	tr.givenUp(events...)
}

func (tr *trial) givenUp(events ...sale.Event) {
	for _, e := range events {
		if tr.m.orders[e.OrderID] == nil {
			tr.m.orders[e.OrderID] = &modelOrder{event: e, status: sale.Cancelled, epoch: tr.m.items[e.ItemID].epoch, told: []string{"cancelled"}}
		}
	}
}

func (tr *trial) expire(t *rapid.T) {
	for id, o := range tr.m.orders {
		if o.status == sale.Pending && !o.due && id[15]%2 == 0 {
			o.due = true
			tr.exec(`UPDATE flash_sale_order SET expires_at = now() - interval '1 second' WHERE id = $1`, [16]byte(id))
		}
	}
	db := tr.faulty(t)
	got, err := db.Expire(context.Background(), 100)
	if want := tr.m.expire(); err != nil || got != want {
		t.Fatalf("expired %d, want %d, %v", got, want, err)
	}
}

func (tr *trial) restock(t *rapid.T) {
	item := rapid.SampledFrom(tr.items).Draw(t, "item")
	units := rapid.Int64Range(1, 2).Draw(t, "units")
	key := rapid.SampledFrom([]string{"", "k", "l"}).Draw(t, "key")
	got, err := tr.faulty(t).Restock(context.Background(), item, units, key)
	it := tr.m.items[item]
	if before, used := it.keys[key]; used && key != "" {
		if got.Repeated != (before == units) || (err == nil) != (before == units) {
			t.Fatalf("restock with a used key: %+v, %v", got, err)
		}
		return
	}
	it.quantity += units
	it.keys[key] = units
	it.told = append(it.told, fmt.Sprint("stock.increased ", units, " ", it.quantity))
	if err != nil || got.Repeated || got.Quantity != it.quantity {
		t.Fatalf("restock: %+v, %v", got, err)
	}
}

func (tr *trial) load(t *rapid.T) {
	item := rapid.SampledFrom(tr.items).Draw(t, "item")
	ctx := context.Background()
	token, ok, err := tr.ClaimLoad(ctx, item, 0)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	snap, ok, err := tr.Snapshot(ctx, item, token)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := tr.EndLoad(ctx, item, token); err != nil {
		t.Fatal(err)
	}
	it := tr.m.items[item]
	it.epoch = token
	marks := make(map[string]sale.Mark)
	for id, o := range tr.m.orders {
		if o.event.ItemID == item && o.status.Live() {
			e := o.event
			marks[e.UserID] = sale.Mark{OrderID: id, Quantity: e.Quantity, Price: e.Price, Currency: e.Currency, ReservedAt: e.ReservedAt, KeyHash: e.KeyHash}
		}
	}
	if snap.Free() != it.quantity-it.sold || !maps.Equal(snap.Marks, marks) {
		t.Fatalf("snapshot %+v, want %d free and %+v", snap, it.quantity-it.sold, marks)
	}
}

func (tr *trial) check(t *rapid.T) {
	tr.balance()
	items, err := tr.Catalogue(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, it := range items {
		if want := tr.m.items[it.ID]; it.Quantity != want.quantity || it.Sold != want.sold || it.Epoch != want.epoch {
			t.Fatalf("item %+v, want %+v", it, want)
		}
	}
	rows, _ := tr.sql.Query(context.Background(), `
SELECT o.id, o.status, o.refunds_due, coalesce(c.epoch, -1) FROM flash_sale_order o LEFT JOIN flash_sale_correction c ON c.order_id = o.id`)
	n, refunds := 0, int64(0)
	var id sale.OrderID
	var status sale.OrderStatus
	var epoch int64
	_, err = pgx.ForEachRow(rows, []any{(*[16]byte)(&id), &status, &refunds, &epoch}, func() error {
		n++
		if o := tr.m.orders[id]; o == nil || o.status != status || o.refunds != refunds || !status.Live() && o.epoch != epoch {
			return fmt.Errorf("order %s is %s with %d refunds due, want %+v", id, status, refunds, o)
		}
		return nil
	})
	if err != nil || n != len(tr.m.orders) {
		t.Fatalf("%d orders, want %d, %v", n, len(tr.m.orders), err)
	}
	tr.checkRefunded(t)
	tr.checkTold(t)
}

// faulty is the ledger with a fault drawn for its next transaction.
func (tr *trial) faulty(t *rapid.T) *DB {
	db := *tr.DB
	f := faults{}
	switch rapid.SampledFrom([]string{"", "", "conflict", "lost, committed", "lost, not committed", "twice"}).Draw(t, "fault") {
	case "conflict":
		f.commit = func(ctx context.Context, n int, tx pgx.Tx) error {
			if n == 1 {
				return refuse(tx, state("40001"))
			}
			return tx.Commit(ctx)
		}
	case "lost, committed":
		f = lostReplies(1)["committed"]
	case "lost, not committed":
		f = lostReplies(1)["not committed"]
	case "twice":
		f.commit = func(ctx context.Context, n int, tx pgx.Tx) error {
			switch n {
			case 1:
				return refuse(tx, io.ErrUnexpectedEOF)
			case 2:
				if err := tx.Commit(ctx); err != nil {
					return err
				}
				return io.ErrUnexpectedEOF
			}
			return tx.Commit(ctx)
		}
	}
	breakWith(&db, f)
	return &db
}
