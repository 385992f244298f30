package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"flashgate/internal/sale"
)

// graveyard is a retired item and one that is not, each with an order in every state, and what belongs to them.
type graveyard struct {
	*lab
	retired, kept int64
	events        map[string]sale.Event // by user, of the retired item
}

func newGraveyard(t *testing.T) *graveyard {
	l := newLab(t)
	g := &graveyard{lab: l, events: make(map[string]sale.Event)}
	s := l.create(over(100, 100))
	g.retired, g.kept = s.Items[0].ID, s.Items[1].ID
	for _, item := range []int64{g.retired, g.kept} {
		for _, user := range []string{"paid", "expired", "cancelled", "refunded", "due", "unsent", "young", "doubtful"} {
			e := reserved(item, user)
			e.Quantity, e.KeyHash, e.Trace = 2, "key of "+user, "trace of "+user
			l.expect(l.write(e), Stored)
			id := fmt.Sprint(item, "-", user)
			l.pay(failure(e, id+"-f"))
			switch user {
			case "expired":
				l.exec(`UPDATE flash_sale_order SET expires_at = now() WHERE id = $1`, [16]byte(e.OrderID))
				if n, err := l.Expire(t.Context(), 10); n != 1 || err != nil {
					t.Fatal(n, err)
				}
			case "cancelled":
				if _, outcome, err := l.Cancel(t.Context(), e.OrderID, user); outcome != CancelDone || err != nil {
					t.Fatal(outcome, err)
				}
			case "doubtful":
				l.pay(success(e, id))
				forged := e
				forged.UserID = "forger"
				l.expect(l.write(forged), Conflict)
			default:
				l.pay(success(e, id))
			}
			if user == "refunded" || user == "due" {
				l.pay(success(e, id+"-2"))
			}
			if user == "refunded" {
				if r, err := l.Refunded(t.Context(), e.OrderID, nil); r.Outcome != RefundDone || err != nil {
					t.Fatal(r, err)
				}
			}
			if item == g.retired {
				g.events[user] = e
			}
		}
	}
	l.expect(l.write(reserved(g.kept, "pending")), Stored)
	l.exec(`DELETE FROM flash_sale_correction WHERE item_id = $1`, g.retired)
	l.retire(g.retired)
	rejected := reserved(g.retired, "rejected")
	l.expect(l.write(rejected), RejectedRetired)
	g.events["rejected"] = rejected
	// Everything happened ten days ago, but for the one that is young: that was paid back yesterday.
	l.exec(`
UPDATE flash_sale_order SET created_at = created_at - interval '10 days', paid_at = paid_at - interval '10 days',
    ended_at = ended_at - interval '10 days', refunded_at = refunded_at - interval '10 days'`)
	l.exec(`UPDATE flash_sale_order SET refunded_at = now() - interval '1 day' WHERE user_id = 'young'`)
	l.exec(`DELETE FROM flash_sale_event WHERE coalesce(user_id, '') <> 'unsent'`)
	return g
}

// dump is everything that a purge could change.
func (g *graveyard) dump() []string {
	return all[string](g.lab, `
SELECT to_jsonb(o)::text FROM flash_sale_order o UNION ALL SELECT to_jsonb(p)::text FROM flash_sale_payment p
UNION ALL SELECT to_jsonb(c)::text FROM flash_sale_conflict c UNION ALL SELECT to_jsonb(i)::text FROM flash_sale_item i
UNION ALL SELECT to_jsonb(a)::text FROM flash_sale_audit a UNION ALL SELECT to_jsonb(e)::text FROM flash_sale_event e
UNION ALL SELECT to_jsonb(c)::text FROM flash_sale_correction c ORDER BY 1`)
}

func (g *graveyard) purge(before time.Time, mode PurgeMode, dryRun bool) PurgeReport {
	g.tb.Helper()
	report, err := g.Purge(g.tb.Context(), before, mode, dryRun)
	if err != nil {
		g.tb.Fatal(err)
	}
	return report
}

// purgeTwice runs dry first, which changes nothing, and then in earnest, which does what the dry run said.
func (g *graveyard) purgeTwice(before time.Time, mode PurgeMode, want PurgeReport) {
	g.tb.Helper()
	was := g.dump()
	if got := g.purge(before, mode, true); got != want {
		g.tb.Fatalf("dry run: %+v, want %+v", got, want)
	}
	if !slices.Equal(g.dump(), was) {
		g.tb.Fatal("the dry run changed something")
	}
	if got := g.purge(before, mode, false); got != want {
		g.tb.Fatalf("purged %+v, want %+v", got, want)
	}
}

