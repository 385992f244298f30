package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"flashgate/internal/admin"
	"flashgate/internal/ops"
)

// saleCommands are the commands about sales.
type saleCommands struct {
	Create saleCreateCommand `cmd:"" help:"Create a sale from a JSON file."`
	Show   saleShowCommand   `cmd:"" help:"Show a sale with its items."`
	List   saleListCommand   `cmd:"" help:"List sales in the order of their ids."`
	Update saleUpdateCommand `cmd:"" help:"Pause, resume, end, extend, rename a sale, or move its start before it began."`
}

// saleCreateCommand creates a sale and loads its stock.
type saleCreateCommand struct {
	File string `name:"file" short:"f" required:"" placeholder:"FILE" help:"JSON of the sale; - for the standard input"`
	adminCall
}

// Run implements the command.
func (c *saleCreateCommand) Run(ctx context.Context, std *console) error {
	data, err := readInput(std, c.File)
	if err != nil {
		return err
	}
	return ask(&c.adminCall, std, func(client *admin.Client) (admin.Answer[admin.CreatedView], error) {
		answer, err := client.CreateSale(ctx, data)
		if err == nil && answer.Value.Pending {
			_, _ = fmt.Fprintln(std.err, "flashgate: "+shown(answer.Value.Message))
		}
		return answer, err
	}, func(w io.Writer, v admin.CreatedView) { saleTable(w, v.SaleView) })
}

// saleShowCommand shows a sale.
type saleShowCommand struct {
	ID id `arg:"" help:"Sale"`
	adminCall
}

// Run implements the command.
func (c *saleShowCommand) Run(ctx context.Context, std *console) error {
	return ask(&c.adminCall, std, func(client *admin.Client) (admin.Answer[admin.SaleView], error) {
		return client.Sale(ctx, int64(c.ID))
	}, saleTable)
}

func saleTable(w io.Writer, v admin.SaleView) {
	row(w, "sale", v.ID)
	row(w, "name", shown(v.Name))
	row(w, "starts", instant(v.StartsAt))
	row(w, "ends", instant(v.EndsAt))
	row(w, "paused", yesNo(v.Paused))
	row(w, "purchase limit", shown(v.PurchaseLimit))
	row(w, "payment window", shown(v.PaymentWindow))
	row(w, "time zone", shown(v.TimeZone))
	row(w)
	row(w, "ITEM", "SKU", "QUANTITY", "SOLD", "PRICE", "SHARDS", "PER USER", "MODEL", "PAUSED", "RETIRED")
	for _, it := range v.Items {
		row(w, it.ID, shown(it.SKU), it.Quantity, it.Sold, shown(it.Price+" "+it.Currency), it.Shards, it.MaxPerUser, shown(it.StockModel), yesNo(it.Paused), yesNo(it.Retired))
	}
}

// saleListCommand lists sales.
type saleListCommand struct {
	page
	adminCall
}

// Run implements the command.
func (c *saleListCommand) Run(ctx context.Context, std *console) error {
	return ask(&c.adminCall, std, func(client *admin.Client) (admin.Answer[admin.SalesView], error) {
		return client.Sales(ctx, c.Limit, c.Cursor)
	}, func(w io.Writer, v admin.SalesView) {
		row(w, "SALE", "NAME", "STARTS", "ENDS", "PAUSED", "ITEMS")
		for _, s := range v.Sales {
			row(w, s.ID, shown(s.Name), instant(s.StartsAt), instant(s.EndsAt), yesNo(s.Paused), len(s.Items))
		}
		more(w, v.NextCursor)
	})
}

// saleUpdateCommand changes a sale.
type saleUpdateCommand struct {
	ID       id      `arg:"" help:"Sale"`
	Name     *string `name:"name" placeholder:"TEXT" help:"New name"`
	StartsAt *string `name:"starts-at" placeholder:"TIME" help:"New start, RFC 3339 with offset; only before the sale began"`
	EndsAt   *string `name:"ends-at" placeholder:"TIME" xor:"end" help:"New end, RFC 3339 with offset, or now"`
	End      bool    `name:"end" xor:"end" help:"End the sale now. One that has not begun cannot end: pause it, or move its start as well (--starts-at)"`
	switches
	adminCall
}

// Run implements the command.
func (c *saleUpdateCommand) Run(ctx context.Context, std *console) error {
	patch := admin.SalePatch{Name: c.Name, StartsAt: c.StartsAt, EndsAt: c.EndsAt, Paused: c.paused()}
	if c.End {
		now := admin.EndsNow // by the clock of the gateway, which sells by it: that of this machine may be another
		patch.EndsAt = &now
	}
	if patch == (admin.SalePatch{}) {
		return errNothingToChange
	}
	err := ask(&c.adminCall, std, func(client *admin.Client) (admin.Answer[admin.SaleView], error) {
		return client.UpdateSale(ctx, int64(c.ID), patch)
	}, saleTable)
	var refusal *admin.Refusal
	if c.End && c.StartsAt == nil && errors.As(err, &refusal) && refusal.Code == ops.CodeBadRequest && strings.HasPrefix(refusal.Message, "endsAt:") {
		// The one thing that can be wrong with an end that the gateway takes from its own clock.
		return fmt.Errorf("sale %d has not begun, so that it cannot end now: pause it with --pause, or move its start as well with --starts-at: %w", c.ID, err)
	}
	return err
}

// switches pause and resume.
type switches struct {
	Pause  bool `name:"pause" xor:"pause" help:"Sell nothing until it is resumed"`
	Resume bool `name:"resume" xor:"pause" help:"Sell again"`
}

func (s switches) paused() *bool {
	if !s.Pause && !s.Resume {
		return nil
	}
	return &s.Pause
}

const errNothingToChange = usageError("nothing to change")

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}
