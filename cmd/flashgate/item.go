package main

import (
	"context"
	"fmt"
	"io"

	"flashgate/internal/admin"
)

// itemCommands are the commands about items.
type itemCommands struct {
	Show    itemShowCommand    `cmd:"" help:"Show the numbers of an item in the database and in Redis."`
	Restock itemRestockCommand `cmd:"" help:"Add units to an item."`
	Update  itemUpdateCommand  `cmd:"" help:"Pause, resume or re-price an item, or change what one order may hold."`
	Reload  itemReloadCommand  `cmd:"" help:"Load the stock of an item anew from the database."`
}

// itemShowCommand shows an item.
type itemShowCommand struct {
	ID id `arg:"" help:"Item"`
	adminCall
}

// Run implements the command.
func (c *itemShowCommand) Run(ctx context.Context, std *console) error {
	return ask(&c.adminCall, std, func(client *admin.Client) (admin.Answer[admin.ItemView], error) {
		return client.Item(ctx, int64(c.ID))
	}, itemTable)
}

func itemTable(w io.Writer, v admin.ItemView) {
	row(w, "item", v.ID)
	row(w, "sale", v.SaleID)
	row(w, "price", shown(v.Price+" "+v.Currency))
	row(w, "per user", v.MaxPerUser)
	row(w, "paused", yesNo(v.Paused))
	row(w, "retired", yesNo(v.Retired))
	row(w, "quantity", v.Quantity)
	row(w, "sold", v.Sold)
	row(w, "available", number(v.Available))
	row(w, "pending", number(v.Pending))
	row(w, "in transfer", number(v.InTransfer))
	row(w, "drift", number(v.Drift))
	row(w, "epoch", v.Epoch)
	soldOut := "unknown"
	if v.SoldOut != nil {
		soldOut = yesNo(*v.SoldOut)
	}
	row(w, "sold out", soldOut)
	row(w)
	row(w, "SHARD", "STOCK", "BUYERS", "PENDING")
	for _, s := range v.Shards {
		row(w, s.Shard, number(s.Stock), number(s.Buyers), number(s.Pending))
	}
}

// itemRestockCommand adds units to an item.
type itemRestockCommand struct {
	ID    id     `arg:"" help:"Item"`
	Units int64  `arg:"" min:"1" max:"9007199254740991" type:"count" help:"Units to add"`
	Key   string `name:"idempotency-key" placeholder:"KEY" help:"Add the units once, however often the command is run with this key"`
	adminCall
}

// Run implements the command.
func (c *itemRestockCommand) Run(ctx context.Context, std *console) error {
	return ask(&c.adminCall, std, func(client *admin.Client) (admin.Answer[admin.RestockView], error) {
		return client.Restock(ctx, int64(c.ID), c.Units, c.Key)
	}, func(w io.Writer, v admin.RestockView) {
		_, _ = fmt.Fprintf(w, "item %d has %d units, available: %s\n", v.ItemID, v.Quantity, number(v.Available))
	})
}

// itemUpdateCommand changes an item.
type itemUpdateCommand struct {
	ID         id      `arg:"" help:"Item"`
	Price      *string `name:"price" placeholder:"DECIMAL" help:"New price; an order keeps the one that was shown when it was reserved"`
	MaxPerUser *int64  `name:"max-per-user" placeholder:"N" help:"Units that one order may hold"`
	Quantity   *int64  `name:"quantity" placeholder:"N" help:"New quantity; a larger one is a restock"`
	switches
	adminCall
}

// Run implements the command.
func (c *itemUpdateCommand) Run(ctx context.Context, std *console) error {
	patch := admin.ItemPatch{Price: c.Price, MaxPerUser: c.MaxPerUser, Quantity: c.Quantity, Paused: c.paused()}
	if patch == (admin.ItemPatch{}) {
		return errNothingToChange
	}
	return ask(&c.adminCall, std, func(client *admin.Client) (admin.Answer[admin.ItemView], error) {
		return client.UpdateItem(ctx, int64(c.ID), patch)
	}, itemTable)
}

// itemReloadCommand loads an item.
type itemReloadCommand struct {
	ID id `arg:"" help:"Item"`
	adminCall
}

// Run implements the command.
func (c *itemReloadCommand) Run(ctx context.Context, std *console) error {
	return ask(&c.adminCall, std, func(client *admin.Client) (admin.Answer[admin.ReloadView], error) {
		return client.Reload(ctx, int64(c.ID))
	}, func(w io.Writer, v admin.ReloadView) {
		if v.Item == nil {
			row(w, shown(v.Pending.Message))
			return
		}
		itemTable(w, *v.Item)
	})
}
