package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"flashgate/internal/admin"
	"flashgate/internal/broker"
	"flashgate/internal/config"
	"flashgate/internal/devstack"
	"flashgate/internal/devstack/devtest"
	"flashgate/internal/keeper"
	"flashgate/internal/ledger"
	"flashgate/internal/ops"
	"flashgate/internal/sale"
)

// client asks the admin API of a desk.
func (d *desk) client() *admin.Client {
	c := admin.NewClient(strings.TrimPrefix(d.settings[0], "FLASHGATE_ADMIN_URL="), "desk-token")
	d.t.Cleanup(c.Close)
	return c
}

// openStore connects to servers of the test's own, without a consumer, and makes an item of so many units in three shards that is not loaded yet.
func openStore(ctx context.Context, t *testing.T, quantity int64) (*parts, *keeper.Loader, *devstack.Redis, int64) {
	t.Helper()
	kafka := broker.Config{Brokers: devtest.Kfake(t).Brokers(), ClientID: "store", Group: "order-writer"}
	if _, err := broker.EnsureTopics(ctx, kafka); err != nil {
		t.Fatal(err)
	}
	redis := devtest.Redis(t)
	deadlines := config.Deadlines{RecordDeadline: 2 * time.Second, GiveUp: 5 * time.Minute}
	p, err := openParts(ctx, partsConfig{
		role: "desk", database: devtest.DatabaseLike(t, "desk", ledger.Migrate), redis: redis.URL(), kafka: kafka, deadlines: deadlines, outboxLimit: 1000,
	}, slog.New(slog.DiscardHandler), prometheus.NewRegistry(), &ops.Readiness{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(context.Background()); err != nil {
			t.Log(err) // Redis is away
		}
	})
	made, err := p.ledger.CreateSale(ctx, sale.Sale{
		Name: "x", StartsAt: time.Now().Add(-time.Hour), EndsAt: time.Now().Add(time.Hour), PurchaseLimit: sale.PerItem, PaymentWindow: time.Minute,
		Items: []sale.Item{{Quantity: quantity, Price: "19.80", Currency: "EUR", Shards: 3, MaxPerUser: 5, Model: sale.Counter}},
	})
	if err != nil {
		t.Fatal(err)
	}
	loader, err := keeper.NewLoader(keeperConfig(p, deadlines, kafka.Group))
	if err != nil {
		t.Fatal(err)
	}
	return p, loader, redis, made.Items[0].ID
}