// users are the users of the orders of the retired item that are named.
func (g *graveyard) users() []string {
	return all[string](g.lab, `SELECT user_id FROM flash_sale_order WHERE item_id = $1 AND user_id NOT LIKE 'anonymous-%' ORDER BY 1`, g.retired)
}

func daysAgo(n int) time.Time { return time.Now().AddDate(0, 0, -n) }

func TestPurgeDeletes(t *testing.T) {
	g := newGraveyard(t)
	g.purgeTwice(daysAgo(11), PurgeDelete, PurgeReport{})
	// Paid: three units of two each; payments: of each order a failure, of the paid ones a success, of the refunded one two.
	want := PurgeReport{Items: 1, Orders: 6, Units: 6, Payments: 5 + 3 + 1, Conflicts: 1, RefundDue: 1, Unsent: 1}
	rows := g.changes()
	g.purgeTwice(daysAgo(5), PurgeDelete, want)
	if got, want := g.users(), []string{"due", "unsent", "young"}; !slices.Equal(got, want) {
		t.Errorf("left: %v, want %v", got, want)
	}
	g.balance()
	if n := lookup[int64](g.lab, `SELECT count(*) FROM flash_sale_order WHERE item_id = $1`, g.kept); n != 9 {
		t.Errorf("%d orders of the item that is not retired", n)
	}
	if n := lookup[int64](g.lab, `SELECT count(*) FROM flash_sale_payment WHERE order_id NOT IN (SELECT id FROM flash_sale_order)`); n != 0 {
		t.Errorf("%d payments of nothing", n)
	}
	what, before, after := g.lastChange(fmt.Sprint("item:", g.retired))
	if what != "item.purge" || before["sold"] != 12. || after["sold"] != 6. || after["orders"] != 6. || after["payments"] != 9. || g.changes() != rows+1 {
		t.Errorf("audit: %s %v %v", what, before, after)
	}
	// Again: nothing is left to do, and no audit row says so.
	g.purgeTwice(daysAgo(5), PurgeDelete, PurgeReport{RefundDue: 1, Unsent: 1})
	if n := g.changes(); n != rows+1 {
		t.Errorf("%d audit rows", n-rows)
	}
	// What was in the way is settled.
	if r, err := g.Refunded(t.Context(), g.events["due"].OrderID, nil); r.Outcome != RefundDone || err != nil {
		t.Fatal(r, err)
	}
	g.exec(`DELETE FROM flash_sale_event`)
	g.purgeTwice(daysAgo(5), PurgeDelete, PurgeReport{Items: 1, Orders: 1, Units: 2, Payments: 2})
	g.purgeTwice(time.Now().Add(time.Minute), PurgeDelete, PurgeReport{Items: 1, Orders: 2, Units: 4, Payments: 5})
	if got := g.users(); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
	g.balance()
	// What was told then comes once more: there is no such order, and the stock is nobody's any more.
	if _, outcome, err := g.Pay(t.Context(), success(g.events["paid"], fmt.Sprint(g.retired, "-paid"))); outcome != PayNoOrder || err != nil {
		t.Errorf("pay: %v, %v", outcome, err)
	}
	g.staysPurged(g.events["paid"])
	for _, change := range all[string](g.lab, `SELECT coalesce(before::text, '') || coalesce(after::text, '') FROM flash_sale_audit`) {
		for user := range g.events {
			if strings.Contains(change, " of "+user) || strings.Contains(change, `"user_id"`) {
				t.Errorf("the audit table says who bought: %s", change)
			}
		}
	}
}

// staysPurged writes the record of a deleted order as often and as differently as it may come: nothing comes of it, whoever asks for it.
func (g *graveyard) staysPurged(e sale.Event) {
	g.tb.Helper()
	was := g.dump()
	other, forged := reserved(e.ItemID, "late"), e
	forged.UserID, forged.Quantity = "forger", e.Quantity+1
	g.expect(g.write(e), Purged)
	g.expect(g.write(e, e, forged, other), Purged, Purged, Purged, Purged)
	// Beside an item that is on sale, in one batch.
	fresh := reserved(g.kept, "new of "+e.UserID)
	g.expect(g.write(e, fresh), Purged, Stored)
	g.expect(g.write(e, fresh), Purged, Redelivered)
	if err := g.GiveUp(g.tb.Context(), []sale.Event{e, other}); err != nil {
		g.tb.Error(err)
	}
	if _, outcome, err := g.CancelUnwritten(g.tb.Context(), e); outcome != CancelNotFound || err != nil {
		g.tb.Errorf("cancel: %v, %v", outcome, err)
	}
	g.exec(`UPDATE flash_sale_item SET sold = sold - $2 WHERE id = $1`, g.kept, fresh.Quantity)
	g.exec(`DELETE FROM flash_sale_event WHERE order_id = $1`, [16]byte(fresh.OrderID))
	g.exec(`DELETE FROM flash_sale_order WHERE id = $1`, [16]byte(fresh.OrderID))
	if now := g.dump(); !slices.Equal(now, was) {
		g.tb.Errorf("a record of a deleted order left something:\n%v\nwas\n%v", now, was)
	}
}

