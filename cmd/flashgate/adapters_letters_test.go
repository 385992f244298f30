package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"flashgate/internal/admin"
	"flashgate/internal/broker"
	"flashgate/internal/devstack/devtest"
	"flashgate/internal/ledger"
	"flashgate/internal/sale"
)

// lateEvents makes reservations of an item by as many users, of an epoch that is not over.
func lateEvents(item int64, n int) []sale.Event {
	events := make([]sale.Event, n)
	for i := range events {
		events[i] = sale.Event{
			OrderID: sale.NewOrderID(item), ItemID: item, UserID: fmt.Sprint("late", i), Quantity: 1, Epoch: 1_000_000,
			ReservedAt: time.Now().UTC().Truncate(time.Millisecond), Price: "19.80", Currency: "EUR",
		}
	}
	return events
}

// bury makes dead letters of records.
func (d *desk) bury(reason string, records ...*kgo.Record) {
	d.t.Helper()
	for _, r := range records {
		if err := d.parts.producer.ProduceDead(d.t.Context(), r, reason, errors.New("no such item")); err != nil {
			d.t.Fatal(err)
		}
	}
}

func (d *desk) letters() (all []admin.LetterView) {
	d.t.Helper()
	var v admin.LettersView
	if err := json.Unmarshal([]byte(d.do("", "dlq", "list", "--limit", "100", "-o", "json")), &v); err != nil || v.NextCursor != nil {
		d.t.Fatal(err, v.NextCursor)
	}
	return v.Letters
}

// TestReplayFromTheShell follows letters through: poison stays, what can be read becomes orders, and closed letters are not seen again.
func TestReplayFromTheShell(t *testing.T) {
	d := openDesk(t)
	if got := d.do("", "dlq", "replay"); got != "0 replayed, 0 kept\n" {
		t.Errorf("of nothing: %q", got)
	}
	d.do(saleOf(1, 1001, 100, 1), "sale", "create", "-f", "-")
	events := lateEvents(1001, 3)
	for _, e := range events {
		d.bury(broker.ReasonRefused, broker.Encode(e))
	}
	named := sale.NewOrderID(1001).String() // of an order that says who it is and little else
	d.bury(broker.ReasonMalformed, &kgo.Record{Topic: broker.Orders, Key: []byte("item:1001:0"), Value: []byte(`{"v":1,"orderId":"` + named + `","quantity":"two"}`)})
	letters := d.letters()
	if len(letters) != 4 {
		t.Fatalf("%d letters", len(letters))
	}
	one := letters[1] // all have the same key, and so the same partition
	place := fmt.Sprintf("%d:%d", one.Partition, one.Offset)
	dry := d.do("", "dlq", "replay", "--dry-run")
	if !strings.Contains(dry, "would be replayed") || !strings.HasSuffix(dry, "\n3 would be replayed, 1 kept\n") || len(d.letters()) != 4 {
		t.Errorf("a dry run says\n%s, and %d letters are left", dry, len(d.letters()))
	}
	if got := d.refused("", "dlq", "replay", "--partition", "0", "--offset", "4000000"); !strings.Contains(got, "404 NOT_FOUND") {
		t.Errorf("a place without a letter: %s", got)
	}
	if got := d.refused("", "dlq", "replay", "--reason", "nonsense"); !strings.Contains(got, "reason: must be one of tombstone, empty, malformed, version, invalid, refused, or another that a letter has (400 BAD_REQUEST)") {
		t.Errorf("for a reason that no letter has: %q", got)
	}
	if got := d.do("", "dlq", "replay", "--reason", "version"); got != "0 replayed, 0 kept\n" {
		t.Errorf("for a reason that no letter has now: %q", got)
	}
	single := []string{"dlq", "replay", "--offset", place}
	want := "" +
		"LETTER  DONE      REASON   ORDER                                 ERROR\n" +
		place + strings.Repeat(" ", 8-len(place)) + "replayed  refused  " + events[1].OrderID.String() + "  -\n1 replayed, 0 kept\n"
	if got := d.do("", single...); got != want {
		t.Errorf("one letter:\n%s, want\n%s", got, want)
	}
	apart := []string{"dlq", "replay", "--partition", fmt.Sprint(one.Partition), "--offset", fmt.Sprint(one.Offset)}
	for _, again := range [][]string{single, apart} {
		if got := d.do("", again...); !strings.Contains(got, "\n"+place+" ") || !strings.Contains(got, "already closed at 20") || !strings.HasSuffix(got, "\n0 replayed, 0 kept\n") {
			t.Errorf("the same letter again: %q", got)
		}
	}
	if got := d.letters(); len(got) != 3 || got[1].Offset == one.Offset {
		t.Errorf("the letters are %+v", got)
	}
	var v admin.ReplayView
	if err := json.Unmarshal([]byte(d.do("", "dlq", "replay", "--reason", "refused", "-o", "json")), &v); err != nil || len(v.Replayed) != 2 || len(v.Kept) != 0 || v.NextCursor != nil || v.DryRun {
		t.Errorf("the others: %+v, %v", v, err)
	}
	if got := d.do("", "dlq", "replay"); !strings.Contains(got, "kept") || !strings.Contains(got, "malformed") || !strings.Contains(got, "  "+named+"  ") || !strings.HasSuffix(got, "\n0 replayed, 1 kept\n") {
		t.Errorf("what is left:\n%s", got)
	}
	if got := d.letters(); len(got) != 1 || got[0].Reason != "malformed" {
		t.Errorf("the letters are %+v", got)
	}
	for _, e := range events {
		devtest.Eventually(t, time.Minute, func() bool {
			o, ok, err := d.parts.ledger.Order(t.Context(), e.OrderID)
			return err == nil && ok && o.Status == sale.Pending
		}, "the order is written")
	}
	var audit admin.AuditView
	if err := json.Unmarshal([]byte(d.do("", "audit", "--subject", "dlq", "-o", "json")), &audit); err != nil || len(audit.Entries) != 2 {
		t.Fatalf("%+v, %v", audit, err)
	}
	if e := audit.Entries[0]; e.What != "dlq.replay" || !strings.Contains(string(e.After), `"count":2`) || !strings.Contains(string(e.After), `"reason":"refused"`) {
		t.Errorf("audit: %s %s", e.What, e.After)
	}
	if got := d.do("", "audit", "--subject", "dlq"); !strings.Contains(got, "  1 replayed: "+place+"\n") || !strings.Contains(got, "  2 replayed: "+fmt.Sprint(one.Partition)+":") {
		t.Errorf("the table of changes is\n%s", got)
	}
	if e := audit.Entries[1]; !strings.Contains(string(e.After), `["`+place+`"]`) {
		t.Errorf("audit: %s %s", e.What, e.After)
	}
}