// TestFindReservations looks for a reservation in all the places where it is before the ledger knows it; no consumer runs.
func TestFindReservations(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	p, loader, redis, id := openStore(ctx, t, 100)
	if err := loader.First(ctx, id); err != nil {
		t.Fatal(err)
	}
	it, _, err := p.ledger.Item(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	find := deskReservations{p.stock}
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	var requests []sale.Request
	for i := range 30 {
		r := sale.Request{OrderID: sale.NewOrderID(it.ID), UserID: fmt.Sprintf("user-%d", i), Quantity: 2, Price: it.Price, Currency: it.Currency, Trace: trace}
		got := p.stock.Reserve(ctx, layoutOf(&it), r)
		if got.Outcome != sale.Reserved {
			t.Fatalf("reserve: %+v", got)
		}
		select {
		case <-got.Acked:
		case <-ctx.Done():
			t.Fatal("not acknowledged")
		}
		requests = append(requests, r)
	}
	found := func(when string, r sale.Request, trace string) {
		t.Helper()
		e, ok, err := find.Find(ctx, it, r.OrderID)
		if err != nil || !ok || e.OrderID != r.OrderID || e.ItemID != it.ID || e.UserID != r.UserID || e.Quantity != 2 || e.Price != "19.80" || e.Currency != "EUR" ||
			e.Shard != sale.Home(r.UserID, 3) || e.Epoch != it.Epoch || time.Since(e.ReservedAt).Abs() > time.Hour || e.Trace != trace {
			t.Errorf("%s: %+v, %v, %v", when, e, ok, err)
		}
	}
	devtest.Eventually(t, time.Minute, func() bool {
		readings, err := p.stock.Read(ctx, layoutOf(&it))
		return err == nil && readings[0].Entries+readings[1].Entries+readings[2].Entries == 0
	}, "the outboxes are empty")
	for _, r := range requests {
		found("in Kafka", r, "")
	}
	stranger := sale.NewOrderID(it.ID)
	if e, ok, err := find.Find(ctx, it, stranger); ok || err != nil {
		t.Errorf("an order that nobody made: %+v, %v, %v", e, ok, err)
	}

	// Without its broker a reservation stays in the outbox, which knows the trace.
	if err := p.producer.Close(ctx); err != nil {
		t.Fatal(err)
	}
	waiting := sale.Request{OrderID: sale.NewOrderID(it.ID), UserID: "waiting", Quantity: 2, Price: it.Price, Currency: it.Currency, Trace: trace}
	if got := p.stock.Reserve(ctx, layoutOf(&it), waiting); got.Outcome != sale.Reserved {
		t.Fatalf("reserve: %+v", got)
	}
	found("in the outbox", waiting, trace)

	// A shard that is not loaded may have had it.
	key := fmt.Sprintf("{item:%d:1}:stock", it.ID)
	if err := p.redis.Do(ctx, p.redis.B().Rename().Key(key).Newkey(key+":away").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	for _, r := range requests {
		found("while a shard is loaded", r, "")
	}
	if e, ok, err := find.Find(ctx, it, stranger); ok || err == nil {
		t.Errorf("while a shard is loaded: %+v, %v, %v", e, ok, err)
	}
	if err := redis.Stop(); err != nil {
		t.Fatal(err)
	}
	if e, ok, err := find.Find(ctx, it, requests[0].OrderID); ok || err == nil {
		t.Errorf("without Redis: %+v, %v, %v", e, ok, err)
	}
}

// TestADeskChangesASale sees that a change is what the next shopper meets, and that the audit table has it.
func TestADeskChangesASale(t *testing.T) {
	d := openDesk(t)
	c, ctx := d.client(), t.Context()
	d.do(saleOf(1, 1001, 3, 2), "sale", "create", "-f", "-")
	yes, no := true, false
	if got, err := c.UpdateSale(ctx, 1, admin.SalePatch{Paused: &yes}); err != nil || !got.Value.Paused {
		t.Fatalf("pause: %s, %v", got.JSON, err)
	}
	d.buy("a", "1001", 403)
	if got, err := c.UpdateSale(ctx, 1, admin.SalePatch{Paused: &no}); err != nil || got.Value.Paused {
		t.Fatalf("resume: %s, %v", got.JSON, err)
	}
	d.buy("a", "1001", 202)
	if got, err := c.UpdateItem(ctx, 1001, admin.ItemPatch{Paused: &yes}); err != nil || !got.Value.Item.Paused {
		t.Fatalf("pause the item: %s, %v", got.JSON, err)
	}
	d.buy("b", "1001", 403)
	quantity, price := int64(10), "7.5"
	got, err := c.UpdateItem(ctx, 1001, admin.ItemPatch{Paused: &no, Quantity: &quantity, Price: &price})
	if v := got.Value.Item; err != nil || v.Paused || v.Quantity != 10 || v.Available == nil || *v.Available != 9 || *v.Drift != 0 || v.Price != "7.5" {
		t.Errorf("more units: %s, %v", got.JSON, err)
	}
	d.buy("b", "1001", 202)
	early, later := "2020-01-02T00:00:00Z", "2099-01-02T00:00:00Z"
	if got, err := c.UpdateSale(ctx, 1, admin.SalePatch{EndsAt: &early}); err != nil {
		t.Errorf("end early: %s, %v", got.JSON, err)
	}
	d.buy("c", "1001", 410)
	if got, err := c.UpdateSale(ctx, 1, admin.SalePatch{EndsAt: &later}); err != nil {
		t.Errorf("extend: %s, %v", got.JSON, err)
	}
	d.buy("c", "1001", 202)
	// The shell has no say in when "now" is.
	if got := d.do("", "sale", "update", "1", "--end"); !strings.Contains(got, "ends            20") {
		t.Errorf("ended from the shell: %s", got)
	}
	d.buy("d", "1001", 410)

	devtest.Eventually(t, time.Minute, func() bool { return d.item("1001").Sold == 3 }, "the orders are written")
	fewer := int64(2)
	for code, call := range map[string]func() error{
		"SALE_STARTED": func() error { _, err := c.UpdateSale(ctx, 1, admin.SalePatch{StartsAt: &early}); return err },
		"BAD_REQUEST": func() error {
			old := "2019-12-31T00:00:00Z"
			_, err := c.UpdateSale(ctx, 1, admin.SalePatch{EndsAt: &old})
			return err
		},
		"NOT_FOUND": func() error { _, err := c.UpdateSale(ctx, 2, admin.SalePatch{Paused: &yes}); return err },
		"BELOW_SOLD": func() error {
			_, err := c.UpdateItem(ctx, 1001, admin.ItemPatch{Quantity: &fewer, Paused: &yes})
			return err
		},
	} {
		var refusal *admin.Refusal
		if err := call(); !errors.As(err, &refusal) || refusal.Code != code {
			t.Errorf("%s: %v", code, err)
		}
	}
	if v := d.item("1001"); v.Quantity != 10 || v.Paused {
		t.Errorf("after what was refused the item is %+v", v)
	}
	for subject, want := range map[string]int{"sale:1": 6, "item:1001": 2, "sale:2": 0} {
		page, err := c.Audit(ctx, subject, 100, "")
		if err != nil || len(page.Value.Entries) != want {
			t.Errorf("the audit of %s is %s, %v", subject, page.JSON, err)
		}
	}
}

// TestADeskAnswersAboutOrders asks support's questions: what became of it, whose money has to go back.
func TestADeskAnswersAboutOrders(t *testing.T) {
	d := openDesk(t)
	c, ctx := d.client(), t.Context()
	d.do(saleOf(1, 1001, 10, 2), "sale", "create", "-f", "-")
	for _, user := range []string{"a", "b", "c"} {
		d.buy(user, "1001", 202)
	}
	devtest.Eventually(t, time.Minute, func() bool { return d.item("1001").Sold == 3 }, "the orders are written")
	var ids []sale.OrderID
	cursor := ""
	for range 3 {
		page, err := c.Orders(ctx, admin.OrderQuery{Item: 1001, Status: "PENDING"}, 1, cursor)
		if err != nil || len(page.Value.Orders) != 1 {
			t.Fatalf("%s, %v", page.JSON, err)
		}
		id, err := sale.ParseOrderID(page.Value.Orders[0].OrderID)
		if err != nil {
			t.Fatal(err)
		}
		if ids = append(ids, id); page.Value.NextCursor != nil {
			cursor = *page.Value.NextCursor
		}
	}
	var refusal *admin.Refusal
	if _, err := c.Orders(ctx, admin.OrderQuery{}, 1, "x"); !errors.As(err, &refusal) || refusal.Status != 400 || !strings.HasPrefix(refusal.Message, "cursor: ") {
		t.Errorf("a bad cursor: %v", err)
	}
	o, err := c.Order(ctx, ids[0])
	if v := o.Value; err != nil || v.UserID != "c" || v.Status != "PENDING" || !v.Payable || !v.InDatabase || v.CreatedAt == nil || v.ExpiresAt == nil || v.PaidAt != nil || v.EndedAt != nil || len(v.Payments) != 0 {
		t.Errorf("the newest order is %s, %v", o.JSON, err)
	}
	if _, err := c.Refunded(ctx, ids[0], admin.RefundInput{}); !errors.As(err, &refusal) || refusal.Code != "NOT_DUE" {
		t.Errorf("nothing is due: %v", err)
	}
	for _, event := range []string{"e1", "e2"} { // the second one is too much
		if _, _, err := d.parts.ledger.Pay(ctx, sale.Payment{EventID: event, OrderID: ids[0], Succeeded: true, Amount: "19.8", Currency: "EUR"}); err != nil {
			t.Fatal(err)
		}
	}
	due, err := c.Orders(ctx, admin.OrderQuery{Status: admin.StatusRefundDue}, 0, "")
	if err != nil || len(due.Value.Orders) != 1 || due.Value.Orders[0].OrderID != ids[0].String() || !due.Value.Orders[0].RefundDue {
		t.Errorf("refunds due are %s, %v", due.JSON, err)
	}
	for range 2 {
		refund, err := c.Refunded(ctx, ids[0], admin.RefundInput{})
		if v := refund.Value; err != nil || v.Status != "PAID" || v.PaidAt == nil || v.RefundDue || v.RefundedAt == nil || len(v.Payments) != 2 ||
			v.Payments[0].Effect != "paid" || v.Payments[1].Effect != "refund_due" || v.Payments[1].RefundedAt == nil || v.Payments[0].Amount != "19.8" {
			t.Errorf("refunded: %s, %v", refund.JSON, err)
		}
	}
	if _, err := c.Refunded(ctx, sale.NewOrderID(1001), admin.RefundInput{}); !errors.As(err, &refusal) || refusal.Status != 404 {
		t.Errorf("no order: %v", err)
	}
	audit, err := c.Audit(ctx, "order:"+ids[0].String(), 0, "")
	if err != nil || len(audit.Value.Entries) != 1 || strings.Contains(string(audit.JSON), `"userId"`) || !strings.Contains(string(audit.JSON), `"refundsDue":1`) {
		t.Errorf("the audit is %s, %v", audit.JSON, err)
	}
	d.marksByName(ids[0])
	if got := d.refused("", "order", "refunded", ids[1].String()); !strings.Contains(got, "none is due") {
		t.Errorf("nothing was due: %s", got)
	}
	// From before payments were recorded.
	if err := d.parts.ledger.InTx(ctx, func(ctx context.Context, tx ledger.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE flash_sale_order SET refunds_due = 1, refund_due = true WHERE id = $1`, [16]byte(ids[1]))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if got := d.refused("", "order", "refunded", ids[1].String()); !strings.Contains(got, "1 due, of no payment on record") {
		t.Errorf("without a payment: %s", got)
	}
	if refund, err := c.Refunded(ctx, ids[1], admin.RefundInput{}); err != nil || refund.Value.RefundDue {
		t.Errorf("without a payment: %s, %v", refund.JSON, err)
	}
	if _, err := c.Order(ctx, sale.NewOrderID(1001)); !errors.As(err, &refusal) || refusal.Status != 404 {
		t.Errorf("an order that nobody made: %v", err)
	}
}

// marksByName has operators mark payments of a paid order of which e2 has been paid back, while others come in.
func (d *desk) marksByName(id sale.OrderID) {
	d.t.Helper()
	late := func(event string) {
		d.t.Helper()
		if _, _, err := d.parts.ledger.Pay(d.t.Context(), sale.Payment{EventID: event, OrderID: id, Succeeded: true, Amount: "19.80", Currency: "EUR"}); err != nil {
			d.t.Fatal(err)
		}
	}
	marks := "flashgate: marks as paid back for order " + id.String() + ":\nflashgate: payment "
	say := func(announced, last string, args ...string) {
		d.t.Helper()
		got := flashgate(d.t, d.settings, "", append([]string{"order", "refunded", id.String()}, args...)...)
		if got.code != exitOK || !strings.HasPrefix(got.err, announced) || !strings.HasSuffix(got.err, "flashgate: "+last+"\n") || !strings.Contains(got.out, "\nrefunds due   ") {
			d.t.Errorf("refunded %q: exit %d\n%s%s", args, got.code, got.err, got.out)
		}
	}
	say("", "nothing is due for order "+id.String()+" any more")
	late("e3,1")
	say(marks+"e3,1, 19.80 EUR, of 20", "marked; still due: 0", "--event", "e3,1")
	late("e4")
	say(marks+"e3,1, 19.80 EUR, of 20", "marked; still due: 1", "--event", "e3,1") // by somebody who saw the same
	late("e5")
	for _, event := range []string{"e1", "e9"} {
		if got := d.refused("", "order", "refunded", id.String(), "--event", "e4", "--event", event); !strings.Contains(got, "eventIds: "+event+" is no payment of order "+id.String()+" that has to be paid back; nothing was marked (409 NOT_DUE)") {
			d.t.Errorf("%s: %s", event, got)
		}
	}
	if v, err := d.client().Order(d.t.Context(), id); err != nil || v.Value.RefundsDue != 2 {
		d.t.Errorf("after what was refused the order is %s, %v", v.JSON, err)
	}
	say(marks+"e5, 19.80 EUR, of 20", "marked; still due: 1", "--event", "e5")
	late("e6")
	say(marks+"e4, 19.80 EUR, of 20", "marked; still due: 0") // and e6
	audit, err := d.client().Audit(d.t.Context(), "order:"+id.String(), 0, "")
	if err != nil || len(audit.Value.Entries) != 4 || !strings.Contains(string(audit.Value.Entries[0].After), `"eventIds":["e4","e6"]`) {
		d.t.Errorf("the audit is %s, %v", audit.JSON, err)
	}
	if got := flashgate(d.t, d.settings, "", "audit", "--subject", "order:"+id.String()); !strings.Contains(got.out, `["e4","e6"]`) {
		d.t.Errorf("the audit in the shell is\n%s", got.out)
	}
}

func TestADeskReadsDeadLetters(t *testing.T) {
	d := openDesk(t)
	c, ctx := d.client(), t.Context()
	id := sale.NewOrderID(1001)
	for i, value := range []string{`{"v":1,"orderId":"` + id.String() + `"}`, "\xff"} {
		record := &kgo.Record{Topic: broker.Orders, Partition: 3, Offset: int64(i), Key: []byte("item:1001:0"), Value: []byte(value)}
		if err := d.parts.producer.ProduceDead(ctx, record, broker.ReasonInvalid, errors.New("quantity: is missing")); err != nil {
			t.Fatal(err)
		}
	}
	first, err := c.DeadLetters(ctx, 1, "")
	if err != nil || len(first.Value.Letters) != 1 || first.Value.NextCursor == nil {
		t.Fatalf("the first page is %s, %v", first.JSON, err)
	}
	if l := first.Value.Letters[0]; l.Reason != "invalid" || l.Error != "quantity: is missing" || l.Topic != broker.Orders || l.SourcePartition == nil || *l.SourcePartition != 3 || *l.SourceOffset != 0 || *l.Key != "item:1001:0" || l.OrderID == nil || *l.OrderID != id.String() {
		t.Errorf("the first letter is %s", first.JSON)
	}
	second, err := c.DeadLetters(ctx, 1, *first.Value.NextCursor)
	if err != nil || len(second.Value.Letters) != 1 || second.Value.NextCursor != nil || second.Value.Letters[0].Value != nil || second.Value.Letters[0].ValueBytes != 1 || second.Value.Letters[0].OrderID != nil {
		t.Errorf("the second page is %s, %v", second.JSON, err)
	}
	var refusal *admin.Refusal
	if _, err := c.DeadLetters(ctx, 1, "x"); !errors.As(err, &refusal) || refusal.Status != 400 || !strings.HasPrefix(refusal.Message, "cursor: ") {
		t.Errorf("a bad cursor: %v", err)
	}
}

// TestADeskReloadsAnItem repairs a stock that nobody can explain.
func TestADeskReloadsAnItem(t *testing.T) {
	d := openDesk(t)
	c, ctx := d.client(), t.Context()
	d.do(saleOf(1, 1001, 100, 4), "sale", "create", "-f", "-")
	d.buy("a", "1001", 202)
	if err := d.parts.redis.Do(ctx, d.parts.redis.B().Set().Key("{item:1001:0}:stock").Value("3").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	if v := d.item("1001"); v.Drift == nil || *v.Drift == 0 {
		t.Errorf("the item is %+v", v)
	}
	before := d.item("1001").Epoch
	got, err := c.Reload(ctx, 1001)
	if err != nil {
		t.Fatal(err)
	}
	if got.Value.Item == nil { // the machine is busy: the load goes on
		devtest.Eventually(t, time.Minute, func() bool { v := d.item("1001"); return v.Epoch > before && v.Available != nil }, "the item is loaded")
	}
	if v := d.item("1001"); v.Epoch <= before || *v.Available != 99 || v.Sold != 1 || *v.Drift != 0 {
		t.Errorf("answered %s, then the item is %+v", got.JSON, v)
	}
	change := fmt.Sprintf("epoch: %d → %d", before, before+1)
	devtest.Eventually(t, time.Minute, func() bool {
		table := d.do("", "audit", "--subject", "item:1001")
		return strings.Contains(table, "item.reload  item:1001") && strings.Contains(table, change)
	}, "the load is in the audit table")
}

// TestADeskChangesTheStock has another number of shards and fewer units, from the shell and from two people at once, while the item is sold.
func TestADeskChangesTheStock(t *testing.T) {
	d := openDesk(t)
	d.do(saleOf(1, 1001, 100, 13), "sale", "create", "-f", "-")
	for i := range 6 {
		d.buy(fmt.Sprint("user-", i), "1001", 202)
	}
	devtest.Eventually(t, time.Minute, func() bool { return d.item("1001").Sold == 6 }, "the orders are written")
	// The answer is the item, or that it will be done; either way it will.
	d.do("", "item", "update", "1001", "--shards", "4", "--quantity", "90")
	d.becomes(90, 4)
	d.buy("user-0", "1001", 409) // his mark moved with him
	d.buy("user-6", "1001", 202)
	two := []string{"--shards=7", "--quantity=80"}
	var both sync.WaitGroup
	for _, change := range two {
		both.Go(func() { d.do("", "item", "update", "1001", change) })
	}
	both.Wait()
	d.becomes(80, 7)
	d.buy("user-7", "1001", 202)
	devtest.Eventually(t, time.Minute, func() bool { return d.item("1001").Sold == 8 }, "the orders are written")
	if got := d.refused("", "item", "update", "1001", "--quantity", "7"); !strings.Contains(got, "8 units are sold") {
		t.Errorf("below what is sold: %s", got)
	}
	d.becomes(80, 7)
}

// becomes waits until the item is at rest with so many units in so many shards.
func (d *desk) becomes(quantity int64, shards int) {
	d.t.Helper()
	var v admin.ItemView
	devtest.Eventually(d.t, time.Minute, func() bool {
		v = d.item("1001")
		return v.Quantity == quantity && len(v.Shards) == shards && v.Drift != nil && *v.Drift == 0 && *v.Available == quantity-v.Sold
	}, "the item has its units and shards")
}
