package broker_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"flashgate/internal/broker"
	"flashgate/internal/broker/brokertest"
	"flashgate/internal/sale"
)

const exampleOperation = "6b1f0a52-0c43-4f5e-9d68-0f5f0c1c2a10"

func paidEvent() broker.OrderEvent {
	return broker.OrderEvent{
		ID: 41, Type: broker.OrderPaid, Key: exampleID.String(), ItemID: 1001, OrderID: exampleID, UserID: "user <7>", Status: "PAID", Quantity: 2,
		At: time.Date(2026, 11, 27, 12, 0, 0, 123_000_000, time.UTC), Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
}

func increaseEvent() broker.OrderEvent {
	return broker.OrderEvent{
		ID: 42, Type: broker.StockIncreased, Key: "item:1001", ItemID: 1001, OperationID: exampleOperation, Delta: 20, Quantity: 120,
		At: time.Date(2026, 11, 27, 12, 0, 1, 0, time.UTC),
	}
}

// The bytes are what others read: each of them counts.
func TestEncodeOrderEvent(t *testing.T) {
	for name, c := range map[string]struct {
		event      broker.OrderEvent
		key, value string
		headers    string
	}{
		"paid": {
			paidEvent(), exampleID.String(),
			`{"v":1,"type":"order.paid","orderId":"` + exampleID.String() + `","itemId":1001,"userId":"user \u003c7\u003e","quantity":2,"status":"PAID","at":"2026-11-27T12:00:00.123Z"}`,
			"ce_id=41 ce_type=flashgate.order.paid ce_source=flashgate ce_specversion=1.0 ce_time=2026-11-27T12:00:00.123Z " +
				"traceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		},
		"increased": {
			increaseEvent(), "item:1001",
			`{"v":1,"type":"stock.increased","itemId":1001,"operationId":"` + exampleOperation + `","delta":20,"quantity":120,"at":"2026-11-27T12:00:01.000Z"}`,
			"ce_id=42 ce_type=flashgate.stock.increased ce_source=flashgate ce_specversion=1.0 ce_time=2026-11-27T12:00:01.000Z",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := broker.EncodeOrderEvent(c.event)
			if r.Topic != "flash-sale-order-events" || string(r.Key) != c.key || string(r.Value) != c.value {
				t.Errorf("topic %s key %s value\n%s, want\n%s", r.Topic, r.Key, r.Value, c.value)
			}
			var headers []string
			for _, h := range r.Headers {
				headers = append(headers, h.Key+"="+string(h.Value))
			}
			if got := strings.Join(headers, " "); got != c.headers {
				t.Errorf("headers\n%s, want\n%s", got, c.headers)
			}
		})
	}
	// A zone and microseconds, as they come from the database.
	e := paidEvent()
	e.At = e.At.Add(456 * time.Microsecond).In(time.FixedZone("", 9*3600))
	if got, want := string(broker.EncodeOrderEvent(e).Value), string(broker.EncodeOrderEvent(paidEvent()).Value); got != want {
		t.Errorf("encoded %s, want %s", got, want)
	}
}

func TestOrderEventRoundTrip(t *testing.T) {
	types := map[string][]string{
		broker.OrderCreated: {"PENDING"}, broker.OrderPaid: {"PAID"}, broker.OrderExpired: {"EXPIRED"}, broker.OrderCancelled: {"CANCELLED"},
		broker.OrderRejected: {"REJECTED"}, broker.OrderRefundDue: {"PAID", "EXPIRED", "CANCELLED", "REJECTED"}, broker.StockIncreased: {""},
	}
	names := []string{
		broker.OrderCreated, broker.OrderPaid, broker.OrderExpired, broker.OrderCancelled, broker.OrderRejected, broker.OrderRefundDue, broker.StockIncreased,
	}
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom(names).Draw(t, "type")
		e := broker.OrderEvent{
			ID: rapid.Int64Min(1).Draw(t, "id"), Type: kind, ItemID: rapid.Int64Range(1, sale.MaxID).Draw(t, "item"),
			Quantity: rapid.Int64Range(1, sale.MaxQuantity).Draw(t, "quantity"),
			At:       time.UnixMilli(rapid.Int64Range(0, 253402300799999).Draw(t, "ms")).UTC(),
			Status:   rapid.SampledFrom(types[kind]).Draw(t, "status"),
			Trace:    rapid.StringMatching(`|00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]`).Draw(t, "trace"),
		}
		if kind == broker.StockIncreased {
			e.Key, e.OperationID, e.Delta = fmt.Sprintf("item:%d", e.ItemID), uuid.NewString(), rapid.Int64Range(1, e.Quantity).Draw(t, "delta")
		} else {
			e.OrderID = sale.NewOrderID(e.ItemID)
			e.Key = e.OrderID.String()
			e.UserID = rapid.StringN(1, 16, sale.MaxUserID).Filter(func(s string) bool { return sale.CheckUser(s) == nil }).Draw(t, "user")
		}
		record := broker.EncodeOrderEvent(e)
		got, err := broker.DecodeOrderEvent(record)
		if err != nil {
			t.Fatalf("%s: %v", record.Value, err)
		}
		if got != e {
			t.Fatalf("decoded %+v, encoded %+v", got, e)
		}
	})
}

