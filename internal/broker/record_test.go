package broker_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"flashgate/internal/broker"
	"flashgate/internal/broker/brokertest"
	"flashgate/internal/sale"
)

// exampleID is an order id of item 1001.
var exampleID = mustID("00000000-001f-8480-8000-0000000000a1")

func mustID(text string) sale.OrderID {
	id, err := sale.ParseOrderID(text)
	if err != nil {
		panic(err)
	}
	return id
}

func example() sale.Event {
	return sale.Event{
		OrderID: exampleID, ItemID: 1001, UserID: "user <7>", Quantity: 2, Shard: 3, Epoch: 5,
		ReservedAt: time.Date(2026, 11, 27, 12, 0, 0, 123_000_000, time.UTC), Price: "19.80", Currency: "JPY",
		KeyHash: sale.HashKey("key"), Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
}

func TestEncode(t *testing.T) {
	if item, ok := exampleID.Item(); !ok || item != 1001 {
		t.Fatalf("the example's id is of item %d, %v", item, ok)
	}
	r := broker.Encode(example())
	if got, want := string(r.Key), "item:1001:3"; got != want {
		t.Errorf("key %q, want %q", got, want)
	}
	if r.Topic != "flash-sale-orders" {
		t.Errorf("topic %q", r.Topic)
	}
	var value map[string]any
	if err := json.Unmarshal(r.Value, &value); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"v": 1.0, "orderId": exampleID.String(), "itemId": 1001.0, "userId": "user <7>", "quantity": 2.0, "shard": 3.0, "epoch": 5.0,
		"reservedAt": "2026-11-27T12:00:00.123Z", "price": "19.80", "currency": "JPY", "keyHash": sale.HashKey("key"),
	}
	if len(value) != len(want) {
		t.Errorf("members %v, want %v", value, want)
	}
	for name, w := range want {
		if value[name] != w {
			t.Errorf("%s: %v, want %v", name, value[name], w)
		}
	}
	for key, w := range map[string]string{
		"ce_id": exampleID.String(), "ce_type": "flashgate.order.reserved", "ce_source": "flashgate", "ce_specversion": "1.0",
		"ce_time": "2026-11-27T12:00:00.123Z", "traceparent": example().Trace,
	} {
		if got := brokertest.Header(r, key); got != w {
			t.Errorf("header %s: %q, want %q", key, got, w)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		item := rapid.Int64Range(1, sale.MaxID).Draw(t, "item")
		event := sale.Event{
			OrderID:    sale.NewOrderID(item),
			ItemID:     item,
			UserID:     rapid.StringN(1, 16, sale.MaxUserID).Filter(func(s string) bool { return sale.CheckUser(s) == nil }).Draw(t, "user"),
			Quantity:   rapid.Int64Range(1, sale.MaxQuantity).Draw(t, "quantity"),
			Shard:      rapid.IntRange(0, sale.MaxShards-1).Draw(t, "shard"),
			Epoch:      rapid.Int64Min(0).Draw(t, "epoch"),
			ReservedAt: time.UnixMilli(rapid.Int64Range(0, 253402300799999).Draw(t, "ms")).UTC(),
			Price:      sale.Price(rapid.StringMatching(`|0|[1-9][0-9]{0,13}(\.[0-9]{1,4})?`).Draw(t, "price")),
			Currency:   rapid.StringMatching(`|[A-Z]{3}`).Draw(t, "currency"),
			KeyHash:    sale.HashKey(rapid.StringMatching(`[!-~]{0,8}`).Draw(t, "key")),
			Trace:      rapid.StringMatching(`|00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]`).Draw(t, "trace"),
		}
		record := broker.Encode(event)
		got, err := broker.Decode(record)
		if err != nil {
			t.Fatalf("%s: %v", record.Value, err)
		}
		if got != event {
			t.Fatalf("decoded %+v, encoded %+v", got, event)
		}
	})
}

// valid returns the JSON of a sound record with some members replaced or, with nil, removed.
func valid(changes map[string]any) []byte {
	members := map[string]any{}
	if err := json.Unmarshal(broker.Encode(example()).Value, &members); err != nil {
		panic(err)
	}
	members["itemId"] = 1001 // as an integer again
	for name, value := range changes {
		if value == nil {
			delete(members, name)
		} else {
			members[name] = value
		}
	}
	out, err := json.Marshal(members)
	if err != nil {
		panic(err)
	}
	return out
}