// TestReplayGoesOnUntilItIsDone takes more steps than one.
func TestReplayGoesOnUntilItIsDone(t *testing.T) {
	d := openDesk(t)
	d.do(saleOf(1, 1001, 5000, 1), "sale", "create", "-f", "-")
	var letters []*kgo.Record
	events := lateEvents(1001, 2*replayStep)
	for i, e := range events {
		record := broker.Encode(e)
		if i%100 == 7 {
			record.Value = []byte("{")
		}
		letters = append(letters, broker.DeadLetter(record, broker.ReasonRefused, errors.New("x"), time.Now()))
	}
	client, err := newKafkaClient(d)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.ProduceSync(t.Context(), letters...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	var v admin.ReplayView
	if err := json.Unmarshal([]byte(d.do("", "dlq", "replay", "-o", "json")), &v); err != nil || len(v.Replayed) != 2*replayStep-20 || len(v.Kept) != 20 || v.NextCursor != nil {
		t.Errorf("%d were replayed and %d kept, %v", len(v.Replayed), len(v.Kept), err)
	}
	if got := d.letters(); len(got) != 20 {
		t.Errorf("%d letters are left", len(got))
	}
	devtest.Eventually(t, 2*time.Minute, func() bool { return d.item("1001").Sold == int64(len(v.Replayed)) }, "all of them are orders")
}

func newKafkaClient(d *desk) (*kgo.Client, error) {
	opts, err := broker.ClientOpts(d.kafka)
	if err != nil {
		return nil, err
	}
	return kgo.NewClient(opts...)
}

// forgetful is a ledger that does not close letters.
type forgetful struct{ *ledger.DB }

func (forgetful) CloseLetters(context.Context, uuid.UUID, []ledger.LetterPlace, json.RawMessage, map[int32]int64) error {
	return errors.New("connection refused")
}

// TestReplayThatIsCutOff crashes between writing and closing: the next replay writes once more, and the order writer has one order.
func TestReplayThatIsCutOff(t *testing.T) {
	d := openDesk(t)
	d.do(saleOf(1, 1001, 100, 1), "sale", "create", "-f", "-")
	event := lateEvents(1001, 1)[0]
	d.bury(broker.ReasonRefused, broker.Encode(event))
	cut := deskLetters{d.parts.admin, d.parts.producer, forgetful{d.parts.ledger}, replayStep}
	var half *admin.ReplayError
	if _, err := cut.Replay(t.Context(), admin.Replay{Asked: []byte(`{}`)}); !errors.As(err, &half) || half.Done != 0 || half.Unsure != 1 {
		t.Fatalf("%+v, %v", half, err)
	}
	written := func() bool {
		o, ok, err := d.parts.ledger.Order(t.Context(), event.OrderID)
		return err == nil && ok && o.Status == sale.Pending
	}
	devtest.Eventually(t, time.Minute, written, "the order is written")
	if got := d.do("", "dlq", "replay"); !strings.HasSuffix(got, "\n1 replayed, 0 kept\n") {
		t.Errorf("once more:\n%s", got)
	}
	ends, err := d.parts.admin.End(t.Context(), broker.Orders)
	if err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, time.Minute, func() bool {
		passed, err := d.parts.admin.Passed(t.Context(), "order-writer", ends)
		return err == nil && passed
	}, "both records are read")
	if v := d.item("1001"); v.Sold != 1 || len(d.letters()) != 0 {
		t.Errorf("%d sold, %d letters", v.Sold, len(d.letters()))
	}
	// Whoever asked for it has gone: the letters are closed all the same, or not written at all.
	d.bury(broker.ReasonRefused, broker.Encode(lateEvents(1001, 1)[0]))
	gone, leave := context.WithCancel(t.Context())
	whole := deskLetters{d.parts.admin, d.parts.producer, leaving{d.parts.ledger, leave}, replayStep}
	if done, err := whole.Replay(gone, admin.Replay{Asked: []byte(`{}`)}); err != nil || len(done.Replayed) != 1 || len(d.letters()) != 0 {
		t.Errorf("%+v, %v; %d letters", done, err, len(d.letters()))
	}
}

// leaving is a ledger whose caller goes before letters are closed.
type leaving struct {
	*ledger.DB
	leave context.CancelFunc
}

func (l leaving) CloseLetters(ctx context.Context, topic uuid.UUID, letters []ledger.LetterPlace, asked json.RawMessage, starts map[int32]int64) error {
	l.leave()
	return l.DB.CloseLetters(ctx, topic, letters, asked, starts)
}