// A purge takes some orders of an item and leaves others. What is left is known as before.
func TestRecordsReadAgainAfterAPurge(t *testing.T) {
	g := newGraveyard(t)
	late := reserved(g.retired, "late")
	g.expect(g.write(late), RejectedRetired) // as long as nothing was deleted
	g.exec(`UPDATE flash_sale_order SET created_at = now() - interval '10 days', ended_at = now() - interval '10 days' WHERE id = $1`, [16]byte(late.OrderID))
	g.exec(`DELETE FROM flash_sale_event WHERE order_id = $1`, [16]byte(late.OrderID))
	if purged := lookup[bool](g.lab, `SELECT purged_at IS NOT NULL FROM flash_sale_item WHERE id = $1`, g.retired); purged {
		t.Fatal("the item remembers a purge that was not")
	}
	g.purge(daysAgo(5), PurgeDelete, true)
	g.expect(g.write(late), Redelivered)
	g.purge(daysAgo(5), PurgeDelete, false)
	for user, e := range g.events {
		if !slices.Contains([]string{"due", "unsent", "young"}, user) {
			g.staysPurged(e)
			continue
		}
		g.expect(g.write(e), Redelivered)
		e.Quantity++
		g.expect(g.write(e), Conflict)
		if o := g.row(e.OrderID); o.UserID != user {
			t.Errorf("%s: %+v", user, o)
		}
	}
	g.staysPurged(late)
	g.balance()
}

func TestPurgeAnonymises(t *testing.T) {
	g := newGraveyard(t)
	want := PurgeReport{Items: 1, Orders: 6, Conflicts: 1, RefundDue: 1, Unsent: 1}
	before := make(map[string]sale.Order)
	for user, e := range g.events {
		before[user] = g.row(e.OrderID)
	}
	payments := lookup[int64](g.lab, `SELECT count(*) FROM flash_sale_payment`)
	sold := lookup[int64](g.lab, `SELECT sold FROM flash_sale_item WHERE id = $1`, g.retired)
	g.purgeTwice(daysAgo(5), PurgeAnonymise, want)
	if got, want := g.users(), []string{"due", "unsent", "young"}; !slices.Equal(got, want) {
		t.Errorf("left: %v, want %v", got, want)
	}
	names := make(map[string]bool)
	for user, was := range before {
		o := g.row(was.ID)
		if user == "due" || user == "unsent" || user == "young" {
			if o != was {
				t.Errorf("%s: %+v, was %+v", user, o, was)
			}
			continue
		}
		if err := sale.CheckUser(o.UserID); err != nil || !strings.HasPrefix(o.UserID, "anonymous-") || names[o.UserID] {
			t.Errorf("%s is %q now", user, o.UserID)
		}
		names[o.UserID] = true
		was.UserID, was.KeyHash, was.Trace = o.UserID, "", ""
		if o != was {
			t.Errorf("%s:\n%+v, was\n%+v", user, o, was)
		}
	}
	if n := lookup[int64](g.lab, `SELECT count(*) FROM flash_sale_payment`); n != payments {
		t.Errorf("%d payments, were %d", n, payments)
	}
	if n := lookup[int64](g.lab, `SELECT sold FROM flash_sale_item WHERE id = $1`, g.retired); n != sold {
		t.Errorf("sold %d, was %d", n, sold)
	}
	if n := lookup[int64](g.lab, `SELECT count(*) FROM flash_sale_event WHERE user_id LIKE 'anonymous-%'`); n != 0 {
		t.Errorf("%d events of what is nobody's business", n)
	}
	what, _, after := g.lastChange(fmt.Sprint("item:", g.retired))
	if what != "item.anonymise" || after["orders"] != 6. {
		t.Errorf("audit: %s %v", what, after)
	}
	// Once is enough.
	g.purgeTwice(daysAgo(5), PurgeAnonymise, PurgeReport{RefundDue: 1, Unsent: 1})
	// What was told then comes once more, and brings nobody's name back.
	paid := g.events["paid"]
	if got := g.pay(success(paid, fmt.Sprint(g.retired, "-paid"))); got != (sale.PaymentResult{Status: sale.Paid}) {
		t.Errorf("pay: %+v", got)
	}
	was := g.dump()
	forged := g.events["doubtful"] // that, too, is in Kafka
	forged.UserID = "forger"
	other := paid
	other.Quantity = 3
	g.expect(g.write(paid, forged, other, other), Redelivered, Redelivered, Redelivered, Redelivered)
	for _, e := range g.events {
		g.expect(g.write(e), Redelivered)
	}
	if err := g.GiveUp(t.Context(), []sale.Event{paid}); err != nil {
		t.Error(err)
	}
	if now := g.dump(); !slices.Equal(now, was) {
		t.Errorf("records read again left something:\n%v\nwas\n%v", now, was)
	}
	g.balance()
	// They can still be deleted.
	g.purgeTwice(daysAgo(5), PurgeDelete, PurgeReport{Items: 1, Orders: 6, Units: 6, Payments: 9, RefundDue: 1, Unsent: 1})
	g.balance()
}