func TestDecodePoison(t *testing.T) {
	null := json.RawMessage("null")
	cases := map[string]struct {
		value  []byte
		reason string
		says   string
	}{
		"tombstone":            {nil, broker.ReasonTombstone, ""},
		"empty":                {[]byte{}, broker.ReasonEmpty, ""},
		"bytes":                {[]byte{0xff, 0xff}, broker.ReasonMalformed, ""},
		"null":                 {[]byte("null"), broker.ReasonMalformed, ""},
		"array":                {[]byte("[]"), broker.ReasonMalformed, ""},
		"string":               {[]byte(`"{}"`), broker.ReasonMalformed, ""},
		"no members":           {[]byte("{}"), broker.ReasonMalformed, "v"},
		"cut off":              {valid(nil)[:40], broker.ReasonMalformed, ""},
		"trailing":             {append(valid(nil), '{'), broker.ReasonMalformed, ""},
		"twice":                {append([]byte(`{"quantity":1,`), valid(nil)[1:]...), broker.ReasonMalformed, "quantity"},
		"other case":           {valid(map[string]any{"quantity": nil, "Quantity": 1}), broker.ReasonInvalid, "quantity"},
		"version 2":            {valid(map[string]any{"v": 2}), broker.ReasonVersion, "2"},
		"version 2, new types": {valid(map[string]any{"v": 2, "quantity": "2"}), broker.ReasonVersion, "2"},
		"version 0":            {valid(map[string]any{"v": 0}), broker.ReasonVersion, "0"},
		"version as text":      {valid(map[string]any{"v": "1"}), broker.ReasonMalformed, "v"},
		"no version":           {valid(map[string]any{"v": nil}), broker.ReasonMalformed, "v"},
		"quantity as text":     {valid(map[string]any{"quantity": "2"}), broker.ReasonMalformed, "quantity"},
		"quantity null":        {valid(map[string]any{"quantity": null}), broker.ReasonMalformed, "quantity"},
		"quantity 1.0":         {valid(map[string]any{"quantity": json.RawMessage("1.0")}), broker.ReasonMalformed, "quantity"},
		"quantity 1e0":         {valid(map[string]any{"quantity": json.RawMessage("1e0")}), broker.ReasonMalformed, "quantity"},
		"quantity 0":           {valid(map[string]any{"quantity": 0}), broker.ReasonInvalid, "quantity"},
		"quantity -1":          {valid(map[string]any{"quantity": -1}), broker.ReasonInvalid, "quantity"},
		"quantity 2^53":        {valid(map[string]any{"quantity": int64(1) << 53}), broker.ReasonInvalid, "quantity"},
		"quantity 2^64":        {valid(map[string]any{"quantity": json.RawMessage("18446744073709551616")}), broker.ReasonMalformed, "quantity"},
		"no quantity":          {valid(map[string]any{"quantity": nil}), broker.ReasonInvalid, "quantity"},
		"item as text":         {valid(map[string]any{"itemId": "1001"}), broker.ReasonMalformed, "itemId"},
		"item 0":               {valid(map[string]any{"itemId": 0}), broker.ReasonInvalid, "itemId"},
		"other item":           {valid(map[string]any{"itemId": 1002}), broker.ReasonInvalid, "1001"},
		"no item":              {valid(map[string]any{"itemId": nil}), broker.ReasonInvalid, "itemId"},
		"user as number":       {valid(map[string]any{"userId": 7}), broker.ReasonMalformed, "userId"},
		"user empty":           {valid(map[string]any{"userId": ""}), broker.ReasonInvalid, "userId"},
		"user with a tab":      {valid(map[string]any{"userId": "a\tb"}), broker.ReasonInvalid, "userId"},
		"user with NUL":        {valid(map[string]any{"userId": "a\x00"}), broker.ReasonInvalid, "userId"},
		"user too long":        {valid(map[string]any{"userId": strings.Repeat("u", 65)}), broker.ReasonInvalid, "userId"},
		"user half a pair":     {valid(map[string]any{"userId": json.RawMessage(`"\ud800"`)}), broker.ReasonMalformed, ""},
		"no user":              {valid(map[string]any{"userId": nil}), broker.ReasonInvalid, "userId"},
		"order no UUID":        {valid(map[string]any{"orderId": "7"}), broker.ReasonInvalid, "orderId"},
		"order UUIDv4":         {valid(map[string]any{"orderId": "0189b0a4-0000-4000-8000-000000000000"}), broker.ReasonInvalid, "orderId"},
		"no order":             {valid(map[string]any{"orderId": nil}), broker.ReasonInvalid, "orderId"},
		"shard -1":             {valid(map[string]any{"shard": -1}), broker.ReasonInvalid, "shard"},
		"shard 256":            {valid(map[string]any{"shard": 256}), broker.ReasonInvalid, "shard"},
		"no shard":             {valid(map[string]any{"shard": nil}), broker.ReasonInvalid, "shard"},
		"epoch -1":             {valid(map[string]any{"epoch": -1}), broker.ReasonInvalid, "epoch"},
		"no epoch":             {valid(map[string]any{"epoch": nil}), broker.ReasonInvalid, "epoch"},
		"time without offset":  {valid(map[string]any{"reservedAt": "2026-11-27T12:00:00"}), broker.ReasonInvalid, "reservedAt"},
		"time as number":       {valid(map[string]any{"reservedAt": 1}), broker.ReasonMalformed, "reservedAt"},
		"no time":              {valid(map[string]any{"reservedAt": nil}), broker.ReasonInvalid, "reservedAt"},
		"price as number":      {valid(map[string]any{"price": 19.8}), broker.ReasonMalformed, "price"},
		"price negative":       {valid(map[string]any{"price": "-1"}), broker.ReasonInvalid, "price"},
		"currency":             {valid(map[string]any{"currency": "yen"}), broker.ReasonInvalid, "currency"},
		"key hash":             {valid(map[string]any{"keyHash": "a b"}), broker.ReasonInvalid, "keyHash"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := broker.Decode(&kgo.Record{Value: c.value})
			var poison *broker.PoisonError
			if !errors.As(err, &poison) {
				t.Fatalf("%s: %v, want a PoisonError", c.value, err)
			}
			if poison.Reason != c.reason || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v, want reason %s and %q named", c.value, err, c.reason, c.says)
			}
		})
	}
}

