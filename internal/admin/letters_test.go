package admin_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"flashgate/internal/admin"
	"flashgate/internal/sale"
)

func TestDeadLetters(t *testing.T) {
	w := newWorld()
	id, partition, offset, key, value := sale.NewOrderID(1001), int32(3), int64(42), "item:1001:0", `{"v":1,"orderId":`
	w.letters = []admin.Letter{
		{
			Partition: 1, Offset: 7, At: someTime, Reason: "malformed", Error: "JSON ends too early", Topic: "flash-sale-orders", SourcePartition: &partition,
			SourceOffset: &offset, Key: &key, Value: &value, ValueBytes: len(value), OrderID: id,
		},
		{Partition: 2, Offset: 0, At: someTime, ValueBytes: 5000},
	}
	api := w.api(t)
	want := `{"letters":[` +
		`{"partition":1,"offset":7,"at":"2026-11-27T12:30:00.250Z","reason":"malformed","error":"JSON ends too early","topic":"flash-sale-orders",` +
		`"sourcePartition":3,"sourceOffset":42,"key":"item:1001:0","value":"{\"v\":1,\"orderId\":","valueBytes":17,"orderId":"` + id.String() + `"},` +
		`{"partition":2,"offset":0,"at":"2026-11-27T12:30:00.250Z","reason":"","error":"","topic":"","sourcePartition":null,"sourceOffset":null,"key":null,` +
		`"value":null,"valueBytes":5000,"orderId":null}],"nextCursor":null}` + "\n"
	if got := do(api, "GET", "/admin/dlq", ""); got.status != 200 || got.body != want {
		t.Errorf("%d\n%s, want\n%s", got.status, got.body, want)
	}
	for n := range int32(5) {
		w.letters = append(w.letters, admin.Letter{Partition: 10 + n, At: someTime})
	}
	var partitions []string
	for target, more := "/admin/dlq?limit=3", true; more; {
		got := do(api, "GET", target, "")
		var view admin.LettersView
		if err := json.Unmarshal([]byte(got.body), &view); err != nil || got.status != 200 {
			t.Fatalf("GET %s: %d %s, %v", target, got.status, got.body, err)
		}
		for _, l := range view.Letters {
			partitions = append(partitions, fmt.Sprint(l.Partition))
		}
		partitions = append(partitions, "|")
		if more = view.NextCursor != nil; more {
			target = "/admin/dlq?limit=3&cursor=" + *view.NextCursor
		}
	}
	if want := []string{"1", "2", "10", "|", "11", "12", "13", "|", "14", "|"}; !slices.Equal(partitions, want) {
		t.Errorf("the pages are %v, want %v", partitions, want)
	}
	for _, test := range []struct{ query, message string }{
		{"cursor=", "cursor: is not one that an answer gave"},
		{"cursor=x", "cursor: is not one that an answer gave"},
		{"limit=0", "limit: must be an integer from 1 to 100"},
		{"limit=101", "limit: must be an integer from 1 to 100"},
		{"reason=x", `"reason": is not a parameter of this path`},
	} {
		refused(t, test.query, do(api, "GET", "/admin/dlq?"+test.query, ""), 400, "BAD_REQUEST", test.message)
	}
	w.kafka = true
	refused(t, "Kafka away", do(api, "GET", "/admin/dlq", ""), 503, "UNAVAILABLE", "Kafka or the database does not answer, or the dead letters cannot be read")
}

func TestWhatIsNotBuiltSaysSo(t *testing.T) {
	w := newWorld()
	w.put(1, 10)
	id := w.buy(func(*sale.Order) {}).String()
	for target, message := range map[string]string{
		"/admin/orders/" + id + "/approve": "approving orders is not built in this version",
		"/admin/orders/" + id + "/refuse":  "refusing orders is not built in this version",
	} {
		w.told()
		refused(t, target, do(w.api(t), "POST", target, ""), 501, "NOT_IMPLEMENTED", message)
		path, _, _ := strings.Cut(target, "?")
		refused(t, target, do(w.api(t), "POST", path+"?force=1", ""), 400, "BAD_REQUEST", `"force": is not a parameter of this path`)
		if steps := w.told(); len(steps) != 0 {
			t.Errorf("%s: the steps were %v", target, steps)
		}
	}
}
