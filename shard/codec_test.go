package shard

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"flashgate/internal/sale"
)

// text draws what may stand in a field: anything but control characters.
func text(label string, t *rapid.T) string {
	return rapid.StringMatching(`[^\x00-\x1f\x7f]{0,12}`).Draw(t, label)
}

func TestMarkRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := sale.Mark{
			OrderID: sale.NewOrderID(rapid.Int64Range(1, sale.MaxID).Draw(t, "item")), Quantity: rapid.Int64Range(1, sale.MaxQuantity).Draw(t, "quantity"),
			Price: sale.Price(text("price", t)), Currency: text("currency", t), KeyHash: text("key", t), Batch: text("batch", t),
			ReservedAt: time.UnixMilli(rapid.Int64Range(0, sale.MaxQuantity).Draw(t, "at")).UTC(),
		}
		if got, err := decodeMark(encodeMark(want)); err != nil || got != want {
			t.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
	})
}

// encodeEntry writes an outbox entry as reserve.lua does.
func encodeEntry(e Entry) string {
	var units int64
	lines := []string{""}
	for _, v := range e.Events {
		units += v.Quantity
		lines = append(lines, strings.Join([]string{
			v.OrderID.String(), v.UserID, formatInt(v.Quantity), v.KeyHash, string(v.Price), v.Currency, v.Trace,
		}, "\t"))
	}
	lines[0] = strings.Join([]string{entryVersion, formatInt(e.At.UnixMilli()), formatInt(e.Epoch), formatInt(int64(len(e.Events))), formatInt(units)}, "\t")
	return strings.Join(lines, "\n")
}

func TestEntryFaults(t *testing.T) {
	at := place{7, 2}
	id := sale.NewOrderID(7)
	event := id.String() + "\tu\t2\thash\t19.80\tEUR\ttrace"
	good := "1\t1700000000000\t3\t1\t2\n" + event
	entry, err := decodeEntry(at, "b", good)
	want := sale.Event{
		OrderID: id, ItemID: 7, UserID: "u", Quantity: 2, Shard: 2, Epoch: 3, ReservedAt: time.UnixMilli(1700000000000).UTC(),
		Price: "19.80", Currency: "EUR", KeyHash: "hash", Trace: "trace",
	}
	if err != nil || len(entry.Events) != 1 || entry.Events[0] != want || entry.Epoch != 3 || entry.Batch != "b" {
		t.Fatalf("got %+v, %v", entry, err)
	}
	if got := encodeEntry(entry); got != good {
		t.Errorf("written again: %q", got)
	}
	for name, blob := range map[string]string{
		"empty":            "",
		"no events":        "1\t1700000000000\t3\t0\t0",
		"other version":    "2" + good[1:],
		"short head":       "1\t1700000000000\t3\t1\n" + event,
		"odd time":         "1\t017\t3\t1\t2\n" + event,
		"odd epoch":        "1\t17\t-3\t1\t2\n" + event,
		"too few events":   "1\t17\t3\t2\t2\n" + event,
		"units differ":     "1\t17\t3\t1\t3\n" + event,
		"short event":      "1\t17\t3\t1\t2\n" + strings.TrimSuffix(event, "\ttrace"),
		"no quantity":      "1\t17\t3\t1\t0\n" + strings.Replace(event, "\t2\t", "\t0\t", 1),
		"no user":          "1\t17\t3\t1\t2\n" + strings.Replace(event, "\tu\t", "\t\t", 1),
		"bad order id":     "1\t17\t3\t1\t2\n" + "x" + event[1:],
		"id of other item": "1\t17\t3\t1\t2\n" + strings.Replace(event, id.String(), sale.NewOrderID(8).String(), 1),
	} {
		if got, err := decodeEntry(at, "b", blob); err == nil {
			t.Errorf("%s: read as %+v", name, got)
		}
	}
}

func TestTransferFaults(t *testing.T) {
	if got, err := decodeTransfer(1, "op", "3\t5\t2\t17"); err != nil || got.to != 3 || got.from != 1 || got.units != 5 || got.epoch != 2 || got.at.UnixMilli() != 17 {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, record := range []string{"", "3\t5\t2", "3\t0\t2\t17", "256\t5\t2\t17", "-1\t5\t2\t17", "3\t5\t02\t17", "3\t5\t2\tx"} {
		if got, err := decodeTransfer(1, "op", record); err == nil {
			t.Errorf("%q: read as %+v", record, got)
		}
	}
}

func FuzzDecodeEntry(f *testing.F) {
	id := sale.NewOrderID(7).String()
	f.Add("1\t1700000000000\t3\t1\t2\n" + id + "\tu\t2\thash\t19.80\tEUR\ttrace")
	f.Add("1\t0\t0\t2\t2\n" + id + "\tu\t1\t\t\t\t\n" + id + "\tv\t1\t\t\t\t")
	f.Fuzz(func(t *testing.T, blob string) {
		entry, err := decodeEntry(place{7, 0}, "b", blob)
		if err != nil {
			return
		}
		// What is read strictly can be written in one way only, but for the case of order ids.
		if got := encodeEntry(entry); !strings.EqualFold(got, blob) {
			t.Errorf("%q was read, and is written as %q", blob, got)
		}
	})
}

func FuzzDecodeMark(f *testing.F) {
	f.Add(sale.NewOrderID(7).String() + "\t2\t19.80\tEUR\t1700000000000\thash\tbatch")
	f.Fuzz(func(t *testing.T, text string) {
		if mark, err := decodeMark(text); err == nil && !strings.EqualFold(encodeMark(mark), text) {
			t.Errorf("%q was read, and is written as %q", text, encodeMark(mark))
		}
	})
}
