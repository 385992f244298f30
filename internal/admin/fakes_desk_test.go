package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"flashgate/internal/admin"
	"flashgate/internal/sale"
)

// desk is the part of a world that changes sales and answers about orders.
type desk struct {
	began    bool // the sales have begun
	orders   []sale.Order
	payments map[sale.OrderID][]admin.Payment
	reserved []sale.Event // in Redis alone
	entries  []admin.AuditEntry
	letters  []admin.Letter
	replays  []admin.Replay
	replay   func(wish admin.Replay) (admin.Replayed, error)
	closed   map[admin.LetterPlace]time.Time
	kafka    bool // is away

	find    func() // called before Redis is searched
	reload  func(ctx context.Context, item int64) error
	reloads atomic.Int64

	compared []admin.Comparison // by the first call, the second, ...; else what the item is
	carryOut func(ctx context.Context, item int64) error
	carried  atomic.Int64
	wishEnd  func(item int64, wish admin.Wish) (admin.WishEnd, error)
}

// config is that of an API in front of a world.
func (w *world) config() admin.Config {
	return admin.Config{
		Token: token, Ledger: w, Stock: w, Loader: w, Catalogue: w,
		Changes: w, Orders: w, Reservations: w, Audit: w, Reloader: w, Reconciler: w, DeadLetters: w,
		LetterReasons: []string{"malformed", "refused"},
	}
}

// wrote notes a change in the audit table. The world is locked.
func (w *world) wrote(what, subject string, before, after any) {
	old, _ := json.Marshal(before)
	now, _ := json.Marshal(after)
	w.entries = append(w.entries, admin.AuditEntry{
		ID: int64(len(w.entries) + 1), At: someTime, What: what, Subject: subject, Before: old, After: now,
	})
}

var someTime = time.Date(2026, 11, 27, 12, 30, 0, 250e6, time.UTC)

func retired(s sale.Sale) bool {
	return !slices.ContainsFunc(s.Items, func(it sale.Item) bool { return it.RetiredAt.IsZero() })
}