// changed is the record of an event with some members of its value replaced or, with nil, removed.
func changed(e broker.OrderEvent, changes map[string]any) *kgo.Record {
	r := broker.EncodeOrderEvent(e)
	var members map[string]json.RawMessage
	if err := json.Unmarshal(r.Value, &members); err != nil {
		panic(err)
	}
	for name, value := range changes {
		delete(members, name)
		if value != nil {
			members[name], _ = json.Marshal(value)
		}
	}
	r.Value, _ = json.Marshal(members)
	return r
}

func TestDecodeOrderEventPoison(t *testing.T) {
	headers := func(change func(*kgo.Record)) *kgo.Record {
		r := broker.EncodeOrderEvent(paidEvent())
		change(r)
		return r
	}
	id := func(text string) *kgo.Record {
		return headers(func(r *kgo.Record) { r.Headers[0].Value = []byte(text) })
	}
	paid := func(name string, value any) *kgo.Record { return changed(paidEvent(), map[string]any{name: value}) }
	increase := func(name string, value any) *kgo.Record { return changed(increaseEvent(), map[string]any{name: value}) }
	for name, c := range map[string]struct {
		record *kgo.Record
		reason string
		says   string
	}{
		"tombstone":             {&kgo.Record{}, broker.ReasonTombstone, ""},
		"empty":                 {&kgo.Record{Value: []byte{}}, broker.ReasonEmpty, ""},
		"array":                 {&kgo.Record{Value: []byte("[]")}, broker.ReasonMalformed, ""},
		"no version":            {paid("v", nil), broker.ReasonMalformed, "v"},
		"version 2, other form": {changed(paidEvent(), map[string]any{"v": 2, "itemId": "1001"}), broker.ReasonVersion, "2"},
		"no type":               {paid("type", nil), broker.ReasonInvalid, "type"},
		"type of later":         {paid("type", "order.shipped"), broker.ReasonInvalid, "order.shipped"},
		"type as number":        {paid("type", 1), broker.ReasonMalformed, "type"},
		"no order":              {paid("orderId", nil), broker.ReasonInvalid, "orderId"},
		"order of another item": {paid("itemId", 1002), broker.ReasonInvalid, "1002"},
		"no item":               {paid("itemId", nil), broker.ReasonInvalid, "itemId"},
		"no user":               {paid("userId", nil), broker.ReasonInvalid, "userId"},
		"user with a tab":       {paid("userId", "a\tb"), broker.ReasonInvalid, "userId"},
		"no quantity":           {paid("quantity", nil), broker.ReasonInvalid, "quantity"},
		"quantity as text":      {paid("quantity", "2"), broker.ReasonMalformed, "quantity"},
		"quantity 2^53":         {paid("quantity", int64(1)<<53), broker.ReasonInvalid, "quantity"},
		"no status":             {paid("status", nil), broker.ReasonInvalid, "status"},
		"status of another":     {paid("status", "EXPIRED"), broker.ReasonInvalid, "EXPIRED"},
		"refund of a pending":   {changed(paidEvent(), map[string]any{"type": "order.refund_due", "status": "PENDING"}), broker.ReasonInvalid, "PENDING"},
		"no time":               {paid("at", nil), broker.ReasonInvalid, "at"},
		"time without offset":   {paid("at", "2026-11-27T12:00:00"), broker.ReasonInvalid, "at"},
		"no operation":          {increase("operationId", nil), broker.ReasonInvalid, "operationId"},
		"operation no UUID":     {increase("operationId", "7"), broker.ReasonInvalid, "operationId"},
		"operation in braces":   {increase("operationId", "{"+exampleOperation+"}"), broker.ReasonInvalid, "operationId"},
		"no delta":              {increase("delta", nil), broker.ReasonInvalid, "delta"},
		"delta above quantity":  {increase("delta", 121), broker.ReasonInvalid, "delta"},
		"an increase of orders": {increase("type", "order.paid"), broker.ReasonInvalid, "orderId"},
		"no id":                 {headers(func(r *kgo.Record) { r.Headers = r.Headers[1:] }), broker.ReasonInvalid, "ce_id"},
		"id 0":                  {id("0"), broker.ReasonInvalid, "ce_id"},
		"id with a zero":        {id("041"), broker.ReasonInvalid, "ce_id"},
		"id too large":          {id("9223372036854775808"), broker.ReasonInvalid, "ce_id"},
		"another key":           {headers(func(r *kgo.Record) { r.Key = []byte("item:1001") }), broker.ReasonInvalid, "key"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := broker.DecodeOrderEvent(c.record)
			var poison *broker.PoisonError
			if !errors.As(err, &poison) {
				t.Fatalf("%s: %v, want a PoisonError", c.record.Value, err)
			}
			if poison.Reason != c.reason || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v, want reason %s and %q named", c.record.Value, err, c.reason, c.says)
			}
		})
	}
	// What a newer version adds is skipped.
	if got, err := broker.DecodeOrderEvent(paid("channel", "app")); err != nil || got != paidEvent() {
		t.Errorf("with an unknown member: %+v, %v", got, err)
	}
}

