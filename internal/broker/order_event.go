package broker

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"flashgate/internal/sale"
)

// The types of order events. Those of orders say what an order has become; OrderRefundDue, that money has come in which the order does not need.
const (
	OrderCreated   = "order.created"
	OrderPaid      = "order.paid"
	OrderExpired   = "order.expired"
	OrderCancelled = "order.cancelled"
	OrderRejected  = "order.rejected"
	OrderRefundDue = "order.refund_due"
	StockIncreased = "stock.increased"
)

// statusOf is the state that an order has after an event of a type; a refund can be due in several.
var statusOf = map[string]sale.OrderStatus{
	OrderCreated: sale.Pending, OrderPaid: sale.Paid, OrderExpired: sale.Expired, OrderCancelled: sale.Cancelled, OrderRejected: sale.Rejected,
	OrderRefundDue: "",
}

// typePrefix stands before the type of an event in its header ce_type.
const typePrefix = "flashgate."

// OrderEvent tells the rest of the shop what became of an order, or that stock was added.
type OrderEvent struct {
	// ID names the event: the same event has the same id, however often it is told, and a later event of a key has a higher one. So a consumer
	// that remembers the last id of each key knows what it has seen before, even when it comes late.
	ID   int64
	Type string // one of the constants above
	// Key is the order's id, or item:N for StockIncreased. The events of one key lie in one partition.
	Key         string
	ItemID      int64
	OrderID     sale.OrderID // of an order, as the next two
	UserID      string
	Status      string // of the order, after the event
	OperationID string // of StockIncreased, as the next: a UUID, the same for every telling of one restock
	Delta       int64  // units added
	Quantity    int64  // units of the order, or of the item after a restock
	At          time.Time
	Trace       string // W3C traceparent of the purchase, or empty
}

// orderEventRecord is the value of an order event. The members that one form does not have are left out of it.
type orderEventRecord struct {
	Version     *int64 `json:"v"`
	Type        string `json:"type"`
	OrderID     string `json:"orderId,omitempty"`
	ItemID      int64  `json:"itemId"`
	UserID      string `json:"userId,omitempty"`
	OperationID string `json:"operationId,omitempty"`
	Delta       int64  `json:"delta,omitempty"`
	Quantity    int64  `json:"quantity"`
	Status      string `json:"status,omitempty"`
	At          string `json:"at"`
}

// EncodeOrderEvent makes the record of an event. The same event gives the same record, byte for byte, whoever encodes it. An event of a type that
// this version does not know is written as well: whoever stored it knew what it means.
func EncodeOrderEvent(e OrderEvent) *kgo.Record {
	version, at := int64(recordVersion), e.At.UTC().Format(timeForm)
	raw := orderEventRecord{Version: &version, Type: e.Type, ItemID: e.ItemID, Quantity: e.Quantity, At: at}
	if e.OrderID == (sale.OrderID{}) {
		raw.OperationID, raw.Delta = e.OperationID, e.Delta
	} else {
		raw.OrderID, raw.UserID, raw.Status = e.OrderID.String(), e.UserID, e.Status
	}
	value, err := json.Marshal(raw)
	if err != nil {
		panic("broker: a struct of strings and integers did not encode: " + err.Error())
	}
	return &kgo.Record{
		Topic:   OrderEvents,
		Key:     []byte(e.Key),
		Value:   value,
		Headers: cloudEvent(strconv.FormatInt(e.ID, 10), typePrefix+e.Type, at, e.Trace),
	}
}

// DecodeOrderEvent reads the record of an event, its key and its headers ce_id and traceparent. Every error is a *PoisonError. Members that it does
// not know are skipped; an event of a type that it does not know is ReasonInvalid.
func DecodeOrderEvent(record *kgo.Record) (OrderEvent, error) {
	var raw orderEventRecord
	if err := open(record, &raw, &raw.Version); err != nil {
		return OrderEvent{}, err
	}
	e, err := raw.event()
	if err == nil {
		e.ID, err = eventID(record)
	}
	if err == nil && string(record.Key) != e.Key {
		err = fmt.Errorf("key: %q is not %q", clip(string(record.Key), 64), e.Key)
	}
	if err != nil {
		return OrderEvent{}, &PoisonError{Reason: ReasonInvalid, Err: err}
	}
	e.Trace = traceOf(record)
	return e, nil
}

// event checks the members one by one.
func (r *orderEventRecord) event() (OrderEvent, error) {
	e := OrderEvent{Type: r.Type, ItemID: r.ItemID, Quantity: r.Quantity}
	if r.ItemID < 1 || r.ItemID > sale.MaxID {
		return e, fmt.Errorf("itemId: %d is not between 1 and %d", r.ItemID, sale.MaxID)
	}
	if r.Quantity < 1 || r.Quantity > sale.MaxQuantity {
		return e, fmt.Errorf("quantity: %d is not between 1 and %d", r.Quantity, sale.MaxQuantity)
	}
	var err error
	if e.At, err = parseTime(r.At); err != nil {
		return e, fmt.Errorf("at: %w", err)
	}
	if r.Type == StockIncreased {
		err = r.increase(&e)
	} else {
		err = r.order(&e)
	}
	return e, err
}

func (r *orderEventRecord) order(e *OrderEvent) error {
	status, ok := statusOf[r.Type]
	if !ok {
		return fmt.Errorf("type: %q is not known here", clip(r.Type, 64))
	}
	id, err := sale.ParseOrderID(r.OrderID)
	if err != nil {
		return fmt.Errorf("orderId: %w", err)
	}
	if item, ok := id.Item(); !ok || item != r.ItemID {
		return fmt.Errorf("orderId: %s is not the id of an order of item %d", id, r.ItemID)
	}
	if err := sale.CheckUser(r.UserID); err != nil {
		return fmt.Errorf("userId: %w", err)
	}
	switch got := sale.OrderStatus(r.Status); {
	case status == "" && got != sale.Paid && got != sale.Expired && got != sale.Cancelled && got != sale.Rejected,
		status != "" && got != status:
		return fmt.Errorf("status: %q is not that of an order after %s", clip(r.Status, 64), r.Type)
	}
	e.Key, e.OrderID, e.UserID, e.Status = id.String(), id, r.UserID, r.Status
	return nil
}

func (r *orderEventRecord) increase(e *OrderEvent) error {
	operation, err := uuid.Parse(r.OperationID)
	if err != nil || operation.String() != r.OperationID {
		return fmt.Errorf("operationId: %q is not a UUID in lower case", clip(r.OperationID, 64))
	}
	if r.Delta < 1 || r.Delta > r.Quantity {
		return fmt.Errorf("delta: %d is not between 1 and the quantity of %d", r.Delta, r.Quantity)
	}
	e.Key, e.OperationID, e.Delta = "item:"+strconv.FormatInt(r.ItemID, 10), r.OperationID, r.Delta
	return nil
}

// eventID reads the header without which a consumer could not tell a repetition.
func eventID(record *kgo.Record) (int64, error) {
	for _, header := range record.Headers {
		if header.Key != headerID {
			continue
		}
		id, err := strconv.ParseInt(string(header.Value), 10, 64)
		if err != nil || id < 1 || strconv.FormatInt(id, 10) != string(header.Value) {
			return 0, fmt.Errorf("header %s: %q is not a decimal above 0", headerID, clip(string(header.Value), 64))
		}
		return id, nil
	}
	return 0, errors.New("header " + headerID + ": is missing")
}
