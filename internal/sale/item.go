package sale

import "time"

// MaxQuantity is the largest stock of one item: 2^53-1, the largest integer that Redis' Lua computes exactly.
const MaxQuantity int64 = 1<<53 - 1

// MaxShards bounds the number of shards of one item. Proving an item empty reads every shard, so more would cost more than they bring.
const MaxShards = 256

// StockModel says how the units of an item are counted.
type StockModel string

// The stock models.
const (
	Counter StockModel = "counter" // a number, sharded over Redis
	Lots    StockModel = "lots"    // lots with expiry dates
	Direct  StockModel = "direct"  // PostgreSQL alone
)

// PurchaseLimit says over what a user may have one live order.
type PurchaseLimit string

// The purchase limits.
const (
	PerItem PurchaseLimit = "per_item"
	PerSale PurchaseLimit = "per_sale"
)

// Sale is a time window in which items are sold.
type Sale struct {
	ID            int64
	Name          string
	StartsAt      time.Time // inclusive
	EndsAt        time.Time // exclusive
	Paused        bool
	PurchaseLimit PurchaseLimit
	PaymentWindow time.Duration // from the moment an order is in the database until it expires unpaid
	TimeZone      string        // IANA name; decides the dates of lots, nothing else
	Items         []Item
}

// Item is what is sold in a sale, with as much of its sale as the gateway needs for an answer. Values are copies: changing one changes nothing else.
type Item struct {
	ID         int64
	SaleID     int64
	ProductID  int64
	SKU        string
	Quantity   int64 // units ever offered: initial stock and restocks
	Sold       int64 // units of live orders in the database
	Price      Price
	Currency   string
	Shards     int   // k of the loaded layout
	MaxPerUser int64 // units one order may hold
	Model      StockModel
	Epoch      int64 // of the last load; 0: never loaded
	Claim      int64 // the newest claim to load; above Epoch while a load is under way
	Paused     bool  // the item's own pause
	RetiredAt  time.Time

	// Of the sale.
	StartsAt      time.Time
	EndsAt        time.Time
	SalePaused    bool
	PurchaseLimit PurchaseLimit
	PaymentWindow time.Duration
}

// Status is the state of an item as a shopper sees it.
type Status string

// The states of an item, in the order in which they are decided; SoldOut is the gateway's to say, which has the flag.
const (
	Upcoming Status = "UPCOMING"
	Paused   Status = "PAUSED"
	Ended    Status = "ENDED"
	SoldOut  Status = "SOLD_OUT"
	OnSale   Status = "ON_SALE"
)

// StatusAt returns the state of the item at the instant now, without regard to stock. The start belongs to the sale, the end does not. A retired item has ended.
func (it *Item) StatusAt(now time.Time) Status {
	switch {
	case !it.RetiredAt.IsZero():
		return Ended
	case now.Before(it.StartsAt):
		return Upcoming
	case it.Paused || it.SalePaused:
		return Paused
	case !now.Before(it.EndsAt):
		return Ended
	}
	return OnSale
}

// LimitKey returns the scope within which a user may have one live order, as the database stores it.
func (it *Item) LimitKey() string {
	if it.PurchaseLimit == PerSale {
		return "sale:" + itoa(it.SaleID)
	}
	return "item:" + itoa(it.ID)
}
