package main

import (
	"context"
	"fmt"
	"io"

	"flashgate/internal/admin"
	"flashgate/internal/sale"
)

// orderCommands are the commands about orders.
type orderCommands struct {
	Show     orderShowCommand     `cmd:"" help:"Show what became of an order, with what the payment provider said."`
	List     orderListCommand     `cmd:"" help:"List orders, newest first."`
	Refunded orderRefundedCommand `cmd:"" help:"Mark what was due for an order as paid back."`
}

// orderShowCommand answers "what happened to my order?".
type orderShowCommand struct {
	ID sale.OrderID `arg:"" help:"Order"`
	adminCall
}

// Run implements the command.
func (c *orderShowCommand) Run(ctx context.Context, std *console) error {
	return ask(&c.adminCall, std, func(client *admin.Client) (admin.Answer[admin.OrderDetailView], error) {
		return client.Order(ctx, c.ID)
	}, orderTable)
}

func orderTable(w io.Writer, v admin.OrderDetailView) {
	row(w, "order", shown(v.OrderID))
	row(w, "item", v.ItemID)
	row(w, "user", shown(v.UserID))
	row(w, "quantity", v.Quantity)
	row(w, "price", shown(v.Price+" "+v.Currency))
	row(w, "status", shown(v.Status))
	row(w, "payable", yesNo(v.Payable))
	row(w, "refunds due", v.RefundsDue)
	row(w, "in database", yesNo(v.InDatabase))
	row(w, "reserved", instant(v.ReservedAt))
	for _, at := range []struct {
		name string
		time *admin.Time
	}{{"written", v.CreatedAt}, {"expires", v.ExpiresAt}, {"paid", v.PaidAt}, {"ended", v.EndedAt}, {"refunded", v.RefundedAt}} {
		if at.time != nil {
			row(w, at.name, instant(*at.time))
		}
	}
	if v.RejectReason != nil {
		row(w, "rejected", shown(*v.RejectReason))
	}
	row(w, "shard, epoch", v.Shard, v.Epoch)
	if v.Trace != nil {
		row(w, "trace", shown(*v.Trace))
	}
	if len(v.Payments) == 0 {
		return
	}
	row(w)
	row(w, "PAYMENT", "STATUS", "AMOUNT", "EFFECT", "RECEIVED", "REFUNDED")
	for _, p := range v.Payments {
		refunded := "-"
		if p.RefundedAt != nil {
			refunded = instant(*p.RefundedAt)
		}
		row(w, shown(p.EventID), shown(p.Status), shown(p.Amount+" "+p.Currency), shown(p.Effect), instant(p.ReceivedAt), refunded)
	}
}

// orderListCommand lists orders.
type orderListCommand struct {
	Item   id     `name:"item" placeholder:"ID" help:"Only of this item"`
	Status string `name:"status" placeholder:"STATUS" help:"Only PENDING, PAID, EXPIRED, CANCELLED, REJECTED or REFUND_DUE"`
	page
	adminCall
}

// Run implements the command.
func (c *orderListCommand) Run(ctx context.Context, std *console) error {
	return ask(&c.adminCall, std, func(client *admin.Client) (admin.Answer[admin.OrdersView], error) {
		return client.Orders(ctx, admin.OrderQuery{Item: int64(c.Item), Status: c.Status}, c.Limit, c.Cursor)
	}, func(w io.Writer, v admin.OrdersView) {
		row(w, "ORDER", "ITEM", "USER", "QUANTITY", "PRICE", "STATUS", "REFUNDS DUE", "RESERVED")
		for _, o := range v.Orders {
			row(w, shown(o.OrderID), o.ItemID, shown(o.UserID), o.Quantity, shown(o.Price+" "+o.Currency), shown(o.Status), o.RefundsDue, instant(o.ReservedAt))
		}
		more(w, v.NextCursor)
	})
}

// orderRefundedCommand marks refunds.
type orderRefundedCommand struct {
	ID   sale.OrderID `arg:"" help:"Order"`
	Seen *int64       `name:"refunds-due" placeholder:"N" help:"Mark only if so many are due, as order show has it. Default what is due when the command starts"`
	adminCall
}

// Run implements the command. It says what it is about to mark, and marks nothing else: a payment that comes in meanwhile is refused with it.
func (c *orderRefundedCommand) Run(ctx context.Context, std *console) error {
	return ask(&c.adminCall, std, func(client *admin.Client) (admin.Answer[admin.OrderDetailView], error) {
		order, err := client.Order(ctx, c.ID)
		if err != nil {
			return order, err
		}
		seen := c.Seen
		if seen == nil {
			seen = &order.Value.RefundsDue
		}
		announceRefund(std.err, order.Value)
		return client.Refunded(ctx, c.ID, admin.RefundInput{RefundsDue: seen}, "")
	}, orderTable)
}

// announceRefund says what is due for an order, payment by payment.
func announceRefund(w io.Writer, v admin.OrderDetailView) {
	_, _ = fmt.Fprintf(w, "flashgate: refunds due for order %s: %d\n", shown(v.OrderID), v.RefundsDue)
	for _, p := range v.Payments {
		if p.Effect == "refund_due" && p.RefundedAt == nil {
			_, _ = fmt.Fprintf(w, "flashgate: payment %s, %s, of %s\n", shown(p.EventID), shown(p.Amount+" "+p.Currency), instant(p.ReceivedAt))
		}
	}
}