func TestDecodeTolerates(t *testing.T) {
	t.Run("optional members absent", func(t *testing.T) {
		got, err := broker.Decode(&kgo.Record{Value: valid(map[string]any{"price": nil, "currency": nil, "keyHash": nil})})
		want := example()
		want.Price, want.Currency, want.KeyHash, want.Trace = "", "", "", ""
		if err != nil || got != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	})
	t.Run("unknown members", func(t *testing.T) {
		got, err := broker.Decode(&kgo.Record{Value: valid(map[string]any{"lots": []map[string]any{{"lotId": "a", "quantity": "2"}}, "channel": nil})})
		want := example()
		want.Trace = ""
		if err != nil || got != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	})
	t.Run("a finer time in another zone", func(t *testing.T) {
		got, err := broker.Decode(&kgo.Record{Value: valid(map[string]any{"reservedAt": "2026-11-27T20:00:00.123999+08:00"})})
		if err != nil || got.ReservedAt != example().ReservedAt {
			t.Errorf("%v, %v, want %v", got.ReservedAt, err, example().ReservedAt)
		}
	})
	t.Run("a traceparent that is none", func(t *testing.T) {
		r := broker.Encode(example())
		r.Headers = []kgo.RecordHeader{{Key: "traceparent", Value: []byte("a\nb")}}
		if got, err := broker.Decode(r); err != nil || got.Trace != "" {
			t.Errorf("trace %q, %v", got.Trace, err)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add(broker.Encode(example()).Value)
	for _, seed := range []string{"null", "{}", `{"v":1}`, `{"v":2,"orderId":7}`, "\xff\xff", `{"v":1,"v":1}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		event, err := broker.Decode(&kgo.Record{Value: value})
		if err != nil {
			var poison *broker.PoisonError
			if !errors.As(err, &poison) || poison.Reason == "" {
				t.Fatalf("%v is no PoisonError with a reason", err)
			}
			return
		}
		// What was accepted can be stored and sent on without a loss.
		if item, ok := event.OrderID.Item(); !ok || item != event.ItemID || event.Quantity < 1 || sale.CheckUser(event.UserID) != nil {
			t.Fatalf("accepted %+v", event)
		}
		again, err := broker.Decode(broker.Encode(event))
		if err != nil || again != event {
			t.Fatalf("%+v came back as %+v, %v", event, again, err)
		}
	})
}

// The field of a fault is for logs: whatever anybody writes into a record, nothing of it is there.
func TestTheFieldOfAFaultQuotesNothing(t *testing.T) {
	id := sale.NewOrderID(7).String()
	for value, want := range map[string]string{
		`{"v":1,"orderId":"ann@example.com"}`:                       "orderId",
		`{"v":1,"orderId":"` + id + `","itemId":"ann@example.com"}`: "itemId",
		`{"v":1,"orderId":"` + id + `","itemId":8}`:                 "orderId",
		`{"v":1,"ann@example.com":1,"ann@example.com":2}`:           "",
		`{"v":1,"ann":1,"ann":2}`:                                   "",
		`{"v":1,"quantity":{"ann":1}}`:                              "quantity",
		`ann`:                                                       "",
		`{"v":2,"userId":"ann"}`:                                    "v",
		`{"v":1,"orderId":"` + id + `","itemId":7,"userId":"ann","quantity":1,"shard":0,"epoch":1,"reservedAt":"ann"}`: "reservedAt",
		`{"v":1,"orderId":"` + id + `","itemId":7,"userId":"","quantity":1}`:                                           "userId",
	} {
		_, err := broker.Decode(&kgo.Record{Value: []byte(value)})
		var poison *broker.PoisonError
		if !errors.As(err, &poison) || poison.Field() != want {
			t.Errorf("%s: field %q of %v, want %q", value, poison.Field(), err, want)
		}
	}
}