// An event that a newer version has stored is written all the same: those who wait behind it would wait for ever.
func TestOrderEventOfALaterType(t *testing.T) {
	e := paidEvent()
	e.Type, e.Status = "order.approved", "APPROVED"
	r := broker.EncodeOrderEvent(e)
	if value := string(r.Value); !strings.Contains(value, `"type":"order.approved"`) || !strings.Contains(value, `"status":"APPROVED"`) ||
		brokertest.Header(r, "ce_type") != "flashgate.order.approved" {
		t.Errorf("encoded %s, headers %v", value, r.Headers)
	}
}

func FuzzDecodeOrderEvent(f *testing.F) {
	for _, e := range []broker.OrderEvent{paidEvent(), increaseEvent()} {
		r := broker.EncodeOrderEvent(e)
		f.Add(r.Key, r.Value, r.Headers[0].Value)
	}
	for _, seed := range []string{"null", "{}", `{"v":1}`, `{"v":2,"orderId":7}`, "\xff\xff", `{"v":1,"v":1}`, `{"v":1,"type":"stock.increased"}`} {
		f.Add([]byte("item:1"), []byte(seed), []byte("1"))
	}
	f.Fuzz(func(t *testing.T, key, value, id []byte) {
		e, err := broker.DecodeOrderEvent(&kgo.Record{Key: key, Value: value, Headers: []kgo.RecordHeader{{Key: "ce_id", Value: id}}})
		if err != nil {
			var poison *broker.PoisonError
			if !errors.As(err, &poison) || poison.Reason == "" {
				t.Fatalf("%v is no PoisonError with a reason", err)
			}
			return
		}
		// What was accepted can be told again without a loss.
		again, err := broker.DecodeOrderEvent(broker.EncodeOrderEvent(e))
		if err != nil || again != e {
			t.Fatalf("%+v came back as %+v, %v", e, again, err)
		}
	})
}
