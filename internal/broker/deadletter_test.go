package broker_test

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"flashgate/internal/broker"
	"flashgate/internal/broker/brokertest"
)

func TestDeadLetter(t *testing.T) {
	original := broker.Encode(example())
	original.Partition, original.Offset = 3, 41
	original.Headers = append(original.Headers, kgo.RecordHeader{Key: "dlq_reason", Value: []byte("of an earlier time")})
	long := errors.New(strings.Repeat("ü", 2000))
	letter := broker.DeadLetter(original, broker.ReasonInvalid, long, time.Date(2026, 11, 27, 20, 0, 0, 1_000_000, time.FixedZone("", 8*3600)))

	if letter.Topic != "flash-sale-orders.dlq" || string(letter.Key) != string(original.Key) || string(letter.Value) != string(original.Value) {
		t.Errorf("letter %+v", letter)
	}
	for key, want := range map[string]string{
		"dlq_topic": "flash-sale-orders", "dlq_partition": "3", "dlq_offset": "41", "dlq_reason": "invalid",
		"dlq_time": "2026-11-27T12:00:00.001Z", "ce_id": exampleID.String(), "traceparent": example().Trace,
	} {
		if got := brokertest.Header(letter, key); got != want {
			t.Errorf("header %s: %q, want %q", key, got, want)
		}
	}
	if text := brokertest.Header(letter, "dlq_error"); len(text) > 1024 || len(text) < 1000 || !utf8.ValidString(text) {
		t.Errorf("error text of %d bytes, valid %v", len(text), utf8.ValidString(text))
	}
	reasons := 0
	for _, h := range letter.Headers {
		if h.Key == "dlq_reason" {
			reasons++
		}
	}
	if reasons != 1 {
		t.Errorf("%d reasons, want the new one alone", reasons)
	}
	if got := broker.DeadLetter(&kgo.Record{}, broker.ReasonTombstone, long, time.Now()); got.Value != nil {
		t.Error("a tombstone got a value")
	}
}

func TestProduceDead(t *testing.T) {
	brokertest.Each(t, func(t *testing.T, s *brokertest.Server) {
		p := newProducer(t, s)
		big := &kgo.Record{Topic: broker.Orders, Partition: 1, Offset: 2, Key: []byte("big"), Value: make([]byte, 3<<20)}
		small := &kgo.Record{Topic: broker.Orders, Partition: 1, Offset: 3, Key: []byte("small"), Value: []byte{0xff}}
		for _, r := range []*kgo.Record{big, small} {
			if err := p.ProduceDead(brokertest.Context(t), r, broker.ReasonMalformed, errors.New("no JSON")); err != nil {
				t.Fatal(err)
			}
		}
		letters := map[string]*kgo.Record{}
		for _, r := range s.Read(t, broker.DeadLetters) {
			letters[string(r.Key)] = r
		}
		if len(letters) != 2 {
			t.Fatalf("%d letters", len(letters))
		}
		if r := letters["big"]; len(r.Value) != 0 || brokertest.Header(r, broker.DeadCut) != "3145728" || brokertest.Header(r, broker.DeadOffset) != "2" {
			t.Errorf("a value too large: %d bytes, headers %v", len(r.Value), r.Headers)
		}
		if r := letters["small"]; string(r.Value) != "\xff" || brokertest.Header(r, broker.DeadOffset) != "3" {
			t.Errorf("value %q, headers %v", r.Value, r.Headers)
		}
	})
}
