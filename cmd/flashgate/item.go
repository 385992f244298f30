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
	ID    id      `arg:"" help:"Item"`
	Units int64   `arg:"" min:"1" max:"9007199254740991" type:"count" help:"Units to add"`
	Key   *string `name:"idempotency-key" placeholder:"KEY" help:"Add the units once, however often the command is run with this key"`
	adminCall
}

// Run implements the command.
func (c *itemRestockCommand) Run(ctx context.Context, std *console) error {
	key := ""
	if c.Key != nil {
		if key = *c.Key; key == "" {
			return usageError("--idempotency-key is empty, and would protect nothing: name a key, or leave the flag out")
		}
	}
	return ask(&c.adminCall, std, func(client *admin.Client) (admin.Answer[admin.RestockView], error) {
		return client.Restock(ctx, int64(c.ID), c.Units, key)
	}, func(w io.Writer, v admin.RestockView) {
		_, _ = fmt.Fprintf(w, "item %d has %d units, available: %s\n", v.ItemID, v.Quantity, number(v.Available))
	})
}

// itemUpdateCommand changes an item.
type itemUpdateCommand struct {
	ID         id      `arg:"" help:"Item"`
	Price      *string `name:"price" placeholder:"DECIMAL" help:"New price; an order keeps the one that was shown when it was reserved"`
	MaxPerUser *int64  `name:"max-per-user" min:"1" max:"10000" type:"count" placeholder:"N" help:"Units that one order may hold, 1 to 10000"`
	Quantity   *int64  `name:"quantity" min:"0" max:"9007199254740991" type:"count" placeholder:"N" help:"New quantity; a larger one is a restock, a smaller one takes a load and is refused below what is sold"`
	Shards     *int64  `name:"shards" min:"1" max:"256" type:"count" placeholder:"N" help:"Shards of the stock in Redis, 1 to 256; takes a load"`
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
	ID    id   `arg:"" help:"Item"`
	Fix   bool `name:"fix" help:"If something is wrong, load the stock anew from the database; the item sells nothing for a moment"`
	Check bool `name:"check" help:"End with status 1 unless it is known that all adds up: on a drift, on orders that are named, and where the drift is unknown"`
	adminCall
}

// Help implements kong.HelpProvider.
func (*itemReconcileCommand) Help() string {
	return `sold: units of live orders in the database. free: units in Redis that can be bought ("available" of item show). reserved: units that Redis holds for a
buyer and that are not in sold ("pending" of item show); in flight are those of them that are on their way into the database, or back, and not those of orders
named below as lost or left over. in transfer: units on their way between shards, or of a restock. Every unit counts once, so that

    drift = quantity - sold - free - reserved - in transfer

is 0 however much is in flight; above 0 units are missing from Redis, below 0 there are too many.`
}

// Run implements the command.
func (c *itemReconcileCommand) Run(ctx context.Context, std *console) error {
	var got admin.ReconcileView
	err := ask(&c.adminCall, std, func(client *admin.Client) (admin.Answer[admin.ReconcileView], error) {
		answer, err := client.Reconcile(ctx, int64(c.ID), c.Fix)
		got = answer.Value
		return answer, err
	}, reconcileTable)
	if err != nil || !c.Check {
		return err
	}
	return addsUp(int64(c.ID), got.Found)
}

// addsUp is the error of --check: nil only where it is known that nothing is wrong with an item.
func addsUp(item int64, f *admin.ReconciledView) error {
	switch {
	case f == nil:
		return fmt.Errorf("item %d is being loaded; whether it adds up is not known yet", item)
	case f.Drift == nil && f.Unknown != nil:
		return fmt.Errorf("it is unknown whether item %d adds up: %s", item, shown(*f.Unknown))
	case f.Drift == nil:
		return fmt.Errorf("it is unknown whether item %d adds up", item)
	case *f.Drift != 0 || f.Concerned > 0:
		return fmt.Errorf("item %d does not add up: drift %d, orders concerned: %d", item, *f.Drift, f.Concerned)
	case f.Undecided:
		return fmt.Errorf("it is unknown whether item %d adds up: of some reservations in flight it is not known whether their events still come", item)
	}
	return nil
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
	row(w, "item", f.ID)
	row(w, "quantity", f.Quantity)
	row(w, "sold", f.Sold)
	row(w, "free", number(f.Free))
	row(w, "reserved", number(f.Reserved))
	row(w, "in flight", number(f.InFlight))
	row(w, "in transfer", number(f.InTransfer))
	row(w, "drift", number(f.Drift))
	row(w, "fixed", yesNo(f.Fixed))
	if f.Drift == nil && f.Unknown != nil {
		row(w, "unknown because", shown(*f.Unknown))
	}
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
