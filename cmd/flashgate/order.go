package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"flashgate/internal/admin"
	"flashgate/internal/sale"
)

// orderCommands are the commands about orders.
type orderCommands struct {
	Show     orderShowCommand     `cmd:"" help:"Show what became of an order, with what the payment provider said."`
	List     orderListCommand     `cmd:"" help:"List orders, newest first."`
	Refunded orderRefundedCommand `cmd:"" help:"Mark payments of an order as paid back: those that are due, or some of them."`
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

// orderRefundedCommand marks payments as paid back.
type orderRefundedCommand struct {
	ID     sale.OrderID `arg:"" help:"Order"`
	Events []string     `name:"event" sep:"none" placeholder:"ID" help:"Only this payment, by its event; may be repeated. Default every payment that is due when the command starts"`
	adminCall
}

// Run implements the command. It says which payments it marks and marks no other: one that comes in meanwhile stays due.
func (c *orderRefundedCommand) Run(ctx context.Context, std *console) error {
	return ask(&c.adminCall, std, func(client *admin.Client) (admin.Answer[admin.OrderDetailView], error) {
		order, err := client.Order(ctx, c.ID)
		if err != nil {
			return order, err
		}
		events := c.Events
		if len(events) == 0 {
			events = toPayBack(order.Value.Payments)
		}
		if len(events) == 0 {
			return order, c.nothingToName(std, order.Value)
		}
		announceRefund(std.err, order.Value, events)
		after, err := client.Refunded(ctx, c.ID, admin.RefundInput{EventIDs: events})
		if err == nil {
			_, _ = fmt.Fprintf(std.err, "flashgate: marked; still due: %d\n", after.Value.RefundsDue)
		}
		return after, err
	}, orderTable)
}

// toPayBack are the events of payments that have to be paid back.
func toPayBack(payments []admin.PaymentView) (events []string) {
	for _, p := range payments {
		if p.Effect == "refund_due" && p.RefundedAt == nil {
			events = append(events, p.EventID)
		}
	}
	return events
}

// nothingToName says why no payment is marked; an error unless all that ever was due is marked already.
func (c *orderRefundedCommand) nothingToName(std *console, v admin.OrderDetailView) error {
	switch {
	case v.RefundsDue > 0:
		return fmt.Errorf("mark the refunds of order %s: %d due, of no payment on record, as from before payments were recorded: if all that is due is paid back, "+
			"mark it by POST /admin/orders/%s/refunded without a body", c.ID, v.RefundsDue, c.ID)
	case v.RefundedAt == nil:
		return fmt.Errorf("mark the refunds of order %s: none is due", c.ID)
	}
	_, _ = fmt.Fprintf(std.err, "flashgate: nothing is due for order %s any more\n", c.ID)
	return nil
}

// announceRefund says which payments are about to be marked.
func announceRefund(w io.Writer, v admin.OrderDetailView, events []string) {
	_, _ = fmt.Fprintf(w, "flashgate: marks as paid back for order %s:\n", shown(v.OrderID))
	for _, event := range events {
		at := slices.IndexFunc(v.Payments, func(p admin.PaymentView) bool { return p.EventID == event })
		if at < 0 {
			_, _ = fmt.Fprintf(w, "flashgate: payment %s, which the order did not have a moment ago\n", shown(event))
			continue
		}
		p := v.Payments[at]
		_, _ = fmt.Fprintf(w, "flashgate: payment %s, %s, of %s\n", shown(p.EventID), shown(p.Amount+" "+p.Currency), instant(p.ReceivedAt))
	}
}