// More orders than one transaction takes, some of which stay; every second COMMIT loses its reply.
func TestPurgeInBatches(t *testing.T) {
	for name, f := range lostReplies(1000) {
		for _, mode := range []PurgeMode{PurgeDelete, PurgeAnonymise} {
			t.Run(fmt.Sprint(name, " ", mode), func(t *testing.T) {
				l := newLab(t)
				const orders = 2*purgeBatch + 300
				s := l.create(over(orders, 5))
				g := &graveyard{lab: l, retired: s.Items[0].ID}
				l.exec(`
INSERT INTO flash_sale_order (id, item_id, user_id, quantity, status, limit_key, sku, price, currency, shard, epoch, reserved_at, created_at,
    expires_at, refunds_due, refund_due)
SELECT gen_random_uuid(), i.id, 'u' || n, 1, CASE n % 4 WHEN 0 THEN 'EXPIRED' ELSE 'PAID' END, i.limit_key, '', 1980, 'JPY', 0, 0,
    now() + n % 7 * interval '1 ms', now() - interval '9 days', now(), (n % 100 = 0)::int, n % 100 = 0
FROM flash_sale_item i, generate_series(1, $2) n WHERE i.id = $1`, g.retired, orders)
				l.exec(`UPDATE flash_sale_item SET sold = (SELECT count(*) FROM flash_sale_order WHERE status = 'PAID') WHERE id = $1`, g.retired)
				l.exec(`
INSERT INTO flash_sale_payment (event_id, order_id, status, amount, currency, effect, order_status, refund_due)
SELECT id::text, id, 'SUCCEEDED', 1980, 'JPY', 'refund_due', 'EXPIRED', true FROM flash_sale_order WHERE refund_due`)
				l.exec(`DELETE FROM flash_sale_event`)
				l.retire(g.retired)
				l.retire(s.Items[1].ID)
				l.DB = l.open()
				commit := f.commit
				f := faults{commit: func(ctx context.Context, n int, tx pgx.Tx) error { return commit(ctx, 1001-n%2, tx) }}
				breakWith(l.DB, f)
				want := PurgeReport{Items: 1, Orders: orders - orders/100, RefundDue: orders / 100}
				if mode == PurgeDelete {
					want.Units = orders - orders/4
				}
				g.purgeTwice(daysAgo(5), mode, want)
				what, before, after := l.lastChange(fmt.Sprint("item:", g.retired))
				if after["orders"] != float64(want.Orders) || after["units"] != float64(want.Units) || before["sold"] != float64(orders-orders/4) ||
					after["sold"] != float64(orders-orders/4-want.Units) {
					t.Errorf("audit: %s %v %v", what, before, after)
				}
				if n := lookup[int64](l, `SELECT count(*) FROM flash_sale_audit WHERE what = $1`, what); n != 1 {
					t.Errorf("%d audit rows", n)
				}
				if named := lookup[int64](l, `SELECT count(*) FROM flash_sale_order WHERE user_id LIKE 'u%'`); named != orders/100 {
					t.Errorf("%d orders are left", named)
				}
			})
		}
	}
}

func TestAPurgeThatIsStopped(t *testing.T) {
	g := newGraveyard(t)
	ctx, cancel := context.WithCancel(t.Context())
	breakWith(g.DB, faults{commit: func(ctx context.Context, _ int, tx pgx.Tx) error {
		cancel()
		return tx.Commit(ctx)
	}})
	report, err := g.Purge(ctx, daysAgo(5), PurgeDelete, false)
	if !errors.Is(err, context.Canceled) || report.Orders != 3 || report.Units != 6 || report.Items != 1 {
		t.Errorf("stopped: %+v, %v", report, err)
	}
	g.DB = g.open()
	if report := g.purge(daysAgo(5), PurgeDelete, false); report.Orders != 3 || report.Units != 0 {
		t.Errorf("the rest: %+v", report)
	}
}
