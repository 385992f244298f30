package admin

import (
	"time"

	"flashgate/internal/sale"
)

// OrderView is an order as support sees it. Null is what has not happened, or what it does not have.
type OrderView struct {
	OrderID      string  `json:"orderId"`
	ItemID       int64   `json:"itemId"`
	UserID       string  `json:"userId"`
	Quantity     int64   `json:"quantity"`
	Price        string  `json:"price"` // per unit
	Currency     string  `json:"currency"`
	Status       string  `json:"status"`
	Payable      bool    `json:"payable"`    // its buyer can pay now
	RefundDue    bool    `json:"refundDue"`  // money has come in that it does not need
	RefundsDue   int64   `json:"refundsDue"` // payments that have to be paid back
	Shard        int     `json:"shard"`
	Epoch        int64   `json:"epoch"`
	ReservedAt   Time    `json:"reservedAt"`
	CreatedAt    *Time   `json:"createdAt"`
	ExpiresAt    *Time   `json:"expiresAt"`
	PaidAt       *Time   `json:"paidAt"`
	EndedAt      *Time   `json:"endedAt"`
	RefundedAt   *Time   `json:"refundedAt"`
	RejectReason *string `json:"rejectReason"`
	Trace        *string `json:"trace"` // W3C traceparent of the purchase
	InDatabase   bool    `json:"inDatabase"`
}

// OrderDetailView is an order with what the payment provider has said about it.
type OrderDetailView struct {
	OrderView
	Payments []PaymentView `json:"payments"`
}

// PaymentView is one message of the payment provider.
type PaymentView struct {
	EventID    string `json:"eventId"`
	Status     string `json:"status"` // SUCCEEDED or FAILED
	Amount     string `json:"amount"`
	Currency   string `json:"currency"`
	Effect     string `json:"effect"` // what it did to the order: paid, failed, refund_due
	ReceivedAt Time   `json:"receivedAt"`
	RefundedAt *Time  `json:"refundedAt"`
}

// OrdersView is one page of orders.
type OrdersView struct {
	Orders     []OrderView `json:"orders"`
	NextCursor *string     `json:"nextCursor"` // null: that was the last page
}

func viewOrder(o *sale.Order, now time.Time) OrderView {
	return OrderView{
		OrderID: o.ID.String(), ItemID: o.ItemID, UserID: o.UserID, Quantity: o.Quantity, Price: string(o.Price), Currency: o.Currency,
		Status: string(o.Status), RefundDue: o.RefundDue(), RefundsDue: o.RefundsDue, Shard: o.Shard, Epoch: o.Epoch,
		// Past its time an order cannot be paid, though the sweep may not have ended it yet.
		Payable:    o.Status == sale.Pending && now.Before(o.ExpiresAt),
		ReservedAt: Time{o.ReservedAt}, CreatedAt: happened(o.CreatedAt), ExpiresAt: happened(o.ExpiresAt), PaidAt: happened(o.PaidAt),
		EndedAt: happened(o.EndedAt), RefundedAt: happened(o.RefundedAt), RejectReason: nonEmpty(o.RejectReason), Trace: nonEmpty(o.Trace),
		InDatabase: true,
	}
}

func (a *API) viewDetail(o *sale.Order, payments []Payment) OrderDetailView {
	view := OrderDetailView{OrderView: viewOrder(o, a.cfg.Now()), Payments: make([]PaymentView, 0, len(payments))}
	for _, p := range payments {
		status := "FAILED"
		if p.Succeeded {
			status = "SUCCEEDED"
		}
		view.Payments = append(view.Payments, PaymentView{
			EventID: p.EventID, Status: status, Amount: string(p.Amount), Currency: p.Currency, Effect: p.Effect, ReceivedAt: Time{p.ReceivedAt},
			RefundedAt: happened(p.RefundedAt),
		})
	}
	return view
}

// viewReservation shows a reservation that is not in the database: nobody can pay for it yet, and its time to do so has not begun.
func viewReservation(e *sale.Event) OrderDetailView {
	return OrderDetailView{
		OrderView: OrderView{
			OrderID: e.OrderID.String(), ItemID: e.ItemID, UserID: e.UserID, Quantity: e.Quantity, Price: string(e.Price), Currency: e.Currency,
			Status: string(sale.Pending), Shard: e.Shard, Epoch: e.Epoch, ReservedAt: Time{e.ReservedAt}, Trace: nonEmpty(e.Trace),
		},
		Payments: []PaymentView{},
	}
}

// happened is a time, or nil for one that has not come.
func happened(t time.Time) *Time {
	if t.IsZero() {
		return nil
	}
	return &Time{t}
}

// nonEmpty is a text, or nil for none.
func nonEmpty(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
