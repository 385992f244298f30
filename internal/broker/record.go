package broker

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"flashgate/internal/sale"
	"flashgate/internal/strictjson"
)

// recordVersion is the version of the form of records. A reader refuses others; members may be added without a new one.
const recordVersion = 1

// The headers of a record: CloudEvents in Kafka's binary mode, and the trace of the request.
const (
	headerID          = "ce_id"
	headerType        = "ce_type"
	headerSource      = "ce_source"
	headerSpecVersion = "ce_specversion"
	headerTime        = "ce_time"
	headerTrace       = "traceparent"

	typeReserved = "flashgate.order.reserved"
	source       = "flashgate"
	specVersion  = "1.0"
)

// timeForm is RFC 3339 with milliseconds, which is as exact as a reservation's time is.
const timeForm = "2006-01-02T15:04:05.000Z07:00"

// orderRecord is the value of an order record. Pointers tell an absent member from a zero.
type orderRecord struct {
	Version    *int64 `json:"v"`
	OrderID    string `json:"orderId"`
	ItemID     int64  `json:"itemId"`
	UserID     string `json:"userId"`
	Quantity   int64  `json:"quantity"`
	Shard      *int64 `json:"shard"`
	Epoch      *int64 `json:"epoch"`
	ReservedAt string `json:"reservedAt"`
	Price      string `json:"price,omitempty"`
	Currency   string `json:"currency,omitempty"`
	KeyHash    string `json:"keyHash,omitempty"`
}

// Key returns the key of an order record: all reservations of one shard of an item are in one partition, in order.
func Key(item int64, shard int) string {
	return "item:" + strconv.FormatInt(item, 10) + ":" + strconv.Itoa(shard)
}

// Encode makes the record of a reservation. The same event gives the same record, byte for byte, whoever encodes it.
func Encode(event sale.Event) *kgo.Record {
	version, shard := int64(recordVersion), int64(event.Shard)
	reservedAt := event.ReservedAt.UTC().Format(timeForm)
	id := event.OrderID.String()
	value, err := json.Marshal(orderRecord{
		Version: &version, OrderID: id, ItemID: event.ItemID, UserID: event.UserID, Quantity: event.Quantity, Shard: &shard,
		Epoch: &event.Epoch, ReservedAt: reservedAt, Price: string(event.Price), Currency: event.Currency, KeyHash: event.KeyHash,
	})
	if err != nil {
		panic("broker: a struct of strings and integers did not encode: " + err.Error())
	}
	return &kgo.Record{
		Topic:   Orders,
		Key:     []byte(Key(event.ItemID, event.Shard)),
		Value:   value,
		Headers: cloudEvent(id, typeReserved, reservedAt, event.Trace),
	}
}

// cloudEvent makes the headers of a record. trace may be empty.
func cloudEvent(id, kind, at, trace string) []kgo.RecordHeader {
	headers := []kgo.RecordHeader{
		{Key: headerID, Value: []byte(id)},
		{Key: headerType, Value: []byte(kind)},
		{Key: headerSource, Value: []byte(source)},
		{Key: headerSpecVersion, Value: []byte(specVersion)},
		{Key: headerTime, Value: []byte(at)},
	}
	if trace != "" {
		headers = append(headers, kgo.RecordHeader{Key: headerTrace, Value: []byte(trace)})
	}
	return headers
}

// The reasons for which a record is poison, and dead letters are made.
const (
	ReasonTombstone = "tombstone" // no value at all
	ReasonEmpty     = "empty"     // a value of no bytes
	ReasonMalformed = "malformed" // not one JSON object of the right types
	ReasonVersion   = "version"   // of a form that this reader does not know
	ReasonInvalid   = "invalid"   // a value that no reservation can have
	ReasonRefused   = "refused"   // sound, and refused by the ledger for good
)

// Reasons are those for which dead letters are made.
func Reasons() []string {
	return []string{ReasonTombstone, ReasonEmpty, ReasonMalformed, ReasonVersion, ReasonInvalid, ReasonRefused}
}

// PoisonError says why a record can never be understood, however often it is read.
type PoisonError struct {
	Reason string // one of the Reason constants
	Err    error  // what exactly
}

// Error implements error.
func (e *PoisonError) Error() string {
	return "decode record: " + e.Reason + ": " + e.Err.Error()
}

// Field returns the member of the record that is wrong, if it is one that records have; "" otherwise. Unlike the text of the error it may be logged:
// it holds nothing that whoever wrote the record has made up.
func (e *PoisonError) Field() string {
	name, _, _ := strings.Cut(e.Err.Error(), ":")
	if fields := reflect.VisibleFields(reflect.TypeFor[orderRecord]()); slices.ContainsFunc(fields, func(f reflect.StructField) bool {
		member, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		return member == name
	}) {
		return name
	}
	return ""
}

// Unwrap returns what exactly is wrong.
func (e *PoisonError) Unwrap() error { return e.Err }

func poison(reason, format string, args ...any) error {
	return &PoisonError{Reason: reason, Err: fmt.Errorf(format, args...)}
}

