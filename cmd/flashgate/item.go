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
	Update  itemUpdateCommand  `cmd:"" help:"Pause, resume or re-price an item, or change its quantity, its shards, or what one order may hold."`
	Reload  itemReloadCommand  `cmd:"" help:"Load the stock of an item anew from the database."`

	Reconcile itemReconcileCommand `cmd:"" help:"Compare what Redis holds of an item with the database, and name the orders behind a difference."`
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
	Quantity   *int64  `name:"quantity" placeholder:"N" help:"New quantity; a larger one is a restock, a smaller one takes a load and is refused below what is sold"`
	Shards     *int64  `name:"shards" placeholder:"N" help:"Shards of the stock in Redis, 1 to 256; takes a load"`
	switches
	adminCall
}

// Run implements the command.
func (c *itemUpdateCommand) Run(ctx context.Context, std *console) error {
	patch := admin.ItemPatch{Shards: c.Shards, Price: c.Price, MaxPerUser: c.MaxPerUser, Quantity: c.Quantity, Paused: c.paused()}
	if patch == (admin.ItemPatch{}) {
		return errNothingToChange
	}
	return ask(&c.adminCall, std, func(client *admin.Client) (admin.Answer[admin.ReloadView], error) {
		return client.UpdateItem(ctx, int64(c.ID), patch)
	}, itemOrPending)
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
	}, itemOrPending)
}

func itemOrPending(w io.Writer, v admin.ReloadView) {
	if v.Item == nil {
		row(w, shown(v.Pending.Message))
		return
	}
	itemTable(w, *v.Item)
}

// itemReconcileCommand compares an item.
type itemReconcileCommand struct {
	ID  id   `arg:"" help:"Item"`
	Fix bool `name:"fix" help:"If something is wrong, load the stock anew from the database; the item sells nothing for a moment"`
	adminCall
}

// Run implements the command.
func (c *itemReconcileCommand) Run(ctx context.Context, std *console) error {
	return ask(&c.adminCall, std, func(client *admin.Client) (admin.Answer[admin.ReconcileView], error) {
		return client.Reconcile(ctx, int64(c.ID), c.Fix)
	}, reconcileTable)
}

// concernedBecause says in words why an order is named.
var concernedBecause = map[string]string{
	"mark_missing": "is live in the database, and Redis does not know its buyer",
	"mark_differs": "is live in the database, and Redis has another order or quantity of its buyer",
	"mark_left":    "has ended in the database, and Redis still holds its units",
	"event_lost":   "is reserved in Redis alone, and its event is nowhere",
}

func reconcileTable(w io.Writer, v admin.ReconcileView) {
	if v.Found == nil {
		row(w, shown(v.Pending.Message))
		return
	}
	f := v.Found
	reserved := "unknown"
	if f.Pending != nil {
		reserved = fmt.Sprint(f.Sold + *f.Pending)
	}
	row(w, "item", f.ID)
	row(w, "quantity", f.Quantity)
	row(w, "sold", f.Sold)
	row(w, "free", number(f.Available))
	row(w, "reserved", reserved)
	row(w, "in flight", number(f.Pending))
	row(w, "in transfer", number(f.InTransfer))
	row(w, "drift", number(f.Drift))
	row(w, "fixed", yesNo(f.Fixed))
	if f.Undecided {
		row(w, "of some reservations in flight it is not known whether their events still come: Kafka does not answer, or the order writers lag behind")
	}
	if len(f.Orders) == 0 {
		return
	}
	row(w)
	row(w, "ORDER", "UNITS", "WHY")
	for _, o := range f.Orders {
		why, ok := concernedBecause[o.Reason]
		if !ok {
			why = shown(o.Reason)
		}
		row(w, shown(o.OrderID), o.Quantity, why)
	}
	if more := f.Concerned - len(f.Orders); more > 0 {
		row(w, fmt.Sprintf("and %d more", more))
	}
}