func (w *world) UpdateSale(_ context.Context, id int64, c admin.SaleChange) (sale.Sale, admin.ChangeOutcome, error) {
	if err := w.did("update sale", &w.databaseDown); err != nil {
		return sale.Sale{}, 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s, ok := w.sales[id]
	old := s
	if c.Name != nil {
		s.Name = *c.Name
	}
	if c.StartsAt != nil {
		s.StartsAt = *c.StartsAt
	}
	if c.EndsAt != nil {
		s.EndsAt = *c.EndsAt
	}
	if c.Paused != nil {
		s.Paused = *c.Paused
	}
	switch {
	case w.outcomeUnknown:
		return sale.Sale{}, 0, errors.Join(errAway, admin.ErrOutcomeUnknown)
	case !ok:
		return sale.Sale{}, admin.NothingThere, nil
	case retired(s):
		return sale.Sale{}, admin.ChangeRetired, nil
	case w.began && !s.StartsAt.Equal(old.StartsAt):
		return sale.Sale{}, admin.SaleStarted, nil
	case !s.EndsAt.After(s.StartsAt):
		return sale.Sale{}, admin.BadWindow, nil
	}
	w.sales[id] = s
	w.wrote("sale.update", fmt.Sprint("sale:", id), old.Name, s.Name)
	return s, admin.Changed, nil
}

func (w *world) UpdateItem(_ context.Context, id int64, c admin.ItemChange) (admin.ChangedItem, admin.ChangeOutcome, error) {
	if err := w.did("update item", &w.databaseDown); err != nil {
		return admin.ChangedItem{}, 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	it, ok := w.item(id)
	switch {
	case w.outcomeUnknown:
		return admin.ChangedItem{}, 0, errors.Join(errAway, admin.ErrOutcomeUnknown)
	case !ok:
		return admin.ChangedItem{}, admin.NothingThere, nil
	case !it.RetiredAt.IsZero():
		return admin.ChangedItem{}, admin.ChangeRetired, nil
	case c.Quantity != nil && *c.Quantity < it.Sold:
		return admin.ChangedItem{Item: *it}, admin.BelowSold, nil
	}
	wish := int64(0)
	if c.Shards != nil && *c.Shards != it.Shards || c.Quantity != nil && *c.Quantity < it.Quantity {
		wish = 7
	}
	if c.Quantity != nil {
		it.Quantity = max(it.Quantity, *c.Quantity)
	}
	if c.Price != nil {
		it.Price = *c.Price
	}
	if c.MaxPerUser != nil {
		it.MaxPerUser = *c.MaxPerUser
	}
	if c.Paused != nil {
		it.Paused = *c.Paused
	}
	return admin.ChangedItem{Item: *it, Wish: wish}, admin.Changed, nil
}

func (w *world) Order(_ context.Context, id sale.OrderID) (sale.Order, bool, error) {
	if err := w.did("order", &w.databaseDown); err != nil {
		return sale.Order{}, false, err
	}
	if i := w.at(id); i >= 0 {
		return w.orders[i], true, nil
	}
	return sale.Order{}, false, nil
}

func (w *world) at(id sale.OrderID) int {
	return slices.IndexFunc(w.orders, func(o sale.Order) bool { return o.ID == id })
}

// Orders has numbers of rows as cursors.
func (w *world) Orders(_ context.Context, f admin.OrderFilter) (page []sale.Order, next string, err error) {
	if err := w.did(fmt.Sprintf("orders %+v", f), &w.databaseDown); err != nil {
		return nil, "", err
	}
	from := 0
	if f.Cursor != "" {
		if from, err = strconv.Atoi(f.Cursor); err != nil {
			return nil, "", fmt.Errorf("list orders: %w", admin.ErrBadCursor)
		}
	}
	for i := from; i < len(w.orders); i++ {
		o := w.orders[i]
		if f.Item != 0 && o.ItemID != f.Item || f.Status != "" && f.Status != string(o.Status) && (f.Status != admin.StatusRefundDue || !o.RefundDue()) {
			continue
		}
		if len(page) == f.Limit {
			return page, strconv.Itoa(i), nil
		}
		page = append(page, o)
	}
	return page, "", nil
}

func (w *world) Payments(_ context.Context, id sale.OrderID) ([]admin.Payment, error) {
	return w.payments[id], w.did("payments", &w.databaseDown)
}

func (w *world) Refunded(_ context.Context, id sale.OrderID, events []string) (admin.Refund, error) {
	if err := w.did(fmt.Sprintf("refunded %q", events), &w.databaseDown); err != nil {
		return admin.Refund{}, err
	}
	i := w.at(id)
	switch {
	case w.outcomeUnknown:
		return admin.Refund{}, errors.Join(errAway, admin.ErrOutcomeUnknown)
	case i < 0:
		return admin.Refund{Outcome: admin.RefundNoOrder}, nil
	}
	o, payments := &w.orders[i], slices.Clone(w.payments[id])
	for _, event := range events {
		at := slices.IndexFunc(payments, func(p admin.Payment) bool { return p.EventID == event && p.Effect == "refund_due" })
		if at < 0 {
			return admin.Refund{Outcome: admin.RefundNotDue, Order: *o, Event: event}, nil
		}
	}
	marked := int64(0)
	for at, p := range payments {
		if p.Effect == "refund_due" && p.RefundedAt.IsZero() && (events == nil || slices.Contains(events, p.EventID)) {
			payments[at].RefundedAt = someTime
			marked++
		}
	}
	if events == nil {
		marked = o.RefundsDue
	}
	switch {
	case marked == 0 && events == nil && o.RefundedAt.IsZero():
		return admin.Refund{Outcome: admin.RefundNotDue, Order: *o}, nil
	case marked == 0:
		return admin.Refund{Outcome: admin.RefundMarkedBefore, Order: *o}, nil
	}
	w.payments[id] = payments
	o.RefundsDue, o.RefundedAt = o.RefundsDue-marked, someTime
	return admin.Refund{Outcome: admin.RefundMarked, Order: *o}, nil
}

func (w *world) Find(_ context.Context, it sale.Item, id sale.OrderID) (sale.Event, bool, error) {
	if w.find != nil {
		w.find()
	}
	if err := w.did(fmt.Sprint("find in item ", it.ID), &w.redisDown); err != nil {
		return sale.Event{}, false, err
	}
	for _, e := range w.reserved {
		if e.OrderID == id {
			return e, true, nil
		}
	}
	return sale.Event{}, false, nil
}

func (w *world) Audit(_ context.Context, f admin.AuditFilter) ([]admin.AuditEntry, error) {
	if err := w.did(fmt.Sprintf("audit %+v", f), &w.databaseDown); err != nil {
		return nil, err
	}
	var page []admin.AuditEntry
	for _, e := range slices.Backward(w.entries) {
		if (f.Before == 0 || e.ID < f.Before) && (f.Subject == "" || e.Subject == f.Subject) && len(page) < f.Limit {
			page = append(page, e)
		}
	}
	return page, nil
}

func (w *world) BeginReload(_ context.Context, item int64) (uuid.UUID, error) {
	return reloadRow, w.did(fmt.Sprint("begin reload ", item), &w.databaseDown)
}

func (w *world) EndReload(_ context.Context, item int64, row uuid.UUID) error {
	if row != reloadRow {
		return errors.New("no such row")
	}
	return w.did(fmt.Sprint("end reload ", item), &w.databaseDown)
}

// reloadRow is the audit row of every reload.
var reloadRow = uuid.MustParse("6ba7b810-9dad-41d1-80b4-00c04fd430c8")

func (w *world) Reload(ctx context.Context, item int64) error {
	w.reloads.Add(1)
	if w.desk.reload != nil {
		return w.desk.reload(ctx, item)
	}
	return w.did("reload", &w.redisDown)
}

func (w *world) Repair(ctx context.Context, item int64) error {
	if err := w.did("repair", &w.redisDown); err != nil {
		return err
	}
	if w.desk.reload != nil {
		return w.desk.reload(ctx, item)
	}
	return nil
}

func (w *world) Compare(_ context.Context, item int64) (admin.Comparison, bool, error) {
	if err := w.did("compare", &w.databaseDown); err != nil {
		return admin.Comparison{}, false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	it, ok := w.item(item)
	if !ok {
		return admin.Comparison{}, false, nil
	}
	c := admin.Comparison{Item: *it, Shards: make([]admin.ShardView, it.Shards)}
	if len(w.compared) > 0 {
		c, w.compared = w.compared[0], w.compared[1:]
		c.Item = *it
	}
	return c, true, nil
}

func (w *world) CarryOut(ctx context.Context, item int64) error {
	w.carried.Add(1)
	if err := w.did("carry out", &w.redisDown); err != nil {
		return err
	}
	if w.desk.carryOut != nil {
		return w.desk.carryOut(ctx, item)
	}
	return nil
}

// WishEnd carries out a wish by itself.
func (w *world) WishEnd(_ context.Context, item int64, wish admin.Wish) (admin.WishEnd, error) {
	if err := w.did("wish end", &w.databaseDown); err != nil {
		return admin.WishEnd{}, err
	}
	if w.desk.wishEnd != nil {
		return w.desk.wishEnd(item, wish)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	it, _ := w.item(item)
	it.Quantity -= wish.Fewer
	return admin.WishEnd{Outcome: admin.WishDone}, nil
}

// List has numbers of letters as cursors.
func (w *world) List(_ context.Context, cursor string, limit int) ([]admin.Letter, string, error) {
	if err := w.did("letters", &w.kafka); err != nil {
		return nil, "", err
	}
	from, err := strconv.Atoi("0" + cursor)
	if err != nil || strings.HasPrefix(cursor, "0") {
		return nil, "", fmt.Errorf("list letters: %w", admin.ErrBadCursor)
	}
	to := min(from+limit, len(w.letters))
	if to == len(w.letters) {
		return w.letters[from:to], "", nil
	}
	return w.letters[from:to], strconv.Itoa(to), nil
}

func (w *world) Replay(_ context.Context, wish admin.Replay) (admin.Replayed, error) {
	w.replays = append(w.replays, wish)
	if err := w.did("replay", &w.kafka); err != nil || w.desk.replay == nil {
		return admin.Replayed{}, err
	}
	return w.desk.replay(wish)
}

func (w *world) ClosedAt(_ context.Context, letter admin.LetterPlace) (time.Time, bool, error) {
	if err := w.did("closed at", &w.databaseDown); err != nil {
		return time.Time{}, false, err
	}
	at, ok := w.closed[letter]
	return at, ok, nil
}