// Decode reads the record of a reservation. Every error is a *PoisonError. Members that it does not know are skipped. Price, Currency and KeyHash
// are optional and left empty when absent: whoever stores such an event takes price and currency from the item. The headers are not needed: a
// traceparent that is none is dropped.
func Decode(record *kgo.Record) (sale.Event, error) {
	var raw orderRecord
	if err := open(record, &raw, &raw.Version); err != nil {
		return sale.Event{}, err
	}
	event, err := raw.event()
	if err != nil {
		return sale.Event{}, &PoisonError{Reason: ReasonInvalid, Err: err}
	}
	event.Trace = traceOf(record)
	return event, nil
}

// open reads the value of a record into raw, whose member v is version. Every error is a *PoisonError.
func open(record *kgo.Record, raw any, version **int64) error {
	if record.Value == nil {
		return poison(ReasonTombstone, "the record has no value")
	}
	if len(record.Value) == 0 {
		return poison(ReasonEmpty, "the value has no bytes")
	}
	if err := strictjson.Unmarshal(record.Value, raw, strictjson.AllowUnknown()); err != nil {
		// A newer form may well have other types: then its version is what there is to say.
		if version, ok := versionOf(record.Value); ok && version != recordVersion {
			return unknownVersion(version)
		}
		return poison(ReasonMalformed, "%w", err)
	}
	switch {
	case *version == nil:
		return poison(ReasonMalformed, "v: is missing")
	case **version != recordVersion:
		return unknownVersion(**version)
	}
	return nil
}

func versionOf(value []byte) (int64, bool) {
	var raw struct {
		Version *int64 `json:"v"`
	}
	if err := strictjson.Unmarshal(value, &raw, strictjson.AllowUnknown()); err != nil || raw.Version == nil {
		return 0, false
	}
	return *raw.Version, true
}

func unknownVersion(version int64) error {
	return poison(ReasonVersion, "v: %d is not known here, which knows %d", version, recordVersion)
}

// event checks the members one by one. Nothing that passes can be refused by a type or a check of the database for its form.
func (r *orderRecord) event() (sale.Event, error) {
	id, err := sale.ParseOrderID(r.OrderID)
	if err != nil {
		return sale.Event{}, fmt.Errorf("orderId: %w", err)
	}
	if r.ItemID < 1 || r.ItemID > sale.MaxID {
		return sale.Event{}, fmt.Errorf("itemId: %d is not between 1 and %d", r.ItemID, sale.MaxID)
	}
	if item, ok := id.Item(); !ok {
		return sale.Event{}, fmt.Errorf("orderId: %s is not the id of an order", id)
	} else if item != r.ItemID {
		return sale.Event{}, fmt.Errorf("orderId: %s belongs to item %d, and itemId is %d", id, item, r.ItemID)
	}
	if err := sale.CheckUser(r.UserID); err != nil {
		return sale.Event{}, fmt.Errorf("userId: %w", err)
	}
	if r.Quantity < 1 || r.Quantity > sale.MaxQuantity {
		return sale.Event{}, fmt.Errorf("quantity: %d is not between 1 and %d", r.Quantity, sale.MaxQuantity)
	}
	if r.Shard == nil || *r.Shard < 0 || *r.Shard >= sale.MaxShards {
		return sale.Event{}, fmt.Errorf("shard: must be between 0 and %d", sale.MaxShards-1)
	}
	if r.Epoch == nil || *r.Epoch < 0 {
		return sale.Event{}, errors.New("epoch: must be at least 0")
	}
	reservedAt, err := parseTime(r.ReservedAt)
	if err != nil {
		return sale.Event{}, fmt.Errorf("reservedAt: %w", err)
	}
	if err := checkOptional(r); err != nil {
		return sale.Event{}, err
	}
	return sale.Event{
		OrderID: id, ItemID: r.ItemID, UserID: r.UserID, Quantity: r.Quantity, Shard: int(*r.Shard), Epoch: *r.Epoch,
		ReservedAt: reservedAt, Price: sale.Price(r.Price), Currency: r.Currency, KeyHash: r.KeyHash,
	}, nil
}

func parseTime(text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is not a time of RFC 3339 with offset", clip(text, 64))
	}
	return at.UTC().Truncate(time.Millisecond), nil
}

func checkOptional(r *orderRecord) error {
	if r.Price != "" {
		if _, err := sale.ParsePrice(r.Price); err != nil {
			return fmt.Errorf("price: %w", err)
		}
	}
	if r.Currency != "" {
		if err := sale.CheckCurrency(r.Currency); err != nil {
			return fmt.Errorf("currency: %w", err)
		}
	}
	if len(r.KeyHash) > 128 || !visible(r.KeyHash) {
		return errors.New("keyHash: must be at most 128 visible ASCII characters")
	}
	return nil
}

func traceOf(record *kgo.Record) string {
	for _, header := range record.Headers {
		if header.Key == headerTrace {
			if trace := string(header.Value); len(trace) <= 128 && visible(trace) {
				return trace
			}
			return ""
		}
	}
	return ""
}

// visible reports whether text has only visible ASCII characters.
func visible(text string) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}
